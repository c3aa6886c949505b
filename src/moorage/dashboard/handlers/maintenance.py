"""Maintenance windows: hosts that nobody has for a time, and whose leases would be in the way."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from moorage.core.errors import Invalid, MoorageError, NotFound, RemoteError
from moorage.dashboard.handlers.operators import only_admins
from moorage.dashboard.handlers.reserving import whole_hour
from moorage.dashboard.page_request import Visit, redirect
from moorage.dashboard.pages import Page, status_shown, words_of
from moorage.dashboard.views import lease_form as form
from moorage.dashboard.views.calendar_view import of_lease
from moorage.wire.http import Response

_FIELDS = ("name", "start_date", "end_date", "hosts")

#: What an empty form suggests.
_USUAL = timedelta(hours=4)


def ask(visit: Visit) -> Page:
    """An empty form; hosts may be in the address."""
    only_admins(visit)
    start = whole_hour(visit)
    typed = {"name": "", "start_date": form.field_date(start), "end_date": form.field_date(start + _USUAL)}
    return _page({**typed, "hosts": "\n".join(visit.request.query.every("hosts"))})


def answer(visit: Visit) -> Page | Response:
    """What the pressed button says: look who has something there then, or take the hosts."""
    only_admins(visit)
    typed = {name: visit.form.text(name) for name in _FIELDS}
    client = visit.client("reservation")
    try:
        body = form.maintenance(typed, visit.request.service.clock.now())
        if visit.form.text("action") == "check":
            found = client.request("POST", "/v1/maintenance/dry-run", json=body, repeatable=True)
            return _page(typed, touched=found["leases"])
        made = client.request("POST", "/v1/maintenance", json=body)["lease"]
    except (Invalid, NotFound, RemoteError) as error:
        return _page(typed, trouble=error)
    return redirect(visit, f"/leases/{made['id']}")


def _page(
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
