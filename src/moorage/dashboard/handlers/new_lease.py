"""Making leases: one, or one after another; what would be, when there is room, and a hold on that."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from moorage.core.errors import Invalid, MoorageError, NotFound, RemoteError, Unavailable
from moorage.dashboard.page_request import Visit, redirect, require_admin
from moorage.dashboard.pages import Page, status_shown, words_of
from moorage.dashboard.views import lease_form as form
from moorage.dashboard.views.calendar_view import moment, of_lease
from moorage.wire.client import ServiceClient
from moorage.wire.http import Response

_OFFERS = 4
#: Flavors that can be chosen from a list; where there are more, the id is typed.
_MOST_FLAVORS = 500

#: What an empty form suggests.
_USUAL = timedelta(hours=4)


def new_lease(visit: Visit) -> Page:
    """An empty form; what the address names is filled in."""
    typed = {**form.DEFAULTS, "end_date": form.field_date(whole_hour(visit) + _USUAL)}
    typed |= {name: value for name, value in visit.request.query.pairs if name in typed}
    return _page(visit, typed)


def submit_lease(visit: Visit) -> Page | Reply:
    """What the pressed button says: look for the next room, hold it, look what would be, or make it."""
    typed = {**form.DEFAULTS, **{name: value for name, value in visit.form.values().items() if name in form.DEFAULTS}}
    if "|" in (taken := visit.form.text("take")):
        typed["start_date"], _, typed["end_date"] = taken.partition("|")
        return _page(visit, typed, said="These times are in the form now. Nothing is reserved yet.")
    try:
        return _done(visit, typed)
    except (Invalid, NotFound, RemoteError) as error:
        return _page(visit, typed, trouble=error)


def _done(visit: Visit, typed: Mapping[str, str]) -> Page | Response:
    """Raises `Invalid`, `NotFound`, `RemoteError`."""
    if "|" in (held := visit.form.text("hold")):
        return _held(visit, typed, held)
    action, now, client = visit.form.text("action"), visit.request.service.clock.now(), visit.client("reservation")
    wish = form.wish(typed, now)
    if action == "find":
        found = client.request("POST", "/v1/offers", json=wish.search(now, _OFFERS), repeatable=True)
        return _page(visit, typed, offers=found)
    if action == "check":
        return _page(visit, typed, rehearsed=_rehearsed(client, wish))
    if wish.times > 1:
        made = client.request("POST", "/v1/leases/series", json=wish.series_body)["leases"]
        return redirect(visit, f"/leases?made={len(made)}")
    lease = client.request("POST", "/v1/leases", json=wish.body)["lease"]
    return redirect(visit, f"/leases/{lease['id']}")


def _rehearsed(client: ServiceClient, wish: form.LeaseForm) -> list[Mapping[str, Any]]:
    """What each lease would get. Raises `RemoteError`."""
    if wish.times > 1:
        path, body = "/v1/leases/series/dry-run", wish.series_body
        return list(client.request("POST", path, json=body, repeatable=True)["leases"])
    return [client.request("POST", "/v1/leases/dry-run", json=wish.body, repeatable=True)["lease"]]


def _held(visit: Visit, typed: Mapping[str, str], period: str) -> Response:
    """Keep an offer, and go to where it becomes a lease. Raises `Invalid`, `RemoteError`."""
    start, _, end = period.partition("|")
    now = visit.request.service.clock.now()
    wish = form.wish({**typed, "start_date": start, "end_date": end}, now)
    if wish.times > 1:
        raise Invalid("Times: one time can be held, not a series; let it be 1, or reserve the series at once")
    hold = visit.client("reservation").request("POST", "/v1/holds", json=wish.hold_body(now))["hold"]
    return redirect(visit, f"/leases/holds/{hold['id']}?" + urlencode({"name": typed["name"]}))


def _page(
    visit: Visit,
    typed: Mapping[str, str],
    *,
    trouble: MoorageError | None = None,
    offers: Mapping[str, Any] | None = None,
    rehearsed: Sequence[Mapping[str, Any]] = (),
    said: str = "",
) -> Page:
    values = {
        "typed": typed, "types": form.TYPES, "affinities": form.AFFINITIES, "flavors": _flavors(visit), "said": said,
        "trouble": "" if trouble is None else words_of(trouble),
        "offers": None if offers is None else _periods(offers["offers"]),
        "reason": (offers or {}).get("earliest_start", {}).get("reason"),
        "rehearsed": rehearsed,
    }  # fmt: skip
    return Page("lease_new.html", "New lease", values, 200 if trouble is None else status_shown(trouble))


def _periods(rows: list[Mapping[str, str]]) -> list[tuple[datetime, datetime, str]]:
    """(start, end, what the buttons that take and hold it send)"""
    periods = [(moment(row["start_date"]), moment(row["end_date"])) for row in rows]
    return [(start, end, f"{form.field_date(start)}|{form.field_date(end)}") for start, end in periods]


def _flavors(visit: Visit) -> list[tuple[str, str]] | None:
    """(id, name); None where they must be typed."""
    if not visit.has("compute"):
        return None
    try:
        rows = visit.client("compute").get("/v2.1/flavors", params={"limit": _MOST_FLAVORS})["flavors"]
    except (RemoteError, Unavailable):
        return None
    return [(row["id"], row["name"]) for row in rows] if len(rows) < _MOST_FLAVORS else None


def whole_hour(visit: Visit) -> datetime:
    """The next one."""
    return visit.call.service.clock.now().replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)


_MAINTENANCE_FIELDS = ("name", "start_date", "end_date", "hosts")

#: What an empty form suggests.
_USUAL_MAINTENANCE = timedelta(hours=4)


def new_maintenance(visit: Visit) -> Page:
    """An empty form; hosts may be in the address."""
    require_admin(visit)
    start = whole_hour(visit)
    typed = {"name": "", "start_date": form.field_date(start), "end_date": form.field_date(start + _USUAL_MAINTENANCE)}
    return _maintenance_page({**typed, "hosts": "\n".join(visit.call.query.every("hosts"))})


def submit_maintenance(visit: Visit) -> Page | Reply:
    """What the pressed button says: look who has something there then, or take the hosts."""
    require_admin(visit)
    typed = {name: visit.form.text(name) for name in _MAINTENANCE_FIELDS}
    client = visit.client("reservation")
    try:
        body = form.maintenance(typed, visit.call.service.clock.now())
        if visit.form.text("action") == "check":
            found = client.request("POST", "/v1/maintenance/dry-run", json=body, repeatable=True)
            return _maintenance_page(typed, touched=found["leases"])
        made = client.request("POST", "/v1/maintenance", json=body)["lease"]
    except (Invalid, NotFound, RemoteError) as error:
        return _maintenance_page(typed, trouble=error)
    return redirect(visit, f"/leases/{made['id']}")


def _maintenance_page(
    typed: Mapping[str, str],
    *,
    touched: list[Mapping[str, Any]] | None = None,
    trouble: MoorageError | None = None,
) -> Page:
    """`touched` is None before it was looked for."""
    values = {
        "typed": typed,
        "touched": None if touched is None else [(of_lease(each), each["project_id"]) for each in touched],
        "trouble": "" if trouble is None else words_of(trouble),
    }
    return Page("maintenance.html", "Maintenance", values, 200 if trouble is None else status_shown(trouble))
