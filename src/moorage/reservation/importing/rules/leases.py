"""Converts the leases of a Blazar database one by one, and reports findings about its rows.

A Blazar manager that died leaves leases stuck in a transient state, and Blazar's schema permits rows that refer to
missing rows. Each such row is omitted, repaired or kept as it is, and always reported. Operations in progress are
continued: a start or an end goes on; an unfinished creation or deletion becomes a deletion.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from moorage.core.import_findings import ImportFinding, ImportFindingKind, ImportOutcome
from moorage.reservation.capacity.addresses import RegisteredAddress
from moorage.reservation.importing.rules.requests import WITH_SLOTS, PeerRequest, amounts_of, request_of
from moorage.reservation.model.leases import (
    DUE_IMMEDIATELY,
    WIRE_EVENTS,
    Allocation,
    Event,
    EventStatus,
    EventType,
    Lease,
    LeaseStatus,
    Reservation,
    ReservationGeneration,
    ReservationStatus,
    status_after_update,
)
from moorage.reservation.model.reservation_requests import (
    PHYSICAL_HOST,
    VIRTUAL_FLOATING_IP,
    FlavorRequest,
    FloatingIpRequest,
    InstanceRequest,
    WholeHostRequest,
)

S = TypeVar("S", bound=StrEnum)


class LeaseFindingKind(ImportFindingKind):
    LOST_LEASE = ("lost-lease", ImportOutcome.LEFT_OUT, "rows that refer to a missing lease or reservation")
    LOST_HOST = ("lost-host", ImportOutcome.LEFT_OUT, "rows that refer to a missing host")
    NAMELESS_HOST = ("nameless-host", ImportOutcome.LEFT_OUT, "hosts without a name, or with the name of another host")
    NO_DETAILS = ("no-details", ImportOutcome.LEFT_OUT, "reservations whose request is missing or malformed")
    OTHER_TYPE = (
        "other-type",
        ImportOutcome.LEFT_OUT,
        "ended reservations and properties of unsupported resource types",
    )
    ENDED_SLOTS = ("ended-slots", ImportOutcome.LEFT_OUT, "slots and addresses of ended reservations")
    NO_DATES = ("no-dates", ImportOutcome.LEFT_OUT, "leases that do not end after their start")
    UNKNOWN_EVENT = (
        "unknown-event",
        ImportOutcome.LEFT_OUT,
        "events that are duplicated, without a time, or of unknown type or status",
    )
    BAD_ADDRESS = (
        "bad-address",
        ImportOutcome.LEFT_OUT,
        "floating IPs without a valid address, or with the address of another",
    )
    LOST_ADDRESS = ("lost-address", ImportOutcome.LEFT_OUT, "rows that refer to a missing floating IP")
    READ_ANEW = (
        "read-anew",
        ImportOutcome.LEFT_OUT,
        "copies of the traits of hosts, which are read from Placement when needed",
    )
    INTERRUPTED = (
        "interrupted",
        ImportOutcome.MENDED,
        "leases with an operation in progress, which is continued or undone",
    )
    STATUS = (
        "status",
        ImportOutcome.MENDED,
        "leases whose events disagree with their status; the events were changed",
    )
    RENUMBERED = ("renumbered", ImportOutcome.MENDED, "hosts whose id is not a decimal number; they get a new id")
    NOBODY = ("nobody", ImportOutcome.MENDED, "leases without a project or user; only administrators can see them")
    NO_INVENTORY = ("no-inventory", ImportOutcome.KEPT, "hosts without inventories; the hypervisor's capacity is used")
    MISSING_SLOTS = (
        "missing-slots",
        ImportOutcome.KEPT,
        "reservations with more or fewer slots or addresses than requested",
    )
    OVERBOOKED = (
        "overbooked",
        ImportOutcome.KEPT,
        "hosts and addresses that are allocated beyond their capacity",
    )


@dataclass(frozen=True, slots=True)
class PeerReservation:
    """Rows of Blazar's tables: the reservation, its type-specific rows, and its allocations."""

    row: Any
    instances: tuple[Any, ...]
    hosts: tuple[Any, ...]
    slots: tuple[Any, ...]
    networks: tuple[Any, ...] = ()  #: its rows of ``floatingip_reservations``
    required: tuple[str, ...] = ()  #: required IP addresses
    addresses: tuple[Any, ...] = ()  #: its rows of ``floatingip_allocations``


@dataclass(frozen=True, slots=True)
class PeerLease:
    row: Any
    reservations: tuple[PeerReservation, ...]
    events: tuple[Any, ...]

    @property
    def is_over(self) -> bool:
        return bool(self.row.status == LeaseStatus.TERMINATED)


@dataclass(frozen=True, slots=True)
class AddressSlot:
    """The allocation of a floating IP over ``[start, end)``."""

    id: str
    reservation_id: str
    floating_ip: RegisteredAddress
    start: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class ConvertedLease:
    lease: Lease
    slots: tuple[Allocation, ...]
    addresses: tuple[AddressSlot, ...]
    events: int  #: number of Blazar's rows
    reservations: int


@dataclass(frozen=True, slots=True)
class UnsupportedReservation:
    """A reservation that has not ended and that this service cannot continue. It makes the import fail."""

    lease_id: str
    reason: str


#: {state without an operation in progress: statuses of the lease's start, end and reservations}
_STABLE = {
    LeaseStatus.PENDING: (EventStatus.UNDONE, EventStatus.UNDONE, ReservationStatus.PENDING),
    LeaseStatus.ACTIVE: (EventStatus.DONE, EventStatus.UNDONE, ReservationStatus.ACTIVE),
    LeaseStatus.TERMINATED: (EventStatus.DONE, EventStatus.DONE, ReservationStatus.DELETED),
}


class LeaseConverter:
    """`host_ids`: {id of a host in Blazar's database: its id here}; `times`: row -> (created, updated).

    `has_network`: if False, floating IP reservations that have not ended yield `UnsupportedReservation`.
    """

    def __init__(
        self,
        host_ids: Mapping[str, int],
        floating_ips: Mapping[str, RegisteredAddress],
        times: Callable[[object], tuple[datetime, datetime | None]],
        new_id: Callable[[], str],
        now: datetime,
        cleaning_time: timedelta,
        *,
        has_network: bool,
    ) -> None:
        self._host_ids = host_ids
        self._floating_ips = floating_ips
        self._has_network = has_network
        self._times = times
        self._new_id = new_id
        self._now = now
        self._cleaning_time = cleaning_time

    def convert(self, peer: PeerLease) -> Iterator[ConvertedLease | UnsupportedReservation | ImportFinding]:
        """The results for one lease. The last one may be a `ConvertedLease`; there is at most one."""
        row = peer.row
        if row.end_date <= row.start_date:
            yield ImportFinding(
                LeaseFindingKind.NO_DATES, row.id, f"lease {row.id}: from {row.start_date} to {row.end_date}"
            )
            return
        if not row.project_id or not row.user_id:
            yield ImportFinding(
                LeaseFindingKind.NOBODY, row.id, f"lease {row.id} has no {'user' if row.project_id else 'project'}"
            )
        created_at, updated_at = self._times(row)
        lease = Lease(
            id=row.id,
            name=row.name,
            user_id=row.user_id or "",
            project_id=row.project_id or "",
            start_date=row.start_date.replace(tzinfo=UTC),
            end_date=row.end_date.replace(tzinfo=UTC),
            trust_id=row.trust_id,
            status=_known(LeaseStatus, row.status) or LeaseStatus.UPDATING,
            degraded=bool(row.degraded),
            created_at=created_at,
            updated_at=updated_at,
        )
        taken_events: list[Event] = []
        for event in self._events(peer, lease):
            if isinstance(event, ImportFinding):
                yield event
            else:
                taken_events.append(event)
        lease, found = self._mended(replace(lease, events=tuple(taken_events)))
        yield from found
        taken: list[Reservation] = []
        slots: list[Allocation] = []
        addresses: list[AddressSlot] = []
        for each in peer.reservations:
            for one in self._reservation(each, lease):
                match one:
                    case Reservation():
                        taken.append(one)
                    case Allocation():
                        slots.append(one)
                    case AddressSlot():
                        addresses.append(one)
                    case _:
                        yield one
        lease = replace(lease, reservations=tuple(taken))
        yield ConvertedLease(lease, tuple(slots), tuple(addresses), len(taken_events), len(taken))

    def _events(self, peer: PeerLease, lease: Lease) -> Iterator[Event | ImportFinding]:
        seen: set[EventType] = set()
        for row in peer.events:
            kind, status = _known(EventType, row.event_type), _known(EventStatus, row.status)
            if kind not in WIRE_EVENTS or status is None or row.time is None or kind in seen:
                yield ImportFinding(
                    LeaseFindingKind.UNKNOWN_EVENT, row.id, f"event {row.id} of lease {lease.id}: {row.event_type}"
                )
                continue
            seen.add(kind)
            created_at, updated_at = self._times(row)
            yield Event(row.id, lease.id, kind, row.time.replace(tzinfo=UTC), status, created_at, updated_at)

    def _mended(self, lease: Lease) -> tuple[Lease, list[ImportFinding]]:
        """The lease in a state from which this service can continue, with events that agree with it; findings."""
        found: list[ImportFinding] = []
        status = lease.status
        if status is LeaseStatus.UPDATING:
            status = status_after_update(lease)
        elif status is LeaseStatus.CREATING:
            status = LeaseStatus.DELETING
        if status is not lease.status or status in (
            LeaseStatus.STARTING,
            LeaseStatus.TERMINATING,
            LeaseStatus.DELETING,
        ):
            becomes = f"it becomes {status}" if status is not lease.status else "the operation is continued"
            text = f"lease {lease.id} was {lease.status}: {becomes}"
            found.append(ImportFinding(LeaseFindingKind.INTERRUPTED, lease.id, text))
        events = {event.type: event for event in lease.events}
        wanted = self._event_statuses(status, events)
        due = {EventType.START: lease.start_date, EventType.END: lease.end_date}
        wrong = [kind for kind in due if kind not in events or events[kind].status is not wanted[kind]]
        for kind in wrong:
            made = Event(self._new_id(), lease.id, kind, due[kind], wanted[kind], self._now, None)
            events[kind] = replace(events.get(kind, made), status=wanted[kind])
        if wrong and not found:
            names = " and ".join(kind for kind in wrong)
            found.append(
                ImportFinding(
                    LeaseFindingKind.STATUS, lease.id, f"lease {lease.id} is {status}: its {names} had another status"
                )
            )
        if status is LeaseStatus.DELETING:
            deletion = Event(
                self._new_id(), lease.id, EventType.DELETE, DUE_IMMEDIATELY, EventStatus.UNDONE, self._now, None
            )
            events[EventType.DELETE] = deletion
        return replace(lease, status=status, events=tuple(events.values())), found

    def _event_statuses(self, status: LeaseStatus, events: Mapping[EventType, Event]) -> dict[EventType, EventStatus]:
        """The statuses of the start and end events that the status of a lease implies."""
        if status in _STABLE:
            start, end, _ = _STABLE[status]
        elif status is LeaseStatus.STARTING:
            start, end = EventStatus.IN_PROGRESS, EventStatus.UNDONE
        elif status is LeaseStatus.TERMINATING:
            start, end = EventStatus.DONE, EventStatus.IN_PROGRESS
        else:  # ERROR and DELETING: events in progress were not completed
            settled = {EventStatus.IN_PROGRESS: EventStatus.ERROR}
            return {
                kind: settled.get(events[kind].status, events[kind].status) if kind in events else EventStatus.ERROR
                for kind in (EventType.START, EventType.END)
            }
        return {EventType.START: start, EventType.END: end}

    def _reservation(
        self, peer: PeerReservation, lease: Lease
    ) -> Iterator[Reservation | Allocation | AddressSlot | UnsupportedReservation | ImportFinding]:
        row = peer.row
        is_over = row.status == ReservationStatus.DELETED or lease.status is LeaseStatus.TERMINATED
        details = {PHYSICAL_HOST: peer.hosts, VIRTUAL_FLOATING_IP: peer.networks}
        rows = (details | dict.fromkeys(WITH_SLOTS, peer.instances)).get(row.resource_type)
        if rows is None:
            if is_over:
                yield ImportFinding(LeaseFindingKind.OTHER_TYPE, row.id, f"reservation {row.id} of {row.resource_type}")
            else:
                yield UnsupportedReservation(lease.id, f"resource type {row.resource_type} is not supported")
            return
        if row.resource_type == VIRTUAL_FLOATING_IP and not (self._has_network or is_over):
            yield UnsupportedReservation(
                lease.id, "its floating IPs need a network service; set [endpoints] network to the URL of Neutron"
            )
            return
        if len(rows) != 1 or (request := request_of(row.resource_type, rows[0], peer.required)) is None:
            why = (
                f"{len(rows)} rows with its request instead of 1"
                if len(rows) != 1
                else "the row with its request is malformed"
            )
            yield ImportFinding(LeaseFindingKind.NO_DETAILS, row.id, f"reservation {row.id}: {why}")
            return
        yield self._made(row, rows[0], lease, request)
        if isinstance(request, FloatingIpRequest):
            yield from self._addresses(peer, lease, request, is_over=is_over)
        else:
            yield from self._slots(peer, lease, request, is_over=is_over)

    def _made(self, row: Any, details: Any, lease: Lease, request: PeerRequest) -> Reservation:
        created_at, updated_at = self._times(row)
        made = Reservation(
            id=row.id,
            lease_id=lease.id,
            resource_id=row.resource_id or details.id,
            resource_type=row.resource_type,
            status=self._status(row, lease),
            missing_resources=bool(row.missing_resources),
            resources_changed=bool(row.resources_changed),
            request=request,
            flavor_id=None,
            aggregate_id=None,  # a host aggregate is found by its name, the reservation's id
            server_group_id=None,
            created_at=created_at,
            updated_at=updated_at,
        )
        if isinstance(request, WholeHostRequest | FloatingIpRequest):
            return made
        is_older = details.aggregate_id is not None or details.server_group_id is not None
        return replace(
            made,
            flavor_id=details.flavor_id,
            aggregate_id=details.aggregate_id,
            server_group_id=details.server_group_id,
            generation=None if is_older else ReservationGeneration.PURE,  # None: determined when an event runs (A1)
        )

    def _status(self, row: Any, lease: Lease) -> ReservationStatus:
        if lease.status in _STABLE:
            return _STABLE[lease.status][2]
        if lease.status is LeaseStatus.ERROR:
            return ReservationStatus.ERROR
        return _known(ReservationStatus, row.status) or ReservationStatus.ERROR

    def _slots(
        self,
        peer: PeerReservation,
        lease: Lease,
        asked: InstanceRequest | FlavorRequest | WholeHostRequest,
        *,
        is_over: bool,
    ) -> Iterator[Allocation | ImportFinding]:
        held, amounts = 0, amounts_of(asked)
        for slot in peer.slots:
            if is_over:
                yield ImportFinding(
                    LeaseFindingKind.ENDED_SLOTS, peer.row.id, f"slot {slot.id} of reservation {peer.row.id}"
                )
            elif (host := self._host_ids.get(slot.compute_host_id)) is None:
                text = f"slot {slot.id} of reservation {peer.row.id}: host {slot.compute_host_id} does not exist"
                yield ImportFinding(LeaseFindingKind.LOST_HOST, peer.row.id, text)
            else:
                held += 1
                end = lease.end_date + self._cleaning_time
                yield Allocation(slot.id, host, peer.row.id, lease.start_date, end, amounts)
        least, most = (asked.least, asked.most) if isinstance(asked, WholeHostRequest) else (asked.amount, asked.amount)
        if not is_over and not least <= held <= most:
            wanted = f"{least}" if least == most else f"{least} to {most}"
            text = f"reservation {peer.row.id} of lease {lease.id} has {held} slots instead of {wanted}"
            yield ImportFinding(LeaseFindingKind.MISSING_SLOTS, peer.row.id, text)

    def _addresses(
        self, peer: PeerReservation, lease: Lease, asked: FloatingIpRequest, *, is_over: bool
    ) -> Iterator[AddressSlot | ImportFinding]:
        held = 0
        for slot in peer.addresses:
            if is_over:
                yield ImportFinding(
                    LeaseFindingKind.ENDED_SLOTS, peer.row.id, f"address {slot.id} of reservation {peer.row.id}"
                )
            elif (its := self._floating_ips.get(slot.floatingip_id)) is None:
                text = (
                    f"address {slot.id} of reservation {peer.row.id}: floating IP {slot.floatingip_id} does not exist"
                )
                yield ImportFinding(LeaseFindingKind.LOST_ADDRESS, peer.row.id, text)
            else:
                held += 1
                yield AddressSlot(slot.id, peer.row.id, its, lease.start_date, lease.end_date)
        if not is_over and held != asked.amount:
            text = f"reservation {peer.row.id} of lease {lease.id} has {held} addresses instead of {asked.amount}"
            yield ImportFinding(LeaseFindingKind.MISSING_SLOTS, peer.row.id, text)


def _known(states: type[S], text: str | None) -> S | None:
    return next((state for state in states if state == text), None)
