"""Pages of servers, with their actions and faults."""

from typing import Any
from urllib.parse import quote, urlencode

from moorage.core.errors import MoorageError, RemoteError
from moorage.core.json import Json
from moorage.dashboard.page_request import PageRequest
from moorage.dashboard.pages import Page, error_text
from moorage.dashboard.signing_in import own_names
from moorage.dashboard.views import explain_view
from moorage.dashboard.views import servers_view as view
from moorage.wire.client import with_query

#: Servers and records per page; actions of a server that are shown with their events.
LIMIT = 50
ACTIONS = 10
#: Servers in ERROR that are examined for the table of reasons.
COUNTED = 200
Documents = list[dict[str, Json]]


def list_servers(page_request: PageRequest) -> Page:
    """Servers of the project; for an administrator with ``all``, servers of all projects."""
    query, compute = page_request.http.query, page_request.client("compute")
    all_projects = bool(query.first("all")) and page_request.user.is_admin
    scope: dict[str, object] = {"all_tenants": 1} if all_projects else {}
    wanted = {name: text for name in ("name", "status") if (text := (query.first(name) or "").strip())}
    message, servers, marker = "", [], query.first("marker")
    try:
        path = with_query(
            "/v2.1/servers/detail", {**scope, **wanted, "limit": LIMIT + 1, **({"marker": marker} if marker else {})}
        )
        servers = compute.get(path)["servers"]
    except RemoteError as error:
        if error.status != 400:
            raise
        message = error_text(error)
    failed = compute.get(with_query("/v2.1/servers/detail", {**scope, "status": "ERROR", "limit": COUNTED}))
    kept = {**wanted, **({"all": "1"} if all_projects else {})}
    values = {
        "rows": view.server_rows(servers[:LIMIT]),
        "names": page_request.names if all_projects else own_names(page_request.user),
        "reasons": view.no_host_reasons(failed["servers"]),
        "is_counted_out": len(failed["servers"]) == COUNTED,
        "wanted": {name: wanted.get(name, "") for name in ("name", "status")},
        "all_projects": all_projects,
        "next_page": urlencode({**kept, "marker": servers[LIMIT - 1]["id"]}) if len(servers) > LIMIT else "",
        "first": urlencode(kept) if marker else None,
        "error": message,
    }
    return Page("servers.html", "Servers", values, 400 if message else 200)


def show_server(page_request: PageRequest, server_id: str) -> Page:
    compute = page_request.client("compute")
    path = f"/v2.1/servers/{quote(server_id, safe='')}"
    server = compute.get(path)["server"]
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
            asked = {"instance": server["id"], "order": "newest", "limit": LIMIT}
            history = accelerator.get(with_query("/moorage/v1/history", asked))["records"]
    values = {
        "server": view.server_row(server),
        "flavor": server["flavor"],
        "size": view.flavor_text(server["flavor"]),
        "names": page_request.names,
        "actions": [view.action_row(one) for one in [*detailed, *actions[ACTIONS:]]],
        "accelerators": view.accelerators(requests),
        "records": view.history_rows(history),
        "explanation": _explanation(page_request, server),
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
