"""``resource:any``: capacity for servers that take the resource classes and traits that the reservation names.

Like `flavor_instance`, but without a flavor of the tenant: the private flavor is made from the request. A server takes
only the named classes. A flavor must have at least 1 VCPU and 1 MB, so extra specs set these to 0 if not requested.
"""

from dataclasses import replace

from moorage.core.errors import Invalid
from moorage.core.names import is_reservation_class, reservation_trait
from moorage.reservation.capacity.resource_types.base import SlotRequest, check_known, expect
from moorage.reservation.capacity.resource_types.flavor_instance import as_demand
from moorage.reservation.capacity.resource_types.virtual_instance import ServerSlots, check_active
from moorage.reservation.model.leases import Reservation
from moorage.reservation.model.reservation_requests import (
    BITSTREAM_NAMES,
    FPGA,
    RESOURCE_ANY,
    AnyRequest,
    ReservationChange,
    ReservationRequest,
)
from moorage.reservation.model.steps import (
    DeleteTrait,
    EmptyRegion,
    PrivateFlavor,
    ProgramRegion,
    Regions,
    RetireRegion,
    Step,
)
from moorage.scheduler.flavor_resources import FlavorFields, request_for

_CHANGEABLE = (
    "amount",
    "affinity",
    "resources",
    "traits",
    "hypervisor_properties",
    "resource_properties",
    *BITSTREAM_NAMES,
)

#: Resource classes that a flavor has as fields, not as extra specs.
_FIELDS = ("VCPU", "MEMORY_MB", "DISK_GB")


class ResourceAny(ServerSlots):
    name = RESOURCE_ANY

    def wanted(self, request: ReservationRequest) -> SlotRequest:
        asked = expect(request, AnyRequest)
        if own := sorted(filter(is_reservation_class, asked.resources)):
            raise Invalid(
                f"resources: {own[0]} belongs to a reservation; launch servers with the flavor of that reservation"
            )
        if {"VCPU", "PCPU"} <= asked.resources.keys():
            raise Invalid("resources: VCPU and PCPU cannot be combined; remove one of them")
        if len(asked.programs) > 1:
            raise Invalid(
                f"{' and '.join(asked.programs)} cannot be combined: a region carries one bitstream; set one of them"
            )
        if asked.programs and FPGA not in asked.resources:
            raise Invalid(f"{', '.join(asked.programs)} needs an accelerator to program: add {FPGA} to resources")
        flavor = self.flavor(asked)
        fields = FlavorFields(flavor.vcpus, flavor.memory_mb, flavor.disk_gb, extra_specs=flavor.extra_specs)
        demand = as_demand(request_for(fields))
        if asked.programs:
            demand = replace(demand, entire=frozenset({FPGA}))  # a region carries one bitstream
        queries = (asked.hypervisor_properties, asked.resource_properties)
        return SlotRequest(demand, asked.amount, asked.affinity, properties=queries)

    def flavor(self, request: ReservationRequest) -> PrivateFlavor:
        """
        >>> ResourceAny().flavor(AnyRequest({"VCPU": 2, "CUSTOM_FPGA": 1}, 1)).extra_specs
        {'resources:CUSTOM_FPGA': '1', 'resources:MEMORY_MB': '0'}
        """
        asked = expect(request, AnyRequest)
        amounts = asked.resources
        specs = {f"resources:{name}": str(amounts[name]) for name in sorted(amounts) if name not in _FIELDS}
        if not amounts.get("VCPU") and not amounts.get("PCPU"):
            specs["resources:VCPU"] = "0"
        if not amounts.get("MEMORY_MB"):
            specs["resources:MEMORY_MB"] = "0"
        specs |= {f"accel:{way}": name for way, name in asked.programs.items()}  # looked up again per server
        specs |= {f"trait:{trait}": asked.traits[trait] for trait in sorted(asked.traits)}
        return PrivateFlavor(
            amounts.get("VCPU") or amounts.get("PCPU") or 1,
            amounts.get("MEMORY_MB") or 1,
            amounts.get("DISK_GB", 0),
            extra_specs=specs,
        )

    def own_flavor(self, reservation: Reservation, request: ReservationRequest) -> PrivateFlavor:
        """The flavor, restricted to the FPGA regions that were programmed for this reservation.

        A host may have other regions of the same class. Only the programmed ones have the reservation's trait, which
        the flavor requires.
        """
        flavor = self.flavor(request)
        if not expect(request, AnyRequest).programs:
            return flavor
        specs = {**flavor.extra_specs, f"trait:{reservation_trait(reservation.id)}": "required"}
        return replace(flavor, extra_specs=specs)

    def plan_regions(self, reservation: Reservation, regions: Regions, project_id: str) -> list[Step]:
        asked = expect(reservation.request, AnyRequest)
        if not asked.programs:
            return []
        bitstream = asked.bitstream_id, asked.function_id, asked.function_name
        return [ProgramRegion(reservation.id, project_id, region, *bitstream) for region in regions]

    def plan_leave(self, reservation: Reservation, regions: Regions) -> list[Step]:
        return [RetireRegion(reservation.id, region) for region in regions]

    def plan_empty(self, reservation: Reservation, regions: Regions) -> list[Step]:
        asked = expect(reservation.request, AnyRequest)
        if not asked.programs:
            return []
        bitstream = asked.bitstream_id, asked.function_id, asked.function_name
        return [
            *(EmptyRegion(reservation.id, region, *bitstream) for region in regions),
            DeleteTrait(reservation.id),
        ]

    def changed(self, reservation: Reservation, change: ReservationChange) -> ReservationRequest:
        check_known(change, _CHANGEABLE, {"flavor_id": reservation.flavor_id})
        old = expect(reservation.request, AnyRequest)
        given = {name: value for name, value in change.given().items() if name in _CHANGEABLE}
        if any(given.get(way) for way in BITSTREAM_NAMES):  # the new name replaces one of another kind
            given = dict.fromkeys(BITSTREAM_NAMES, "") | given
        # A change declares each field of AnyRequest with the same type.
        request = replace(old, **given)  # type: ignore[arg-type]
        if request != old:
            check_active(reservation, old, request)
        return request
