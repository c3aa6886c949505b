from datetime import UTC, datetime, timedelta

from moorage.reservation.model.event_order import PATIENCE, UnfinishedEvent, schedule_events
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


def test_what_is_not_due_does_not_run():
    assert run(started("a", at=NOW + timedelta(microseconds=1))) == []
    assert run(started("a")) == ["a"]


def test_within_a_lease_start_comes_before_before_end_and_end():
    events = [
        event("end", EventType.END, LeaseStatus.ACTIVE, lease="l"),
        event("before", EventType.BEFORE_END, LeaseStatus.ACTIVE, lease="l"),
        event("start", EventType.START, LeaseStatus.PENDING, lease="l"),
    ]
    assert run(*events) == ["start"]
    assert run(*events[:2]) == ["before"]
    assert run(events[0]) == ["end"]


def test_an_end_waits_until_its_lease_has_started():
    assert run(event("end", EventType.END, LeaseStatus.PENDING, lease="l")) == []


def test_a_lease_that_is_deleted_has_no_other_event():
    assert run(
        event("start", EventType.START, LeaseStatus.DELETING, lease="l"),
        event("delete", EventType.DELETE, LeaseStatus.DELETING, lease="l"),
    ) == ["delete"]


def test_an_end_comes_before_a_start_of_the_same_moment():
    assert run(started("a", hosts=frozenset({1})), ended("b", hosts=frozenset({2}))) == ["b", "a"]


def test_a_start_waits_for_the_end_before_it_on_a_common_host_only():
    """D10: a slow end delays only its successors."""
    slow = ended("slow", hosts=frozenset({1, 2}), retry_at=NOW + MINUTE)
    result = schedule_events(
        [slow, started("next", hosts=frozenset({2, 3})), started("other", hosts=frozenset({3}))], NOW
    )
    assert [each.event_id for each in result.run] == ["other"]
    assert "lease slow has not ended" in result.wait["next"]


def test_a_start_does_not_wait_for_ever():
    slow = ended("slow", retry_at=NOW + PATIENCE + MINUTE)
    assert run(slow, started("next"), now=NOW + PATIENCE) == ["next"]


def test_a_start_does_not_wait_for_a_lease_that_ends_later():
    later = event("later", EventType.END, LeaseStatus.ACTIVE, lease_end=NOW + HOUR, retry_at=NOW + MINUTE)
    assert run(later, started("a")) == ["a"]


def test_a_claimed_lease_is_left_alone_until_the_claim_runs_out():
    claimed = event("update", EventType.UPDATE, LeaseStatus.UPDATING, lease="l", claim_until=NOW + timedelta(seconds=1))
    end = event("end", EventType.END, LeaseStatus.ACTIVE, lease="l")
    assert run(claimed, end) == []
    assert run(claimed, now=NOW + timedelta(seconds=1)) == ["update"]


def test_a_retry_waits_for_its_moment():
    again = started("a", retry_at=NOW + timedelta(seconds=5))
    assert run(again) == []
    assert run(again, now=NOW + timedelta(seconds=5)) == ["a"]
