"""The pages of hosts, for administrators: the list, enrolling a machine, draining a host and retiring it.

The state comes from compute, the enrolment from Moorage's identity service. Where that is a Keystone, hosts are not
enrolled here.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from moorage.core.errors import Conflict, Invalid, MoorageError, NotFound, RemoteError
from moorage.core.names import check_host_name
from moorage.dashboard.handlers.map import slots_of_host
from moorage.dashboard.page_request import PageRequest, redirect, require_admin
from moorage.dashboard.pages import Page, error_status, error_text
from moorage.dashboard.views import hosts_view as view
from moorage.dashboard.views.host_slots import active_slots, lent, next_lent
from moorage.dashboard.views.tables import headings, parse_order
from moorage.wire.client import ServiceClient
from moorage.wire.http import Response

#: Rows of the table; the filter finds the others.
MAX_ROWS = 200
#: How long a token to enrol a host is valid.
ENROLMENT_S = 3600
#: The last microversion in which hypervisors have their amounts.
_WITH_AMOUNTS = "2.87"
_MAX_REASON = 255
#: Leases on the page of a host that have not started.
MAX_COMING = 5
#: {(value of ``done``, whether the host is drained): what its page says after a change}
_DONE: Mapping[tuple[str, bool], str] = {
    ("drain", True): "Drained: no new servers come here.",
    ("undrain", False): "Undrained: new servers may come again.",
}


def list_hosts(page_request: PageRequest) -> Page:
    require_admin(page_request)
    return _list_page(page_request)


def enrol_host(page_request: PageRequest) -> Page:
    """Makes a one-time token, which only this answer shows, within the command that uses it."""
    require_admin(page_request)
    name = page_request.form.text("name")
    try:
        if not name:
            raise Invalid("Name: enter the name of the machine")
        check_host_name(name)
        made = _identity(page_request).request(
            "POST", f"{_identity_path(name)}/enrolment", json={"expires_s": ENROLMENT_S}
        )
    except (Invalid, NotFound, RemoteError) as error:
        return _list_page(page_request, name, error=error)
    return _list_page(page_request, command=_join_command(page_request, name, made["token"]), enrolled=name)


def show_host(page_request: PageRequest, host: str) -> Page:
    require_admin(page_request)
    return _host_page(page_request, host)


def set_host_state(page_request: PageRequest, host: str) -> Page | Response:
    """Drains the host, which needs a reason, or lets new servers come again."""
    require_admin(page_request)
    row, reason = _row(page_request, host), page_request.form.text("reason")
    if not row.is_known_to_compute:
        raise Conflict(f"{host} has not joined, so no servers come there; it cannot be drained")
    change: dict[str, str] = {"status": "enabled"}
    if not page_request.form.has("undrain"):
        if not 0 < len(reason) <= _MAX_REASON:
            error = Invalid(f"Reason: write why, in 1 to {_MAX_REASON} characters")
            return _host_page(page_request, host, error=error, field="reason")
        change = {"status": "disabled", "disabled_reason": reason}
    page_request.client("compute").request("PUT", _service_path(row), json=change)
    return redirect(page_request, f"{_page_path(host)}?done={'undrain' if change['status'] == 'enabled' else 'drain'}")


def retire_host(page_request: PageRequest, host: str) -> Page | Response:
    """Deletes the host from compute, and revokes its credential.

    Compute refuses a host with servers or moves, so it goes first. Its agent may report once more before its credential
    is revoked, which would register it again; so the host is deleted again if it is there.
    """
    require_admin(page_request)
    row = _row(page_request, host)
    try:
        if row.why_not_retired:
            raise Conflict(row.why_not_retired)
        if row.is_known_to_compute:
            page_request.client("compute").request("DELETE", _service_path(row))
        if row.enrolment not in ("", "revoked"):
            _identity(page_request).request("DELETE", _identity_path(host))
        back = [one for one in _services(page_request) if one["host"] == host]
        for one in back:
            page_request.client("compute").request("DELETE", f"/v2.1/os-services/{_quoted(one['id'])}")
    except (Conflict, RemoteError) as error:
        return _host_page(page_request, host, error=error)
    return redirect(page_request, "/hosts?" + urlencode({"retired": host}))


# --- pages --------------------------------------------------------------------------------------------------------


def _list_page(
    page_request: PageRequest,
    typed: str = "",
    *,
    error: MoorageError | None = None,
    command: str = "",
    enrolled: str = "",
) -> Page:
    query = page_request.http.query
    wanted, order = (query.first("find") or "").strip(), parse_order(query.first("sort"), view.COLUMNS)
    found = _rows(page_request)
    rows = view.sorted_hosts(found, order, wanted)
    values = {
        "find": wanted,
        "rows": rows[:MAX_ROWS],
        "count": len(rows),
        "headings": headings(view.COLUMNS, order, {"find": wanted} if wanted else {}, urlencode),
        "may_enrol": page_request.has("identity"),
        "typed": typed,
        "retired": view.retired_name(found, query.first("retired") or ""),
        "command": command,
        "enrolled": enrolled,
        "is_plain_http": urlsplit(_services_url(page_request)).scheme == "http",
        "error": "" if error is None else error_text(error),
        "error_field": "name" if error is not None else "",
    }
    return Page("hosts.html", "Hosts", values, 200 if error is None else error_status(error))


def _host_page(page_request: PageRequest, host: str, *, error: MoorageError | None = None, field: str = "") -> Page:
    """Raises `NotFound`."""
    now, slots = page_request.http.service.clock.now(), slots_of_host(page_request, host)
    one, coming = _row(page_request, host), next_lent(slots, now)
    values = {
        "one": one,
        "lent": lent(active_slots(slots, now)),
        "coming": coming[:MAX_COMING],
        "more_coming": max(0, len(coming) - MAX_COMING),
        "names": page_request.names,
        "done": _DONE.get((page_request.http.query.first("done") or "", one.is_drained), ""),
        "has_leases": page_request.has("reservation"),
        "calendar": urlencode({"show": "hosts", "hosts_with": view.filter_of_host(host)}),
        "may_enrol": page_request.has("identity"),
        "reason": page_request.form.text("reason"),
        "error": "" if error is None else error_text(error),
        "error_field": field,
    }
    return Page("host.html", host, values, 200 if error is None else error_status(error))


def _row(page_request: PageRequest, host: str) -> view.HostOverview:
    """Raises `NotFound`."""
    found = next((row for row in _rows(page_request) if row.name == host), None)
    if found is None:
        raise NotFound(f"there is no host {host}")
    return found


def _rows(page_request: PageRequest) -> list[view.HostOverview]:
    def read(service: str, path: str, key: str) -> list[dict[str, Any]]:
        return list(page_request.client(service).get(path)[key]) if page_request.has(service) else []

    hypervisors, registered = [], []
    if page_request.has("compute"):
        hypervisors = list(
            page_request.client("compute").paged_rows(
                "/v2.1/os-hypervisors/detail", "hypervisors", [("with_servers", "true")], more="hypervisors_links",
                version=_WITH_AMOUNTS,
            )
        )  # fmt: skip
    if page_request.has("reservation"):
        registered = list(page_request.client("reservation").paged_rows("/v1/os-hosts", "hosts", more="hosts_links"))
    documents = view.HostDocuments(
        services=_services(page_request),
        hypervisors=hypervisors,
        identities=read("identity", "/moorage/v1/hosts", "hosts"),
        devices=read("accelerator", "/v2/devices", "devices"),
        registered=registered,
    )
    return view.host_rows(documents, page_request.http.service.clock.now())


def _services(page_request: PageRequest) -> list[dict[str, Any]]:
    if not page_request.has("compute"):
        return []
    rows: list[dict[str, Any]] = page_request.client("compute").get("/v2.1/os-services")["services"]
    return rows


def _join_command(page_request: PageRequest, name: str, token: str) -> str:
    """The command with which the machine becomes a host."""
    url = _services_url(page_request)
    plain = " --plain-http" if urlsplit(url).scheme == "http" else ""
    return f"moorage agent join {url} --token {name}:{token}{plain}"


def _services_url(page_request: PageRequest) -> str:
    """Where hosts reach the services: where this browser reaches them, unless identity has an address of its own."""
    elsewhere = page_request.http.service.identity_url
    return (
        elsewhere.rstrip("/").removesuffix("/identity") if elsewhere else page_request.http.base_url.rpartition("/")[0]
    )


def _identity(page_request: PageRequest) -> ServiceClient:
    """Raises `NotFound` where Moorage does not keep the identities of hosts."""
    if not page_request.has("identity"):
        raise NotFound("Moorage does not enrol the hosts of this cloud; see [identity] host_users")
    return page_request.client("identity")


def _identity_path(host: str) -> str:
    return f"/moorage/v1/hosts/{_quoted(host)}"


def _service_path(row: view.HostOverview) -> str:
    return f"/v2.1/os-services/{_quoted(row.service_id)}"


def _page_path(host: str) -> str:
    return f"/hosts/{_quoted(host)}"


def _quoted(text: str) -> str:
    return quote(text, safe="")
