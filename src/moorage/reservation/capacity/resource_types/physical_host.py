"""``physical:host``: whole hosts of the free pool, for one project.

    create   an aggregate named after the reservation's id, as in Blazar
    start    clear each host of servers, move it from the free pool to the aggregate; then give the project access
    end      revoke access, delete the servers, move the hosts back to the free pool, delete the aggregate

Servers are scheduled to these hosts by the hint ``reservation=<id>``, which only the project with access to the
aggregate may use: see `scheduler.prefilters`. A host in the aggregate belongs to this reservation only, even after a
crash; so the end reads the hosts to return from the aggregate.
"""

from dataclasses import replace

from moorage.core.errors import Conflict, Invalid
from moorage.reservation.capacity.resource_types.base import SlotRequest, check_known, expect
from moorage.reservation.model.leases import Reservation, ReservationStatus
from moorage.reservation.model.reservation_requests import (
    PHYSICAL_HOST,
    ReservationChange,
    ReservationRequest,
    WholeHostRequest,
)
from moorage.reservation.model.slot_demand import SlotDemand
from moorage.reservation.model.steps import (
    ClearAggregate,
    ClearHost,
    CloseAggregate,
    DissolveAggregate,
    EnsureAggregate,
    FindServersOfHosts,
    LendHost,
    OpenAggregate,
    Regions,
    RetireHost,
    ReturnHost,
    Services,
    Slots,
    Step,
)

_CHANGEABLE = ("min", "max", "hypervisor_properties", "resource_properties", "before_end")


class PhysicalHost:
    name = PHYSICAL_HOST
    has_flavor = False

    def wanted(self, request: ReservationRequest) -> SlotRequest:
        asked = expect(request, WholeHostRequest)
        return SlotRequest(
            SlotDemand(whole_host=True),
            asked.least,
            most=asked.most,
            properties=(asked.hypervisor_properties, asked.resource_properties),
        )

    def changed(self, reservation: Reservation, change: ReservationChange) -> ReservationRequest:
        """The request after an update. An active reservation may change too: it keeps its present hosts."""
        check_known(change, _CHANGEABLE)
        old = expect(reservation.request, WholeHostRequest)

        def new(given: str | None, before: str) -> str:
            return before if given is None else given

        request = replace(
            old,
            least=old.least if change.min is None else change.min,
            most=old.most if change.max is None else change.max,
            hypervisor_properties=new(change.hypervisor_properties, old.hypervisor_properties),
            resource_properties=new(change.resource_properties, old.resource_properties),
            before_end=new(change.before_end, old.before_end),
        )
        check_range(request.least, request.most)
        if request != old and reservation.status not in (ReservationStatus.PENDING, ReservationStatus.ACTIVE):
            raise Conflict(f"reservation {reservation.id} is in state {reservation.status} and cannot be changed")
        return request

    def plan_create(self, reservation: Reservation) -> list[Step]:
        return [EnsureAggregate(reservation.id)]

    def plan_hosts(self, reservation: Reservation, slots: Slots, services: Services, before: Slots) -> list[Step]:
        """A host joins the aggregate before it leaves the free pool: outside both, every project could use it."""
        steps: list[Step] = []
        for host in sorted(slots.keys() - before.keys()):
            steps += [ClearHost(reservation.id, services[host]), LendHost(reservation.id, services[host])]
        gone = sorted(before.keys() - slots.keys())
        return steps + [ReturnHost(reservation.id, services[host]) for host in gone]

    def plan_move(self, reservation: Reservation, slots: Slots, services: Services, lost: Slots) -> list[Step]:
        retired = sorted(lost.keys() - slots.keys())
        steps: list[Step] = [RetireHost(reservation.id, services[host]) for host in retired]
        return steps + self.plan_hosts(reservation, slots, services, {})

    def plan_open(self, reservation: Reservation, project_id: str) -> list[Step]:
        return [OpenAggregate(reservation.id, project_id)]

    def plan_regions(self, reservation: Reservation, regions: Regions, project_id: str) -> list[Step]:
        return []

    def plan_leave(self, reservation: Reservation, regions: Regions) -> list[Step]:
        return []

    def plan_empty(self, reservation: Reservation, regions: Regions) -> list[Step]:
        return []

    def plan_change(self, reservation: Reservation, request: ReservationRequest) -> list[Step]:
        return []

    def plan_snapshot(self, reservation: Reservation) -> Step:
        return FindServersOfHosts(reservation.id)

    def plan_end(self, reservation: Reservation, slots: Slots, services: Services, project_id: str) -> list[Step]:
        """Access ends first, so that no server is launched while the others are being deleted."""
        return [CloseAggregate(reservation.id), ClearAggregate(reservation.id), DissolveAggregate(reservation.id)]


def check_range(least: int, most: int) -> None:
    if least < 1 or most < 1:
        raise Invalid("Malformed parameter min and max (must be greater than or equal to 1)")
    if most < least:
        raise Invalid("Invalid values for min/max of hosts. Max must be equal to or larger than min.")
