"""The calendar: how full it is, and the leases in it by name, host and project. One request or two, whatever there is."""

from collections.abc import Mapping
from typing import Any

from moorage.core.errors import MoorageError, NotFound, RemoteError, Unavailable
from moorage.dashboard.page_request import Visit
from moorage.dashboard.pages import Page, words_of
from moorage.dashboard.views import calendar_view as view
from moorage.dashboard.views.lease_form import api_date, field_date

#: Hosts of one page, and leases that are looked at where they are shown by project.
HOSTS_AT_ONCE = 25
LEASES_AT_ONCE = 300

#: Who sees what: others' leases are their project's business, and which host is which is the operators'.
_SHOWS = {"room": "Room", "hosts": "Hosts", "projects": "Projects"}


def show_calendar(visit: Visit) -> Page:
    query = visit.call.query
    now = visit.call.service.clock.now()
    shown = view.window(query.first("start"), query.first("days"), now)
    tabs = _SHOWS if visit.who.is_admin else {"room": "Room"}
    what = query.first("show") or "room"
    values: dict[str, Any] = {
        "shown": shown, "what": what if what in tabs else "room", "tabs": tabs, "spans": view.NAMES,
        "ticks": view.ticks(shown), "today": shown.percent(now) if shown.start <= now < shown.end else None,
        "before": shown.moved(-1), "after": shown.moved(1), "day": f"{shown.start:%Y-%m-%d}", "field_date": field_date,
        "filter": query.first("hosts_with") or "",
    }  # fmt: skip
    made = {"hosts": _hosts, "projects": _projects}.get(values["what"], _room)
    return Page("calendar.html", "Calendar", values | made(visit, shown, values["filter"]))


def _room(visit: Visit, shown: view.Window, hosts_with: str) -> dict[str, Any]:
    params = {**_period(shown), "step_minutes": int(shown.step.total_seconds() // 60)}
    pool = {"resource_properties": hosts_with} if hosts_with else {}
    trouble = ""
    try:
        calendar: Mapping[str, Any] = visit.client("reservation").get("/v1/calendar", params=params | pool)["calendar"]
    except MoorageError as error:
        if not hosts_with:
            raise
        trouble = words_of(error)
        calendar = {"capacity": {}, "busy": [], "leases": []}
    rows, more_classes = view.heat(calendar, shown)
    leases = [view.of_lease(lease) for lease in calendar["leases"]]
    tracks = [view.track(lease.name, lease.status, [lease], shown) for lease in leases[: view.MOST_LEASES]]
    return {"rows": rows, "more_classes": more_classes, "tracks": tracks, "more_leases": len(leases) - len(tracks),
            "trouble": trouble}  # fmt: skip


def _hosts(visit: Visit, shown: view.Window, hosts_with: str) -> dict[str, Any]:
    client, marker = visit.client("reservation"), visit.request.query.first("marker")
    params = {"limit": HOSTS_AT_ONCE, "marker": marker, "properties": hosts_with or None}
    try:
        hosts = client.get("/v1/os-hosts", params=params)
        allocations = client.get("/v1/os-hosts/allocations", params=params)["allocations"]
    except MoorageError as error:
        if not hosts_with:
            raise
        return {"tracks": [], "next_marker": None, "trouble": words_of(error)}
    is_more = bool(hosts.get("hosts_links"))
    return {
        "tracks": view.of_hosts(hosts["hosts"], allocations, shown),
        "next_marker": hosts["hosts"][-1]["id"] if is_more else None,
        "trouble": "",
    }


def _projects(visit: Visit, shown: view.Window, hosts_with: str) -> dict[str, Any]:
    period = {"ends_after": api_date(shown.start), "starts_before": api_date(shown.end)}
    params = {
        **period,
        "limit": LEASES_AT_ONCE,
        "sort_key": "start_date",
        "marker": visit.request.query.first("marker"),
    }
    answer = visit.client("reservation").get("/v1/leases", params=params)
    leases = answer["leases"]
    return {
        "tracks": view.of_projects(leases, _project_names(visit), shown),
        "next_marker": leases[-1]["id"] if answer.get("leases_links") else None,
        "trouble": "",
    }


def _project_names(visit: Visit) -> dict[str, str]:
    """{id: name}: one's own, and all where the identity service is one of this plane and says so."""
    names = {project.id: project.name for project in visit.who.projects}
    if visit.request.service.signing_in is None or not visit.has("identity"):
        return names
    try:
        rows = visit.client("identity").get("/v3/projects")["projects"]
    except (NotFound, RemoteError, Unavailable):
        return names
    return {row["id"]: row["name"] for row in rows} | names


def _period(shown: view.Window) -> dict[str, str]:
    return {"start_date": api_date(shown.start), "end_date": api_date(shown.end)}
