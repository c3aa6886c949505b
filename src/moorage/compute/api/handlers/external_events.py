"""Events from other services: answered as Nova answers them, but nothing here waits for them.

A host attaches accelerators itself and knows when it is done, so ``accelerator-request-bound`` is only logged.
"""

import logging
from typing import Required, TypedDict

from moorage.compute.api.handlers.views import ComputeRequest
from moorage.compute.api.schemas.events import TAG_REQUIRED
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
    code = _code(request, event)
    if code != 200:
        return {**event, "status": "failed", "code": code}
    log.info(
        "external event received",
        extra={"event": event["name"], "server": event["server_uuid"], "tag": event.get("tag")},
    )
    return {**event, "status": "completed", "code": 200}


def _code(request: ComputeRequest, event: Event) -> int:
    try:
        server = request.service.servers.get_server(request.caller, event["server_uuid"])
    except NotFound:
        return 404
    if event["name"] in TAG_REQUIRED and not event.get("tag"):
        return 400
    return 200 if server.host is not None else 422
