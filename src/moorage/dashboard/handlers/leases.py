"""Leases: a list of them, one of them with what happens to it, making one, changing and ending one."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from moorage.core.errors import Invalid, MoorageError, NotFound, RemoteError, Unavailable
from moorage.dashboard import lease_form as form
from moorage.dashboard import lease_view as view
from moorage.dashboard.calendar_view import moment
from moorage.dashboard.pages import Page
from moorage.dashboard.visit import Visit, redirect
from moorage.wire.call import Reply
from moorage.wire.errors import status_of

_AT_ONCE = 50
_OFFERS = 4
#: Flavors that can be chosen from a list; where there are more, the id is typed.
_MOST_FLAVORS = 500

#: What an empty form suggests.
_USUAL = timedelta(hours=4)


def index(visit: Visit) -> Page:
    params = {
        "limit": _AT_ONCE,
        "marker": visit.call.query.first("marker"),
        "sort_key": "start_date",
        "sort_dir": "desc",
        "project_id": visit.who.project.id if visit.who.is_admin and not visit.call.query.first("all") else None,
    }
    answer = visit.client("reservation").get("/v1/leases", params=params)
    leases = [view.shown(lease) for lease in answer["leases"]]
    values = {"leases": leases, "next_marker": leases[-1].id if answer.get("leases_links") else None,
              "is_all": bool(visit.call.query.first("all"))}  # fmt: skip
    return Page("leases.html", "Leases", values)


def show(visit: Visit, lease_id: str) -> Page:
    client = visit.client("reservation")
    lease = view.shown(client.get(f"/v1/leases/{lease_id}")["lease"])
    timeline = view.timeline(client.get(f"/v1/leases/{lease_id}/timeline")["timeline"])
    return Page("lease.html", lease.name, {"lease": lease, "timeline": timeline})


# --- making one ---------------------------------------------------------------------------------------------------


def ask_new(visit: Visit) -> Page:
    """An empty form; what the address names is filled in."""
    typed = {**form.DEFAULTS, "name": "", "end_date": form.field_date(_whole_hour(visit) + _USUAL)}
    typed |= {name: value for name, value in visit.call.query.pairs if name in typed}
    return _new(visit, typed)


def new(visit: Visit) -> Page | Reply:
    """What the pressed button says: look for the next room, look what would be, or make it."""
    typed = {**form.DEFAULTS, **{name: value for name, value in visit.form.values().items() if name in form.DEFAULTS}}
    if "|" in (taken := visit.form.text("take")):
        typed["start_date"], _, typed["end_date"] = taken.partition("|")
        return _new(visit, typed, said="These times are in the form now. Nothing is reserved yet.")
    action, now = visit.form.text("action"), visit.call.service.clock.now()
    client = visit.client("reservation")
    try:
        wish = form.wish(typed, now)
        if action == "find":
            found = client.request("POST", "/v1/offers", json=wish.search(now, _OFFERS), repeatable=True)
            return _new(visit, typed, offers=found)
        if action == "check":
            found = client.request("POST", "/v1/leases/dry-run", json=wish.body, repeatable=True)
            return _new(visit, typed, rehearsed=found["lease"])
        made = client.request("POST", "/v1/leases", json=wish.body)["lease"]
    except (Invalid, NotFound, RemoteError) as error:
        return _new(visit, typed, trouble=error)
    return redirect(visit, f"/leases/{made['id']}")


def _new(
    visit: Visit,
    typed: Mapping[str, str],
    *,
    trouble: MoorageError | None = None,
    offers: Mapping[str, Any] | None = None,
    rehearsed: Mapping[str, Any] | None = None,
    said: str = "",
) -> Page:
    values = {
        "typed": typed, "types": form.TYPES, "affinities": form.AFFINITIES, "flavors": _flavors(visit), "said": said,
        "trouble": "" if trouble is None else _words(trouble),
        "offers": None if offers is None else _periods(offers["offers"]),
        "reason": (offers or {}).get("earliest_start", {}).get("reason"),
        "rehearsed": rehearsed,
    }  # fmt: skip
    return Page("lease_new.html", "New lease", values, 200 if trouble is None else _status(trouble))


def _periods(rows: list[Mapping[str, str]]) -> list[tuple[Any, Any, str]]:
    """(start, end, what the button that takes it sends)"""
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


# --- changing one -------------------------------------------------------------------------------------------------


def ask_change(visit: Visit, lease_id: str) -> Page:
    """The form with what the lease has, or with the dates that somebody dragged it to: then also what that would do."""
    client = visit.client("reservation")
    lease = view.shown(client.get(f"/v1/leases/{lease_id}")["lease"])
    typed = _typed(lease)
    dragged = {name: value for name, value in visit.call.query.pairs if name in ("start_date", "end_date")}
    typed |= dragged
    return _rehearsed(visit, lease, typed) if dragged else _change(visit, lease, typed)


def change(visit: Visit, lease_id: str) -> Page | Reply:
    client = visit.client("reservation")
    lease = view.shown(client.get(f"/v1/leases/{lease_id}")["lease"])
    before = _typed(lease)
    typed = before | {name: value for name, value in visit.form.values().items() if name in before}
    if visit.form.text("action") == "check":
        return _rehearsed(visit, lease, typed)
    try:
        client.request("PUT", f"/v1/leases/{lease_id}", json=_changes(lease, before, typed))
    except (Invalid, NotFound, RemoteError) as error:
        return _change(visit, lease, typed, trouble=error)
    return redirect(visit, f"/leases/{lease_id}")


def _rehearsed(visit: Visit, lease: view.Shown, typed: Mapping[str, str]) -> Page:
    try:
        body = _changes(lease, _typed(lease), typed)
        path = f"/v1/leases/{lease.id}/dry-run"
        found = visit.client("reservation").request("POST", path, json=body, repeatable=True)["lease"]
    except (Invalid, NotFound, RemoteError) as error:
        return _change(visit, lease, typed, trouble=error)
    return _change(visit, lease, typed, rehearsed=found)


def _change(
    visit: Visit,
    lease: view.Shown,
    typed: Mapping[str, str],
    *,
    trouble: MoorageError | None = None,
    rehearsed: Mapping[str, Any] | None = None,
) -> Page:
    try:
        found = visit.client("reservation").get(f"/v1/leases/{lease.id}/prolongation")["prolongation"]
        prolongation = (moment(found["latest_end_date"]), found["limited"])
    except (NotFound, RemoteError):
        prolongation = None  # of a lease that is over
    values = {"lease": lease, "typed": typed, "prolongation": prolongation, "rehearsed": rehearsed,
              "trouble": "" if trouble is None else _words(trouble)}  # fmt: skip
    return Page("lease_change.html", f"Change {lease.name}", values, 200 if trouble is None else _status(trouble))


def _typed(lease: view.Shown) -> dict[str, str]:
    amounts = {f"amount-{each.id}": str(each.amount) for each in lease.reservations if each.amount is not None}
    dates = {"start_date": form.field_date(lease.start), "end_date": form.field_date(lease.end)}
    return {"name": lease.name, **dates, **amounts}


def _changes(lease: view.Shown, before: Mapping[str, str], typed: Mapping[str, str]) -> dict[str, Any]:
    """Only what differs is sent. Raises `Invalid`."""
    body: dict[str, Any] = {"name": typed["name"]} if typed["name"] != before["name"] else {}
    for name, field in (("start_date", "Start"), ("end_date", "End")):
        asked, had = form.date_of(typed[name], field), form.date_of(before[name], field)
        if asked != had:
            body[name] = "now" if asked is None else form.api_date(asked)
    amounts = [
        {"id": each.id, "amount": form.number(typed, key, "Amount")}
        for each in lease.reservations
        if (key := f"amount-{each.id}") in before and typed[key] != before[key]
    ]
    if amounts:
        body["reservations"] = amounts
    if not body:
        raise Invalid("nothing is different from what the lease has; change a field first")
    return body


# --- ending one ---------------------------------------------------------------------------------------------------


def end(visit: Visit, lease_id: str) -> Reply:
    """Now: what it frees can be reserved at once."""
    visit.client("reservation").request("PUT", f"/v1/leases/{lease_id}", json={"end_date": "now"})
    return redirect(visit, f"/leases/{lease_id}")


def delete(visit: Visit, lease_id: str) -> Reply:
    visit.client("reservation").request("DELETE", f"/v1/leases/{lease_id}")
    return redirect(visit, "/leases")


def _whole_hour(visit: Visit) -> Any:
    return visit.call.service.clock.now().replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)


def _words(error: MoorageError) -> str:
    return str(error.fields.get("detail") or error.message)


def _status(error: MoorageError) -> int:
    return error.status if isinstance(error, RemoteError) and 400 <= error.status < 500 else status_of(error)
