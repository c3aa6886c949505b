"""The page that explains why hosts fit or not: for a flavor, or for a pasted query or extra specs.

If no host fits a flavor, the page also offers the next times at which one can be reserved, and says which leases are
running: a member sees those of their project, an administrator all.
"""

from datetime import timedelta

from moorage.core.errors import Invalid, RemoteError
from moorage.core.names import reservation_flavor
from moorage.dashboard.page_request import PageRequest, require_admin
from moorage.dashboard.pages import Page, error_text
from moorage.dashboard.signing_in import own_names
from moorage.dashboard.views import explain_view as view
from moorage.dashboard.views import lease_form
from moorage.dashboard.views.lease_view import lease_details
from moorage.dashboard.views.tables import natural_key
from moorage.dashboard.views.units import flavor_size
from moorage.scheduler.candidate_query import candidate_query
from moorage.scheduler.flavor_resources import FlavorFields, request_for
from moorage.wire.client import with_query

#: Maximum number of flavors in the list.
FLAVORS = 500
_SIZES = ("vcpus", "memory_mb", "disk_gb")

#: How long an offered lease lasts, how many are offered, and how many running leases are listed.
_LEASE = timedelta(hours=4)
_OFFERS = 3
_RUNNING = 10


def show_explanation(page_request: PageRequest) -> Page:
    """The whole question is in the page's address, so users can share the link."""
    query = page_request.http.query
    typed = {name: (query.first(name) or "").strip() for name in ("flavor", "query", *_SIZES)}
    values: dict[str, object] = {
        "typed": typed,
        "flavors": _flavors(page_request),
        "is_admin": page_request.user.is_admin,
        "may_paste": page_request.user.is_admin and page_request.has("placement"),
        "funnel": None,
        "booking": None,
        "names": page_request.names if page_request.user.is_admin else own_names(page_request.user),
        "error": "",
    }
    status = 200
    if typed["query"]:
        require_admin(page_request)
    try:
        if typed["query"]:
            values["funnel"] = _of_text(page_request, typed)
        elif typed["flavor"]:
            values["funnel"] = funnel = _of_flavor(page_request, typed["flavor"])
            if not funnel.fits and page_request.has("reservation"):
                values["booking"] = _booking(page_request, typed["flavor"])
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
    # The private flavors of reservations, whose names are ids, come last.
    return sorted(sizes, key=lambda row: (row[1].startswith(reservation_flavor("")), natural_key(row[1])))


def _of_flavor(page_request: PageRequest, flavor_id: str) -> view.Funnel:
    """The explanation for a new server of the flavor in the caller's project, with everything the scheduler adds."""
    body = {"server": {"flavorRef": flavor_id}, "os:scheduler_hints": {}}
    answer = page_request.client("compute").request("POST", "/moorage/v1/explain-server", json=body)
    return view.of_server(answer["explanation"])


def _booking(page_request: PageRequest, flavor_id: str) -> view.BookingOffer:
    """The next times for a lease of one server of the flavor, and the leases that run now."""
    now, client = page_request.http.service.clock.now(), page_request.client("reservation")
    typed = {**lease_form.DEFAULTS, "resource_type": "flavor:instance", "flavor_id": flavor_id}
    typed["end_date"] = lease_form.field_date(now + _LEASE)
    wanted = {
        "limit": _RUNNING,
        "ends_after": lease_form.api_date(now),
        "starts_before": lease_form.api_date(now + timedelta(minutes=1)),
        "sort_key": "end_date",
    }
    answer = client.get(with_query("/v1/leases", wanted))
    running, more = tuple(map(lease_details, answer["leases"])), bool(answer.get("leases_links"))
    body = lease_form.parse_lease(typed, now).search(now, _OFFERS)
    try:
        found = client.request("POST", "/v1/offers", json=body, repeatable=True)
    except RemoteError as error:
        if error.status >= 500:
            raise
        return view.BookingOffer((), error_text(error), running, more)
    reason = found["earliest_start"]["reason"] if "earliest_start" in found else ""
    return view.BookingOffer(lease_form.offered_periods(found["offers"]), reason, running, more)


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
