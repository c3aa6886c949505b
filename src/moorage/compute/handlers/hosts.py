"""Hypervisors, compute services and availability zones."""

import json
from typing import Any

from moorage.compute.handlers.views import ComputeCall, flag, microseconds, next_link, page
from moorage.compute.host_service import HostDetails
from moorage.compute.model import COMPUTE_BINARY, DEFAULT_ZONE
from moorage.core.errors import Invalid, NotFound
from moorage.wire.call import Reply

#: What `_capacity` tells of a host, and the statistics of all together.
_CAPACITY_NAMES = (
    "vcpus", "memory_mb", "local_gb", "vcpus_used", "memory_mb_used", "local_gb_used", "free_ram_mb",
    "free_disk_gb", "current_workload", "running_vms", "disk_available_least",
)  # fmt: skip

# ------------------------------------------------------------------------------------------ hypervisors


def index_hypervisors(call: ComputeCall) -> Reply:
    return _list_hypervisors(call, [_hypervisor(call, one, detailed=False) for one in _wanted(call)])


def detail_hypervisors(call: ComputeCall) -> Reply:
    return _list_hypervisors(call, [_hypervisor(call, one, detailed=True) for one in _wanted(call)])


def show_hypervisor(call: ComputeCall, hypervisor_id: str) -> Reply:
    for details in call.service.hosts.hosts():
        if str(_hypervisor_id(call, details)) == hypervisor_id:
            return Reply(body={"hypervisor": _hypervisor(call, details, detailed=True)})
    raise NotFound(f"Compute host {hypervisor_id} could not be found.")


def statistics(call: ComputeCall) -> Reply:
    hosts = call.service.hosts.hosts()
    total: dict[str, int] = {"count": len(hosts)}
    for details in hosts:
        for name, value in _capacity(details).items():
            total[name] = total.get(name, 0) + value
    return Reply(body={"hypervisor_statistics": dict.fromkeys(_CAPACITY_NAMES, 0) | total})


def search_hypervisors(call: ComputeCall, hypervisor_id: str) -> Reply:
    return Reply(
        body={"hypervisors": [_hypervisor(call, one, detailed=False) for one in _matching(call, hypervisor_id)]}
    )


def servers_of_hypervisors(call: ComputeCall, hypervisor_id: str) -> Reply:
    rows = [
        _hypervisor(call, one, detailed=False) | ({"servers": _servers(one)} if one.servers else {})
        for one in _matching(call, hypervisor_id)
    ]
    return Reply(body={"hypervisors": rows})


def _wanted(call: ComputeCall) -> list[HostDetails]:
    pattern = call.query.first("hypervisor_hostname_pattern") if call.version >= (2, 53) else None
    return call.service.hosts.hosts() if pattern is None else _matching(call, pattern)


def _matching(call: ComputeCall, pattern: str) -> list[HostDetails]:
    found = [details for details in call.service.hosts.hosts() if pattern in details.host.name]
    if not found:
        raise NotFound(f"No hypervisor matching '{pattern}' could be found.")
    return found


def _list_hypervisors(call: ComputeCall, rows: list[dict[str, Any]]) -> Reply:
    if call.version < (2, 33):
        return Reply(body={"hypervisors": rows})
    shown, more = page(rows, call)
    body: dict[str, Any] = {"hypervisors": shown}
    if more and shown:
        body["hypervisors_links"] = next_link(call, str(shown[-1]["id"]))
    return Reply(body=body)


def _hypervisor(call: ComputeCall, details: HostDetails, *, detailed: bool) -> dict[str, Any]:
    host = details.host
    view: dict[str, Any] = {
        "id": _hypervisor_id(call, details),
        "hypervisor_hostname": host.name,
        "state": "up" if details.is_up else "down",
        "status": "enabled" if host.is_enabled else "disabled",
    }
    if detailed:
        view |= {
            "hypervisor_type": host.report.hypervisor_type,
            "hypervisor_version": host.report.hypervisor_version,
            "host_ip": host.report.host_ip,
            "service": {
                "id": _service_id(call, details),
                "host": host.name,
                "disabled_reason": host.disabled_reason,
            },
        }
        view |= (
            _capacity(details) | {"cpu_info": _cpu_info(call, details)} if call.version < (2, 88) else {"uptime": None}
        )
    if call.version >= (2, 53) and flag(call.query.first("with_servers") or False):
        # From 2.75 on an empty list is shown too.
        view |= {"servers": _servers(details)} if details.servers or call.version >= (2, 75) else {}
    return view


def _hypervisor_id(call: ComputeCall, details: HostDetails) -> int | str:
    return details.host.report.provider_uuid if call.version >= (2, 53) else details.host.number


def _service_id(call: ComputeCall, details: HostDetails) -> int | str:
    return details.host.service_uuid if call.version >= (2, 53) else details.host.number


def _servers(details: HostDetails) -> list[dict[str, str]]:
    return [{"name": name, "uuid": server_id} for server_id, name in details.servers]


def _capacity(details: HostDetails) -> dict[str, int]:
    report = details.host.report
    return {
        "vcpus": report.vcpus,
        "memory_mb": report.memory_mb,
        "local_gb": report.local_gb,
        "vcpus_used": details.vcpus_used,
        "memory_mb_used": details.memory_mb_used,
        "local_gb_used": details.local_gb_used,
        "free_ram_mb": report.memory_mb - details.memory_mb_used,
        "free_disk_gb": report.local_gb - details.local_gb_used,
        "current_workload": 0,
        "running_vms": len(details.servers),
        "disk_available_least": report.local_gb - details.local_gb_used,
    }


def _cpu_info(call: ComputeCall, details: HostDetails) -> object:
    """An object from 2.28 on, before that its text."""
    info = dict(details.host.report.cpu_info)
    return info if call.version >= (2, 28) else json.dumps(info)


# --------------------------------------------------------------------------------------------- services


def index_services(call: ComputeCall) -> Reply:
    binary, host = call.query.first("binary"), call.query.first("host")
    found = [
        details
        for details in call.service.hosts.hosts()
        if binary in (None, COMPUTE_BINARY) and host in (None, details.host.name)
    ]
    return Reply(body={"services": [_service(call, details) for details in found]})


def update_service(call: ComputeCall, service_id: str) -> Reply:
    body = call.json
    is_enabled = None if "status" not in body else body["status"] == "enabled"
    if body.get("disabled_reason") and is_enabled is not False:
        raise Invalid("Specifying disabled_reason is not allowed when status is not disabled.")
    forced_down = flag(body["forced_down"]) if "forced_down" in body else None
    if is_enabled is None and forced_down is None:
        raise Invalid("No updates were requested. Fields 'status' or 'forced_down' should be specified.")
    details = call.service.hosts.set_service(
        service_id, is_enabled=is_enabled, disabled_reason=body.get("disabled_reason"), forced_down=forced_down
    )
    return Reply(body={"service": _service(call, details)})


def _service(call: ComputeCall, details: HostDetails) -> dict[str, Any]:
    host = details.host
    view = {
        "id": _service_id(call, details),
        "binary": COMPUTE_BINARY,
        "host": host.name,
        "zone": details.zone,
        "status": "enabled" if host.is_enabled else "disabled",
        "state": "up" if details.is_up else "down",
        "updated_at": microseconds(host.heartbeat_at),
        "disabled_reason": host.disabled_reason,
    }
    if call.version >= (2, 11):
        view["forced_down"] = host.forced_down
    return view


# ------------------------------------------------------------------------------------------------ zones


def index_zones(call: ComputeCall) -> Reply:
    zones = [
        {"zoneName": zone, "zoneState": {"available": any(_serves(one) for one in members)}, "hosts": None}
        for zone, members in _by_zone(call).items()
    ]
    return Reply(body={"availabilityZoneInfo": zones})


def detail_zones(call: ComputeCall) -> Reply:
    zones = [
        {
            "zoneName": zone,
            "zoneState": {"available": any(_serves(one) for one in members)},
            "hosts": {one.host.name: {COMPUTE_BINARY: _zone_service(one)} for one in members},
        }
        for zone, members in _by_zone(call).items()
    ]
    return Reply(body={"availabilityZoneInfo": zones})


def _by_zone(call: ComputeCall) -> dict[str, list[HostDetails]]:
    zones: dict[str, list[HostDetails]] = {}
    for details in call.service.hosts.hosts():
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
