"""Hypervisors: one for each host, with the host's name."""

import json
import re

from moorage.compute.api.handlers.views import ComputeRequest, next_link, page_of_rows, parse_flag
from moorage.compute.hosts import HostDetails
from moorage.core.errors import Invalid, NotBuilt, NotFound
from moorage.core.ids import is_uuid
from moorage.core.json import Json
from moorage.wire.http import Response

#: The keys of `_capacity`, and of the statistics over all hosts.
_CAPACITY_NAMES = (
    "vcpus", "memory_mb", "local_gb", "vcpus_used", "memory_mb_used", "local_gb_used", "free_ram_mb",
    "free_disk_gb", "current_workload", "running_vms", "disk_available_least",
)  # fmt: skip
_PATTERN = re.compile(r"[a-zA-Z0-9-._]{1,255}\Z")


def index(request: ComputeRequest) -> Response:
    return _list(request, detailed=False)


def detail(request: ComputeRequest) -> Response:
    return _list(request, detailed=True)


def show(request: ComputeRequest, hypervisor_id: str) -> Response:
    details = _one(request, hypervisor_id)
    view = _view(request, details, detailed=True)
    return Response(body={"hypervisor": view | _servers_if_wanted(request, details)})


def uptime(request: ComputeRequest, hypervisor_id: str) -> Response:
    _one(request, hypervisor_id)
    raise NotBuilt("Hosts do not report how long they have been up.")


def statistics(request: ComputeRequest) -> Response:
    hosts = request.service.hosts.hosts()
    total: dict[str, int] = {"count": len(hosts)}
    for details in hosts:
        for name, value in _capacity(details).items():
            total[name] = total.get(name, 0) + value
    return Response(body={"hypervisor_statistics": dict.fromkeys(_CAPACITY_NAMES, 0) | total})


def search(request: ComputeRequest, hypervisor_id: str) -> Response:
    return Response(
        body={"hypervisors": [_view(request, one, detailed=False) for one in _matching(request, hypervisor_id)]}
    )


def servers(request: ComputeRequest, hypervisor_id: str) -> Response:
    rows = [
        _view(request, one, detailed=False) | ({"servers": _servers(one)} if one.servers else {})
        for one in _matching(request, hypervisor_id)
    ]
    return Response(body={"hypervisors": rows})


def _list(request: ComputeRequest, *, detailed: bool) -> Response:
    def rows(found: list[HostDetails]) -> list[dict[str, Json]]:
        return [_view(request, one, detailed=detailed) | _servers_if_wanted(request, one) for one in found]

    pattern = request.query.first("hypervisor_hostname_pattern") if request.version >= (2, 53) else None
    if pattern is not None:
        if not {"limit", "marker"}.isdisjoint(request.query.names()):
            raise Invalid(
                "Paging over hypervisors with the hypervisor_hostname_pattern query parameter is not supported."
            )
        return Response(body={"hypervisors": rows(_matching(request, pattern))})
    if request.version < (2, 33):
        return Response(body={"hypervisors": rows(request.service.hosts.hosts())})
    shown, more = page_of_rows(rows(request.service.hosts.hosts()), request)
    body: dict[str, Json] = {"hypervisors": shown}
    if more and shown:
        body["hypervisors_links"] = next_link(request, str(shown[-1]["id"]))
    return Response(body=body)


def _one(request: ComputeRequest, hypervisor_id: str) -> HostDetails:
    """A name is not an id: clients try it first, and list if it is refused."""
    if request.version >= (2, 53) and not is_uuid(hypervisor_id):
        raise Invalid(f"Invalid uuid {hypervisor_id}")
    for details in request.service.hosts.hosts():
        if str(_id(request, details)) == hypervisor_id:
            return details
    raise NotFound(f"Compute host {hypervisor_id} could not be found.")


def _matching(request: ComputeRequest, pattern: str) -> list[HostDetails]:
    if request.version >= (2, 53) and not _PATTERN.match(pattern):
        raise Invalid(f"Invalid input for query parameters hypervisor_hostname_pattern. Value: {pattern}.")
    found = [details for details in request.service.hosts.hosts() if pattern in details.host.name]
    if not found:
        raise NotFound(f"No hypervisor matching '{pattern}' could be found.")
    return found


def _view(request: ComputeRequest, details: HostDetails, *, detailed: bool) -> dict[str, Json]:
    host = details.host
    view: dict[str, Json] = {
        "id": _id(request, details),
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
            "id": host.service_uuid if request.version >= (2, 53) else host.number,
            "host": host.name,
            "disabled_reason": host.disabled_reason,
        },
    }
    if request.version >= (2, 88):
        return {**view, "uptime": None}
    return {**view, **_capacity(details), "cpu_info": _cpu_info(request, details)}


def _servers_if_wanted(request: ComputeRequest, details: HostDetails) -> dict[str, Json]:
    if request.version < (2, 53) or not parse_flag(request.query.first("with_servers") or False):
        return {}
    # From 2.75 on an empty list is shown too.
    return {"servers": _servers(details)} if details.servers or request.version >= (2, 75) else {}


def _id(request: ComputeRequest, details: HostDetails) -> int | str:
    return details.host.report.provider_uuid if request.version >= (2, 53) else details.host.number


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


def _cpu_info(request: ComputeRequest, details: HostDetails) -> Json:
    """An object from 2.28 on, before that its text."""
    info = dict(details.host.report.cpu_info)
    return info if request.version >= (2, 28) else json.dumps(info)
