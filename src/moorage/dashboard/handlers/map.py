"""The map: all at a glance with a page of hosts, and one tree, now or at a past time."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote, urlencode

from moorage.core import parsing
from moorage.core.errors import Invalid, MoorageError, NotFound, RemoteError
from moorage.dashboard.page_request import Visit, require_admin
from moorage.dashboard.pages import Page, status_shown, words_of
from moorage.dashboard.views import map_view as view
from moorage.wire.client import with_query

#: Hosts on a page.
LIMIT = 50
_FILTERS = ("search", "member_of", "resource_class", "required")
Documents = list[dict[str, Any]]


def show_map(visit: Visit) -> Page:
    """Three requests, however many hosts there are."""
    require_admin(visit)
    placement, query = visit.client("placement"), visit.call.query
    wanted = {name: text for name in _FILTERS if (text := (query.first(name) or "").strip())}
    after = query.first("after")
    more = {"after": after} if after else {}
    trouble = ""
    try:
        page = placement.get(with_query("/moorage/v1/trees", {**wanted, **more, "limit": LIMIT}))
    except RemoteError as error:
        if error.status != 400:
            raise
        trouble, page = words_of(error), {"trees": [], "matching": 0, "next": None}
    next_page = page["next"] and "?" + urlencode({**wanted, "after": page["next"]})
    # Their names. Without compute, placement's uuids must do.
    aggregates = _told(visit, "compute", "/v2.1/os-aggregates", {}, "aggregates")
    values = {
        "overview": view.overview(placement.get("/moorage/v1/survey"), aggregates),
        "rows": view.rows(page),
        "matching": page["matching"],
        "wanted": {name: wanted.get(name, "") for name in _FILTERS},
        "is_filtered": bool(wanted),
        "is_first": after is None,
        "first": "?" + urlencode(wanted) if wanted else "",
        "next_page": next_page,
        "trouble": trouble,
    }
    return Page("map.html", "Map", values, 400 if trouble else 200)


def show_provider_tree(visit: Visit, uuid: str) -> Page:
    """Placement's tree; of now also the handles of the host, the names of its servers and its leases: four requests."""
    require_admin(visit)
    typed = (visit.call.query.first("at") or "").strip()
    values: dict[str, object] = {"uuid": uuid, "typed": typed, "trouble": "", "at": None, "tree": None, "is_cut": False,
                                 "has_leases": False}  # fmt: skip
    try:
        at = moment(typed) if typed else None
        path = f"/moorage/v1/trees/{quote(uuid, safe='')}"
        document = visit.client("placement").get(with_query(path, {"at": at and at.isoformat()}))
    except (Invalid, NotFound, RemoteError) as error:
        if not typed:
            raise
        values["trouble"] = words_of(error)
        return Page("map_tree.html", "Map", values, status_shown(error))
    around = view.Around() if at else _around(visit, str(document["providers"][0]["name"]))
    root = view.tree(document, around)
    values |= {"at": at, "tree": root, "is_cut": document["is_cut"], "has_leases": visit.has("reservation")}
    return Page("map_tree.html", root.name, values)


def moment(text: str) -> datetime:
    """As a form sends it, in UTC: ``2026-03-01T09:30``, or with a blank. Raises `Invalid`."""
    try:
        return parsing.parse_time(text)
    except ValueError as error:
        raise Invalid(f"{text!r} is no time; write it like 2026-03-01 09:30, in UTC") from error


def _around(visit: Visit, host: str) -> view.Around:
    """What the other services know of the host."""
    servers = _told(visit, "compute", "/v2.1/servers", {"all_tenants": 1, "host": host}, "servers")
    handles = _told(visit, "accelerator", "/moorage/v1/handles", {"host": host}, "handles")
    hosts = _told(visit, "reservation", "/v1/os-hosts/allocations", {"hypervisor_hostname": host}, "allocations")
    slots = [slot for one in hosts for slot in one["reservations"]]
    return view.Around(
        {str(one["id"]): str(one["name"]) for one in servers},
        handles,
        view.slots_at(slots, visit.request.service.clock.now()),
    )


def _told(visit: Visit, service: str, path: str, asked: Mapping[str, Any], key: str) -> Documents:
    """Nothing where the service is not there, or does not answer: a map without it is better than none."""
    if not visit.has(service):
        return []
    try:
        return list(visit.client(service).get(with_query(path, asked))[key])
    except MoorageError:
        return []
