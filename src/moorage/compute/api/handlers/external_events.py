"""Events from other services, answered as Nova answers them.

Those of a Neutron change the interfaces of a server (`PluggingService`). All others are only logged: a host attaches
accelerators itself and knows when it is done, so nothing waits for ``accelerator-request-bound``.
"""

import logging
from dataclasses import replace
from typing import Required, TypedDict

from moorage.compute.api.handlers.views import ComputeRequest
from moorage.compute.api.schemas.events import TAG_REQUIRED
from moorage.compute.model.servers import Server
from moorage.core.errors import NotFound
from moorage.wire.http import Response

log = logging.getLogger(__name__)


def create(request: ComputeRequest) -> Response:
    """200 if all events were accepted, else 207; the ``code`` of each event has its own result."""
    answered = [_answered(request, event) for event in request.json["events"]]
    counts_as_up = all(event["code"] == 200 for event in answered)
    return Response(200 if counts_as_up else 207, {"events": answered})


class Event(TypedDict, total=False):
    """An event of a request, which its schema has validated; in the answer with `status` and `code`."""

    name: Required[str]
    server_uuid: Required[str]
    tag: str
    status: str
    code: int


def _answered(request: ComputeRequest, event: Event) -> Event:
    server, code = _server(request, event)
    if server is None:
        return {**event, "status": "failed", "code": code}
    log.info(
        "external event received",
        extra={"event": event["name"], "server": event["server_uuid"], "tag": event.get("tag")},
    )
    caller = replace(request.caller, project_id=server.project_id, roles=frozenset({"service"}))
    request.service.plugging.record_event(
        caller, request.request_id, server, event["name"], event.get("status", "completed"), event.get("tag", "")
    )
    return {**event, "status": "completed", "code": 200}


def _server(request: ComputeRequest, event: Event) -> tuple[Server | None, int]:
    """(server, 200), or (None, the code of the event)."""
    try:
        server = request.service.servers.get_server(request.caller, event["server_uuid"])
    except NotFound:
        return None, 404
    if event["name"] in TAG_REQUIRED and not event.get("tag"):
        return None, 400
    return (server, 200) if server.host is not None else (None, 422)
