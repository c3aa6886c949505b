"""The calendar page: usage, and leases by name, host or project. One or two requests, even in a large cloud."""

from collections.abc import Mapping
from urllib.parse import urlencode

from moorage.core.errors import Invalid, MoorageError
from moorage.dashboard.page_request import PageRequest
from moorage.dashboard.pages import Page, error_text
from moorage.dashboard.views import calendar_period, calendar_view
from moorage.dashboard.views.calendar_period import ShownPeriod
from moorage.dashboard.views.calendar_view import TrackMaker
from moorage.dashboard.views.lease_form import api_date, field_date, host_query
from moorage.dashboard.views.reservation_documents import CalendarDocument

#: Hosts per page, and leases fetched for the view by project.
HOSTS_AT_ONCE = 25
LEASES_AT_ONCE = 300

#: Tabs. Only administrators see the leases of other projects and the names of hosts.
_SHOWS = {"usage": "Usage", "hosts": "Hosts", "projects": "Projects"}


def show_calendar(page_request: PageRequest) -> Page:
    query = page_request.http.query
    now = page_request.http.service.clock.now()
    typed = {"start": query.first("start") or "", "end": query.first("end") or ""}
    problem, problem_field = "", ""
    try:
        shown = calendar_period.parse_period(typed["start"], typed["end"], query.first("days"), now)
        typed = {"start": field_date(shown.start), "end": field_date(shown.end)}
    except Invalid as error:
        problem, problem_field = error.message, str(error.fields["field"])
        shown = calendar_period.parse_period(None, None, None, now)
    tabs = _SHOWS if page_request.user.is_admin else {"usage": "Usage"}
    what = query.first("show") or "usage"
    what = what if what in tabs else "usage"
    hosts_with = (query.first("hosts_with") or "").strip()
    all_lanes = query.first("lanes") == "all"
    kept = {
        "show": what,
        **({"hosts_with": hosts_with} if hosts_with else {}),
        **({"lanes": "all"} if all_lanes else {}),
    }
    maker = TrackMaker(shown, calendar_view.ALL_LANES if all_lanes else calendar_view.MAX_LANES)

    def at(period: Mapping[str, object] = shown.address, **more: object) -> str:
        """The address of this page with another period or other parameters."""
        return f"{page_request.root}/calendar?{urlencode({**period, **kept, **more})}"

    values: dict[str, object] = {
        "shown": shown, "what": what, "tabs": tabs, "lengths": calendar_period.LENGTHS,
        "ticks": calendar_period.ticks(shown), "around_now": calendar_period.around_now(shown, now),
        "now_at": shown.percent(now) if shown.start <= now < shown.end else None,
        "typed": typed, "period_problem": problem, "period_field": problem_field,
        "field_date": field_date, "filter": hosts_with, "kept": kept, "at": at, "urlencode": urlencode,
    }  # fmt: skip
    made = {"hosts": _hosts, "projects": _projects}.get(what, _usage)
    return Page(
        "calendar.html", "Calendar", values | made(page_request, shown, maker, hosts_with), 400 if problem else 200
    )


def _usage(page_request: PageRequest, shown: ShownPeriod, maker: TrackMaker, hosts_with: str) -> dict[str, object]:
    params = {**_period(shown), "step_minutes": int(shown.step.total_seconds() // 60)}
    pool = {"resource_properties": host_query(hosts_with)} if hosts_with else {}
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
    rows, more_classes = calendar_view.heat_rows(calendar, shown)
    tracks = calendar_view.of_leases(calendar["leases"][: calendar_view.MAX_LEASES], maker)
    return {"rows": rows, "more_classes": more_classes, "tracks": tracks,
            "more_leases": len(calendar["leases"]) - len(tracks), "error": message}  # fmt: skip


def _hosts(page_request: PageRequest, shown: ShownPeriod, maker: TrackMaker, hosts_with: str) -> dict[str, object]:
    client, marker = page_request.client("reservation"), page_request.http.query.first("marker")
    params = {"limit": HOSTS_AT_ONCE, "marker": marker, "properties": host_query(hosts_with) or None}
    try:
        hosts = client.get("/v1/os-hosts", params=params)
        allocations = client.get("/v1/os-hosts/allocations", params=params)["allocations"]
    except MoorageError as error:
        if not hosts_with:
            raise
        return {"tracks": [], "next_marker": None, "error": error_text(error)}
    is_more = bool(hosts.get("hosts_links"))
    return {
        "tracks": calendar_view.of_hosts(hosts["hosts"], allocations, page_request.names.project, maker),
        "next_marker": hosts["hosts"][-1]["id"] if is_more else None,
        "error": "",
    }


def _projects(page_request: PageRequest, shown: ShownPeriod, maker: TrackMaker, hosts_with: str) -> dict[str, object]:
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
        "tracks": calendar_view.of_projects(leases, page_request.names.project, maker),
        "next_marker": leases[-1]["id"] if answer.get("leases_links") else None,
        "error": "",
    }


def _period(shown: ShownPeriod) -> dict[str, str]:
    return {"start_date": api_date(shown.start), "end_date": api_date(shown.end)}
