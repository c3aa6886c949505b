"""The resource types that there are."""

from collections.abc import Mapping

from moorage.core.errors import Invalid
from moorage.reservation.requests import (
    FLAVOR_INSTANCE,
    PHYSICAL_HOST,
    RESOURCE_ANY,
    VIRTUAL_FLOATING_IP,
    VIRTUAL_INSTANCE,
)
from moorage.reservation.resource_types.base import ResourceType
from moorage.reservation.resource_types.flavor_instance import FlavorInstance
from moorage.reservation.resource_types.floating_ip import VirtualFloatingIp
from moorage.reservation.resource_types.physical_host import PhysicalHost
from moorage.reservation.resource_types.resource_any import ResourceAny
from moorage.reservation.resource_types.virtual_instance import VirtualInstance

TYPES: Mapping[str, ResourceType] = {
    VIRTUAL_INSTANCE: VirtualInstance(),
    FLAVOR_INSTANCE: FlavorInstance(),
    PHYSICAL_HOST: PhysicalHost(),
    RESOURCE_ANY: ResourceAny(),
    VIRTUAL_FLOATING_IP: VirtualFloatingIp(),
}


def type_named(name: str) -> ResourceType:
    if name not in TYPES:
        raise Invalid(f"The {name} resource type is not supported; there are {', '.join(TYPES)}")
    return TYPES[name]
