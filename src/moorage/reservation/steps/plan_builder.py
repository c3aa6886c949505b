"""Builds the steps of an event from the lease and its hosts in the database.

`capacity.resource_types` orders the steps of one reservation, and `capacity.step_plans` those of a lease across its
reservations. Here only `PlanBuilder._end` and `PlanBuilder.creation_steps` add steps, before or after these.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from moorage.reservation.capacity.step_plans import (
    RegionsOfAll,
    SlotsOfAll,
    plan_before_end,
    plan_create,
    plan_end,
    plan_group,
    plan_regions,
    plan_start,
)
from moorage.reservation.model.leases import EventType, Lease, Reservation, ReservationStatus
from moorage.reservation.model.reservation_requests import AnyRequest, ReservationRequest
from moorage.reservation.model.steps import DeleteGroup, Step, TellEnd
from moorage.reservation.store import event_store, host_store, region_store


@dataclass(frozen=True, slots=True)
class PlanBuilder:
    """The methods read within the caller's transaction."""

    notifies_ends: bool = False  #: notify the operator's enforcement service when a lease ends
    makes_server_groups: bool = False  #: see `plan_group`
    before_end_of_hosts: str = ""  #: see `plan_before_end`

    def event_steps(
        self, connection: Connection, kind: EventType, leases: Collection[Lease], now: datetime
    ) -> dict[str, list[Step]]:
        """{lease id: the steps of its event of this kind}"""
        match kind:
            case EventType.CREATE:
                return {lease.id: self.creation_steps(lease) for lease in leases}
            case EventType.START:
                return _start_steps(connection, leases)
            case EventType.BEFORE_END:
                return {lease.id: plan_before_end(lease, self.before_end_of_hosts) for lease in leases}
            case EventType.END | EventType.DELETE:
                return {lease.id: self._end(connection, lease, now) for lease in leases}
            case EventType.UPDATE:
                return {lease.id: [] for lease in leases}  # its steps are stored with the update itself

    def creation_steps(self, lease: Lease) -> list[Step]:
        groups = [step for each in lease.reservations for step in self.server_group_steps(each, each.request)]
        return groups + plan_create(lease.reservations)

    def server_group_steps(self, reservation: Reservation, request: ReservationRequest) -> list[Step]:
        """See `plan_group`; empty unless server groups are configured."""
        return plan_group(reservation, request) if self.makes_server_groups else []

    def _end(self, connection: Connection, lease: Lease, now: datetime) -> list[Step]:
        slots = _with_retired(connection, lease, slots_of(connection, lease))
        living = [each for each in lease.reservations if each.status is not ReservationStatus.DELETED]
        notify = [TellEnd(each.id) for each in living[:1] if self.notifies_ends]
        services = services_of(connection, slots)
        regions, others = _to_empty(connection, lease, now)
        leaving = [
            step for each in living for step in plan_regions(each, (), others.get(each.id, ()), lease.project_id)
        ]
        # Groups whose ids were lost in a crash. `plan_end` deletes the others.
        lost = [
            each.id for each in living if each.server_group_id is None and self.server_group_steps(each, each.request)
        ]
        end = plan_end(lease.reservations, slots, services, lease.project_id, regions)
        return notify + leaving + end + [DeleteGroup(each) for each in lost]


def _start_steps(connection: Connection, leases: Collection[Lease]) -> dict[str, list[Step]]:
    """The number of SQL statements does not depend on the number of leases."""
    its_reservations = [each for lease in leases for each in lease.reservations]
    slots, services = host_store.slots_of(connection, [each.id for each in its_reservations])
    programmed = [
        each.id for each in its_reservations if isinstance(each.request, AnyRequest) and each.request.programs
    ]
    regions = _of_hosts_up(_held(connection, programmed)) if programmed else {}
    return {lease.id: plan_start(lease.reservations, slots, services, lease.project_id, regions) for lease in leases}


def slots_of(connection: Connection, lease: Lease) -> SlotsOfAll:
    """{reservation id: {hypervisor hostname: number of slots}}, from the host allocations (R20)."""
    return host_store.slots_of(connection, [reservation.id for reservation in lease.reservations])[0]


def regions_to_load(connection: Connection, lease: Lease) -> RegionsOfAll:
    """{reservation id: regions of its slots on hosts that are up, but not programmed yet}, for a started lease."""
    loaded = region_store.ordered(connection, lease.id)
    return {
        key: [region for region in regions if not loaded.get(key, {}).get(region)]
        for key, regions in _of_hosts_up(_held(connection, [each.id for each in lease.reservations])).items()
    }


def abandoned_regions(connection: Connection, lease: Lease) -> RegionsOfAll:
    """{reservation id: regions that were programmed but no longer belong to its slots}"""
    held = _held(connection, [each.id for each in lease.reservations])
    loaded = region_store.ordered(connection, lease.id)
    return {
        key: sorted(region for region, is_loaded in regions.items() if is_loaded and region not in held.get(key, {}))
        for key, regions in loaded.items()
    }


def _to_empty(connection: Connection, lease: Lease, now: datetime) -> tuple[RegionsOfAll, RegionsOfAll]:
    """(regions to empty, regions that other reservations use meanwhile), of all that the lease ordered to program.

    The lease keeps the regions of its slots until its end event is finished; the next lease waits for that.
    """
    ordered = region_store.ordered(connection, lease.id)
    if not ordered:
        return {}, {}
    held = _held(connection, [each.id for each in lease.reservations])
    gone = {region for key, regions in ordered.items() for region in regions.keys() - held.get(key, {}).keys()}
    others = region_store.of_others(connection, gone, [each.id for each in lease.reservations], now)
    return (
        {key: sorted(regions.keys() - others) for key, regions in ordered.items()},
        {key: sorted(regions.keys() & others) for key, regions in ordered.items()},
    )


def _held(connection: Connection, reservation_ids: Collection[str]) -> region_store.Regions:
    return region_store.held(connection, host_store.allocations_of(connection, reservation_ids))


def _of_hosts_up(held: region_store.Regions) -> RegionsOfAll:
    return {key: sorted(region for region, is_up in regions.items() if is_up) for key, regions in held.items()}


def _with_retired(connection: Connection, lease: Lease, slots: SlotsOfAll) -> SlotsOfAll:
    """Adds hosts that failed and may still have an inventory, with 0 slots."""
    retired = event_store.retired_hosts(connection, lease.id)
    known = host_store.services(connection, {host for hosts in retired.values() for host in hosts}).keys()
    return {key: dict.fromkeys(retired.get(key, set()) & known, 0) | dict(mine) for key, mine in slots.items()}


def services_of(connection: Connection, *slots: SlotsOfAll) -> dict[str, str]:
    """{hypervisor hostname: the name of its compute service} of the hosts in `slots`."""
    return host_store.services(connection, {host for each in slots for mine in each.values() for host in mine})
