"""Converts Blazar's rows to the requests of `reservation_requests`; None if a row is incomplete or malformed."""

import json
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any

from moorage.core.errors import Invalid
from moorage.reservation.capacity.resource_types.flavor_instance import demand_of
from moorage.reservation.model.reservation_requests import (
    BEFORE_END,
    FLAVOR_INSTANCE,
    PHYSICAL_HOST,
    VIRTUAL_FLOATING_IP,
    VIRTUAL_INSTANCE,
    FlavorRequest,
    FloatingIpRequest,
    InstanceRequest,
    Size,
    SourceFlavor,
    WholeHostRequest,
)
from moorage.reservation.model.slot_demand import WHOLE_HOST, Amounts

#: Requests of the resource types that are imported.
PeerRequest = InstanceRequest | FlavorRequest | WholeHostRequest | FloatingIpRequest

#: Resource types that Blazar stores in ``instance_reservations``.
WITH_SLOTS = (VIRTUAL_INSTANCE, FLAVOR_INSTANCE)


def request_of(resource_type: str, details: Any, required: Sequence[str] = ()) -> PeerRequest | None:
    """The request in the type-specific row `details`. `required`: required addresses of a floating IP request."""
    if resource_type == PHYSICAL_HOST:
        return _hosts(details)
    if resource_type == VIRTUAL_FLOATING_IP:
        return _floating_ips(details, required)
    if resource_type == FLAVOR_INSTANCE:
        return _flavor(details)
    size = Size(details.vcpus, details.memory_mb, details.disk_gb)
    return InstanceRequest(size, details.amount, details.affinity, _properties(details.resource_properties))


def amounts_of(request: InstanceRequest | FlavorRequest | WholeHostRequest) -> Amounts:
    """The amounts that each slot takes, {label: amount}."""
    if isinstance(request, WholeHostRequest):
        return {WHOLE_HOST: 1}
    return demand_of(request.source).totals if isinstance(request, FlavorRequest) else request.size.resources()


def _hosts(details: Any) -> WholeHostRequest | None:
    least, _, most = (details.count_range or "").partition("-")
    if not (least.isdecimal() and most.isdecimal() and 0 < int(least) <= int(most)):
        return None
    before_end = details.before_end if details.before_end in BEFORE_END else "default"
    return WholeHostRequest(
        int(least),
        int(most),
        _properties(details.hypervisor_properties),
        _properties(details.resource_properties),
        before_end,
    )


def _floating_ips(details: Any, required: Sequence[str]) -> FloatingIpRequest | None:
    try:
        named = tuple(str(ip_address(each)) for each in required)
    except ValueError:
        return None
    if details.amount < 1 or len(named) > details.amount:
        return None
    return FloatingIpRequest(details.network_id, details.amount, named)


def _flavor(details: Any) -> FlavorRequest | None:
    """Blazar stores the reserved flavor, as JSON from Nova's API, in the column for the query of other types."""
    try:
        shown = json.loads(details.resource_properties or "")
        source = SourceFlavor(
            id=str(shown["id"]),
            name=str(shown["name"]),
            vcpus=int(shown["vcpus"]),
            memory_mb=int(shown["ram"]),
            disk_gb=int(shown["disk"]),
            ephemeral_gb=int(shown.get("OS-FLV-EXT-DATA:ephemeral") or 0),
            swap_mb=0,  # the private flavor that Blazar creates has none
            extra_specs=_texts(shown.get("extra_specs") or {}),
        )
        demand_of(source)
    except (ValueError, TypeError, KeyError, AttributeError, Invalid):
        return None
    return FlavorRequest(source, details.amount, details.affinity)


def _texts(specs: Mapping[str, object]) -> dict[str, str]:
    return {str(name): str(value) for name, value in specs.items()}


def _properties(text: str | None) -> str:
    """The query, with all of Blazar's forms of "any host" (such as ``[]``) converted to the empty string."""
    stripped = (text or "").strip()
    try:
        return "" if stripped and not json.loads(stripped) else stripped
    except ValueError:
        return stripped
