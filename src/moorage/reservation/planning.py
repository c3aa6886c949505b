"""The steps of an event, from what the database says of its lease and its hosts. In which order they go is in `plans`."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from moorage.reservation import event_store, host_store
from moorage.reservation.demand import class_of
from moorage.reservation.model import Allocation, EventType, Lease, Reservation, ReservationStatus
from moorage.reservation.plans import (
    RegionsOfAll,
    SlotsOfAll,
    plan_before_end,
    plan_create,
    plan_end,
    plan_group,
    plan_start,
)
from moorage.reservation.requests import FPGA, Request
from moorage.reservation.steps import Step, StepKind


@dataclass(frozen=True, slots=True)
class Planning:
    """`steps` work inside the caller's transaction."""

    tells_ends: bool = False  #: an operator's service is told when a lease ends
    makes_groups: bool = False  #: see `groups`
    before_end_of_hosts: str = ""  #: see `plan_before_end`

    def steps(self, connection: Connection, lease: Lease, kind: EventType) -> list[Step]:
        match kind:
            case EventType.CREATE:
                return self.creation(lease)
            case EventType.START:
                return self.starts(connection, [lease])[lease.id]
            case EventType.BEFORE_END:
                return plan_before_end(lease, self.before_end_of_hosts)
            case EventType.END | EventType.DELETE:
                return self._end(connection, lease)
        return []  # an update's steps are written down with the update itself

    def creation(self, lease: Lease) -> list[Step]:
        groups = [step for each in lease.reservations for step in self.group(each, each.request)]
        return groups + plan_create(lease.reservations)

    def starts(self, connection: Connection, leases: Collection[Lease]) -> dict[str, list[Step]]:
        """{lease id: the steps of its start}; as many statements for many leases as for one."""
        rows = host_store.allocations_of(connection, [each.id for lease in leases for each in lease.reservations])
        slots = _slots(connection, leases, rows)
        services, regions = services_of(connection, slots), _regions(connection, rows)
        return {
            lease.id: plan_start(lease.reservations, slots, services, lease.project_id, regions) for lease in leases
        }

    def group(self, reservation: Reservation, request: Request) -> list[Step]:
        """See `plan_group`; nothing where no groups are made."""
        return plan_group(reservation, request) if self.makes_groups else []

    def _end(self, connection: Connection, lease: Lease) -> list[Step]:
        slots = _with_retired(connection, lease, slots_of(connection, lease))
        living = [each for each in lease.reservations if each.status is not ReservationStatus.DELETED]
        told = [Step(StepKind.TELL_END, each.id) for each in living[:1] if self.tells_ends]
        begun = lease.event(EventType.START)
        has_begun = begun is not None and event_store.steps_of(connection, begun.id)
        services, regions = services_of(connection, slots), _regions_of(connection, lease) if has_begun else {}
        # Groups that a crash kept from being written down: the others are in the plan.
        lost = [each.id for each in living if each.server_group_id is None and self.group(each, each.request)]
        end = plan_end(lease.reservations, slots, services, lease.project_id, regions)
        return told + end + [Step(StepKind.DELETE_GROUP, each) for each in lost]


def slots_of(connection: Connection, lease: Lease) -> SlotsOfAll:
    """{reservation id: {hypervisor hostname: slots}} as the host allocations say (R20)."""
    rows = host_store.allocations_of(connection, [reservation.id for reservation in lease.reservations])
    return _slots(connection, [lease], rows)


def _slots(connection: Connection, leases: Iterable[Lease], rows: Sequence[Allocation]) -> SlotsOfAll:
    slots: dict[str, dict[str, int]] = {each.id: {} for lease in leases for each in lease.reservations}
    names = host_store.hostnames(connection, {each.host_id for each in rows})
    for each in rows:
        mine = slots[each.reservation_id]
        mine[names[each.host_id]] = mine.get(names[each.host_id], 0) + 1
    return slots


def _regions_of(connection: Connection, lease: Lease) -> RegionsOfAll:
    """What the reservations have of FPGAs, as the host allocations say."""
    rows = host_store.allocations_of(connection, [reservation.id for reservation in lease.reservations])
    return _regions(connection, rows)


def _regions(connection: Connection, rows: Sequence[Allocation]) -> RegionsOfAll:
    places = {(row.host_id, place) for row in rows for place in row.resources if class_of(place) == FPGA}
    known = host_store.capacities(connection, {host for host, _ in places}) if places else []
    names = {(each.host, place): name for each in known for place, name in each.providers.items()}
    regions: dict[str, set[str]] = {}
    for row in rows:
        regions.setdefault(row.reservation_id, set()).update(
            names[row.host_id, place] for place in row.resources if (row.host_id, place) in places & names.keys()
        )
    return {key: sorted(found) for key, found in regions.items()}


def _with_retired(connection: Connection, lease: Lease, slots: SlotsOfAll) -> SlotsOfAll:
    """Also hosts that failed and may still have an inventory: no slots of theirs are left, so their number is 0."""
    retired = event_store.retired_hosts(connection, lease.id)
    known = host_store.services(connection, {host for hosts in retired.values() for host in hosts}).keys()
    return {key: dict.fromkeys(retired.get(key, set()) & known, 0) | dict(mine) for key, mine in slots.items()}


def services_of(connection: Connection, *slots: SlotsOfAll) -> dict[str, str]:
    """{hypervisor hostname: the name of its compute service} of the hosts in `slots`."""
    return host_store.services(connection, {host for each in slots for mine in each.values() for host in mine})
