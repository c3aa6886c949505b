"""``resource:any``: room for servers of whatever resource classes and traits the reservation itself names.

As `flavor_instance`, without a flavor of the tenant's: the private flavor says what the reservation says. What is not
named is not taken, but a flavor has a processor and a megabyte at least: those are struck out again by extra specs.
"""

from dataclasses import replace

from moorage.core.errors import Invalid
from moorage.core.names import is_reservation_class
from moorage.reservation.model import Reservation
from moorage.reservation.requests import FPGA, RESOURCE_ANY, AnyRequest, Request, ReservationChange
from moorage.reservation.resource_types.base import Wanted
from moorage.reservation.resource_types.changes import check_known, expect
from moorage.reservation.resource_types.flavor_instance import as_demand
from moorage.reservation.resource_types.virtual_instance import ServerSlots, check_active
from moorage.reservation.steps import PrivateFlavor, Regions, Step, StepKind
from moorage.scheduler.flavor_resources import FlavorFields, request_for

_CHANGEABLE = (
    "amount",
    "affinity",
    "resources",
    "traits",
    "hypervisor_properties",
    "resource_properties",
    "bitstream_id",
)

#: What a flavor has fields of its own for.
_FIELDS = ("VCPU", "MEMORY_MB", "DISK_GB")


class ResourceAny(ServerSlots):
    name = RESOURCE_ANY

    def wanted(self, request: Request) -> Wanted:
        asked = expect(request, AnyRequest)
        if own := sorted(filter(is_reservation_class, asked.resources)):
            raise Invalid(f"resources: {own[0]} is of a reservation; launch servers with that reservation's flavor")
        if {"VCPU", "PCPU"} <= asked.resources.keys():
            raise Invalid("resources: VCPU and PCPU exclude each other; keep one of them")
        if asked.bitstream_id and FPGA not in asked.resources:
            raise Invalid(f"bitstream_id: name in resources what shall carry it: {FPGA}")
        flavor = self.flavor(asked)
        fields = FlavorFields(flavor.vcpus, flavor.memory_mb, flavor.disk_gb, extra_specs=flavor.extra_specs)
        demand = as_demand(request_for(fields))
        if asked.bitstream_id:
            demand = replace(demand, entire=frozenset({FPGA}))  # a region carries one bitstream
        queries = (asked.hypervisor_properties, asked.resource_properties)
        return Wanted(demand, asked.amount, asked.affinity, properties=queries)

    def flavor(self, request: Request) -> PrivateFlavor:
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
        if asked.bitstream_id:
            specs["accel:bitstream_id"] = asked.bitstream_id  # the host's agent looks again when a server comes
        specs |= {f"trait:{trait}": asked.traits[trait] for trait in sorted(asked.traits)}
        return PrivateFlavor(
            amounts.get("VCPU") or amounts.get("PCPU") or 1,
            amounts.get("MEMORY_MB") or 1,
            amounts.get("DISK_GB", 0),
            extra_specs=specs,
        )

    def plan_regions(self, reservation: Reservation, regions: Regions, project_id: str) -> list[Step]:
        image = expect(reservation.request, AnyRequest).bitstream_id
        if not image:
            return []
        return [
            Step(StepKind.PROGRAM_REGION, reservation.id, project_id=project_id, deployable=region, image_id=image)
            for region in regions
        ]

    def plan_empty(self, reservation: Reservation, regions: Regions) -> list[Step]:
        image = expect(reservation.request, AnyRequest).bitstream_id
        if not image:
            return []
        return [Step(StepKind.EMPTY_REGION, reservation.id, deployable=region, image_id=image) for region in regions]

    def changed(self, reservation: Reservation, change: ReservationChange) -> Request:
        check_known(change, _CHANGEABLE)
        old = expect(reservation.request, AnyRequest)
        request = replace(old, **change.given())  # type: ignore[arg-type]  # fields of one name have one type in both
        if request != old:
            check_active(reservation, old, request)
        return request
