"""Pages of servers, with their actions and faults."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from moorage.core.errors import MoorageError, NotFound, RemoteError
from moorage.core.json import Json
from moorage.dashboard.handlers.servers_on_leases import lease_names, with_hints
from moorage.dashboard.page_request import PageRequest, redirect
from moorage.dashboard.pages import Page
from moorage.dashboard.signing_in import own_names
from moorage.dashboard.views import explain_view
from moorage.dashboard.views import servers_view as view
from moorage.dashboard.views.lease_list import heading_count
from moorage.dashboard.views.selected_servers import BUTTONS, choices_for
from moorage.dashboard.views.selection import MAX_SELECTED
from moorage.dashboard.views.server_list import READ, SHOWN, ListedServer, list_columns, list_parameters
from moorage.dashboard.views.tables import chosen_order, headings, table_rows
from moorage.wire.client import with_query
from moorage.wire.http import Response

#: Records of the history of devices; actions of a server that are shown with their events.
RECORDS = 50
ACTIONS = 10
#: The last microversion in which a server has the id of its flavor.
_WITH_FLAVOR_ID = "2.46"
Documents = list[dict[str, Json]]


def list_servers(page_request: PageRequest) -> Page | Response:
    """Servers of the project; for an administrator with ``all``, servers of all projects. The newest come first."""
    query = page_request.http.query
    kept = list_parameters(query.first)
    if not page_request.user.is_admin:
        kept.pop("all", None)
    is_all, wanted = "all" in kept, kept.get("find", "")
    scope: dict[str, object] = {"all_tenants": 1} if is_all else {}
    asked = {**scope, "limit": READ, **({"marker": kept["marker"]} if "marker" in kept else {})}
    try:
        answer = with_hints(page_request, with_query("/v2.1/servers/detail", asked))
    except RemoteError as error:
        if "marker" not in kept or error.status != 400:
            raise
        return redirect(page_request, list_address(kept, marker=""))  # the server at the marker was deleted
    rows = _listed(page_request, answer["servers"], is_all=is_all)
    columns = list_columns(is_all=is_all, is_admin=page_request.user.is_admin)
    order, has_more = chosen_order(kept.get("sort"), columns), bool(answer.get("servers_links"))
    found = table_rows(rows, columns, order, wanted)
    others = {name: text for name, text in kept.items() if name != "sort"}
    values = {
        "rows": found[:SHOWN], "found": len(found), "read": len(rows), "has_more": has_more,
        "count": heading_count(len(found), len(rows), has_more=has_more, is_filtered=bool(wanted and rows)),
        "headings": headings(columns, order, others, urlencode),
        "buttons": BUTTONS, "most": MAX_SELECTED, "selected": query.first("select") is not None,
        "select_address": list_address(kept, select="all"), "plain_address": list_address(kept),
        "projects_address": list_address(kept, all="" if is_all else "1", marker=""),
        "clear_address": list_address(kept, find=""),
        "next_address": list_address(kept, marker=answer["servers"][-1]["id"]) if has_more else "",
        "kept": kept, "find": wanted, "is_all": is_all,
        "reasons": view.no_host_reasons(answer["servers"]),
    }  # fmt: skip
    return Page("servers.html", "Servers", values)


def list_address(parameters: Mapping[str, str], **changed: str) -> str:
    """The path of the list, below the dashboard's. A changed parameter that is empty is left out."""
    query = urlencode({name: text for name, text in {**parameters, **changed}.items() if text})
    return f"/servers?{query}" if query else "/servers"


def _listed(page_request: PageRequest, servers: Documents, *, is_all: bool) -> list[ListedServer]:
    found = [view.server_row(one) for one in servers]
    leases: Mapping[tuple[str, str], tuple[str, str]] = {}
    if any(row.reservation_id for row in found):
        leases = lease_names(page_request, "" if is_all else page_request.user.project.id)
    names = page_request.names if is_all else own_names(page_request.user)
    return [
        ListedServer(
            row, leases.get((row.project, row.reservation_id)), names.project(row.project), names.user(row.user)
        )
        for row in found
    ]


def show_server(page_request: PageRequest, server_id: str) -> Page:
    compute = page_request.client("compute")
    path = f"/v2.1/servers/{quote(server_id, safe='')}"
    server = with_hints(page_request, path).get("server")
    if server is None:  # the address of another resource of compute, such as "detail"
        raise NotFound(f"there is no server {server_id}")
    row = view.server_row(server)
    leases = lease_names(page_request, row.project) if row.reservation_id else {}
    actions = compute.get(f"{path}/os-instance-actions")["instanceActions"]
    detailed = [
        compute.get(f"{path}/os-instance-actions/{quote(one['request_id'], safe='')}")["instanceAction"]
        for one in actions[:ACTIONS]
    ]
    requests: Documents = []
    history: Documents = []
    if page_request.has("accelerator"):
        accelerator = page_request.client("accelerator")
        requests = accelerator.get(with_query("/v2/accelerator_requests", {"instance": server["id"]}))["arqs"]
        if page_request.user.is_admin:
            asked = {"instance": server["id"], "order": "newest", "limit": RECORDS}
            history = accelerator.get(with_query("/moorage/v1/history", asked))["records"]
    explanation = _explanation(page_request, server)
    values = {
        "server": row,
        "extra_specs": server["flavor"].get("extra_specs", {}),
        "lease": leases.get((row.project, row.reservation_id)),
        "choices": choices_for(row),
        "names": page_request.names,
        "actions": [view.action_row(one) for one in [*detailed, *actions[ACTIONS:]]],
        "accelerators": view.accelerators(requests),
        "records": view.history_rows(history),
        "explanation": explanation,
        "reserve": _reserve_address(page_request, server_id) if explanation and explanation.is_kept_for_leases else "",
    }
    return Page("server.html", str(server["name"]), values)


def _explanation(page_request: PageRequest, server: dict[str, Any]) -> explain_view.Funnel | None:
    """Whether a server that found no host would find one now. None for other faults, which do not concern hosts."""
    if server["status"] != "ERROR" or server.get("OS-EXT-SRV-ATTR:host"):
        return None
    try:
        found = page_request.client("compute").get(f"/moorage/v1/servers/{quote(server['id'], safe='')}/explanation")
    except MoorageError:
        return None
    return explain_view.of_server(found["explanation"])


def _reserve_address(page_request: PageRequest, server_id: str) -> str:
    """The page on which a lease of the server's flavor is offered; empty if it is not known."""
    try:
        path = f"/v2.1/servers/{quote(server_id, safe='')}"
        flavor = page_request.client("compute").get(path, version=_WITH_FLAVOR_ID)["server"]["flavor"]["id"]
    except MoorageError:
        return ""
    return f"{page_request.root}/explain?{urlencode({'flavor': flavor})}#booking"
