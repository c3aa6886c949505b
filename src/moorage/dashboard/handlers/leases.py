"""Pages of existing leases and holds: list, show and change. Ending and deleting: `selected_leases`."""

from collections.abc import Mapping
from datetime import timedelta
from urllib.parse import quote, urlencode

from moorage.core.errors import Invalid, MoorageError, NotFound, RemoteError
from moorage.core.json import Json, JsonObject
from moorage.dashboard.handlers.servers_on_leases import servers_on_lease
from moorage.dashboard.page_request import PageRequest, redirect
from moorage.dashboard.pages import Page, error_status, error_text, field_of
from moorage.dashboard.signing_in import Names, own_names
from moorage.dashboard.views import lease_form as form
from moorage.dashboard.views import lease_view as view
from moorage.dashboard.views.launch_view import launch_targets
from moorage.dashboard.views.lease_list import (
    GROUPS,
    READ,
    SHOWN,
    TABS,
    LeaseRow,
    heading_count,
    list_columns,
    list_parameters,
)
from moorage.dashboard.views.reservation_documents import LeaseDocument, parse_date
from moorage.dashboard.views.selection import MAX_SELECTED
from moorage.dashboard.views.tables import chosen_order, headings, table_rows
from moorage.wire.http import Response

#: Servers that the page of a lease lists.
_SERVERS = 50


def list_leases(page_request: PageRequest) -> Page | Response:
    """Running leases first: those that end soonest, then those that start next. A heading sorts them otherwise."""
    query = page_request.http.query
    kept, made = list_parameters(query.first), query.first("made") or ""
    if not page_request.user.is_admin:
        kept.pop("all", None)
    show, is_all = kept.get("show", ""), "all" in kept
    keys = [show] if show in GROUPS else ["running", "coming"]
    if len(keys) > 1:
        kept.pop("marker", None)
    names = page_request.names if is_all else own_names(page_request.user)
    try:
        groups = [_group(page_request, key, kept, names) for key in keys]
    except RemoteError as error:
        if "marker" not in kept or error.status != 400:
            raise
        return redirect(page_request, list_address(kept, marker=""))  # the lease at the marker was deleted
    values = {
        "groups": groups,
        "tabs": [
            (words, list_address(kept, show=tab, marker=""), tab == (show if show in TABS else ""))
            for tab, words in TABS.items()
        ],
        "projects_address": list_address(kept, all="" if is_all else "1", marker=""),
        "clear_address": list_address(kept, find=""),
        "kept": kept, "find": kept.get("find", ""), "is_all": is_all, "most": MAX_SELECTED, "most_read": READ,
        "selected": query.first("select") or "",
        "made": int(made) if made.isascii() and made.isdecimal() and len(made) < 4 else 0,
    }  # fmt: skip
    return Page("leases.html", "Leases", values)


def list_address(parameters: Mapping[str, str], **changed: str) -> str:
    """The path of the list, below the dashboard's. A changed parameter that is empty is left out."""
    query = urlencode({name: text for name, text in {**parameters, **changed}.items() if text})
    return f"/leases?{query}" if query else "/leases"


def _group(page_request: PageRequest, key: str, kept: Mapping[str, str], names: Names) -> Mapping[str, object]:
    """The values of a table of leases: `key` is a key of `GROUPS`, `kept` are the parameters of the page's address."""
    group, is_all, wanted = GROUPS[key], "all" in kept, kept.get("find", "")
    own = {} if is_all or not page_request.user.is_admin else {"project_id": page_request.user.project.id}
    params = {"limit": READ, "marker": kept.get("marker"), **group.order, **_filters(page_request, key), **own}
    answer = page_request.client("reservation").get("/v1/leases", params=params)
    has_more = bool(answer.get("leases_links"))
    rows = [
        LeaseRow(lease, names.project(lease.project_id), names.user(lease.user_id))
        for lease in map(view.lease_details, answer["leases"])
        if key != "running" or not lease.can_move
    ]
    columns = list_columns(is_all=is_all)
    order = chosen_order(kept.get("sort"), columns)
    found = table_rows(rows, columns, order, wanted)
    is_filtered = bool(wanted and rows)
    others = {name: text for name, text in kept.items() if name != "sort"}
    place = "#group-coming" if key == "coming" else ""  # it may be below the end of the window
    return {
        "key": key, "words": group.words, "empty": group.empty, "first": group.first, "buttons": group.buttons,
        "rows": found[:SHOWN], "found": len(found),
        "count": heading_count(len(found), len(rows), has_more=has_more, is_filtered=is_filtered),
        "is_filtered": is_filtered,
        "headings": headings(columns, order, others, lambda pairs: urlencode(pairs) + place),
        "select_address": list_address(kept, select=key) + place, "clear_selection": list_address(kept) + place,
        "offers_new": key != "ended", "has_more": has_more,
        "next_address": list_address(kept, show=key, marker=answer["leases"][-1]["id"]) if has_more else "",
    }  # fmt: skip


def _filters(page_request: PageRequest, key: str) -> Mapping[str, str]:
    """The API's parameters that select a group's leases."""
    moment = page_request.http.service.clock.now()
    now, soon = form.api_date(moment), form.api_date(moment + timedelta(minutes=1))  # dates of leases are whole minutes
    found: Mapping[str, Mapping[str, str]] = {
        "running": {"ends_after": now, "starts_before": soon},
        "coming": {"status": "PENDING", "ends_after": now},
        "ended": {"status": "TERMINATED"},
        "all": {},
    }
    return found[key]


def show_lease(page_request: PageRequest, lease_id: str) -> Page:
    client = page_request.client("reservation")
    document: LeaseDocument = client.get(_path(lease_id))["lease"]
    lease = view.lease_details(document)
    timeline = view.timeline(client.get(_path(lease_id) + "/timeline")["timeline"])
    hosts = client.get(_path(lease_id) + "/hosts")["reservations"] if lease.status != "TERMINATED" else []
    targets = launch_targets(document) if page_request.has("compute") else []
    is_over = lease.status == "ACTIVE" and lease.end <= page_request.http.service.clock.now()
    servers = servers_on_lease(page_request, lease.project_id, targets) if targets and lease.may_have_servers else None
    values = {
        "lease": lease,
        "hosts": {each["id"]: view.hosts_of_reservation(each) for each in hosts},
        "timeline": timeline,
        "names": page_request.names,
        "targets": targets,
        "can_launch": lease.status == "ACTIVE" and lease.project_id == page_request.user.project.id,
        "is_over": is_over,
        "servers": None if servers is None else servers[:_SERVERS],
        "more_servers": 0 if servers is None else len(servers[_SERVERS:]),
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
