"""What an update of a lease may change, decided before anything is touched.

The peer finds out half-way that it does not like an update, and the lease is in ERROR from then on (D13). Here every
refusal comes first and changes nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from moorage.core.errors import Conflict, Forbidden, Invalid
from moorage.reservation.model import (
    STABLE,
    EventStatus,
    EventType,
    Generation,
    InstanceRequest,
    Lease,
    LeaseStatus,
    Reservation,
    ReservationStatus,
    Size,
    before_end_time,
    floor_minute,
)

#: A date as requests give it: a moment, or the current minute.
When: TypeAlias = datetime | Literal["now"]


@dataclass(frozen=True, slots=True)
class NewLease:
    name: str
    start_date: When
    end_date: When
    before_end_date: datetime | None = None
    reservations: tuple[InstanceRequest, ...] = ()


@dataclass(frozen=True, slots=True)
class ReservationChange:
    """None leaves a value as it is; of affinity, which may be None itself, `affinity_given` tells."""

    id: str
    resource_type: str | None = None
    vcpus: int | None = None
    memory_mb: int | None = None
    disk_gb: int | None = None
    amount: int | None = None
    affinity: bool | None = None
    affinity_given: bool = False
    resource_properties: str | None = None


@dataclass(frozen=True, slots=True)
class LeaseChange:
    name: str | None = None
    start_date: When | None = None
    end_date: When | None = None
    before_end_date: datetime | None = None
    reservations: tuple[ReservationChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """The lease as it shall be."""

    name: str
    start_date: datetime
    end_date: datetime
    before_end: datetime
    requests: dict[str, InstanceRequest] = field(default_factory=dict)  #: {reservation id: its new request}
    moved: bool = False  #: the period is another one
    grows: bool = False  #: the new period holds time that the old one does not


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
    """When the before_end event is due. A moment that was given must lie in the lease (`Forbidden`, as the peer)."""
    if moment is None:
        return before_end_time(start, end, minutes)
    if not start <= moment <= end:
        raise Forbidden("Datetime is out of lease limits")
    return moment


def decide(lease: Lease, change: LeaseChange, now: datetime) -> Decision:
    """Raises `Invalid`, `Forbidden` or `Conflict` with the reason; the lease stays as it is then."""
    if lease.status not in STABLE:
        raise Conflict(f"lease {lease.id} is {lease.status}; repeat the request when that is over")
    start, end = _period(lease, change, floor_minute(now))
    _check_reservations(lease, change.reservations)
    requests = {
        each.id: _request(reservation, each)
        for each in change.reservations
        for reservation in lease.reservations
        if reservation.id == each.id
    }
    current = {reservation.id: reservation.request for reservation in lease.reservations}
    changed = {key: request for key, request in requests.items() if request != current[key]}
    moved = (start, end) != (lease.start_date, lease.end_date)
    if lease.status is LeaseStatus.TERMINATED and (moved or changed or change.before_end_date):
        raise Conflict(f"lease {lease.id} has ended; only its name can be changed")
    for reservation in lease.reservations:
        if reservation.id in changed:
            _check_older(reservation, changed[reservation.id])
            _check_active(reservation, changed[reservation.id])
    return Decision(
        name=lease.name if change.name is None else change.name,
        start_date=start,
        end_date=end,
        before_end=_before_end(lease, change, start, end),
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
            end = start + timedelta(minutes=1)  # in its first minute: a lease is never empty
    if (start, end) != (lease.start_date, lease.end_date) and (end < current or end <= start):
        raise Invalid("End date must be later than current and start date")
    return start, end


def _before_end(lease: Lease, change: LeaseChange, start: datetime, end: datetime) -> datetime:
    event = lease.event(EventType.BEFORE_END)
    if change.before_end_date is not None:
        return check_before_end(change.before_end_date, start, end, 0)
    if event is None:
        return end
    return min(end, max(start, end - (lease.end_date - event.time)))  # as long before the end as it was


def _check_reservations(lease: Lease, changes: Sequence[ReservationChange]) -> None:
    types = {reservation.id: reservation.resource_type for reservation in lease.reservations}
    if unknown := sorted(each.id for each in changes if each.id not in types):
        raise Invalid(f"Please enter valid reservation IDs. Invalid reservation IDs are: {', '.join(unknown)}")
    if len({each.id for each in changes}) < len(changes):
        raise Invalid("a reservation is named twice")
    for each in changes:
        if each.resource_type not in (None, types[each.id]):
            raise Conflict("The resource type of a reservation cannot be changed")


def _request(reservation: Reservation, change: ReservationChange) -> InstanceRequest:
    old = reservation.request

    def new(given: int | None, before: int) -> int:
        return before if given is None else given

    return replace(
        old,
        size=Size(
            new(change.vcpus, old.size.vcpus),
            new(change.memory_mb, old.size.memory_mb),
            new(change.disk_gb, old.size.disk_gb),
        ),
        amount=new(change.amount, old.amount),
        affinity=change.affinity if change.affinity_given else old.affinity,
        resource_properties=(
            old.resource_properties if change.resource_properties is None else change.resource_properties
        ),
    )


def _check_older(reservation: Reservation, request: InstanceRequest) -> None:
    """Its flavor and its server group were made by another system: they are used as they are (R25)."""
    old = reservation.request
    if reservation.generation is not Generation.PURE and (request.size, request.affinity) != (old.size, old.affinity):
        raise Conflict(
            f"reservation {reservation.id} was made by an older system; its size and affinity cannot be changed: "
            "make a new lease"
        )


def _check_active(reservation: Reservation, request: InstanceRequest) -> None:
    """A15: servers may run in an active reservation, so it only grows."""
    old = reservation.request
    if reservation.status is ReservationStatus.PENDING:
        return
    if reservation.status is not ReservationStatus.ACTIVE:
        raise Conflict(f"reservation {reservation.id} is in state {reservation.status} and cannot be changed")
    if replace(request, amount=old.amount) != old:
        raise Conflict("An active reservation only accepts to update amount.")
    if request.amount < old.amount:
        raise Conflict(
            "Instance reservation doesn't allow to reduce/replace reserved instance slots when the reservation is in "
            "active status."
        )


def _resolve(when: When, current: datetime) -> datetime:
    return current if when == "now" else when
