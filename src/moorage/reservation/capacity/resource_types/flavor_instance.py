"""``flavor:instance``: capacity for servers of an existing flavor.

The flavor may request any resource class, traits, request groups and a device profile. From the start of the lease,
servers use a private copy of the flavor that also takes one of the reservation's slots; `virtual_instance` has the
steps.
"""

from dataclasses import replace

from moorage.core.errors import Conflict
from moorage.reservation.capacity.resource_types.base import SlotRequest, check_known, expect
from moorage.reservation.capacity.resource_types.virtual_instance import ServerSlots, check_active
from moorage.reservation.model.leases import Reservation
from moorage.reservation.model.reservation_requests import (
    FLAVOR_INSTANCE,
    FlavorRequest,
    ReservationChange,
    ReservationRequest,
    SourceFlavor,
)
from moorage.reservation.model.slot_demand import DemandGroup, SlotDemand
from moorage.reservation.model.steps import PrivateFlavor
from moorage.scheduler.flavor_resources import FlavorFields, ResourceRequest, request_for

_CHANGEABLE = ("amount", "affinity", "resource_properties", "flavor_id")


class FlavorInstance(ServerSlots):
    name = FLAVOR_INSTANCE

    def wanted(self, request: ReservationRequest) -> SlotRequest:
        asked = expect(request, FlavorRequest)
        return SlotRequest(
            demand_of(asked.source), asked.amount, asked.affinity, properties=(asked.resource_properties,)
        )

    def flavor(self, request: ReservationRequest) -> PrivateFlavor:
        source = expect(request, FlavorRequest).source
        return PrivateFlavor(
            source.vcpus,
            source.memory_mb,
            source.disk_gb,
            source.ephemeral_gb,
            source.swap_mb,
            source.extra_specs,
        )

    def changed(self, reservation: Reservation, change: ReservationChange) -> ReservationRequest:
        old = expect(reservation.request, FlavorRequest)
        size = {"vcpus": old.source.vcpus, "memory_mb": old.source.memory_mb, "disk_gb": old.source.disk_gb}
        check_known(change, _CHANGEABLE, size)
        if change.flavor_id not in (None, reservation.flavor_id, old.source.id):
            raise Conflict("flavor_id cannot be updated")
        # Answers show the flavor there, as an object, if there is no query.
        query = None if (change.resource_properties or "").startswith("{") else change.resource_properties
        request = replace(
            old,
            amount=old.amount if change.amount is None else change.amount,
            affinity=change.affinity if change.affinity_given else old.affinity,
            resource_properties=old.resource_properties if query is None else query,
        )
        if request != old:
            check_active(reservation, old, request)
        return request


def demand_of(source: SourceFlavor) -> SlotDemand:
    """The resources that each server will request from Placement. Raises `Invalid` if the flavor cannot be launched."""
    specs = {**source.extra_specs, **source.profile_specs}
    fields = FlavorFields(source.vcpus, source.memory_mb, source.disk_gb, source.ephemeral_gb, source.swap_mb, specs)
    return as_demand(request_for(fields))


def as_demand(request: ResourceRequest) -> SlotDemand:
    groups = {
        suffix: DemandGroup(group.resources, group.required, group.forbidden)
        for suffix, group in request.groups.items()
        if suffix
    }
    plain = request.groups.get("")
    with_traits = plain is not None and (plain.required or plain.forbidden)
    return SlotDemand(
        resources=plain.resources if plain is not None else {},
        plain=DemandGroup(plain.resources, plain.required, plain.forbidden)
        if plain is not None and with_traits
        else None,
        groups=groups,
        isolate=request.group_policy == "isolate",
        same_subtree=request.same_subtree,
        root_required=request.root_required,
        root_forbidden=request.root_forbidden,
    )
