"""Why there is no host: of a flavor, or of a query or extra specs that somebody pastes."""

from typing import Any

from moorage.core.errors import Invalid, RemoteError
from moorage.dashboard.page_request import Visit, require_admin
from moorage.dashboard.pages import Page, words_of
from moorage.dashboard.views import explain_view as view
from moorage.scheduler.candidate_query import query_for
from moorage.scheduler.flavor_resources import FlavorFields, request_for
from moorage.wire.client import with_query

#: Flavors to choose from; of more, one is asked for by its id.
FLAVORS = 500
_SIZES = ("vcpus", "memory_mb", "disk_gb")


def show_explanation(visit: Visit) -> Page:
    """A page that can be sent to somebody: all that was asked is in its address."""
    query = visit.request.query
    typed = {name: (query.first(name) or "").strip() for name in ("flavor", "query", *_SIZES)}
    values: dict[str, Any] = {
        "typed": typed,
        "flavors": _flavors(visit),
        "may_paste": visit.who.is_admin and visit.has("placement"),
        "funnel": None,
        "trouble": "",
    }
    status = 200
    if typed["query"]:
        require_admin(visit)
    try:
        if typed["query"]:
            values["funnel"] = _of_text(visit, typed)
        elif typed["flavor"]:
            values["funnel"] = _of_flavor(visit, typed["flavor"])
    except (Invalid, RemoteError) as error:
        status = error.status if isinstance(error, RemoteError) else 400
        if status not in (400, 403, 404):
            raise
        values["trouble"] = words_of(error)
    return Page("explain.html", "Explain", values, status)


def _flavors(visit: Visit) -> list[tuple[str, str]]:
    """(id, what it is)"""
    if not visit.has("compute"):
        return []
    asked = {"limit": FLAVORS, **({"is_public": "none"} if visit.who.is_admin else {})}
    found = visit.client("compute").get(with_query("/v2.1/flavors/detail", asked))["flavors"]
    sizes = [(one["id"], f"{one['name']}: {one['vcpus']} VCPU, {one['ram']} MB, {one['disk']} GB") for one in found]
    return sorted(sizes, key=lambda row: row[1])


def _of_flavor(visit: Visit, flavor_id: str) -> view.Funnel:
    """With all that the scheduler adds to it, for the caller's project."""
    body = {"server": {"flavorRef": flavor_id}, "os:scheduler_hints": {}}
    answer = visit.client("compute").request("POST", "/moorage/v1/explain-server", json=body)
    return view.of_server(answer["explanation"])


def _of_text(visit: Visit, typed: dict[str, str]) -> view.Funnel:
    """Of what was pasted, as Placement sees it. Raises `Invalid`."""
    try:
        asked = view.parsed(typed["query"])
        vcpus, memory_mb, disk_gb = (int(typed[name] or 0) for name in _SIZES)
    except ValueError as error:
        raise Invalid(str(error)) from error
    pairs = list(asked.pairs)
    if asked.extra_specs:
        fields = FlavorFields(vcpus, memory_mb, disk_gb, extra_specs=dict(asked.extra_specs))
        pairs = query_for(request_for(fields))
    found = visit.client("placement").get(with_query("/moorage/v1/explain", pairs))
    return view.of_query(found, view.text_of(pairs))
