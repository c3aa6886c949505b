"""The page that finds hosts, leases, servers, people and projects by a part of their name, or anything by its ID.

It asks the services with the viewer's token, so it finds what the viewer may see: hosts, people, projects, and what
belongs to other projects, only for administrators.
"""

import re
from collections.abc import Callable
from urllib.parse import quote, urlencode
from uuid import UUID

from moorage.core.errors import Forbidden, MoorageError, NotFound, RemoteError, Unavailable
from moorage.dashboard.handlers.map import aggregates
from moorage.dashboard.page_request import PageRequest
from moorage.dashboard.pages import Page
from moorage.dashboard.views import search_view as view
from moorage.wire.client import with_query

#: Maximum length of the text, and number of results of each kind.
_LONGEST = 100
_SHOWN = 20
#: Leases whose names are compared, the latest first: the API finds whole names only.
_LEASES = 1000
_ID = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}", re.ASCII | re.IGNORECASE)


def show_search(page_request: PageRequest) -> Page:
    text = (page_request.http.query.first("q") or "").strip()[:_LONGEST]
    sought = str(UUID(text)) if _ID.fullmatch(text) else text  # services write UUIDs in lower case, with hyphens
    kinds: list[tuple[str, str, Callable[[PageRequest, str], view.Results]]] = [
        ("Hosts", "placement", _hosts),
        ("Leases", "reservation", _leases),
        ("Servers", "compute", _servers),
        ("Devices", "accelerator", _devices),
    ]
    found, silent = [], []
    for words, service, find in kinds if text else ():
        if not page_request.has(service):
            continue
        try:
            found.append((words, find(page_request, sought)))
        except (Unavailable, RemoteError) as error:
            if isinstance(error, RemoteError) and error.status < 500:
                raise
            silent.append(words)
    if text and page_request.user.is_admin:
        names, has_pages = page_request.names, page_request.has("identity")
        found.append(("Projects", view.of_names(names.projects, text, _SHOWN, _project if has_pages else _no_page)))
        found.append(("People", view.of_names(names.users, text, _SHOWN, _person if has_pages else _no_page)))
    values = {"q": text, "found": [(words, results) for words, results in found if results.entries], "silent": silent}
    return Page("search.html", "Search", values)


def _hosts(page_request: PageRequest, text: str) -> view.Results:
    """By a part of the name of any of its providers, or the beginning of a UUID."""
    if not page_request.user.is_admin:
        return view.NOTHING
    page = page_request.client("placement").get(with_query("/moorage/v1/trees", {"search": text, "limit": _SHOWN}))
    return view.of_trees(page["trees"], page["matching"], aggregates(page_request) if page["trees"] else ())


def _leases(page_request: PageRequest, text: str) -> view.Results:
    client = page_request.client("reservation")
    if _ID.fullmatch(text):
        found = _one(lambda: client.get(f"/v1/leases/{quote(text)}")["lease"])
        return view.of_leases(found, "", _SHOWN, page_request.names)
    params = {"limit": _LEASES, "sort_key": "start_date", "sort_dir": "desc"}
    return view.of_leases(client.get("/v1/leases", params=params)["leases"], text, _SHOWN, page_request.names)


def _servers(page_request: PageRequest, text: str) -> view.Results:
    client = page_request.client("compute")
    if _ID.fullmatch(text):
        found = _one(lambda: client.get(f"/v2.1/servers/{quote(text)}")["server"])
        return view.of_servers(found, _SHOWN, page_request.names)
    scope: dict[str, object] = {"all_tenants": 1} if page_request.user.is_admin else {}
    wanted = with_query("/v2.1/servers/detail", {**scope, "name": _pattern(text), "limit": _SHOWN + 1})
    return view.of_servers(client.get(wanted)["servers"], _SHOWN, page_request.names)


def _pattern(text: str) -> str:
    """A regular expression for the text, without parentheses: our Compute takes those literally."""
    return re.sub(r"\\[()]", ".", re.escape(text))


def _devices(page_request: PageRequest, text: str) -> view.Results:
    if not page_request.user.is_admin or not _ID.fullmatch(text):
        return view.NOTHING
    return view.of_devices(_one(lambda: page_request.client("accelerator").get(f"/v2/devices/{quote(text)}")))


def _one(find: Callable[[], view.Document]) -> list[view.Document]:
    """The object, in a list; an empty list if there is none that the viewer may see."""
    try:
        return [find()]
    except (NotFound, Forbidden):
        return []
    except MoorageError as error:
        if isinstance(error, RemoteError) and error.status in (400, 403, 404):
            return []
        raise


def _project(_id: str, name: str) -> str:
    return "/people/projects?" + urlencode({"find": name})


def _person(some_id: str, _name: str) -> str:
    return f"/people/users/{quote(some_id, safe='')}"


def _no_page(_id: str, _name: str) -> str:
    return ""
