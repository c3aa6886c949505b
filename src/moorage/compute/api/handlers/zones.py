"""Availability zones: what aggregates make of them, and whether a zone has a host that serves."""

from typing import Any

from moorage.compute.api.handlers.views import ComputeRequest, microseconds
from moorage.compute.hosts.host_service import HostDetails
from moorage.compute.model.servers import COMPUTE_BINARY, DEFAULT_ZONE
from moorage.wire.http import Response


def index(request: ComputeRequest) -> Response:
    zones = [
        {"zoneName": zone, "zoneState": {"available": any(_serves(one) for one in members)}, "hosts": None}
        for zone, members in _by_zone(request).items()
    ]
    return Response(body={"availabilityZoneInfo": zones})


def detail(request: ComputeRequest) -> Response:
    zones = [
        {
            "zoneName": zone,
            "zoneState": {"available": any(_serves(one) for one in members)},
            "hosts": {one.host.name: {COMPUTE_BINARY: _zone_service(one)} for one in members},
        }
        for zone, members in _by_zone(request).items()
    ]
    return Response(body={"availabilityZoneInfo": zones})


def _by_zone(request: ComputeRequest) -> dict[str, list[HostDetails]]:
    zones: dict[str, list[HostDetails]] = {}
    for details in request.service.hosts.hosts():
        zones.setdefault(details.zone, []).append(details)
    return dict(sorted(zones.items())) or {DEFAULT_ZONE: []}


def _serves(details: HostDetails) -> bool:
    return details.is_up and details.host.is_enabled


def _zone_service(details: HostDetails) -> dict[str, Any]:
    return {
        "available": details.is_up,
        "active": details.host.is_enabled,
        "updated_at": microseconds(details.host.heartbeat_at),
    }
