from datetime import UTC, datetime, timedelta

from moorage.reservation.model.event_order import MAX_WAIT_FOR_END, UnfinishedEvent, schedule_events
from moorage.reservation.model.leases import EventType, LeaseStatus

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)


def event(
    name: str, kind: EventType, status: LeaseStatus, *, at: datetime = NOW, lease: str = "", **more
) -> UnfinishedEvent:
    values = {"lease_start": at, "lease_end": at + HOUR, "hosts": frozenset({1}), **more}
    return UnfinishedEvent(name, lease or name, kind, at, 0, status, **values)


def ended(name: str, *, at: datetime = NOW, **more) -> UnfinishedEvent:
    return event(name, EventType.END, LeaseStatus.ACTIVE, at=at, lease_start=at - HOUR, lease_end=at, **more)


def started(name: str, *, at: datetime = NOW, **more) -> UnfinishedEvent:
    return event(name, EventType.START, LeaseStatus.PENDING, at=at, **more)


def run(*events: UnfinishedEvent, now: datetime = NOW) -> list[str]:
    return [each.event_id for each in schedule_events(events, now).run]


def test_an_event_that_is_not_due_does_not_run():
    assert run(started("a", at=NOW + timedelta(microseconds=1))) == []
    assert run(started("a")) == ["a"]


def test_the_events_of_a_lease_run_in_the_order_start_before_end_end():
    events = [
        event("end", EventType.END, LeaseStatus.ACTIVE, lease="l"),
        event("before", EventType.BEFORE_END, LeaseStatus.ACTIVE, lease="l"),
        event("start", EventType.START, LeaseStatus.PENDING, lease="l"),
    ]
    assert run(*events) == ["start"]
    assert run(*events[:2]) == ["before"]
    assert run(events[0]) == ["end"]


def test_the_end_of_a_lease_waits_for_its_start():
    assert run(event("end", EventType.END, LeaseStatus.PENDING, lease="l")) == []


def test_while_a_lease_is_deleted_none_of_its_other_events_runs():
    assert run(
        event("start", EventType.START, LeaseStatus.DELETING, lease="l"),
        event("delete", EventType.DELETE, LeaseStatus.DELETING, lease="l"),
    ) == ["delete"]


def test_an_end_runs_before_a_start_of_the_same_time():
    assert run(started("a", hosts=frozenset({1})), ended("b", hosts=frozenset({2}))) == ["b", "a"]


def test_a_start_waits_for_an_earlier_end_only_on_a_common_host():
    """D10: a slow end delays only leases on the same hosts."""
    slow = ended("slow", hosts=frozenset({1, 2}), retry_at=NOW + MINUTE)
    result = schedule_events(
        [slow, started("next", hosts=frozenset({2, 3})), started("other", hosts=frozenset({3}))], NOW
    )
    assert [each.event_id for each in result.run] == ["other"]
    assert "lease slow has not ended" in result.wait["next"]


def test_a_start_waits_for_an_earlier_end_for_a_limited_time():
    slow = ended("slow", retry_at=NOW + MAX_WAIT_FOR_END + MINUTE)
    assert run(slow, started("next"), now=NOW + MAX_WAIT_FOR_END) == ["next"]


def test_a_start_does_not_wait_for_a_lease_that_ends_later():
    later = event("later", EventType.END, LeaseStatus.ACTIVE, lease_end=NOW + HOUR, retry_at=NOW + MINUTE)
    assert run(later, started("a")) == ["a"]


def test_no_event_of_a_lease_runs_while_another_one_is_claimed():
    claimed = event("update", EventType.UPDATE, LeaseStatus.UPDATING, lease="l", claim_until=NOW + timedelta(seconds=1))
    end = event("end", EventType.END, LeaseStatus.ACTIVE, lease="l")
    assert run(claimed, end) == []
    assert run(claimed, now=NOW + timedelta(seconds=1)) == ["update"]


def test_an_event_is_retried_not_before_its_retry_time():
    again = started("a", retry_at=NOW + timedelta(seconds=5))
    assert run(again) == []
    assert run(again, now=NOW + timedelta(seconds=5)) == ["a"]
