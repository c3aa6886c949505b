"""Hypervisors: one for each host, called as the host is."""

import json
import re
from typing import Any

from moorage.compute.api.handlers.views import ComputeCall, flag, next_link, page
from moorage.compute.hosts.host_service import HostDetails
from moorage.core.errors import Invalid, NotBuilt, NotFound
from moorage.core.ids import is_uuid
from moorage.wire.http import Reply

#: What `_capacity` tells of a host, and the statistics of all together.
_CAPACITY_NAMES = (
    "vcpus", "memory_mb", "local_gb", "vcpus_used", "memory_mb_used", "local_gb_used", "free_ram_mb",
    "free_disk_gb", "current_workload", "running_vms", "disk_available_least",
)  # fmt: skip
_PATTERN = re.compile(r"[a-zA-Z0-9-._]{1,255}\Z")


def index(call: ComputeCall) -> Reply:
    return _list(call, detailed=False)


def detail(call: ComputeCall) -> Reply:
    return _list(call, detailed=True)


def show(call: ComputeCall, hypervisor_id: str) -> Reply:
    details = _one(call, hypervisor_id)
    view = _view(call, details, detailed=True)
    return Reply(body={"hypervisor": view | _servers_if_wanted(call, details)})


def uptime(call: ComputeCall, hypervisor_id: str) -> Reply:
    _one(call, hypervisor_id)
    raise NotBuilt("Hosts do not report how long they have been up.")


def statistics(call: ComputeCall) -> Reply:
    hosts = call.service.hosts.hosts()
    total: dict[str, int] = {"count": len(hosts)}
    for details in hosts:
        for name, value in _capacity(details).items():
            total[name] = total.get(name, 0) + value
    return Reply(body={"hypervisor_statistics": dict.fromkeys(_CAPACITY_NAMES, 0) | total})


def search(call: ComputeCall, hypervisor_id: str) -> Reply:
    return Reply(body={"hypervisors": [_view(call, one, detailed=False) for one in _matching(call, hypervisor_id)]})


def servers(call: ComputeCall, hypervisor_id: str) -> Reply:
    rows = [
        _view(call, one, detailed=False) | ({"servers": _servers(one)} if one.servers else {})
        for one in _matching(call, hypervisor_id)
    ]
    return Reply(body={"hypervisors": rows})


def _list(call: ComputeCall, *, detailed: bool) -> Reply:
    def rows(found: list[HostDetails]) -> list[dict[str, Any]]:
        return [_view(call, one, detailed=detailed) | _servers_if_wanted(call, one) for one in found]

    pattern = call.query.first("hypervisor_hostname_pattern") if call.version >= (2, 53) else None
    if pattern is not None:
        if not {"limit", "marker"}.isdisjoint(call.query.names()):
            raise Invalid(
                "Paging over hypervisors with the hypervisor_hostname_pattern query parameter is not supported."
            )
        return Reply(body={"hypervisors": rows(_matching(call, pattern))})
    if call.version < (2, 33):
        return Reply(body={"hypervisors": rows(call.service.hosts.hosts())})
    shown, more = page(rows(call.service.hosts.hosts()), call)
    body: dict[str, Any] = {"hypervisors": shown}
    if more and shown:
        body["hypervisors_links"] = next_link(call, str(shown[-1]["id"]))
    return Reply(body=body)


def _one(call: ComputeCall, hypervisor_id: str) -> HostDetails:
    """A name is no id: clients ask so first, and list when it is refused."""
    if call.version >= (2, 53) and not is_uuid(hypervisor_id):
        raise Invalid(f"Invalid uuid {hypervisor_id}")
    for details in call.service.hosts.hosts():
        if str(_id(call, details)) == hypervisor_id:
            return details
    raise NotFound(f"Compute host {hypervisor_id} could not be found.")


def _matching(call: ComputeCall, pattern: str) -> list[HostDetails]:
    if call.version >= (2, 53) and not _PATTERN.match(pattern):
        raise Invalid(f"Invalid input for query parameters hypervisor_hostname_pattern. Value: {pattern}.")
    found = [details for details in call.service.hosts.hosts() if pattern in details.host.name]
    if not found:
        raise NotFound(f"No hypervisor matching '{pattern}' could be found.")
    return found


def _view(call: ComputeCall, details: HostDetails, *, detailed: bool) -> dict[str, Any]:
    host = details.host
    view: dict[str, Any] = {
        "id": _id(call, details),
        "hypervisor_hostname": host.name,
        "state": "up" if details.is_up else "down",
        "status": "enabled" if host.is_enabled else "disabled",
    }
    if not detailed:
        return view
    view |= {
        "hypervisor_type": host.report.hypervisor_type,
        "hypervisor_version": host.report.hypervisor_version,
        "host_ip": host.report.host_ip,
        "service": {
            "id": host.service_uuid if call.version >= (2, 53) else host.number,
            "host": host.name,
            "disabled_reason": host.disabled_reason,
        },
    }
    if call.version >= (2, 88):
        return view | {"uptime": None}
    return view | _capacity(details) | {"cpu_info": _cpu_info(call, details)}


def _servers_if_wanted(call: ComputeCall, details: HostDetails) -> dict[str, Any]:
    if call.version < (2, 53) or not flag(call.query.first("with_servers") or False):
        return {}
    # From 2.75 on an empty list is shown too.
    return {"servers": _servers(details)} if details.servers or call.version >= (2, 75) else {}


def _id(call: ComputeCall, details: HostDetails) -> int | str:
    return details.host.report.provider_uuid if call.version >= (2, 53) else details.host.number


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
