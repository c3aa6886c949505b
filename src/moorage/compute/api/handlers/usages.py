"""Usage of projects over a period: ``os-simple-tenant-usage``. From 2.40 on in pages of servers."""

from datetime import datetime

from moorage.compute.api.handlers.views import (
    ComputeRequest,
    format_microseconds,
    next_link,
    page_size,
    parse_moment,
    require_rule,
)
from moorage.compute.model.quota import total_usage, usage_hours, usage_period
from moorage.compute.model.servers import Server, VmState
from moorage.core.errors import Invalid, NotFound
from moorage.core.json import Json
from moorage.wire.http import Response


def index(request: ComputeRequest) -> Response:
    since, until = _period(request)
    servers, following = _page(request, request.service.servers.running_in(since, until), "tenant_usages_links")
    by_project: dict[str, list[Server]] = {}
    for server in servers:
        by_project.setdefault(server.project_id, []).append(server)
    usages = []
    for project, own in sorted(by_project.items()):
        usages.append(_usage(project, own, since, until))
        if request.query.first("detailed") == "1":
            usages[-1]["server_usages"] = [_server_usage(one, since, until) for one in own]
    return Response(body={"tenant_usages": usages} | following)


def show(request: ComputeRequest, project_id: str) -> Response:
    if not project_id:  # a trailing slash after the list's path
        raise NotFound("The resource could not be found.")
    if project_id != request.caller.project_id:
        require_rule(request, "os_compute_api:os-simple-tenant-usage:list")
    since, until = _period(request)
    own = [one for one in request.service.servers.running_in(since, until) if one.project_id == project_id]
    servers, following = _page(request, own, "tenant_usage_links")
    if not servers:
        return Response(body={"tenant_usage": {}})
    shown = _usage(project_id, servers, since, until)
    shown["server_usages"] = [_server_usage(server, since, until) for server in servers]
    return Response(body={"tenant_usage": shown} | following)


def _page(request: ComputeRequest, servers: list[Server], links: str) -> tuple[list[Server], dict[str, Json]]:
    """A page of `servers`, by id, and the link to the next page."""
    if request.version < (2, 40):
        return servers, {}
    found = sorted(servers, key=lambda server: server.id)
    marker = request.query.first("marker")
    if marker is not None:
        if all(server.id != marker for server in found):
            raise Invalid(f"marker [{marker}] not found")
        found = [server for server in found if server.id > marker]
    size = page_size(request)
    shown = found[:size]
    return shown, {links: next_link(request, shown[-1].id)} if shown and len(found) > size else {}


def _period(request: ComputeRequest) -> tuple[datetime, datetime]:
    end, start = request.query.first("end"), request.query.first("start")
    return usage_period(
        None if start is None else parse_moment(start, "start"),
        None if end is None else parse_moment(end, "end"),
        request.service.deps.clock.now(),
    )


def _usage(project_id: str, servers: list[Server], since: datetime, until: datetime) -> dict[str, Json]:
    used = total_usage(servers, since, until)
    return {
        "tenant_id": project_id,
        "total_hours": used.hours,
        "total_vcpus_usage": used.vcpus,
        "total_memory_mb_usage": used.memory_mb,
        "total_local_gb_usage": used.local_gb,
        "start": format_microseconds(since),
        "stop": format_microseconds(until),
    }


def _server_usage(server: Server, since: datetime, until: datetime) -> dict[str, Json]:
    begun = server.launched_at or since
    return {
        "instance_id": server.id,
        "name": server.name,
        "tenant_id": server.project_id,
        "flavor": server.flavor.name,
        "vcpus": server.flavor.vcpus,
        "memory_mb": server.flavor.ram_mb,
        "local_gb": server.flavor.disk_gb + server.flavor.ephemeral_gb,
        "hours": usage_hours(server, since, until),
        "started_at": format_microseconds(begun),
        "ended_at": format_microseconds(server.deleted_at),
        "state": "terminated" if server.vm_state is VmState.DELETED else server.vm_state,
        "uptime": int(((server.deleted_at or until) - begun).total_seconds()),
    }
