"""Servers, what was done to them and why it failed; devices, who has them and who had them."""

from typing import Any
from urllib.parse import quote, urlencode

from moorage.core.errors import MoorageError, NotFound, RemoteError
from moorage.dashboard.page_request import Visit, require_admin
from moorage.dashboard.pages import Page, words_of
from moorage.dashboard.views import explain_view
from moorage.dashboard.views import servers_view as view
from moorage.wire.client import ServiceClient, with_query

#: Servers, records and hosts on a page; actions of a server whose steps are told.
LIMIT = 50
ACTIONS = 10
#: Servers without a host whose reasons are counted.
COUNTED = 200
Documents = list[dict[str, Any]]


def list_servers(visit: Visit) -> Page:
    """Of the project, or with ``all`` of everybody for an administrator."""
    query, compute = visit.request.query, visit.client("compute")
    everybody = bool(query.first("all")) and visit.who.is_admin
    scope: dict[str, object] = {"all_tenants": 1} if everybody else {}
    wanted = {name: text for name in ("name", "status") if (text := (query.first(name) or "").strip())}
    trouble, servers, marker = "", [], query.first("marker")
    try:
        path = with_query(
            "/v2.1/servers/detail", {**scope, **wanted, "limit": LIMIT + 1, **({"marker": marker} if marker else {})}
        )
        servers = compute.get(path)["servers"]
    except RemoteError as error:
        if error.status != 400:
            raise
        trouble = words_of(error)
    failed = compute.get(with_query("/v2.1/servers/detail", {**scope, "status": "ERROR", "limit": COUNTED}))
    kept = {**wanted, **({"all": "1"} if everybody else {})}
    values = {
        "rows": view.rows(servers[:LIMIT]),
        "reasons": view.reasons(failed["servers"]),
        "is_counted_out": len(failed["servers"]) == COUNTED,
        "wanted": {name: wanted.get(name, "") for name in ("name", "status")},
        "everybody": everybody,
        "next_page": urlencode({**kept, "marker": servers[LIMIT - 1]["id"]}) if len(servers) > LIMIT else "",
        "first": urlencode(kept) if marker else None,
        "trouble": trouble,
        "has_accelerators": visit.has("accelerator"),
    }
    return Page("servers.html", "Servers and accelerators", values, 400 if trouble else 200)


def show_server(visit: Visit, server_id: str) -> Page:
    compute = visit.client("compute")
    path = f"/v2.1/servers/{quote(server_id, safe='')}"
    server = compute.get(path)["server"]
    actions = compute.get(f"{path}/os-instance-actions")["instanceActions"]
    detailed = [
        compute.get(f"{path}/os-instance-actions/{quote(one['request_id'], safe='')}")["instanceAction"]
        for one in actions[:ACTIONS]
    ]
    requests: Documents = []
    history: Documents = []
    if visit.has("accelerator"):
        accelerator = visit.client("accelerator")
        requests = accelerator.get(with_query("/v2/accelerator_requests", {"instance": server["id"]}))["arqs"]
        if visit.who.is_admin:
            asked = {"instance": server["id"], "order": "newest", "limit": LIMIT}
            history = accelerator.get(with_query("/moorage/v1/history", asked))["records"]
    values = {
        "server": view.row(server),
        "flavor": server["flavor"],
        "actions": [view.action(one) for one in [*detailed, *actions[ACTIONS:]]],
        "accelerators": view.accelerators(requests),
        "records": view.records(history),
        "explanation": _explanation(visit, server),
    }
    return Page("server.html", str(server["name"]), values)


def _explanation(visit: Visit, server: dict[str, Any]) -> explain_view.Funnel | None:
    """Whether a server that found no host would find one now. Another fault has nothing to do with hosts."""
    if server["status"] != "ERROR" or server.get("OS-EXT-SRV-ATTR:host"):
        return None
    try:
        found = visit.client("compute").get(f"/moorage/v1/servers/{quote(server['id'], safe='')}/explanation")
    except MoorageError:
        return None
    return explain_view.of_server(found["explanation"])


def list_accelerators(visit: Visit) -> Page:
    """An administrator sees the devices of a host; everybody else what their project has."""
    host = (visit.request.query.first("host") or "").strip()
    accelerator = visit.client("accelerator")
    values: dict[str, Any] = {"host": host, "hosts": [], "cards": (), "accelerators": (), "next_page": "",
                              "is_first": True}  # fmt: skip
    if not visit.who.is_admin:
        found, following = _requests(accelerator, after := visit.request.query.first("after"))
        values |= {
            "accelerators": view.accelerators(found),
            "next_page": urlencode({"after": following}) if following else "",
            "is_first": not after,
        }
        return Page("accelerators.html", "Accelerators", values)
    if not host:
        values["hosts"], values["next_page"] = hosts_of(visit)
        if len(values["hosts"]) == 1 and not values["next_page"]:
            host = values["hosts"][0]
    if host:
        asked = with_query("/moorage/v1/handles", {"host": host})
        values |= {"host": host, "cards": view.cards(accelerator.get(asked)["handles"])}
    return Page("accelerators.html", "Accelerators", values)


def _requests(accelerator: ServiceClient, after: str | None) -> tuple[Documents, str | None]:
    """A page of the project's, and what the next one is behind. Cyborg knows no pages: there all come."""
    asked = {"limit": LIMIT, **({"after": after} if after else {})}
    try:
        page = accelerator.get(with_query("/moorage/v1/accelerator_requests", asked))
    except NotFound:
        return accelerator.get("/v2/accelerator_requests")["arqs"], None
    return page["arqs"], page["next"]


def hosts_of(visit: Visit) -> tuple[list[str], str]:
    """A page of hosts' names, and the query of the next one."""
    if not visit.has("compute"):
        return [], ""
    marker = visit.request.query.first("marker")
    asked = {"limit": LIMIT + 1, **({"marker": marker} if marker else {})}
    found = visit.client("compute").get(with_query("/v2.1/os-hypervisors", asked))["hypervisors"]
    next_page = urlencode({"marker": found[LIMIT - 1]["id"]}) if len(found) > LIMIT else ""
    return [one["hypervisor_hostname"] for one in found[:LIMIT]], next_page


def show_device(visit: Visit, uuid: str) -> Page:
    """The custody of one device, the newest first."""
    require_admin(visit)
    accelerator, after = visit.client("accelerator"), visit.call.query.first("after")
    found = accelerator.get(f"/v2/devices/{quote(uuid, safe='')}")
    asked = {"device": uuid, "order": "newest", "limit": LIMIT, **({"after": after} if after else {})}
    page = accelerator.get(with_query("/moorage/v1/history", asked))
    values = {
        "device": found,
        "records": view.records(page["records"]),
        "next_page": urlencode({"after": page["next"]}) if page["next"] else "",
        "is_first": not after,
    }
    return Page("device.html", f"{found['type']} {found['model']}", values)
