"""The history of a server: ``os-instance-actions``."""

from moorage.compute.api.handlers.server_view import host_id
from moorage.compute.api.handlers.views import (
    ComputeRequest,
    changes_period,
    format_microseconds,
    next_link,
    page_of_rows,
)
from moorage.compute.model.servers import Action, ActionEvent
from moorage.core.json import Json
from moorage.wire.http import Response

_SEES_EVENTS = "os_compute_api:os-instance-actions:events"


def index(request: ComputeRequest, server_id: str) -> Response:
    """Newest first; pages and periods from 2.58 on."""
    actions = request.service.servers.actions(request.caller, server_id)
    if request.version < (2, 58):
        return Response(body={"instanceActions": [_view(request, action) for action in actions]})
    since, before = changes_period(request, before_since=(2, 66))
    in_period = [
        _view(request, action)
        for action in actions
        if (since is None or action.updated_at >= since) and (before is None or action.updated_at <= before)
    ]
    rows, more = page_of_rows(in_period, request, "request_id")
    body: dict[str, Json] = {"instanceActions": rows}
    if more and rows:
        body["links"] = next_link(request, rows[-1]["request_id"])
    return Response(body=body)


def show(request: ComputeRequest, server_id: str, request_id: str) -> Response:
    action = request.service.servers.action(request.caller, server_id, request_id)
    view = _view(request, action)
    if request.allowed(_SEES_EVENTS) or request.version >= (2, 51):
        view["events"] = [_event(request, action, event) for event in action.events]
    return Response(body={"instanceAction": view})


def _view(request: ComputeRequest, action: Action) -> dict[str, Json]:
    view: dict[str, Json] = {
        "action": action.name,
        "instance_uuid": action.server_id,
        "request_id": action.request_id,
        "user_id": action.user_id,
        "project_id": action.project_id,
        "start_time": format_microseconds(action.started_at),
        "message": action.message,
    }
    if request.version >= (2, 58):
        view["updated_at"] = format_microseconds(action.updated_at)
    return view


def _event(request: ComputeRequest, action: Action, event: ActionEvent) -> dict[str, Json]:
    """`details` name no host, so all users see them here; Nova shows them only to administrators."""
    view: dict[str, Json] = {
        "event": event.name,
        "start_time": format_microseconds(event.started_at),
        "finish_time": format_microseconds(event.finished_at),
        "result": event.result,
    }
    if request.allowed(_SEES_EVENTS):
        view["traceback"] = None
    if request.version >= (2, 62):
        view["hostId"] = host_id(action.project_id, event.host)
        if request.allowed(_SEES_EVENTS):
            view["host"] = event.host
    if request.version >= (2, 84):
        view["details"] = event.details
    return view
