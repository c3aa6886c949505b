from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from moorage.core.errors import Conflict, Forbidden, Invalid
from moorage.reservation.capacity.lease_update import LeaseChange, NewLease, check_before_end, decide, period_of
from moorage.reservation.model.leases import (
    Event,
    EventStatus,
    EventType,
    Lease,
    LeaseStatus,
    Reservation,
    ReservationGeneration,
    ReservationStatus,
)
from moorage.reservation.model.reservation_requests import AnyRequest, InstanceRequest, ReservationChange, Size

NOW = datetime(2026, 1, 1, 12, 0, 30, tzinfo=UTC)
MINUTE = NOW.replace(second=0)
HOUR = timedelta(hours=1)


def lease(status: LeaseStatus, start: datetime, end: datetime, reservation: ReservationStatus) -> Lease:
    done = EventStatus.UNDONE if status is LeaseStatus.PENDING else EventStatus.DONE
    over = EventStatus.DONE if status is LeaseStatus.TERMINATED else EventStatus.UNDONE
    times = [
        (EventType.START, start, done),
        (EventType.BEFORE_END, end - HOUR, over),
        (EventType.END, end, over),
    ]
    events = tuple(Event(kind, "l", kind, time, each, NOW, None) for kind, time, each in times)
    request = InstanceRequest(Size(1, 1024, 10), 3)
    held = Reservation(
        "r", "l", "x", "virtual:instance", reservation, False, False, request, "r", None, None, NOW, None
    )
    return Lease("l", "name", "u", "p", start, end, None, status, False, NOW, None, (held,), events)


PENDING = lease(LeaseStatus.PENDING, MINUTE + HOUR, MINUTE + 4 * HOUR, ReservationStatus.PENDING)
ACTIVE = lease(LeaseStatus.ACTIVE, MINUTE - HOUR, MINUTE + 2 * HOUR, ReservationStatus.ACTIVE)
ENDED = lease(LeaseStatus.TERMINATED, MINUTE - 2 * HOUR, MINUTE - HOUR, ReservationStatus.DELETED)


def change(**values) -> LeaseChange:
    return LeaseChange(reservations=(ReservationChange("r", **values),))


def test_the_start_now_means_the_current_minute():
    assert period_of(NewLease("x", "now", MINUTE + HOUR), NOW) == (MINUTE, MINUTE + HOUR)


@pytest.mark.parametrize(
    ("start", "end", "words"),
    [
        (MINUTE - timedelta(minutes=1), MINUTE + HOUR, "Start date must be later than current date"),
        (MINUTE + HOUR, MINUTE + HOUR, "End date must be later than start date."),
        (MINUTE + HOUR, "now", "End date must be later than start date."),
    ],
)
def test_an_invalid_period_is_refused_with_the_peers_message(start, end, words):
    with pytest.raises(Invalid) as refusal:
        period_of(NewLease("x", start, end), NOW)
    assert refusal.value.message == words


def test_the_before_end_event_must_be_within_the_lease():
    assert check_before_end(None, MINUTE, MINUTE + 3 * HOUR, 60) == MINUTE + 2 * HOUR
    assert check_before_end(None, MINUTE, MINUTE + HOUR / 2, 60) == MINUTE
    with pytest.raises(Forbidden, match="out of lease limits"):
        check_before_end(MINUTE + 2 * HOUR, MINUTE, MINUTE + HOUR, 60)


def test_a_pending_active_or_ended_lease_can_be_renamed():
    for each in (PENDING, ACTIVE, ENDED):
        decision = decide(each, LeaseChange(name="new"), NOW)
        assert (decision.name, decision.moved, decision.requests) == ("new", False, {})


def test_an_ended_lease_can_only_be_renamed():
    with pytest.raises(Conflict, match="only its name"):
        decide(ENDED, LeaseChange(end_date=MINUTE + HOUR), NOW)


def test_prolonging_a_lease_needs_more_capacity_and_shortening_does_not():
    assert decide(ACTIVE, LeaseChange(end_date=ACTIVE.end_date + HOUR), NOW).grows
    shorter = decide(ACTIVE, LeaseChange(end_date=ACTIVE.end_date - HOUR), NOW)
    assert (shorter.moved, shorter.grows) == (True, False)


def test_the_before_end_event_moves_with_the_end():
    assert decide(ACTIVE, LeaseChange(end_date=ACTIVE.end_date + HOUR), NOW).before_end == ACTIVE.end_date


def test_a_started_lease_can_end_now():
    assert decide(ACTIVE, LeaseChange(end_date="now"), NOW).end_date == MINUTE


def test_a_lease_that_ends_now_in_its_first_minute_ends_after_that_minute():
    """D14: the peer accepts an empty lease here, or answers 400."""
    young = lease(LeaseStatus.ACTIVE, MINUTE, MINUTE + HOUR, ReservationStatus.ACTIVE)
    assert decide(young, LeaseChange(end_date="now"), NOW).end_date == MINUTE + timedelta(minutes=1)


@pytest.mark.parametrize("end", ["now", MINUTE + HOUR])
def test_a_pending_lease_cannot_end_before_it_starts(end):
    with pytest.raises(Invalid, match="End date must be later than current and start date"):
        decide(PENDING, LeaseChange(end_date=end), NOW)


def test_an_end_in_the_past_is_refused():
    with pytest.raises(Invalid, match="End date must be later than current and start date"):
        decide(ACTIVE, LeaseChange(end_date=MINUTE - timedelta(minutes=1)), NOW)


def test_the_start_of_a_lease_can_only_be_changed_before_it():
    """D14: the peer moves the start of a started lease in its first minute."""
    assert decide(PENDING, LeaseChange(start_date="now"), NOW).start_date == MINUTE
    with pytest.raises(Invalid, match="already started"):
        decide(ACTIVE, LeaseChange(start_date=MINUTE + HOUR), NOW)
    with pytest.raises(Invalid, match="later than current"):
        decide(PENDING, LeaseChange(start_date=MINUTE - HOUR), NOW)


def test_an_update_with_the_same_dates_changes_nothing():
    same = LeaseChange(start_date=ACTIVE.start_date, end_date=ACTIVE.end_date)
    assert not decide(ACTIVE, same, NOW).moved


def test_every_field_of_a_pending_reservation_can_be_changed():
    decision = decide(PENDING, change(vcpus=2, amount=1, affinity=False, affinity_given=True), NOW)
    assert decision.requests == {"r": InstanceRequest(Size(2, 1024, 10), 1, affinity=False)}


def test_affinity_can_be_changed_to_none():
    tight = replace(PENDING.reservations[0], request=replace(PENDING.reservations[0].request, affinity=True))
    decision = decide(replace(PENDING, reservations=(tight,)), change(affinity=None, affinity_given=True), NOW)
    assert decision.requests["r"].affinity is None


def test_the_amount_of_an_active_reservation_can_be_increased():
    """A15 (instance-reservation)."""
    assert decide(ACTIVE, change(amount=5), NOW).requests["r"].amount == 5
    short = replace(ACTIVE, reservations=tuple(replace(one, missing_resources=True) for one in ACTIVE.reservations))
    assert decide(short, change(amount=5), NOW).requests["r"].amount == 5
    with pytest.raises(Conflict, match="have no capacity now"):
        decide(short, change(amount=1), NOW)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"vcpus": 2}, "only accepts to update amount"),
        ({"affinity": True, "affinity_given": True}, "only accepts to update amount"),
        ({"resource_type": "physical:host"}, "resource type"),
    ],
)
def test_no_other_change_of_an_active_reservation_is_accepted(values, words):
    """A15 (instance-reservation), D13: 409, and the lease stays ACTIVE."""
    with pytest.raises(Conflict, match=words):
        decide(ACTIVE, change(**values), NOW)


def test_the_amount_of_an_active_reservation_can_be_reduced():
    """A15 (instance-reservation). Which slots servers use is examined afterwards."""
    assert decide(ACTIVE, change(amount=2), NOW).requests["r"].amount == 2


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"generation": ReservationGeneration.AGGREGATE}, "created by an older system"),
        ({"missing_resources": True}, "have no capacity now"),
        (
            {"resource_type": "resource:any", "request": AnyRequest({"VCPU": 1}, 3, bitstream_id="b")},
            "regions are programmed",
        ),
    ],
)
def test_some_active_reservations_keep_their_slots(values, words):
    """A15 (instance-reservation)."""
    kept = replace(ACTIVE, reservations=(replace(ACTIVE.reservations[0], **values),))
    with pytest.raises(Conflict, match=f"doesn't allow to reduce.*{words}"):
        decide(kept, change(amount=2), NOW)


def test_an_update_with_the_same_values_changes_nothing():
    assert decide(ACTIVE, change(amount=3, vcpus=1, affinity=None, affinity_given=True), NOW).requests == {}


def test_an_update_of_an_unknown_reservation_is_refused_with_its_id():
    with pytest.raises(Invalid, match="Invalid reservation IDs are: zz"):
        decide(ACTIVE, LeaseChange(reservations=(ReservationChange("zz"),)), NOW)


@pytest.mark.parametrize("status", [LeaseStatus.STARTING, LeaseStatus.UPDATING, LeaseStatus.DELETING])
def test_a_lease_with_an_operation_in_progress_cannot_be_updated(status):
    with pytest.raises(Conflict, match=f"is {status}"):
        decide(replace(ACTIVE, status=status), LeaseChange(name="x"), NOW)
