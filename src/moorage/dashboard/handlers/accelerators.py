"""Pages of accelerators: the table of attach handles, quarantine, and a device with its history."""

from urllib.parse import quote, urlencode

from moorage.core.errors import MoorageError, NotFound, RemoteError
from moorage.core.json import Json
from moorage.dashboard.page_request import PageRequest, redirect, require_admin
from moorage.dashboard.pages import Page, error_text
from moorage.dashboard.views import accelerators_view as table
from moorage.dashboard.views import servers_view as view
from moorage.dashboard.views.tables import headings, parse_order, table_rows
from moorage.wire.client import ServiceClient, with_query
from moorage.wire.http import Response

#: Records and accelerator requests per page.
LIMIT = 50
#: Hosts per page of the table: one request each.
HOSTS_AT_ONCE = 25
#: Servers whose names are read for one page.
NAMES = 1000
#: Records of quarantines that are read for their times and hosts, and hosts that are asked what is still quarantined.
QUARANTINES, QUARANTINE_HOSTS = 500, 100
#: How long a form waits for a host to clean a handle; then the table shows what became of it.
RELEASE_WAIT_S = 10
Documents = list[dict[str, Json]]


def list_accelerators(page_request: PageRequest) -> Page:
    """An administrator sees the handles of all hosts; other users see their project's accelerator requests."""
    return _list_handles(page_request) if page_request.user.is_admin else _list_requests(page_request)


def _list_handles(page_request: PageRequest) -> Page:
    query = page_request.http.query
    host, wanted, after = ((query.first(name) or "").strip() for name in ("host", "find", "after"))
    order = parse_order(query.first("sort"), table.COLUMNS)
    hosts, following = [host] if host else [], ""
    if not host:
        every = table.hosts_with_devices(page_request.client("accelerator").get("/v2/devices")["devices"])
        rest = [name for name in every if name > after]
        hosts, following = rest[:HOSTS_AT_ONCE], rest[HOSTS_AT_ONCE - 1] if len(rest) > HOSTS_AT_ONCE else ""
    kept = {name: text for name, text in (("host", host), ("find", wanted), ("after", after)) if text}
    values = {
        "host": host,
        "find": wanted,
        "rows": table_rows(_handles(page_request, hosts), table.COLUMNS, order, wanted),
        "headings": headings(table.COLUMNS, order, kept, urlencode),
        "has_devices": bool(hosts),
        "next_page": urlencode({**kept, "after": following}) if following else "",
        "is_first": not after,
    }
    return Page("accelerators.html", "Accelerators", values)


def _handles(page_request: PageRequest, hosts: list[str]) -> list[table.AttachHandleRow]:
    """The handles of these hosts: one request each, and one for the names of servers if a server has any."""
    client = page_request.client("accelerator")
    found = {host: client.get(with_query("/moorage/v1/handles", {"host": host}))["handles"] for host in hosts}
    is_used = any(one["instance_uuid"] for rows in found.values() for one in rows)
    servers = server_names(page_request, all_projects=True) if is_used else {}
    names = page_request.names
    return [row for host, rows in found.items() for row in table.handle_rows(host, rows, servers, names.project)]


def server_names(page_request: PageRequest, *, all_projects: bool) -> dict[str, str]:
    """{id: name} of at most `NAMES` servers that the viewer may see; the newest ones."""
    if not page_request.has("compute"):
        return {}
    scope = {"all_tenants": 1} if all_projects else {}
    try:
        rows = page_request.client("compute").get(with_query("/v2.1/servers", {**scope, "limit": NAMES}))["servers"]
    except MoorageError:
        return {}
    return {str(row["id"]): str(row["name"]) for row in rows}


def _list_requests(page_request: PageRequest) -> Page:
    found, following = _requests(page_request.client("accelerator"), after := page_request.http.query.first("after"))
    values = {
        "accelerators": view.accelerators(found),
        "servers": server_names(page_request, all_projects=False) if found else {},
        "next_page": urlencode({"after": following}) if following else "",
        "is_first": not after,
    }
    return Page("accelerator_requests.html", "Accelerators", values)


def _requests(accelerator: ServiceClient, after: str | None) -> tuple[Documents, str | None]:
    """(a page of the project's requests, marker of the next page). Cyborg has no paging and returns all of them."""
    asked = {"limit": LIMIT, **({"after": after} if after else {})}
    try:
        page = accelerator.get(with_query("/moorage/v1/accelerator_requests", asked))
    except NotFound:
        return accelerator.get("/v2/accelerator_requests")["arqs"], None
    return page["arqs"], page["next"]


# --- quarantine ---------------------------------------------------------------------------------------------------


def list_quarantine(page_request: PageRequest) -> Page:
    """The quarantined handles of all hosts: those whose history has a quarantine are asked for their handles."""
    require_admin(page_request)
    asked = {"event": "quarantine", "order": "newest", "limit": QUARANTINES}
    records = page_request.client("accelerator").get(with_query("/moorage/v1/history", asked))["records"]
    hosts = list(dict.fromkeys(str(one["hostname"]) for one in records))
    rows = table.quarantined(_handles(page_request, hosts[:QUARANTINE_HOSTS]), records)
    values = {"rows": rows, "is_cut": len(records) == QUARANTINES or len(hosts) > QUARANTINE_HOSTS}
    return Page("quarantine.html", "Quarantine", values)


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


def show_device(page_request: PageRequest, uuid: str) -> Page:
    """A device and its history, newest first."""
    require_admin(page_request)
    accelerator, after = page_request.client("accelerator"), page_request.http.query.first("after")
    found = accelerator.get(f"/v2/devices/{quote(uuid, safe='')}")
    asked = {"device": uuid, "order": "newest", "limit": LIMIT, **({"after": after} if after else {})}
    page = accelerator.get(with_query("/moorage/v1/history", asked))
    values = {
        "device": found,
        "names": page_request.names,
        "records": view.history_rows(page["records"]),
        "next_page": urlencode({"after": page["next"]}) if page["next"] else "",
        "is_first": not after,
    }
    return Page("device.html", f"{found['type']} {found['model']}", values)
