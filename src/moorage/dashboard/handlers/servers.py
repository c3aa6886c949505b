"""Pages of servers with their actions and faults, and of devices with their current use and history."""

from typing import Any
from urllib.parse import quote, urlencode

from moorage.core.errors import MoorageError, NotFound, RemoteError
from moorage.core.json import Json
from moorage.dashboard.page_request import PageRequest, redirect, require_admin
from moorage.dashboard.pages import Page, error_text
from moorage.dashboard.views import explain_view
from moorage.dashboard.views import servers_view as view
from moorage.wire.client import ServiceClient, with_query
from moorage.wire.http import Response

#: Servers, records and hosts per page; actions of a server that are shown with their events.
LIMIT = 50
ACTIONS = 10
#: Servers in ERROR that are examined for the table of reasons.
COUNTED = 200
#: How long a form waits for a host to clean a handle; then the page of the host's devices shows what became of it.
RELEASE_WAIT_S = 10
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
        "reasons": view.no_host_reasons(failed["servers"]),
        "is_counted_out": len(failed["servers"]) == COUNTED,
        "wanted": {name: wanted.get(name, "") for name in ("name", "status")},
        "all_projects": all_projects,
        "next_page": urlencode({**kept, "marker": servers[LIMIT - 1]["id"]}) if len(servers) > LIMIT else "",
        "first": urlencode(kept) if marker else None,
        "error": message,
        "has_accelerators": page_request.has("accelerator"),
    }
    return Page("servers.html", "Servers and accelerators", values, 400 if message else 200)


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


def list_accelerators(page_request: PageRequest) -> Page:
    """An administrator sees the devices of a host; other users see their project's accelerator requests."""
    host = (page_request.http.query.first("host") or "").strip()
    accelerator = page_request.client("accelerator")
    values: dict[str, object] = {"host": host, "hosts": [], "cards": (), "accelerators": (), "next_page": "",
                              "is_first": True}  # fmt: skip
    if not page_request.user.is_admin:
        found, following = _requests(accelerator, after := page_request.http.query.first("after"))
        values |= {
            "accelerators": view.accelerators(found),
            "next_page": urlencode({"after": following}) if following else "",
            "is_first": not after,
        }
        return Page("accelerators.html", "Accelerators", values)
    if not host:
        hosts, next_page = hosts_of(page_request)
        values |= {"hosts": hosts, "next_page": next_page}
        if len(hosts) == 1 and not next_page:
            host = hosts[0]
    if host:
        asked = with_query("/moorage/v1/handles", {"host": host})
        values |= {"host": host, "cards": view.cards(accelerator.get(asked)["handles"])}
    return Page("accelerators.html", "Accelerators", values)


def show_release(page_request: PageRequest) -> Page:
    """The form that ends the quarantine of a handle."""
    require_admin(page_request)
    query = page_request.http.query
    return _release_page(query.first("host") or "", query.first("handle") or "")


def release_handle(page_request: PageRequest) -> Response | Page:
    require_admin(page_request)
    form = page_request.form
    host, handle, reason = form.text("host"), form.text("handle"), form.text("reason")
    body = {
        "host": host,
        "handle": handle,
        "reason": reason,
        "is_clean": form.has("is_clean"),
        "wait_s": RELEASE_WAIT_S,
    }
    try:
        page_request.client("accelerator").request("POST", "/moorage/v1/handles/release", json=body)
    except RemoteError as error:
        if error.status not in (400, 409):
            raise
        return _release_page(host, handle, reason, error_text(error), error.status)
    return redirect(page_request, "/accelerators?" + urlencode({"host": host}))


def _release_page(host: str, handle: str, reason: str = "", error: str = "", status: int = 200) -> Page:
    values = {"host": host, "handle": handle, "reason": reason, "error": error}
    return Page("release_handle.html", "Release from quarantine", values, status)


def _requests(accelerator: ServiceClient, after: str | None) -> tuple[Documents, str | None]:
    """(a page of the project's requests, marker of the next page). Cyborg has no paging and returns all of them."""
    asked = {"limit": LIMIT, **({"after": after} if after else {})}
    try:
        page = accelerator.get(with_query("/moorage/v1/accelerator_requests", asked))
    except NotFound:
        return accelerator.get("/v2/accelerator_requests")["arqs"], None
    return page["arqs"], page["next"]


def hosts_of(page_request: PageRequest) -> tuple[list[str], str]:
    """(host names, query of the next page)"""
    if not page_request.has("compute"):
        return [], ""
    marker = page_request.http.query.first("marker")
    asked = {"limit": LIMIT + 1, **({"marker": marker} if marker else {})}
    found = page_request.client("compute").get(with_query("/v2.1/os-hypervisors", asked))["hypervisors"]
    next_page = urlencode({"marker": found[LIMIT - 1]["id"]}) if len(found) > LIMIT else ""
    return [one["hypervisor_hostname"] for one in found[:LIMIT]], next_page


def show_device(page_request: PageRequest, uuid: str) -> Page:
    """A device and its history, newest first."""
    require_admin(page_request)
    accelerator, after = page_request.client("accelerator"), page_request.http.query.first("after")
    found = accelerator.get(f"/v2/devices/{quote(uuid, safe='')}")
    asked = {"device": uuid, "order": "newest", "limit": LIMIT, **({"after": after} if after else {})}
    page = accelerator.get(with_query("/moorage/v1/history", asked))
    values = {
        "device": found,
        "records": view.history_rows(page["records"]),
        "next_page": urlencode({"after": page["next"]}) if page["next"] else "",
        "is_first": not after,
    }
    return Page("device.html", f"{found['type']} {found['model']}", values)
