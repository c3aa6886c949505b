"""Pages of existing leases and holds: list, show, change, end and delete."""

from collections.abc import Mapping
from datetime import timedelta
from urllib.parse import quote, urlencode

from moorage.core.errors import Invalid, MoorageError, NotFound, RemoteError
from moorage.core.json import Json, JsonObject
from moorage.dashboard.page_request import PageRequest, redirect
from moorage.dashboard.pages import Page, error_status, error_text, field_of
from moorage.dashboard.signing_in import own_names
from moorage.dashboard.views import lease_form as form
from moorage.dashboard.views import lease_view as view
from moorage.dashboard.views.launch_view import launch_targets
from moorage.dashboard.views.reservation_documents import LeaseDocument, parse_date
from moorage.wire.http import Response

_AT_ONCE = 50


#: The tabs of the page. The first one has two groups; the others have one, which is named like the tab.
_TABS = {"": "Running and coming", "ended": "Ended", "all": "All"}
_EMPTY = {
    "running": "Nothing is reserved at the moment.",
    "coming": "No lease is planned.",
    "ended": "No lease has ended yet. Leases that were deleted are not listed.",
    "all": "No leases yet.",
}


def list_leases(page_request: PageRequest) -> Page:
    """Running leases first: those that end soonest, then those that start next."""
    query = page_request.http.query
    is_all = page_request.user.is_admin and bool(query.first("all"))
    show, made = query.first("show") or "", query.first("made") or ""
    keys = [show] if show in _EMPTY else ["running", "coming"]
    marker = query.first("marker") if len(keys) == 1 else None
    values = {
        "groups": [_group(page_request, key, is_all=is_all, marker=marker) for key in keys],
        "tabs": _TABS, "show": show if show in _TABS else "", "is_all": is_all,
        "names": page_request.names if is_all else own_names(page_request.user),
        "made": int(made) if made.isascii() and made.isdecimal() and len(made) < 4 else 0,
    }  # fmt: skip
    return Page("leases.html", "Leases", values)


def _group(page_request: PageRequest, key: str, *, is_all: bool, marker: str | None) -> Mapping[str, object]:
    """One page of leases: `key` is a key of `_EMPTY`."""
    moment = page_request.http.service.clock.now()
    now, soon = form.api_date(moment), form.api_date(moment + timedelta(minutes=1))  # dates of leases are whole minutes
    wanted: Mapping[str, str] = {
        "running": {"ends_after": now, "starts_before": soon, "sort_key": "end_date"},
        "coming": {"status": "PENDING", "ends_after": now, "sort_key": "start_date"},
        "ended": {"status": "TERMINATED", "sort_key": "end_date", "sort_dir": "desc"},
        "all": {"sort_key": "start_date", "sort_dir": "desc"},
    }[key]
    own = {} if is_all or not page_request.user.is_admin else {"project_id": page_request.user.project.id}
    params = {"limit": _AT_ONCE, "marker": marker, **wanted, **own}
    answer = page_request.client("reservation").get("/v1/leases", params=params)
    leases = [view.lease_details(lease) for lease in answer["leases"]]
    following = {"show": key, **({"all": "1"} if is_all else {}), "marker": leases[-1].id if leases else ""}
    return {
        "key": key,
        "words": {"": "", "running": "Running", "coming": "Coming", **_TABS}[key],
        "leases": leases,
        "empty": _EMPTY[key],
        "offers_new": key != "ended",
        "next_page": urlencode(following) if answer.get("leases_links") else "",
    }


def show_lease(page_request: PageRequest, lease_id: str) -> Page:
    client = page_request.client("reservation")
    document: LeaseDocument = client.get(_path(lease_id))["lease"]
    lease = view.lease_details(document)
    timeline = view.timeline(client.get(_path(lease_id) + "/timeline")["timeline"])
    hosts = client.get(_path(lease_id) + "/hosts")["reservations"]
    values = {
        "lease": lease,
        "hosts": {each["id"]: view.hosts_of_reservation(each) for each in hosts},
        "timeline": timeline,
        "names": page_request.names,
        "targets": launch_targets(document) if page_request.has("compute") else [],
        "can_launch": lease.status == "ACTIVE" and lease.project_id == page_request.user.project.id,
    }
    return Page("lease.html", lease.name, values)


# --- changing a lease ---------------------------------------------------------------------------------------------


def edit_lease(page_request: PageRequest, lease_id: str) -> Page:
    """The form with the lease's values, or with dates from a drag in the calendar, which are previewed at once."""
    client = page_request.client("reservation")
    lease = view.lease_details(client.get(_path(lease_id))["lease"])
    typed = _typed(lease)
    dragged = {name: value for name, value in page_request.http.query.pairs if name in ("start_date", "end_date")}
    typed |= dragged
    return _preview_page(page_request, lease, typed) if dragged else _change_page(page_request, lease, typed)


def change_lease(page_request: PageRequest, lease_id: str) -> Page | Response:
    client = page_request.client("reservation")
    lease = view.lease_details(client.get(_path(lease_id))["lease"])
    before = _typed(lease)
    typed = before | {name: value for name, value in page_request.form.values().items() if name in before}
    if page_request.form.text("action") == "check":
        return _preview_page(page_request, lease, typed)
    try:
        client.request("PUT", _path(lease_id), json=_changes(lease, before, typed))
    except (Invalid, NotFound, RemoteError) as error:
        return _change_page(page_request, lease, typed, error=error)
    return redirect(page_request, f"/leases/{lease.id}")


def _preview_page(page_request: PageRequest, lease: view.LeaseDetails, typed: Mapping[str, str]) -> Page:
    try:
        body = _changes(lease, _typed(lease), typed)
        path = f"{_path(lease.id)}/dry-run"
        found = page_request.client("reservation").request("POST", path, json=body, repeatable=True)["lease"]
    except (Invalid, NotFound, RemoteError) as error:
        return _change_page(page_request, lease, typed, error=error)
    return _change_page(page_request, lease, typed, rehearsed=found)


def _change_page(
    page_request: PageRequest,
    lease: view.LeaseDetails,
    typed: Mapping[str, str],
    *,
    error: MoorageError | None = None,
    rehearsed: JsonObject | None = None,
) -> Page:
    try:
        found = page_request.client("reservation").get(f"{_path(lease.id)}/prolongation")["prolongation"]
        prolongation = (parse_date(found["latest_end_date"]), found["limited"])
    except (NotFound, RemoteError):
        prolongation = None  # the lease has ended
    values = {"lease": lease, "typed": typed, "prolongation": prolongation, "rehearsed": rehearsed,
              "error": "" if error is None else error_text(error), "error_field": field_of(error, typed)}  # fmt: skip
    return Page("lease_change.html", f"Change {lease.name}", values, 200 if error is None else error_status(error))


def _typed(lease: view.LeaseDetails) -> dict[str, str]:
    amounts = {f"amount-{each.id}": str(each.amount) for each in lease.reservations if each.amount is not None}
    dates = {"start_date": form.field_date(lease.start), "end_date": form.field_date(lease.end)}
    before_end = "" if lease.before_end is None else form.field_date(lease.before_end)
    return {"name": lease.name, **dates, **amounts, "before_end_date": before_end, **lease.typed_actions}


def _changes(lease: view.LeaseDetails, before: Mapping[str, str], typed: Mapping[str, str]) -> dict[str, Json]:
    """The request body, with changed fields only. Raises `Invalid`."""
    body: dict[str, Json] = {"name": typed["name"]} if typed["name"] != before["name"] else {}
    for name, field in (("start_date", "Start"), ("end_date", "End")):
        date = form.date_of(typed[name], field, name)
        if date != form.date_of(before[name], field):
            body[name] = "now" if date is None else form.api_date(date)
    amounts: list[Json] = [
        {"id": each.id, "amount": form.parse_number(typed, key, "Amount")}
        for each in lease.reservations
        if (key := f"amount-{each.id}") in before and typed[key] != before[key]
    ]
    if amounts:
        body["reservations"] = amounts
    asked, had = form.before_end(typed), form.before_end(before)
    if "before_end_date" in asked and asked["before_end_date"] != had.get("before_end_date"):
        body["before_end_date"] = asked["before_end_date"]
    if form.parse_actions(typed) != form.parse_actions(before):
        body["before_end_actions"] = form.parse_actions(typed)
    if not body:
        raise Invalid("no field was changed; change a field first")
    return body


# --- ending a lease -----------------------------------------------------------------------------------------------


def end_lease(page_request: PageRequest, lease_id: str) -> Response:
    """Ends the lease now. Its resources can be reserved again at once."""
    page_request.client("reservation").request("PUT", _path(lease_id), json={"end_date": "now"})
    return redirect(page_request, f"/leases/{quote(lease_id, safe='')}")


def delete_lease(page_request: PageRequest, lease_id: str) -> Response:
    """Deletes the lease; a lease that has not started is cancelled this way."""
    page_request.client("reservation").request("DELETE", _path(lease_id))
    return redirect(page_request, "/leases")


def _path(lease_id: str) -> str:
    return f"/v1/leases/{quote(lease_id, safe='')}"


_HOLD_FIELDS = ("name", "before_end_date", "snapshot", "emails", "webhooks")


def list_holds(page_request: PageRequest) -> Page:
    """The project's holds. The service limits them to a few, so there is no paging."""
    found = page_request.client("reservation").get("/v1/holds")["holds"]
    return Page("holds.html", "Holds", {"holds": [view.hold_summary(each) for each in found]})


def show_hold(page_request: PageRequest, hold_id: str) -> Page:
    typed = {name: form.DEFAULTS[name] for name in _HOLD_FIELDS} | {"name": page_request.http.query.first("name") or ""}
    return _hold_page(page_request, hold_id, typed)


def lease_hold(page_request: PageRequest, hold_id: str) -> Page | Response:
    """Turns the hold into a lease. The service does it in one step, so no other request can take the resources."""
    typed = {name: page_request.form.text(name) for name in _HOLD_FIELDS}
    try:
        body = {"name": typed["name"] or "lease", "hold_id": hold_id, **form.before_end(typed)}
        made = page_request.client("reservation").request("POST", "/v1/leases", json=body)["lease"]
    except (Invalid, RemoteError) as error:
        return _hold_page(page_request, hold_id, typed, error=error)
    return redirect(page_request, f"/leases/{made['id']}")


def release_hold(page_request: PageRequest, hold_id: str) -> Response:
    page_request.client("reservation").request("DELETE", _hold_path(hold_id))
    return redirect(page_request, "/leases/holds")


def _hold_page(
    page_request: PageRequest, hold_id: str, typed: dict[str, str], *, error: MoorageError | None = None
) -> Page:
    hold = view.hold_summary(page_request.client("reservation").get(_hold_path(hold_id))["hold"])
    values = {"hold": hold, "typed": typed, "error": "" if error is None else error_text(error)}
    return Page("hold.html", "Held time", values, 200 if error is None else error_status(error))


def _hold_path(hold_id: str) -> str:
    return f"/v1/holds/{quote(hold_id, safe='')}"
