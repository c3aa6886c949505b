"""Decides what an update of a lease may change, before anything is changed.

Blazar may refuse an update half-way, which leaves the lease in ERROR (D13). Here every check runs before the first
change.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from moorage.core.errors import Conflict, Forbidden, Invalid
from moorage.reservation.capacity.resource_types.registry import type_named
from moorage.reservation.model.before_end_actions import EndAction
from moorage.reservation.model.leases import (
    STABLE,
    Event,
    EventStatus,
    EventType,
    Lease,
    LeaseStatus,
    before_end_time,
    floor_minute,
)
from moorage.reservation.model.reservation_requests import ReservationChange, ReservationRequest, UnresolvedRequest

#: A date in a request. "now" is the current minute.
When: TypeAlias = datetime | Literal["now"]


@dataclass(frozen=True, slots=True)
class NewLease:
    name: str
    start_date: When
    end_date: When
    before_end_date: datetime | None = None
    reservations: tuple[UnresolvedRequest, ...] = ()
    before_end_actions: tuple[EndAction, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaseChange:
    name: str | None = None
    start_date: When | None = None
    end_date: When | None = None
    before_end_date: datetime | None = None
    reservations: tuple[ReservationChange, ...] = ()
    before_end_actions: tuple[EndAction, ...] | None = None  #: replaces all present actions


@dataclass(frozen=True, slots=True)
class UpdateDecision:
    """The lease after the update."""

    name: str
    start_date: datetime
    end_date: datetime
    before_end: datetime
    before_end_actions: tuple[EndAction, ...] = ()
    requests: dict[str, ReservationRequest] = field(default_factory=dict)  #: {reservation id: its new request}
    moved: bool = False  #: the period changes
    grows: bool = False  #: the new period includes time outside the old one


def period_of(new: NewLease, now: datetime) -> tuple[datetime, datetime]:
    """The period of a new lease. Raises `Invalid`."""
    current = floor_minute(now)
    start = _resolve(new.start_date, current)
    end = _resolve(new.end_date, current)
    if start < current:
        raise Invalid("Start date must be later than current date")
    if end <= start:
        raise Invalid("End date must be later than start date.")
    return start, end


def check_before_end(moment: datetime | None, start: datetime, end: datetime, minutes: int) -> datetime:
    """When the before_end event is due: `moment`, or `minutes` before `end`.

    Raises `Forbidden`, like Blazar, if `moment` is outside the lease.
    """
    if moment is None:
        return before_end_time(start, end, minutes)
    if not start <= moment <= end:
        raise Forbidden("Datetime is out of lease limits")
    return moment


def decide(lease: Lease, change: LeaseChange, now: datetime) -> UpdateDecision:
    """The effect of `change` on the lease. Raises `Invalid`, `Forbidden` or `Conflict` with the reason."""
    if lease.status not in STABLE:
        raise Conflict(f"lease {lease.id} is {lease.status}; repeat the request when this operation has finished")
    start, end = _period(lease, change, floor_minute(now))
    _check_reservations(lease, change.reservations)
    requests = {
        each.id: type_named(reservation.resource_type).changed(reservation, each)
        for each in change.reservations
        for reservation in lease.reservations
        if reservation.id == each.id
    }
    current = {reservation.id: reservation.request for reservation in lease.reservations}
    changed = {key: request for key, request in requests.items() if request != current[key]}
    moved = (start, end) != (lease.start_date, lease.end_date)
    if lease.status is LeaseStatus.TERMINATED and (moved or changed or change.before_end_date):
        raise Conflict(f"lease {lease.id} has ended; only its name can be changed")
    before_end = _before_end(lease, change, start, end)
    return UpdateDecision(
        name=lease.name if change.name is None else change.name,
        start_date=start,
        end_date=end,
        before_end=before_end,
        before_end_actions=_actions(lease, change, before_end, now),
        requests=changed,
        moved=moved,
        grows=start < lease.start_date or end > lease.end_date,
    )


def started(lease: Lease) -> bool:
    event = lease.event(EventType.START)
    return event is None or event.status is not EventStatus.UNDONE


def _period(lease: Lease, change: LeaseChange, current: datetime) -> tuple[datetime, datetime]:
    start, end = lease.start_date, lease.end_date
    if change.start_date is not None:
        start = _resolve(change.start_date, current)
        if start != lease.start_date and started(lease):
            raise Invalid("Cannot modify the start date of already started leases")
        if start != lease.start_date and start < current:
            raise Invalid("Start date must be later than current date")
    if change.end_date is not None:
        end = _resolve(change.end_date, current)
        if change.end_date == "now" and started(lease) and end <= start:
            end = start + timedelta(minutes=1)  # ended in its first minute: a lease lasts at least one minute
    if (start, end) != (lease.start_date, lease.end_date) and (end < current or end <= start):
        raise Invalid("End date must be later than current and start date")
    return start, end


def _before_end(lease: Lease, change: LeaseChange, start: datetime, end: datetime) -> datetime:
    event = lease.event(EventType.BEFORE_END)
    if change.before_end_date is not None:
        return check_before_end(change.before_end_date, start, end, 0)
    if event is None:
        return end
    return min(end, max(start, end - (lease.end_date - event.time)))  # keeps its distance to the end


def rearmed(event: Event, due: datetime, now: datetime) -> bool:
    """True if a before_end event must run (again) because it was postponed. It may already have run."""
    return event.type is EventType.BEFORE_END and event.time != due and due > now


def _actions(lease: Lease, change: LeaseChange, due: datetime, now: datetime) -> tuple[EndAction, ...]:
    wanted, event = change.before_end_actions, lease.event(EventType.BEFORE_END)
    if wanted is None or wanted == lease.before_end_actions:
        return lease.before_end_actions
    if event is None or (event.status is not EventStatus.UNDONE and not rearmed(event, due, now)):
        raise Conflict(
            f"the before_end_actions of lease {lease.id} have already started; to change them, also set a later "
            "before_end_date"
        )
    return wanted


def _check_reservations(lease: Lease, changes: Sequence[ReservationChange]) -> None:
    types = {reservation.id: reservation.resource_type for reservation in lease.reservations}
    if unknown := sorted(each.id for each in changes if each.id not in types):
        raise Invalid(f"Please enter valid reservation IDs. Invalid reservation IDs are: {', '.join(unknown)}")
    if len({each.id for each in changes}) < len(changes):
        raise Invalid("a reservation id appears twice in reservations")
    for each in changes:
        if each.resource_type not in (None, types[each.id]):
            raise Conflict("The resource type of a reservation cannot be changed")


def _resolve(when: When, current: datetime) -> datetime:
    return current if when == "now" else when
