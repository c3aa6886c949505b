"""Compute services, one for each host; and, below 2.43, hosts themselves.

Below 2.53 a service is addressed by the change (``PUT /os-services/disable``), from then on by its id.
"""

from typing import TypedDict

from moorage.compute.api.handlers.views import ComputeRequest, format_microseconds, parse_flag
from moorage.compute.hosts import HostDetails
from moorage.compute.model.servers import COMPUTE_BINARY
from moorage.core.errors import Invalid, NotFound
from moorage.core.ids import is_uuid
from moorage.core.json import Json
from moorage.wire.http import Response

_ENABLING = {"enable": True, "disable": False, "disable-log-reason": False}


def index(request: ComputeRequest) -> Response:
    binary, host = request.query.first("binary"), request.query.first("host")
    found = [
        details
        for details in request.service.hosts.hosts()
        if (binary or COMPUTE_BINARY) == COMPUTE_BINARY and (host or details.host.name) == details.host.name
    ]
    return Response(body={"services": [_view(request, details) for details in found]})


def update(request: ComputeRequest, service_id: str) -> Response:
    _check_uuid(service_id)
    body = request.json
    is_enabled = None if "status" not in body else body["status"] == "enabled"
    if body.get("disabled_reason") and is_enabled is not False:
        raise Invalid("Specifying disabled_reason is not allowed when status is not disabled.")
    forced_down = parse_flag(body["forced_down"]) if "forced_down" in body else None
    if is_enabled is None and forced_down is None:
        raise Invalid("No updates were requested. Fields 'status' or 'forced_down' should be specified.")
    details = request.service.hosts.set_service(
        service_id, is_enabled=is_enabled, disabled_reason=body.get("disabled_reason"), forced_down=forced_down
    )
    return Response(body={"service": _view(request, details)})


class _Changes(TypedDict, total=False):
    is_enabled: bool
    forced_down: bool
    disabled_reason: str


def update_named(request: ComputeRequest, service_id: str) -> Response:
    """`service_id` is the change to make; host and binary are in the body."""
    body = request.json
    if body["binary"] != COMPUTE_BINARY:
        raise Invalid(
            f"Updating a {body['binary']} service is not supported. Only {COMPUTE_BINARY} services can be updated."
        )
    answer: dict[str, Json] = {"host": body["host"], "binary": body["binary"]}
    if service_id == "force-down" and request.version >= (2, 11):
        if "forced_down" not in body:
            raise Invalid("Missing forced_down field")
        forced_down = answer["forced_down"] = parse_flag(body["forced_down"])
        changes = _Changes(forced_down=forced_down)
    elif service_id in _ENABLING:
        changes = _Changes(is_enabled=_ENABLING[service_id])
        answer["status"] = "enabled" if changes["is_enabled"] else "disabled"
        if service_id == "disable-log-reason":
            if "disabled_reason" not in body:
                raise Invalid("Missing disabled reason field")
            answer["disabled_reason"] = changes["disabled_reason"] = body["disabled_reason"]
    else:
        raise NotFound("Unknown action")
    request.service.hosts.set_service_of(body["host"], **changes)
    return Response(body={"service": answer})


def delete(request: ComputeRequest, service_id: str) -> Response:
    if request.version >= (2, 53):
        _check_uuid(service_id)
    elif not (service_id.isascii() and service_id.isdigit()):
        raise Invalid(f"id must be an integer: {service_id}")
    for details in request.service.hosts.hosts():
        if service_id in (details.host.service_uuid, str(details.host.number)):
            request.service.hosts.delete_service(details.host.name)
            return Response(204)
    raise NotFound(f"Service {service_id} not found.")


def _check_uuid(service_id: str) -> None:
    if not is_uuid(service_id):
        raise Invalid(f"Invalid uuid {service_id}")


def _view(request: ComputeRequest, details: HostDetails) -> dict[str, Json]:
    host = details.host
    view: dict[str, Json] = {
        "id": host.service_uuid if request.version >= (2, 53) else host.number,
        "binary": COMPUTE_BINARY,
        "host": host.name,
        "zone": details.zone,
        "status": "enabled" if host.is_enabled else "disabled",
        "state": "up" if details.is_up else "down",
        "updated_at": format_microseconds(host.heartbeat_at),
        "disabled_reason": host.disabled_reason,
    }
    if request.version >= (2, 11):
        view["forced_down"] = host.forced_down
    return view


# ------------------------------------------------------------------------------------ hosts, below 2.43


def index_hosts(request: ComputeRequest) -> Response:
    zone = request.query.first("zone") or None
    rows = [
        {"host_name": details.host.name, "service": "compute", "zone": details.zone}
        for details in request.service.hosts.hosts()
        if zone in (None, details.zone)
    ]
    return Response(body={"hosts": rows})


def show_host(request: ComputeRequest, host: str) -> Response:
    """Capacity, usage, and usage again in the row of the maximum, as Nova shows them."""
    details = next((one for one in request.service.hosts.hosts() if one.host.name == host), None)
    if details is None:
        raise NotFound(f"Compute host {host} could not be found.")
    report = details.host.report
    rows = [
        ("(total)", report.vcpus, report.memory_mb, report.local_gb),
        ("(used_now)", details.vcpus_used, details.memory_mb_used, details.local_gb_used),
        ("(used_max)", details.vcpus_used, details.memory_mb_used, details.local_gb_used),
    ]
    resources = [
        {"resource": {"host": host, "project": project, "cpu": cpu, "memory_mb": memory, "disk_gb": disk}}
        for project, cpu, memory, disk in rows
    ]
    return Response(body={"host": resources})
