"""``virtual:instance``: capacity for servers of one size. Reservations imported from an older system keep its
resources.

Spec: docs/evidence/specs/instance-reservation.md

    create   class CUSTOM_RESERVATION_<ID>, then a private flavor that asks for 1 of it             (R8, R9)
    start    inventory of the class on each host's reservation provider, then flavor access      (R20-R24)
    end      access off, servers deleted and gone, flavor, inventory per host, class             (R29-R32)

This type creates no aggregate and no server group (R10): the inventory alone determines on which hosts servers may run,
and how many. (With ``compat_server_groups``, `step_plans.plan_group` adds a group.) A reservation of an older system
may have both (R25, R33). Its hosts join its aggregate before the project gets access; the end deletes the server group
and the aggregate together with the flavor. A reservation without a resource class has no inventory steps.
"""

from dataclasses import replace
from typing import TypeVar

from moorage.core.errors import Conflict
from moorage.reservation.capacity.resource_types.base import SlotRequest, check_known, expect
from moorage.reservation.model.leases import Reservation, ReservationGeneration, ReservationStatus
from moorage.reservation.model.reservation_requests import (
    VIRTUAL_INSTANCE,
    AnyRequest,
    FlavorRequest,
    InstanceRequest,
    ReservationChange,
    ReservationRequest,
    Size,
)
from moorage.reservation.model.slot_demand import SlotDemand
from moorage.reservation.model.steps import (
    DeleteAggregate,
    DeleteClass,
    DeleteFlavor,
    DeleteGroup,
    DeleteServers,
    DropInventory,
    EnsureClass,
    EnsureFlavor,
    FindServers,
    GrantAccess,
    JoinAggregate,
    PrivateFlavor,
    PutInventory,
    ReclaimInventory,
    Regions,
    RetireInventory,
    RevokeAccess,
    Services,
    Slots,
    Step,
)

#: The peer's refusal to give up slots of an active reservation; ours adds the reason.
KEEPS_SLOTS = (
    "Instance reservation doesn't allow to reduce/replace reserved instance slots when the reservation is in active "
    "status."
)

#: Requests for a number of slots.
A = TypeVar("A", InstanceRequest, FlavorRequest, AnyRequest)

_CHANGEABLE = ("vcpus", "memory_mb", "disk_gb", "amount", "affinity", "resource_properties")


class ServerSlots:
    """The common part of all types in which a slot is the capacity for one server."""

    has_flavor = True

    def flavor(self, request: ReservationRequest) -> PrivateFlavor:
        raise NotImplementedError

    def own_flavor(self, reservation: Reservation, request: ReservationRequest) -> PrivateFlavor:
        """The flavor, with the extra specs that a type needs beyond the resource class to confine servers to the
        reservation.
        """
        return self.flavor(request)

    def plan_create(self, reservation: Reservation) -> list[Step]:
        return [EnsureClass(reservation.id), self._ensure_flavor(reservation, reservation.request)]

    def plan_hosts(self, reservation: Reservation, slots: Slots, services: Services, before: Slots) -> list[Step]:
        """One inventory for each host, whose total is the number of the reservation's slots there (R20).

        Hosts that no longer have a slot lose the inventory: a total of 0 is not allowed (A4).
        """
        steps: list[Step] = []
        if reservation.has_inventory:
            steps += [PutInventory(reservation.id, host, slots[host]) for host in sorted(slots)]
            gone = sorted(before.keys() - slots.keys())
            steps += [DropInventory(reservation.id, host) for host in gone]
        if (aggregate := reservation.aggregate_id) is not None:
            steps += [JoinAggregate(reservation.id, services[host], aggregate) for host in sorted(slots)]
        return steps

    def plan_move(self, reservation: Reservation, slots: Slots, services: Services, lost: Slots) -> list[Step]:
        steps = self.plan_hosts(reservation, slots, services, {})
        if reservation.has_inventory:
            retired = sorted(lost.keys() - slots.keys())
            steps += [RetireInventory(reservation.id, host) for host in retired]
        return steps

    def plan_open(self, reservation: Reservation, project_id: str) -> list[Step]:
        return [GrantAccess(reservation.id, project_id)]

    def plan_regions(self, reservation: Reservation, regions: Regions, project_id: str) -> list[Step]:
        return []

    def plan_leave(self, reservation: Reservation, regions: Regions) -> list[Step]:
        return []

    def plan_empty(self, reservation: Reservation, regions: Regions) -> list[Step]:
        return []

    def plan_change(self, reservation: Reservation, request: ReservationRequest) -> list[Step]:
        """Replaces the flavor: before the start, no server uses it."""
        if self.flavor(request) == self.flavor(reservation.request):
            return []
        return [DeleteFlavor(reservation.id), self._ensure_flavor(reservation, request)]

    def _ensure_flavor(self, reservation: Reservation, request: ReservationRequest) -> EnsureFlavor:
        flavor = self.own_flavor(reservation, request)
        return EnsureFlavor(
            reservation.id,
            flavor.vcpus,
            flavor.memory_mb,
            flavor.disk_gb,
            flavor.ephemeral_gb,
            flavor.swap_mb,
            dict(flavor.extra_specs),
        )

    def plan_snapshot(self, reservation: Reservation) -> Step:
        return FindServers(reservation.id)

    def plan_end(self, reservation: Reservation, slots: Slots, services: Services, project_id: str) -> list[Step]:
        """Access goes first, so that no server is launched while the others are being deleted."""
        steps: list[Step] = [RevokeAccess(reservation.id, project_id), DeleteServers(reservation.id)]
        if reservation.server_group_id is not None:
            steps.append(DeleteGroup(reservation.id, reservation.server_group_id))
        steps.append(DeleteFlavor(reservation.id))
        if reservation.aggregate_id is not None:
            steps.append(DeleteAggregate(reservation.id, reservation.aggregate_id))
        if reservation.has_inventory:
            steps += [ReclaimInventory(reservation.id, host) for host in sorted(slots)]
            steps.append(DeleteClass(reservation.id))
        return steps


class VirtualInstance(ServerSlots):
    name = VIRTUAL_INSTANCE

    def wanted(self, request: ReservationRequest) -> SlotRequest:
        asked = expect(request, InstanceRequest)
        return SlotRequest(
            SlotDemand(asked.size.resources()), asked.amount, asked.affinity, properties=(asked.resource_properties,)
        )

    def flavor(self, request: ReservationRequest) -> PrivateFlavor:
        size = expect(request, InstanceRequest).size
        return PrivateFlavor(size.vcpus, size.memory_mb, size.disk_gb)

    def changed(self, reservation: Reservation, change: ReservationChange) -> ReservationRequest:
        check_known(change, _CHANGEABLE, {"flavor_id": reservation.flavor_id})
        old = expect(reservation.request, InstanceRequest)
        request = replace(
            old,
            size=Size(
                old.size.vcpus if change.vcpus is None else change.vcpus,
                old.size.memory_mb if change.memory_mb is None else change.memory_mb,
                old.size.disk_gb if change.disk_gb is None else change.disk_gb,
            ),
            amount=old.amount if change.amount is None else change.amount,
            affinity=change.affinity if change.affinity_given else old.affinity,
            resource_properties=(
                old.resource_properties if change.resource_properties is None else change.resource_properties
            ),
        )
        if request != old:
            _check_older(reservation, old, request)
            check_active(reservation, old, request)
        return request


def _check_older(reservation: Reservation, old: InstanceRequest, request: InstanceRequest) -> None:
    """Refuses changes of size and affinity if another system made the flavor and the server group (R25)."""
    if reservation.generation is not ReservationGeneration.PURE and (request.size, request.affinity) != (
        old.size,
        old.affinity,
    ):
        raise Conflict(
            f"reservation {reservation.id} was created by an older system; its size and affinity cannot be changed: "
            "create a new lease"
        )


def check_active(reservation: Reservation, old: A, request: A) -> None:
    """Raises `Conflict` unless only the amount of an active reservation changes: servers may run in it (A15)."""
    if reservation.status is ReservationStatus.PENDING:
        return
    if reservation.status is not ReservationStatus.ACTIVE:
        raise Conflict(f"reservation {reservation.id} is in state {reservation.status} and cannot be changed")
    if replace(request, amount=old.amount) != old:
        raise Conflict("An active reservation only accepts to update amount.")
    if request.amount < old.amount:
        _check_smaller(reservation, request)


def _check_smaller(reservation: Reservation, request: ReservationRequest) -> None:
    if not reservation.has_inventory:
        raise Conflict(f"{KEEPS_SLOTS} It was created by an older system.")
    if isinstance(request, AnyRequest) and request.programs:
        raise Conflict(f"{KEEPS_SLOTS} Its regions are programmed until the lease ends.")
    if reservation.missing_resources:
        raise Conflict(f"{KEEPS_SLOTS} Some of them have no capacity now; repeat the request when they have.")
