"""Which heartbeat a host that is up must have sent, while and after compute could not record any."""

from datetime import UTC, datetime, timedelta

from moorage.compute.model.outages import LONGEST_PAUSE, OutageRecord

START = datetime(2026, 3, 1, tzinfo=UTC)
SILENCE = timedelta(seconds=60)


def at(seconds):
    return START + timedelta(seconds=seconds)


def heard_since(record, now):
    """In seconds since `START`."""
    return (record.heard_since(at(now), SILENCE) - START).total_seconds()


def wrote(*moments):
    record = OutageRecord()
    for moment in moments:
        record = record.after_write(at(moment))
    return record


def until(last, *moments):
    """Writes at `moments`, and then every two seconds."""
    return wrote(*moments, *range(moments[-1], last + 1, 2))


def test_without_an_outage_a_host_is_down_after_the_given_silence():
    assert heard_since(OutageRecord(), 1000) == 940
    assert heard_since(wrote(996, 998), 1000) == 940
    assert heard_since(wrote(1000 - LONGEST_PAUSE.total_seconds()), 1000) == 940, "a pause, not an outage"


def test_the_time_of_an_outage_that_goes_on_does_not_count():
    record = wrote(998, 1000)
    assert [heard_since(record, now) for now in (1010, 1100, 5000)] == [940, 940, 940]


def test_the_time_of_an_outage_that_is_over_does_not_count():
    assert heard_since(until(1100, 1000, 1100), 1100) == 940, "nothing has changed at the end of the outage"
    assert heard_since(until(1130, 1000, 1100), 1130) == 970
    assert heard_since(until(1159, 1000, 1100), 1159) == 999
    assert heard_since(until(1160, 1000, 1100), 1160) == 1100, "the host has had a minute in which it could be heard"
    assert heard_since(until(1161, 1000, 1100), 1161) == 1101


def test_several_outages_within_the_silence_all_do_not_count():
    record = until(1210, 1000, 1100, 1104, 1108, 1200)
    assert heard_since(record, 1210) == 1210 - 60 - 92 - 100
    assert heard_since(until(1300, 1000, 1100, 1104, 1108, 1200), 1300) == 1240


def test_after_a_clock_was_set_back_no_time_is_left_out():
    record = until(410, 1000, 1100, 400)
    assert heard_since(record, 411) == 351
    assert record.past == ()
