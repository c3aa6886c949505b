"""The map: the whole cloud with a page of hosts, and one provider tree, now or at a past time."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from moorage.core import parsing
from moorage.core.errors import Invalid, MoorageError, NotFound, RemoteError
from moorage.dashboard.page_request import PageRequest, require_admin
from moorage.dashboard.pages import Page, error_status, error_text
from moorage.dashboard.views import map_view as view
from moorage.dashboard.views.host_slots import active_slots
from moorage.dashboard.views.host_use import legend
from moorage.dashboard.views.reservation_documents import SlotDocument
from moorage.wire.client import with_query

#: Hosts per page.
LIMIT = 50
_FILTERS = ("search", "member_of", "resource_class", "required")
Documents = list[dict[str, Any]]


def show_map(page_request: PageRequest) -> Page:
    """Makes three requests, even for a large cloud."""
    require_admin(page_request)
    placement, query = page_request.client("placement"), page_request.http.query
    wanted = {name: text for name in _FILTERS if (text := (query.first(name) or "").strip())}
    after, with_reservations = query.first("after"), bool(query.first("reservations"))
    shown = {**wanted, **({"reservations": "1"} if with_reservations else {})}
    more = {"after": after} if after else {}
    message = ""
    try:
        page = placement.get(with_query("/moorage/v1/trees", {**wanted, **more, "limit": LIMIT}))
    except RemoteError as error:
        if error.status != 400:
            raise
        message, page = error_text(error), {"trees": [], "matching": 0, "next": None}
    next_page = page["next"] and "?" + urlencode({**shown, "after": page["next"]})
    # For names. Without compute, aggregates are shown by UUID.
    known = aggregates(page_request)
    rows = view.host_rows(page, known, with_reservations=with_reservations)
    survey = placement.get("/moorage/v1/survey")
    values = {
        "overview": view.overview(survey, known, with_reservations=with_reservations),
        "rows": rows,
        "legend": legend(row.state for row in rows),
        "with_reservations": with_reservations,
        "with_or_without": "?" + urlencode({**wanted, **({} if with_reservations else {"reservations": "1"})}),
        "matching": page["matching"],
        "wanted": {name: wanted.get(name, "") for name in _FILTERS},
        "is_filtered": bool(wanted),
        "is_first": after is None,
        "first": "?" + urlencode(shown) if shown else "",
        "next_page": next_page,
        "error": message,
    }
    return Page("map.html", "Map", values, 400 if message else 200)


def show_provider_tree(page_request: PageRequest, uuid: str) -> Page:
    """One provider tree. For the current state, also the host's attach handles, servers and leases: four requests."""
    require_admin(page_request)
    typed = (page_request.http.query.first("at") or "").strip()
    values: dict[str, object] = {"uuid": uuid, "typed": typed, "error": "", "at": None, "tree": None, "is_cut": False,
                                 "has_leases": False}  # fmt: skip
    try:
        at = parse_moment(typed) if typed else None
        path = f"/moorage/v1/trees/{quote(uuid, safe='')}"
        document = page_request.client("placement").get(with_query(path, {"at": at and at.isoformat()}))
    except (Invalid, NotFound, RemoteError) as error:
        if not typed:
            raise
        values["error"] = error_text(error)
        return Page("map_tree.html", "Map", values, error_status(error))
    around = view.HostContext() if at else _host_context(page_request, str(document["providers"][0]["name"]))
    root = view.provider_tree(document, around)
    values |= {
        "names": page_request.names,
        "at": at,
        "tree": root,
        "is_cut": document["is_cut"],
        "has_leases": page_request.has("reservation"),
    }
    return Page("map_tree.html", root.name, values)


def parse_moment(text: str) -> datetime:
    """Parses a form's time in UTC: ``2026-03-01T09:30``, or with a space. Raises `Invalid`."""
    try:
        return parsing.parse_time(text)
    except ValueError as error:
        raise Invalid(f"{text!r} is not a time; use the form 2026-03-01 09:30, in UTC") from error


def _host_context(page_request: PageRequest, host: str) -> view.HostContext:
    """Data about the host from the other services."""
    servers = _get_or_empty(page_request, "compute", "/v2.1/servers", {"all_tenants": 1, "host": host}, "servers")
    handles = _get_or_empty(page_request, "accelerator", "/moorage/v1/handles", {"host": host}, "handles")
    return view.HostContext(
        {str(one["id"]): str(one["name"]) for one in servers},
        handles,
        active_slots(slots_of_host(page_request, host), page_request.http.service.clock.now()),
    )


def slots_of_host(page_request: PageRequest, host: str) -> list[SlotDocument]:
    """The present and coming slots of leases on the host; empty if it is not registered for leases."""
    asked = {"hypervisor_hostname": host}
    found = _get_or_empty(page_request, "reservation", "/v1/os-hosts/allocations", asked, "allocations")
    return [slot for one in found for slot in one["reservations"]]


def aggregates(page_request: PageRequest) -> Documents:
    """Compute's aggregates; empty without compute."""
    return _get_or_empty(page_request, "compute", "/v2.1/os-aggregates", {}, "aggregates")


def _get_or_empty(
    page_request: PageRequest, service: str, path: str, asked: Mapping[str, object], key: str
) -> Documents:
    """The list under `key`; empty if the service is missing or does not answer, since a partial map is still useful."""
    if not page_request.has(service):
        return []
    try:
        return list(page_request.client(service).get(with_query(path, asked))[key])
    except MoorageError:
        return []
