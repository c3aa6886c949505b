"""All resource types, by name."""

from collections.abc import Mapping

from moorage.core.errors import Invalid
from moorage.reservation.capacity.resource_types.base import ResourceType
from moorage.reservation.capacity.resource_types.flavor_instance import FlavorInstance
from moorage.reservation.capacity.resource_types.floating_ip import VirtualFloatingIp
from moorage.reservation.capacity.resource_types.physical_host import PhysicalHost
from moorage.reservation.capacity.resource_types.resource_any import ResourceAny
from moorage.reservation.capacity.resource_types.virtual_instance import VirtualInstance
from moorage.reservation.model.reservation_requests import (
    FLAVOR_INSTANCE,
    PHYSICAL_HOST,
    RESOURCE_ANY,
    VIRTUAL_FLOATING_IP,
    VIRTUAL_INSTANCE,
)

TYPES: Mapping[str, ResourceType] = {
    VIRTUAL_INSTANCE: VirtualInstance(),
    FLAVOR_INSTANCE: FlavorInstance(),
    PHYSICAL_HOST: PhysicalHost(),
    RESOURCE_ANY: ResourceAny(),
    VIRTUAL_FLOATING_IP: VirtualFloatingIp(),
}


def type_named(name: str) -> ResourceType:
    if name not in TYPES:
        raise Invalid(f"The {name} resource type is not supported; supported types: {', '.join(TYPES)}")
    return TYPES[name]
