"""Provider configuration of a host: reads, plans and applies it by orders that compute passes to the host's agent."""

from urllib.parse import quote, urlencode

from moorage.core.errors import Invalid, RemoteError
from moorage.dashboard.page_request import PageRequest, redirect, require_admin
from moorage.dashboard.pages import Page, error_text
from moorage.dashboard.views import provider_config_view as view
from moorage.dashboard.views.tables import headings, parse_order, table_rows
from moorage.wire.client import with_query
from moorage.wire.http import Response

#: Maximum number of files in the form, the same as in an order. A form with fewer files would remove the others.
FILES = 50
HOSTS_AT_ONCE = 100
_ORDERS = ("show", "plan", "apply")


def show_provider_config(page_request: PageRequest) -> Page:
    """The list of hosts, or one host with the answer to the order named in the address."""
    require_admin(page_request)
    query = page_request.http.query
    host, order_id = (query.first("host") or "").strip(), query.first("order")
    if not host:
        return _hosts_page(page_request)
    if not order_id:
        return _page(page_request, host)
    order = page_request.client("compute").get(f"{_path(host)}/{quote(order_id, safe='')}")["order"]
    return _page(page_request, host, answer=view.agent_answer(order))


def _hosts_page(page_request: PageRequest) -> Page:
    """The table of hosts, from which one is chosen."""
    query = page_request.http.query
    wanted, marker = ((query.first(name) or "").strip() for name in ("find", "marker"))
    order = parse_order(query.first("sort"), view.HOST_COLUMNS)
    asked = {"limit": HOSTS_AT_ONCE + 1, **({"marker": marker} if marker else {})}
    found = page_request.client("compute").get(with_query("/v2.1/os-hypervisors/detail", asked))["hypervisors"]
    kept = {name: text for name, text in (("find", wanted), ("marker", marker)) if text}
    is_more = len(found) > HOSTS_AT_ONCE
    rows = [view.config_host(one) for one in found[:HOSTS_AT_ONCE]]
    values = {
        "find": wanted,
        "rows": table_rows(rows, view.HOST_COLUMNS, order, wanted),
        "headings": headings(view.HOST_COLUMNS, order, kept, urlencode),
        "has_hosts": bool(rows),
        "next_page": urlencode({**kept, "marker": found[HOSTS_AT_ONCE - 1]["id"]}) if is_more else "",
        "first": urlencode({"find": wanted} if wanted else {}) if marker else None,
    }
    return Page("provider_config_hosts.html", "Provider configuration", values)


def submit_provider_config(page_request: PageRequest) -> Response | Page:
    """Creates the order and redirects to the page that will show its answer."""
    require_admin(page_request)
    form = page_request.form
    host, what = form.text("host"), form.text("do")
    if what not in _ORDERS or not host:
        raise Invalid("the form names no host or no action; reload the page")
    files = _files(page_request) if what != "show" else {}
    try:
        made = page_request.client("compute").request("POST", _path(host), json={"do": what, "files": files})["order"]
    except RemoteError as error:
        if error.status not in (400, 409):
            raise
        typed = view.AgentAnswer("", what, is_waiting=False, error=(error_text(error),), files=tuple(files.items()))
        return _page(page_request, host, answer=typed, status=error.status)
    return redirect(page_request, "/provider-config?" + urlencode({"host": host, "order": made["id"]}))


def _path(host: str) -> str:
    return f"/moorage/v1/hosts/{quote(host, safe='')}/provider-config"


def _files(page_request: PageRequest) -> dict[str, str]:
    """{name: contents} of the pasted files; files without a name or without contents are left out."""
    form = page_request.form
    pairs = [(form.text(f"name{place}"), form.raw(f"text{place}")) for place in range(FILES + 1)]
    return {name: text.replace("\r\n", "\n") for name, text in pairs if name and text.strip()}


def _page(
    page_request: PageRequest,
    host: str,
    *,
    answer: view.AgentAnswer | None = None,
    status: int = 200,
) -> Page:
    values: dict[str, object] = {
        "host": host,
        "answer": answer,
        "most": FILES,
    }
    return Page("provider_config.html", "Provider configuration", values, status)
