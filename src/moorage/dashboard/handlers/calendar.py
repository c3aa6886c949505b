"""The calendar page: usage, and leases by name, host or project. One or two requests, even in a large cloud."""

from moorage.core.errors import MoorageError
from moorage.dashboard.page_request import PageRequest
from moorage.dashboard.pages import Page, error_text
from moorage.dashboard.views import calendar_view as view
from moorage.dashboard.views.lease_form import api_date, field_date
from moorage.dashboard.views.reservation_documents import CalendarDocument

#: Hosts per page, and leases fetched for the view by project.
HOSTS_AT_ONCE = 25
LEASES_AT_ONCE = 300

#: Tabs. Only administrators see the leases of other projects and the names of hosts.
_SHOWS = {"usage": "Usage", "hosts": "Hosts", "projects": "Projects"}


def show_calendar(page_request: PageRequest) -> Page:
    query = page_request.http.query
    now = page_request.http.service.clock.now()
    shown = view.parse_window(query.first("start"), query.first("days"), now)
    tabs = _SHOWS if page_request.user.is_admin else {"usage": "Usage"}
    what = query.first("show") or "usage"
    what = what if what in tabs else "usage"
    hosts_with = query.first("hosts_with") or ""
    values: dict[str, object] = {
        "shown": shown, "what": what, "tabs": tabs, "spans": view.NAMES,
        "ticks": view.ticks(shown), "today": shown.percent(now) if shown.start <= now < shown.end else None,
        "before": shown.moved(-1), "after": shown.moved(1), "day": f"{shown.start:%Y-%m-%d}", "field_date": field_date,
        "filter": hosts_with,
    }  # fmt: skip
    made = {"hosts": _hosts, "projects": _projects}.get(what, _usage)
    return Page("calendar.html", "Calendar", values | made(page_request, shown, hosts_with))


def _usage(page_request: PageRequest, shown: view.ShownDays, hosts_with: str) -> dict[str, object]:
    params = {**_period(shown), "step_minutes": int(shown.step.total_seconds() // 60)}
    pool = {"resource_properties": hosts_with} if hosts_with else {}
    message = ""
    try:
        calendar: CalendarDocument = page_request.client("reservation").get("/v1/calendar", params=params | pool)[
            "calendar"
        ]
    except MoorageError as error:
        if not hosts_with:
            raise
        message = error_text(error)
        calendar = {"capacity": {}, "busy": [], "leases": []}
    rows, more_classes = view.heat_rows(calendar, shown)
    leases = [view.of_lease(lease) for lease in calendar["leases"]]
    tracks = [view.track(lease.name, lease.status, [lease], shown) for lease in leases[: view.MAX_LEASES]]
    return {"rows": rows, "more_classes": more_classes, "tracks": tracks, "more_leases": len(leases) - len(tracks),
            "error": message}  # fmt: skip


def _hosts(page_request: PageRequest, shown: view.ShownDays, hosts_with: str) -> dict[str, object]:
    client, marker = page_request.client("reservation"), page_request.http.query.first("marker")
    params = {"limit": HOSTS_AT_ONCE, "marker": marker, "properties": hosts_with or None}
    try:
        hosts = client.get("/v1/os-hosts", params=params)
        allocations = client.get("/v1/os-hosts/allocations", params=params)["allocations"]
    except MoorageError as error:
        if not hosts_with:
            raise
        return {"tracks": [], "next_marker": None, "error": error_text(error)}
    is_more = bool(hosts.get("hosts_links"))
    return {
        "tracks": view.of_hosts(hosts["hosts"], allocations, shown),
        "next_marker": hosts["hosts"][-1]["id"] if is_more else None,
        "error": "",
    }


def _projects(page_request: PageRequest, shown: view.ShownDays, hosts_with: str) -> dict[str, object]:
    period = {"ends_after": api_date(shown.start), "starts_before": api_date(shown.end)}
    params = {
        **period,
        "limit": LEASES_AT_ONCE,
        "sort_key": "start_date",
        "marker": page_request.http.query.first("marker"),
    }
    answer = page_request.client("reservation").get("/v1/leases", params=params)
    leases = answer["leases"]
    return {
        "tracks": view.of_projects(leases, page_request.names.project, shown),
        "next_marker": leases[-1]["id"] if answer.get("leases_links") else None,
        "error": "",
    }


def _period(shown: view.ShownDays) -> dict[str, str]:
    return {"start_date": api_date(shown.start), "end_date": api_date(shown.end)}
