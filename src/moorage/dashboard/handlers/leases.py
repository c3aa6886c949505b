"""Leases: a list of them, one of them with what happens to it, changing, ending and cancelling one."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from moorage.core.errors import Invalid, MoorageError, NotFound, RemoteError
from moorage.dashboard.page_request import Visit, redirect
from moorage.dashboard.pages import Page, status_shown, words_of
from moorage.dashboard.views import lease_form as form
from moorage.dashboard.views import lease_view as view
from moorage.dashboard.views.calendar_view import moment
from moorage.wire.http import Response

_AT_ONCE = 50


def list_leases(visit: Visit) -> Page:
    params = {
        "limit": _AT_ONCE,
        "marker": visit.request.query.first("marker"),
        "sort_key": "start_date",
        "sort_dir": "desc",
        "project_id": visit.who.project.id if visit.who.is_admin and not visit.request.query.first("all") else None,
    }
    answer = visit.client("reservation").get("/v1/leases", params=params)
    leases = [view.shown(lease) for lease in answer["leases"]]
    made = visit.request.query.first("made") or ""
    values = {"leases": leases, "next_marker": leases[-1].id if answer.get("leases_links") else None,
              "is_all": bool(visit.request.query.first("all")),
              "made": int(made) if made.isascii() and made.isdecimal() and len(made) < 4 else 0}  # fmt: skip
    return Page("leases.html", "Leases", values)


def show_lease(visit: Visit, lease_id: str) -> Page:
    client = visit.client("reservation")
    lease = view.shown(client.get(_path(lease_id))["lease"])
    timeline = view.timeline(client.get(_path(lease_id) + "/timeline")["timeline"])
    return Page("lease.html", lease.name, {"lease": lease, "timeline": timeline})


# --- changing one -------------------------------------------------------------------------------------------------


def edit_lease(visit: Visit, lease_id: str) -> Page:
    """The form with what the lease has, or with the dates that somebody dragged it to: then also what that would do."""
    client = visit.client("reservation")
    lease = view.shown(client.get(_path(lease_id))["lease"])
    typed = _typed(lease)
    dragged = {name: value for name, value in visit.request.query.pairs if name in ("start_date", "end_date")}
    typed |= dragged
    return _rehearsed(visit, lease, typed) if dragged else _change(visit, lease, typed)


def change_lease(visit: Visit, lease_id: str) -> Page | Reply:
    client = visit.client("reservation")
    lease = view.shown(client.get(_path(lease_id))["lease"])
    before = _typed(lease)
    typed = before | {name: value for name, value in visit.form.values().items() if name in before}
    if visit.form.text("action") == "check":
        return _rehearsed(visit, lease, typed)
    try:
        client.request("PUT", _path(lease_id), json=_changes(lease, before, typed))
    except (Invalid, NotFound, RemoteError) as error:
        return _change(visit, lease, typed, trouble=error)
    return redirect(visit, f"/leases/{lease.id}")


def _rehearsed(visit: Visit, lease: view.LeasePage, typed: Mapping[str, str]) -> Page:
    try:
        body = _changes(lease, _typed(lease), typed)
        path = f"{_path(lease.id)}/dry-run"
        found = visit.client("reservation").request("POST", path, json=body, repeatable=True)["lease"]
    except (Invalid, NotFound, RemoteError) as error:
        return _change(visit, lease, typed, trouble=error)
    return _change(visit, lease, typed, rehearsed=found)


def _change(
    visit: Visit,
    lease: view.LeasePage,
    typed: Mapping[str, str],
    *,
    trouble: MoorageError | None = None,
    rehearsed: Mapping[str, Any] | None = None,
) -> Page:
    try:
        found = visit.client("reservation").get(f"{_path(lease.id)}/prolongation")["prolongation"]
        prolongation = (moment(found["latest_end_date"]), found["limited"])
    except (NotFound, RemoteError):
        prolongation = None  # of a lease that is over
    values = {"lease": lease, "typed": typed, "prolongation": prolongation, "rehearsed": rehearsed,
              "trouble": "" if trouble is None else words_of(trouble)}  # fmt: skip
    return Page("lease_change.html", f"Change {lease.name}", values, 200 if trouble is None else status_shown(trouble))


def _typed(lease: view.LeasePage) -> dict[str, str]:
    amounts = {f"amount-{each.id}": str(each.amount) for each in lease.reservations if each.amount is not None}
    dates = {"start_date": form.field_date(lease.start), "end_date": form.field_date(lease.end)}
    before_end = "" if lease.before_end is None else form.field_date(lease.before_end)
    return {"name": lease.name, **dates, **amounts, "before_end_date": before_end, **lease.typed_actions}


def _changes(lease: view.LeasePage, before: Mapping[str, str], typed: Mapping[str, str]) -> dict[str, Any]:
    """Only what differs is sent. Raises `Invalid`."""
    body: dict[str, Any] = {"name": typed["name"]} if typed["name"] != before["name"] else {}
    for name, field in (("start_date", "Start"), ("end_date", "End")):
        date = form.date_of(typed[name], field)
        if date != form.date_of(before[name], field):
            body[name] = "now" if date is None else form.api_date(date)
    amounts = [
        {"id": each.id, "amount": form.number(typed, key, "Amount")}
        for each in lease.reservations
        if (key := f"amount-{each.id}") in before and typed[key] != before[key]
    ]
    if amounts:
        body["reservations"] = amounts
    asked, had = form.before_end(typed), form.before_end(before)
    if "before_end_date" in asked and asked["before_end_date"] != had.get("before_end_date"):
        body["before_end_date"] = asked["before_end_date"]
    if form.actions(typed) != form.actions(before):
        body["before_end_actions"] = form.actions(typed)
    if not body:
        raise Invalid("nothing is different from what the lease has; change a field first")
    return body


# --- ending one ---------------------------------------------------------------------------------------------------


def end_lease(visit: Visit, lease_id: str) -> Reply:
    """Now: what it frees can be reserved at once."""
    visit.client("reservation").request("PUT", _path(lease_id), json={"end_date": "now"})
    return redirect(visit, f"/leases/{quote(lease_id, safe='')}")


def delete_lease(visit: Visit, lease_id: str) -> Reply:
    """Also what has not begun yet: it is cancelled so."""
    visit.client("reservation").request("DELETE", _path(lease_id))
    return redirect(visit, "/leases")


def _path(lease_id: str) -> str:
    return f"/v1/leases/{quote(lease_id, safe='')}"


_HOLD_FIELDS = ("name", "before_end_date", "snapshot", "emails", "webhooks")


def list_holds(visit: Visit) -> Page:
    """Of the project: the service lets it have a few."""
    found = visit.client("reservation").get("/v1/holds")["holds"]
    return Page("holds.html", "Holds", {"holds": [view.hold(each) for each in found]})


def show_hold(visit: Visit, hold_id: str) -> Page:
    typed = {name: form.DEFAULTS[name] for name in _HOLD_FIELDS} | {"name": visit.call.query.first("name") or ""}
    return _hold_page(visit, hold_id, typed)


def lease_hold(visit: Visit, hold_id: str) -> Page | Reply:
    """The hold becomes one, in a single step of the service: nobody comes between."""
    typed = {name: visit.form.text(name) for name in _HOLD_FIELDS}
    try:
        body = {"name": typed["name"] or "lease", "hold_id": hold_id, **form.before_end(typed)}
        made = visit.client("reservation").request("POST", "/v1/leases", json=body)["lease"]
    except (Invalid, RemoteError) as error:
        return _hold_page(visit, hold_id, typed, trouble=error)
    return redirect(visit, f"/leases/{made['id']}")


def release_hold(visit: Visit, hold_id: str) -> Reply:
    visit.client("reservation").request("DELETE", _hold_path(hold_id))
    return redirect(visit, "/leases/holds")


def _hold_page(visit: Visit, hold_id: str, typed: dict[str, str], *, trouble: MoorageError | None = None) -> Page:
    hold = view.hold(visit.client("reservation").get(_hold_path(hold_id))["hold"])
    values = {"hold": hold, "typed": typed, "trouble": "" if trouble is None else words_of(trouble)}
    return Page("hold.html", "A time that is held", values, 200 if trouble is None else status_shown(trouble))


def _hold_path(hold_id: str) -> str:
    return f"/v1/holds/{quote(hold_id, safe='')}"
