"""The page that explains why hosts fit or not: for a flavor, or for a pasted query or extra specs."""

from moorage.core.errors import Invalid, RemoteError
from moorage.dashboard.page_request import PageRequest, require_admin
from moorage.dashboard.pages import Page, error_text
from moorage.dashboard.views import explain_view as view
from moorage.dashboard.views.units import flavor_size
from moorage.scheduler.candidate_query import candidate_query
from moorage.scheduler.flavor_resources import FlavorFields, request_for
from moorage.wire.client import with_query

#: Maximum number of flavors in the list.
FLAVORS = 500
_SIZES = ("vcpus", "memory_mb", "disk_gb")


def show_explanation(page_request: PageRequest) -> Page:
    """The whole question is in the page's address, so users can share the link."""
    query = page_request.http.query
    typed = {name: (query.first(name) or "").strip() for name in ("flavor", "query", *_SIZES)}
    values: dict[str, object] = {
        "typed": typed,
        "flavors": _flavors(page_request),
        "may_paste": page_request.user.is_admin and page_request.has("placement"),
        "funnel": None,
        "error": "",
    }
    status = 200
    if typed["query"]:
        require_admin(page_request)
    try:
        if typed["query"]:
            values["funnel"] = _of_text(page_request, typed)
        elif typed["flavor"]:
            values["funnel"] = _of_flavor(page_request, typed["flavor"])
    except (Invalid, RemoteError) as error:
        status = error.status if isinstance(error, RemoteError) else 400
        if status not in (400, 403, 404):
            raise
        values["error"] = error_text(error)
    return Page("explain.html", "Explain", values, status)


def _flavors(page_request: PageRequest) -> list[tuple[str, str]]:
    """[(id, name and size)]"""
    if not page_request.has("compute"):
        return []
    asked = {"limit": FLAVORS, **({"is_public": "none"} if page_request.user.is_admin else {})}
    found = page_request.client("compute").get(with_query("/v2.1/flavors/detail", asked))["flavors"]
    sizes = [(one["id"], f"{one['name']}: {flavor_size(one['vcpus'], one['ram'], one['disk'])}") for one in found]
    return sorted(sizes, key=lambda row: row[1])


def _of_flavor(page_request: PageRequest, flavor_id: str) -> view.Funnel:
    """The explanation for a new server of the flavor in the caller's project, with everything the scheduler adds."""
    body = {"server": {"flavorRef": flavor_id}, "os:scheduler_hints": {}}
    answer = page_request.client("compute").request("POST", "/moorage/v1/explain-server", json=body)
    return view.of_server(answer["explanation"])


def _of_text(page_request: PageRequest, typed: dict[str, str]) -> view.Funnel:
    """The explanation of a pasted query or of extra specs, from Placement alone. Raises `Invalid`."""
    try:
        asked = view.parse_pasted_query(typed["query"])
        vcpus, memory_mb, disk_gb = (int(typed[name] or 0) for name in _SIZES)
    except ValueError as error:
        raise Invalid(str(error)) from error
    pairs = list(asked.pairs)
    if asked.extra_specs:
        fields = FlavorFields(vcpus, memory_mb, disk_gb, extra_specs=dict(asked.extra_specs))
        pairs = candidate_query(request_for(fields))
    found = page_request.client("placement").get(with_query("/moorage/v1/explain", pairs))
    return view.of_query(found, view.query_text(pairs))
