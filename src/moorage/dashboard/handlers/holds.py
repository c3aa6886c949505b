"""Holds: room that was found and is kept for some minutes, until it becomes a lease or is let go."""

from urllib.parse import quote

from moorage.core.errors import Invalid, MoorageError, RemoteError
from moorage.dashboard.page_request import Visit, redirect
from moorage.dashboard.pages import Page, status_shown, words_of
from moorage.dashboard.views import lease_form as form
from moorage.dashboard.views import lease_view as view
from moorage.wire.http import Response

_TYPED = ("name", "before_end_date", "snapshot", "emails", "webhooks")


def index(visit: Visit) -> Page:
    """Of the project: the service lets it have a few."""
    found = visit.client("reservation").get("/v1/holds")["holds"]
    return Page("holds.html", "Holds", {"holds": [view.hold(each) for each in found]})


def show(visit: Visit, hold_id: str) -> Page:
    typed = {name: form.DEFAULTS[name] for name in _TYPED} | {"name": visit.request.query.first("name") or ""}
    return _page(visit, hold_id, typed)


def lease(visit: Visit, hold_id: str) -> Page | Response:
    """The hold becomes one, in a single step of the service: nobody comes between."""
    typed = {name: visit.form.text(name) for name in _TYPED}
    try:
        body = {"name": typed["name"] or "lease", "hold_id": hold_id, **form.before_end(typed)}
        made = visit.client("reservation").request("POST", "/v1/leases", json=body)["lease"]
    except (Invalid, RemoteError) as error:
        return _page(visit, hold_id, typed, trouble=error)
    return redirect(visit, f"/leases/{made['id']}")


def release(visit: Visit, hold_id: str) -> Response:
    visit.client("reservation").request("DELETE", _path(hold_id))
    return redirect(visit, "/leases/holds")


def _page(visit: Visit, hold_id: str, typed: dict[str, str], *, trouble: MoorageError | None = None) -> Page:
    hold = view.hold(visit.client("reservation").get(_path(hold_id))["hold"])
    values = {"hold": hold, "typed": typed, "trouble": "" if trouble is None else words_of(trouble)}
    return Page("hold.html", "A time that is held", values, 200 if trouble is None else status_shown(trouble))


def _path(hold_id: str) -> str:
    return f"/v1/holds/{quote(hold_id, safe='')}"
