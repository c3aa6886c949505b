"""A clock is set back or forward, or repeats a second: no lease ends early, starts twice, or waits for a year."""

from datetime import UTC, datetime, timedelta

import pytest

from moorage.core.errors import RemoteError
from tests.plane import Killed
from tests.wire.reservation.plane import class_of, instance, lease
from tests.wire.reservation.processes import ADD_INVENTORY, DELETE_FLAVOR, GRANT

STARTS, ENDS = datetime(2026, 3, 5, 10, tzinfo=UTC), datetime(2026, 3, 6, 10, tzinfo=UTC)
PERIOD = {"start": "2026-03-05 10:00", "end": "2026-03-06 10:00"}
HOUR, YEAR = timedelta(hours=1), timedelta(days=365)
JUMPS = pytest.mark.parametrize("jump", [HOUR, YEAR], ids=["hour", "year"])


@pytest.fixture
def plane(reserved):
    """A plane where leases start and end only when a test calls a runner."""
    reserved.stop_runner()
    return reserved


def set_back(plane, by):
    plane.clock._now -= by  # the methods of a virtual clock only move it forward


def create(plane):
    made = plane.ask("POST", "/v1/leases", lease(instance(2), **PERIOD), status=201)["lease"]
    return made, made["reservations"][0]


def tick(plane, runner, times=4):
    for _ in range(times):
        plane.settle()
        runner.run_once()
        plane.clock.sleep(10)


def status(plane, made):
    return plane.lease(made["id"])["status"]


@JUMPS
def test_a_clock_that_is_set_back_starts_nothing_twice_and_ends_nothing_early(plane, jump):
    made, reservation = create(plane)
    plane.clock.advance_to(STARTS)
    noting = plane.new_process()
    runner = noting.runner
    tick(plane, runner)
    begun = list(noting.asked)
    set_back(plane, jump)
    tick(plane, runner)
    plane.clock.advance_to(STARTS)
    tick(plane, runner)
    assert noting.asked == begun
    assert status(plane, made) == "ACTIVE"
    plane.clock.advance_to(ENDS - timedelta(seconds=1))
    runner.run_once()
    assert status(plane, made) == "ACTIVE"
    plane.clock.advance_to(ENDS)
    tick(plane, runner)
    assert status(plane, made) == "TERMINATED"
    assert not plane.has_class(class_of(reservation))


@JUMPS
def test_a_start_is_retried_in_time_although_the_clock_was_set_back(plane, jump):
    """The expiry of the claim and the time of the next attempt are far in the future after the change."""
    made, _ = create(plane)
    plane.clock.advance_to(STARTS)
    plane.new_process(fails={ADD_INVENTORY: RemoteError("away", status=503)}, times=1).runner.run_once()
    assert status(plane, made) == "STARTING"
    set_back(plane, jump)
    runner = plane.new_process().runner
    tick(plane, runner)
    assert status(plane, made) == "STARTING", "not before its time"
    plane.clock.advance_to(STARTS)
    tick(plane, runner)
    assert status(plane, made) == "ACTIVE"


@JUMPS
def test_an_interrupted_deletion_continues_although_the_clock_was_set_back(plane, jump):
    made, _ = create(plane)
    plane.use(plane.new_process(fails={DELETE_FLAVOR: RemoteError("away", status=503)}, times=1))
    plane.ask("DELETE", f"/v1/leases/{made['id']}", status=204)
    assert status(plane, made) == "DELETING"
    set_back(plane, jump)
    tick(plane, plane.new_process().runner)
    assert plane.ask("GET", "/v1/leases")["leases"] == []


@JUMPS
def test_a_claim_from_before_the_clock_was_set_back_does_not_block_others(plane, jump):
    """The owner of the claim died, and the claim would last until the clock has reached that time again."""
    made, _ = create(plane)
    plane.clock.advance_to(STARTS + 2 * jump)

    def die(_call):
        raise Killed

    plane.clock._now = STARTS + timedelta(minutes=30)
    with pytest.raises(Killed):
        plane.new_process(after=die).runner.run_once()
    plane.clock._now = STARTS + timedelta(minutes=5)
    tick(plane, plane.new_process().runner)
    assert status(plane, made) == "ACTIVE"


@JUMPS
def test_after_a_jump_forward_due_events_run_once_and_in_order(plane, jump):
    made, reservation = create(plane)
    plane.clock.advance_to(STARTS - HOUR)
    noting = plane.new_process()
    runner = noting.runner
    plane.clock.advance_to(STARTS - HOUR + jump)
    tick(plane, runner)
    if jump == HOUR:
        assert status(plane, made) == "ACTIVE"
        set_back(plane, jump)  # corrects the clock
        tick(plane, runner)
        assert noting.asked.count(GRANT) == 1
        assert status(plane, made) == "ACTIVE"
    else:
        assert status(plane, made) == "TERMINATED"
        assert GRANT not in noting.asked, "its time is over: nobody gets in"
        assert not plane.has_class(class_of(reservation))


def test_a_repeated_second_starts_no_lease_twice(plane):
    """A leap second, as clocks without leap seconds show it: 23:59:59 occurs twice."""
    body = lease(instance(2), start="2026-07-01 00:00", end="2026-07-02 00:00")
    made = plane.ask("POST", "/v1/leases", body, status=201)["lease"]
    midnight = datetime(2026, 7, 1, tzinfo=UTC)
    noting = plane.new_process()
    runner = noting.runner
    for moment in (-0.5, 0.2, -0.6, -0.1, 0.0, 0.4):
        plane.clock._now = midnight + timedelta(seconds=moment)
        runner.run_once()
        assert status(plane, made) == ("PENDING" if not noting.calls else "ACTIVE")
    assert noting.asked.count(GRANT) == 1


@pytest.mark.parametrize(
    "text",
    [
        "2026-03-29 02:30+01:00", "2026-03-29 02:30 +0100", "2026-03-29T02:30Z", "2026-03-29T02:30:00+02:00",
        "2026-03-29 02:30 CET", "2026-03-29 02:30 Europe/Berlin", "2026-10-25 02:30 CEST", "2026-03-29 02:30Z",
        "2026-06-30 23:59:60", "2026-06-30 23:60", "2026-06-30 24:00", "2026-02-29 10:00", "1774751400",
    ],
)  # fmt: skip
def test_a_date_with_a_zone_or_a_second_too_many_is_refused_with_the_form(shared, text):
    """Dates must be in UTC and in the documented format; the service accepts no other format."""
    refused = shared.ask("POST", "/v1/leases", lease(instance(2), start=text, end="2027-01-01 00:00"), status=400)
    assert refused["error_message"] == f"{text} is an invalid date. Required format: %Y-%m-%d %H:%M"


@pytest.mark.parametrize("night", ["2026-03-29", "2026-10-25"], ids=["spring", "autumn"])
def test_days_with_a_daylight_saving_change_have_24_hours(plane, night, monkeypatch):
    """The time zone of the machine has no effect."""
    import time

    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        body = lease(instance(2), start=f"{night} 00:30", end=f"{night} 03:30")
        made = plane.ask("POST", "/v1/leases", body, status=201)["lease"]
        assert (made["start_date"], made["end_date"]) == (f"{night}T00:30:00.000000", f"{night}T03:30:00.000000")
        start = datetime.fromisoformat(f"{night}T00:30+00:00")
        runner = plane.new_process().runner
        for moment, wanted in ((start - timedelta(seconds=1), "PENDING"), (start, "ACTIVE"),
                               (start + timedelta(hours=2, minutes=59, seconds=50), "ACTIVE"),
                               (start + timedelta(hours=3), "TERMINATED")):  # fmt: skip
            plane.clock.advance_to(moment)
            runner.run_once()
            assert status(plane, made) == wanted
    finally:
        monkeypatch.undo()
        time.tzset()
