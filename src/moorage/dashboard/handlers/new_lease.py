"""Pages that create leases: a single lease, a series, a hold on a free time, or a maintenance window."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from urllib.parse import urlencode

from moorage.core.errors import Conflict, Invalid, MoorageError, NotFound, RemoteError, Unavailable
from moorage.core.json import JsonObject
from moorage.dashboard.page_request import PageRequest, redirect, require_admin
from moorage.dashboard.pages import Page, error_status, error_text, field_of
from moorage.dashboard.views import lease_form as form
from moorage.dashboard.views.calendar_view import of_lease
from moorage.dashboard.views.reservation_documents import LeaseDocument, OffersDocument
from moorage.dashboard.views.units import HOSTS, class_words
from moorage.wire.client import ServiceClient
from moorage.wire.http import Response

_OFFERS = 4
#: Maximum number of flavors in the list; with more, the user types the ID.
_MAX_FLAVORS = 500
#: Maximum number of resource classes that the form names.
_MAX_CLASSES = 20

#: Default duration in an empty form.
_USUAL = timedelta(hours=4)


def new_lease(page_request: PageRequest) -> Page:
    """An empty form, prefilled with values from the address."""
    given = {name: value for name, value in page_request.http.query.pairs if name in form.DEFAULTS}
    end = form.proposed_end(given.get("start_date", ""), page_request.http.service.clock.now(), _USUAL)
    return _page(page_request, {**form.DEFAULTS, "end_date": form.field_date(end), **given})


def submit_lease(page_request: PageRequest) -> Page | Response:
    """Runs the action of the pressed button: find free times, hold one, preview, or create the lease."""
    typed = {
        **form.DEFAULTS,
        **{name: value for name, value in page_request.form.values().items() if name in form.DEFAULTS},
    }
    if "|" in (taken := page_request.form.text("take")):
        typed["start_date"], _, typed["end_date"] = taken.partition("|")
        return _page(page_request, typed, said="The form now contains these times. Nothing has been reserved yet.")
    try:
        return _run_action(page_request, typed)
    except (Invalid, NotFound, RemoteError) as error:
        return _page(page_request, typed, error=error)


def _run_action(page_request: PageRequest, typed: Mapping[str, str]) -> Page | Response:
    """Raises `Invalid`, `NotFound`, `RemoteError`."""
    if "|" in (held := page_request.form.text("hold")):
        return _hold_offered_time(page_request, typed, held)
    action, now, client = (
        page_request.form.text("action"),
        page_request.http.service.clock.now(),
        page_request.client("reservation"),
    )
    lease_form = form.parse_lease(typed, now)
    if action == "find":
        found = client.request("POST", "/v1/offers", json=lease_form.search(now, _OFFERS), repeatable=True)
        return _page(page_request, typed, offers=found)
    if action == "check":
        return _page(page_request, typed, rehearsed=_previews(client, lease_form))
    if lease_form.times > 1:
        made = client.request("POST", "/v1/leases/series", json=lease_form.series_body)["leases"]
        return redirect(page_request, f"/leases?made={len(made)}")
    lease = client.request("POST", "/v1/leases", json=lease_form.body)["lease"]
    return redirect(page_request, f"/leases/{lease['id']}")


def _previews(client: ServiceClient, lease_form: form.LeaseForm) -> list[JsonObject]:
    """The preview of each lease. Raises `RemoteError`."""
    if lease_form.times > 1:
        path, body = "/v1/leases/series/dry-run", lease_form.series_body
        return list(client.request("POST", path, json=body, repeatable=True)["leases"])
    return [client.request("POST", "/v1/leases/dry-run", json=lease_form.body, repeatable=True)["lease"]]


def _hold_offered_time(page_request: PageRequest, typed: Mapping[str, str], period: str) -> Response:
    """Holds an offered time and redirects to the page of the hold. Raises `Invalid`, `RemoteError`."""
    start, _, end = period.partition("|")
    now = page_request.http.service.clock.now()
    lease_form = form.parse_lease({**typed, "start_date": start, "end_date": end}, now)
    if lease_form.times > 1:
        raise Invalid("Number of leases: a series cannot be held; set it to 1, or reserve the series now")
    hold = page_request.client("reservation").request("POST", "/v1/holds", json=lease_form.hold_body(now))["hold"]
    return redirect(page_request, f"/leases/holds/{hold['id']}?" + urlencode({"name": typed["name"]}))


def _page(
    page_request: PageRequest,
    typed: Mapping[str, str],
    *,
    error: MoorageError | None = None,
    offers: OffersDocument | None = None,
    rehearsed: Sequence[JsonObject] = (),
    said: str = "",
) -> Page:
    values = {
        "typed": typed, "types": form.TYPES, "affinities": form.AFFINITIES, "flavors": _flavors(page_request),
        "classes": _classes(page_request),
        "said": said,
        "error": "" if error is None else error_text(error),
        "error_field": field_of(error, form.DEFAULTS),
        "offers": None if offers is None else form.offered_periods(offers["offers"]),
        "reason": None if offers is None or "earliest_start" not in offers else offers["earliest_start"]["reason"],
        "rehearsed": rehearsed,
    }  # fmt: skip
    return Page("lease_new.html", "New lease", values, 200 if error is None else error_status(error))


def _classes(page_request: PageRequest) -> list[tuple[str, str]]:
    """[(words, name)] of the resource classes that can be reserved now; empty if the service does not answer."""
    try:
        start = page_request.http.service.clock.now().replace(second=0, microsecond=0)
        params = {"start_date": form.api_date(start), "end_date": form.api_date(start + timedelta(minutes=1))}
        capacity = page_request.client("reservation").get("/v1/calendar", params=params)["calendar"]["capacity"]
    except (RemoteError, Unavailable):
        return []
    return [(class_words(name), name) for name in sorted(capacity) if name != HOSTS][:_MAX_CLASSES]


def _flavors(page_request: PageRequest) -> list[tuple[str, str]] | None:
    """[(id, name)]; None if the user must type the ID."""
    if not page_request.has("compute"):
        return None
    try:
        rows = page_request.client("compute").get("/v2.1/flavors", params={"limit": _MAX_FLAVORS})["flavors"]
    except (RemoteError, Unavailable):
        return None
    return [(row["id"], row["name"]) for row in rows] if len(rows) < _MAX_FLAVORS else None


_MAINTENANCE_FIELDS = ("name", "start_date", "end_date", "hosts")

#: Default duration of a maintenance window.
_USUAL_MAINTENANCE = timedelta(hours=4)


def new_maintenance(page_request: PageRequest) -> Page:
    """An empty form; the address may name hosts."""
    require_admin(page_request)
    start = form.next_hour(page_request.http.service.clock.now())
    typed = {"name": "", "start_date": form.field_date(start), "end_date": form.field_date(start + _USUAL_MAINTENANCE)}
    return _maintenance_page(page_request, {**typed, "hosts": "\n".join(page_request.http.query.every("hosts"))})


def submit_maintenance(page_request: PageRequest) -> Page | Response:
    """Runs the action of the pressed button: show affected leases, or reserve the hosts. Administrators only."""
    require_admin(page_request)
    typed = {name: page_request.form.text(name) for name in _MAINTENANCE_FIELDS}
    try:
        body = form.maintenance_body(typed, page_request.http.service.clock.now())
        if page_request.form.text("action") == "check":
            return _maintenance_page(page_request, typed, touched=_touched(page_request, body))
        return _reserve_hosts(page_request, typed, body)
    except (Invalid, NotFound, RemoteError) as error:
        return _maintenance_page(page_request, typed, error=error)


def _reserve_hosts(page_request: PageRequest, typed: Mapping[str, str], body: JsonObject) -> Page | Response:
    """Raises `NotFound`, `RemoteError`."""
    try:
        made = page_request.client("reservation").request("POST", "/v1/maintenance", json=body)["lease"]
    except RemoteError as error:
        # The refusal names the leases in the way by their ids, and the page by their names.
        touched = _touched(page_request, body) if error.status == 409 else []
        if not touched:
            raise
        reason = Conflict("The hosts were not reserved: other leases use them during this time.")
        return _maintenance_page(page_request, typed, touched=touched, error=reason)
    return redirect(page_request, f"/leases/{made['id']}")


def _touched(page_request: PageRequest, body: JsonObject) -> list[LeaseDocument]:
    """The leases that the maintenance would affect. Raises `NotFound`, `RemoteError`."""
    client = page_request.client("reservation")
    found = client.request("POST", "/v1/maintenance/dry-run", json=body, repeatable=True)
    leases: list[LeaseDocument] = found["leases"]
    return leases


def _maintenance_page(
    page_request: PageRequest,
    typed: Mapping[str, str],
    *,
    touched: list[LeaseDocument] | None = None,
    error: MoorageError | None = None,
) -> Page:
    """`touched`: the affected leases; None before they were checked."""
    values = {
        "typed": typed,
        "names": page_request.names,
        "touched": None if touched is None else [(of_lease(each), each["project_id"]) for each in touched],
        "error": "" if error is None else error_text(error),
        "error_field": field_of(error, _MAINTENANCE_FIELDS),
    }
    return Page("maintenance.html", "Maintenance", values, 200 if error is None else error_status(error))
