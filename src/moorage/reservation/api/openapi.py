"""What the published document says of each route beside what the route table and the schemas say themselves."""

from typing import Any

from moorage.reservation.api.schemas import availability, listing
from moorage.reservation.model import ical
from moorage.wire.body import Schema
from moorage.wire.openapi import OperationDoc, ResponseDoc, ServiceDoc

#: Where our own routes begin that belong to no version; the peer has none there.
DOCUMENT_PATH = "/moorage/v1/openapi.json"

_REFUSAL = Schema(
    {
        "type": "object",
        "required": ["error_message"],
        "properties": {
            "error_code": {"type": "integer"},
            "error": {"type": "integer"},
            "error_message": {"type": "string"},
            "error_name": {"type": ["integer", "string"]},
        },
        "additionalProperties": False,
    }
)


def _has(name: str, kind: str = "object", *more: str) -> Schema:
    """An answer with this key, and perhaps others."""
    properties: dict[str, Any] = {name: {"type": kind}} | {each: {} for each in more}
    return Schema({"type": "object", "required": [name], "properties": properties, "additionalProperties": False})


_GONE = {204: ResponseDoc("Done; no body.")}
_LEASE = _has("lease")
_VERSIONS = OperationDoc("List versions", {300: ResponseDoc("The only one.", _has("versions", "array"))})
_VERSION = OperationDoc("Show the version", {200: ResponseDoc("Its microversions.", _has("version"))})
#: Floating IPs, where no network service is configured.
_MAY_NOT_BE_BUILT = frozenset({501})

_PEERS = {
    "GET /v1": _VERSION,
    "GET /v1/leases": OperationDoc(
        "List leases, from 1.1 on in pages",
        {200: ResponseDoc("Those of the project; of all for administrators.", _has("leases", "array", "leases_links"))},
        query=listing.LEASES_BY_VERSION,
        example={"limit": "10", "status": "ACTIVE"},
    ),
    "POST /v1/leases": OperationDoc(
        "Create a lease, from 1.1 on also of a hold",
        {201: ResponseDoc("The lease.", _LEASE)},
        error_statuses=_MAY_NOT_BE_BUILT | {404, 410},
    ),
    "GET /v1/leases/{lease_id}": OperationDoc("Show a lease", {200: ResponseDoc("The lease.", _LEASE)}),
    "PUT /v1/leases/{lease_id}": OperationDoc(
        "Change a lease", {200: ResponseDoc("As it is now.", _LEASE)}, error_statuses=_MAY_NOT_BE_BUILT
    ),
    "DELETE /v1/leases/{lease_id}": OperationDoc("Delete a lease in any state", _GONE),
    "GET /v1/os-hosts": OperationDoc(
        "List hosts under reservation, from 1.1 on in pages",
        {200: ResponseDoc("The hosts.", _has("hosts", "array", "hosts_links"))},
        query=listing.HOSTS_BY_VERSION,
    ),
    "POST /v1/os-hosts": OperationDoc(
        "Register a host", {201: ResponseDoc("The host.", _has("host"))}, error_statuses=frozenset({404})
    ),
    "GET /v1/os-hosts/allocations": OperationDoc(
        "List what is reserved on hosts",
        {200: ResponseDoc("By host.", _has("allocations", "array", "allocations_links"))},
        query=listing.ALLOCATIONS_BY_VERSION,
    ),
    "GET /v1/os-hosts/properties": OperationDoc(
        "List the extra capabilities of hosts",
        {200: ResponseDoc("Their names, with `detail` their values.", _has("resource_properties", "array"))},
        query=listing.PROPERTIES,
    ),
    "PATCH /v1/os-hosts/properties/{name}": OperationDoc(
        "Show or hide an extra capability", {200: ResponseDoc("As it is now.", _has("resource_property"))}
    ),
    "GET /v1/os-hosts/{host_id}": OperationDoc("Show a host", {200: ResponseDoc("The host.", _has("host"))}),
    "PUT /v1/os-hosts/{host_id}": OperationDoc(
        "Set extra capabilities; null unsets one", {200: ResponseDoc("As it is now.", _has("host"))}
    ),
    "DELETE /v1/os-hosts/{host_id}": OperationDoc("Take a host out of reservation", _GONE),
    "GET /v1/os-hosts/{host_id}/allocation": OperationDoc(
        "Show what is reserved on a host",
        {200: ResponseDoc("Its reservations.", _has("allocation"))},
        query=listing.OF_LEASE,
    ),
    "GET /v1/floatingips": OperationDoc(
        "List addresses that may be reserved", {200: ResponseDoc("The addresses.", _has("floatingips", "array"))}
    ),
    "POST /v1/floatingips": OperationDoc(
        "Register an address of an external network",
        {201: ResponseDoc("The address.", _has("floatingip"))},
        error_statuses=_MAY_NOT_BE_BUILT | {409},
    ),
    "GET /v1/floatingips/{floatingip_id}": OperationDoc(
        "Show an address", {200: ResponseDoc("The address.", _has("floatingip"))}
    ),
    "DELETE /v1/floatingips/{floatingip_id}": OperationDoc("Take an address out of reservation", _GONE),
}

_OURS = {
    "GET /": _VERSIONS,
    "GET /versions": _VERSIONS,
    "GET /v1/": _VERSION,
    "POST /v1/leases/dry-run": OperationDoc(
        "What creating a lease would do",
        {200: ResponseDoc("What would be picked.", _LEASE)},
        error_statuses=_MAY_NOT_BE_BUILT,
    ),
    "POST /v1/leases/{lease_id}/dry-run": OperationDoc(
        "What changing a lease would do",
        {200: ResponseDoc("What would be picked.", _LEASE)},
        error_statuses=_MAY_NOT_BE_BUILT,
    ),
    "GET /v1/leases/{lease_id}/prolongation": OperationDoc(
        "How far a lease can be prolonged",
        {200: ResponseDoc("The latest end.", _has("prolongation"))},
        error_statuses=frozenset({409}),
    ),
    "GET /v1/leases/{lease_id}/timeline": OperationDoc(
        "What happens to a lease, step by step",
        {200: ResponseDoc("Its events in their order, and how far their steps are.", _has("timeline", "array"))},
    ),
    "POST /v1/offers": OperationDoc(
        "When there is room next",
        {200: ResponseDoc("The next periods.", _has("offers", "array", "earliest_start"))},
        error_statuses=_MAY_NOT_BE_BUILT,
    ),
    "POST /v1/leases/series": OperationDoc(
        "Create a lease again and again, all or none",
        {201: ResponseDoc("The leases.", _has("leases", "array"))},
        error_statuses=_MAY_NOT_BE_BUILT,
    ),
    "POST /v1/leases/series/dry-run": OperationDoc(
        "What creating a lease again and again would do",
        {200: ResponseDoc("What would be picked for each.", _has("leases", "array"))},
        error_statuses=_MAY_NOT_BE_BUILT,
    ),
    "POST /v1/maintenance": OperationDoc(
        "Lease whole hosts for maintenance",
        {201: ResponseDoc("The lease.", _LEASE)},
        error_statuses=frozenset({404}),
    ),
    "POST /v1/maintenance/dry-run": OperationDoc(
        "Which leases a maintenance would touch",
        {200: ResponseDoc("The leases.", _has("leases", "array"))},
        error_statuses=frozenset({404}),
    ),
    "GET /v1/calendar": OperationDoc(
        "How busy the hosts are, and the project's leases",
        {200: ResponseDoc("Others' leases are busy time and nothing else.", _has("calendar"))},
        query=availability.CALENDAR_QUERY,
    ),
    "GET /v1/calendar.ics": OperationDoc(
        "The project's leases as a calendar feed", {200: ResponseDoc("iCalendar.", Schema({}), ical.CONTENT_TYPE)}
    ),
    "GET /v1/limits": OperationDoc(
        "How much the project may reserve", {200: ResponseDoc("Its limits.", _has("limits"))}
    ),
    "GET /v1/limits/{project_id}": OperationDoc(
        "How much a project may reserve", {200: ResponseDoc("Its limits.", _has("limits"))}
    ),
    "PUT /v1/limits/{project_id}": OperationDoc(
        "Set how much a project may reserve", {200: ResponseDoc("As they are now.", _has("limits"))}
    ),
    "GET /v1/holds": OperationDoc("List the project's holds", {200: ResponseDoc("The holds.", _has("holds", "array"))}),
    "POST /v1/holds": OperationDoc(
        "Hold the next room", {201: ResponseDoc("The hold.", _has("hold"))}, error_statuses=_MAY_NOT_BE_BUILT
    ),
    "GET /v1/holds/{hold_id}": OperationDoc("Show a hold", {200: ResponseDoc("The hold.", _has("hold"))}),
    "DELETE /v1/holds/{hold_id}": OperationDoc("Let go of a hold", _GONE),
    f"GET {DOCUMENT_PATH}": OperationDoc(
        "This document: of the microversion that is named, or of all",
        {200: ResponseDoc("OpenAPI 3.1.", Schema({"type": "object"}))},
    ),
}

_ID = {"type": "string"}

ABOUT = ServiceDoc(
    title="Reservation",
    description="Leases, the hosts under reservation, and what fits when: the Reservation API as Blazar speaks it in "
    "1.0, and what Moorage adds from 1.1 on. Routes of 1.0 also answer with `.json` behind them.",
    operations=_PEERS | _OURS,
    parameters=dict.fromkeys(("lease_id", "hold_id", "project_id", "host_id", "floatingip_id", "name"), _ID),
    error_schema=_REFUSAL,
)
