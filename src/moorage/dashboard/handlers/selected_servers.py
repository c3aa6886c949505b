"""Deleting, stopping, starting and rebooting servers, one or several: `selection` with the requests to compute."""

from urllib.parse import quote

from moorage.dashboard.handlers import selection
from moorage.dashboard.handlers.servers import list_address
from moorage.dashboard.handlers.servers_on_leases import with_hints
from moorage.dashboard.page_request import PageRequest
from moorage.dashboard.pages import Page
from moorage.dashboard.views.selected_servers import ACTION_BODIES, SERVERS
from moorage.dashboard.views.server_list import list_parameters
from moorage.dashboard.views.servers_view import ServerRow, server_row


def confirm_selected(page_request: PageRequest) -> Page:
    return selection.confirm(page_request, _SERVERS)


def act_on_selected(page_request: PageRequest) -> Page:
    return selection.act(page_request, _SERVERS)


def _read(page_request: PageRequest, server_id: str) -> ServerRow:
    return server_row(with_hints(page_request, _path(server_id))["server"])


def _carry_out(page_request: PageRequest, server_id: str, act: str) -> None:
    client, body = page_request.client("compute"), ACTION_BODIES[act]
    if body is None:
        client.request("DELETE", _path(server_id))
    else:
        client.request("POST", f"{_path(server_id)}/action", json=body)


def _path(server_id: str) -> str:
    return f"/v2.1/servers/{quote(server_id, safe='')}"


_SERVERS: selection.Selectable[ServerRow] = selection.Selectable(
    kind=SERVERS,
    parameters=list_parameters,
    address=list_address,
    page=lambda server_id: f"/servers/{quote(server_id, safe='')}",
    project_id=lambda server: server.project,
    name=lambda server: server.name,
    read=_read,
    carry_out=_carry_out,
)
