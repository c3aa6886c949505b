"""Provider configuration of a host: read, planned and applied through compute's orders for the host's agent."""

from typing import Any
from urllib.parse import quote, urlencode

from moorage.core.errors import Invalid, RemoteError
from moorage.dashboard.handlers.servers import hosts_of
from moorage.dashboard.page_request import Visit, redirect, require_admin
from moorage.dashboard.pages import Page, words_of
from moorage.dashboard.views import provider_config_view as view
from moorage.wire.http import Response

#: Files that the form takes, as many as an order does: applying fewer than there are would take the others away.
FILES = 50
_ORDERS = ("show", "plan", "apply")


def show_provider_config(visit: Visit) -> Page:
    """The hosts; of one host what may be asked of it, and what it answered to the order in the address."""
    require_admin(visit)
    query = visit.call.query
    host, order_id = (query.first("host") or "").strip(), query.first("order")
    if not host:
        hosts, next_page = hosts_of(visit)
        return _page(visit, "", hosts=hosts, next_page=next_page)
    if not order_id:
        return _page(visit, host)
    order = visit.client("compute").get(f"{_path(host)}/{quote(order_id, safe='')}")["order"]
    return _page(visit, host, answer=view.answer(order))


def submit_provider_config(visit: Visit) -> Reply | Page:
    """Give the order, and go to where its answer will be."""
    require_admin(visit)
    form = visit.form
    host, what = form.text("host"), form.text("do")
    if what not in _ORDERS or not host:
        raise Invalid("the form says neither a host nor what is wanted of it; load the page again")
    files = _files(visit) if what != "show" else {}
    try:
        made = visit.client("compute").request("POST", _path(host), json={"do": what, "files": files})["order"]
    except RemoteError as error:
        if error.status not in (400, 409):
            raise
        typed = view.AgentAnswer("", what, is_waiting=False, error=(words_of(error),), files=tuple(files.items()))
        return _page(visit, host, answer=typed, status=error.status)
    return redirect(visit, "/provider-config?" + urlencode({"host": host, "order": made["id"]}))


def _path(host: str) -> str:
    return f"/moorage/v1/hosts/{quote(host, safe='')}/provider-config"


def _files(visit: Visit) -> dict[str, str]:
    """What was pasted, by name; a file without a name or with nothing in it is left out."""
    form = visit.form
    pairs = [(form.text(f"name{place}"), form.raw(f"text{place}")) for place in range(FILES + 1)]
    return {name: text.replace("\r\n", "\n") for name, text in pairs if name and text.strip()}


def _page(
    visit: Visit,
    host: str,
    *,
    answer: view.AgentAnswer | None = None,
    hosts: list[str] | None = None,
    next_page: str = "",
    status: int = 200,
) -> Page:
    values: dict[str, Any] = {
        "host": host,
        "answer": answer,
        "hosts": hosts or [],
        "next_page": next_page,
        "most": FILES,
    }
    return Page("provider_config.html", "Provider configuration", values, status)
