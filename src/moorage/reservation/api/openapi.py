"""What the published document says of each route beside what the route table and the schemas say themselves."""

from typing import Any

from moorage.reservation.api.schemas import calendar, listing
from moorage.reservation.model import ical
from moorage.wire.body import Schema
from moorage.wire.openapi import About, Answer, Words

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


_GONE = {204: Answer("Done; no body.")}
_LEASE = _has("lease")
_VERSIONS = Words("List versions", {300: Answer("The only one.", _has("versions", "array"))})
_VERSION = Words("Show the version", {200: Answer("Its microversions.", _has("version"))})
#: Floating IPs, where no network service is configured.
_MAY_NOT_BE_BUILT = frozenset({501})

_PEERS = {
    "GET /v1": _VERSION,
    "GET /v1/leases": Words(
        "List leases, from 1.1 on in pages",
        {200: Answer("Those of the project; of all for administrators.", _has("leases", "array", "leases_links"))},
        query=listing.LEASES_BY_VERSION,
        example={"limit": "10", "status": "ACTIVE"},
    ),
    "POST /v1/leases": Words(
        "Create a lease, from 1.1 on also of a hold",
        {201: Answer("The lease.", _LEASE)},
        refusals=_MAY_NOT_BE_BUILT | {404, 410},
    ),
    "GET /v1/leases/{lease_id}": Words("Show a lease", {200: Answer("The lease.", _LEASE)}),
    "PUT /v1/leases/{lease_id}": Words(
        "Change a lease", {200: Answer("As it is now.", _LEASE)}, refusals=_MAY_NOT_BE_BUILT
    ),
    "DELETE /v1/leases/{lease_id}": Words("Delete a lease in any state", _GONE),
    "GET /v1/os-hosts": Words(
        "List hosts under reservation, from 1.1 on in pages",
        {200: Answer("The hosts.", _has("hosts", "array", "hosts_links"))},
        query=listing.HOSTS_BY_VERSION,
    ),
    "POST /v1/os-hosts": Words("Register a host", {201: Answer("The host.", _has("host"))}, refusals=frozenset({404})),
    "GET /v1/os-hosts/allocations": Words(
        "List what is reserved on hosts",
        {200: Answer("By host.", _has("allocations", "array", "allocations_links"))},
        query=listing.ALLOCATIONS_BY_VERSION,
    ),
    "GET /v1/os-hosts/properties": Words(
        "List the extra capabilities of hosts",
        {200: Answer("Their names, with `detail` their values.", _has("resource_properties", "array"))},
        query=listing.PROPERTIES,
    ),
    "PATCH /v1/os-hosts/properties/{name}": Words(
        "Show or hide an extra capability", {200: Answer("As it is now.", _has("resource_property"))}
    ),
    "GET /v1/os-hosts/{host_id}": Words("Show a host", {200: Answer("The host.", _has("host"))}),
    "PUT /v1/os-hosts/{host_id}": Words(
        "Set extra capabilities; null unsets one", {200: Answer("As it is now.", _has("host"))}
    ),
    "DELETE /v1/os-hosts/{host_id}": Words("Take a host out of reservation", _GONE),
    "GET /v1/os-hosts/{host_id}/allocation": Words(
        "Show what is reserved on a host",
        {200: Answer("Its reservations.", _has("allocation"))},
        query=listing.OF_LEASE,
    ),
    "GET /v1/floatingips": Words(
        "List addresses that may be reserved", {200: Answer("The addresses.", _has("floatingips", "array"))}
    ),
    "POST /v1/floatingips": Words(
        "Register an address of an external network",
        {201: Answer("The address.", _has("floatingip"))},
        refusals=_MAY_NOT_BE_BUILT | {409},
    ),
    "GET /v1/floatingips/{floatingip_id}": Words("Show an address", {200: Answer("The address.", _has("floatingip"))}),
    "DELETE /v1/floatingips/{floatingip_id}": Words("Take an address out of reservation", _GONE),
}

_OURS = {
    "GET /": _VERSIONS,
    "GET /versions": _VERSIONS,
    "GET /v1/": _VERSION,
    "POST /v1/leases/dry-run": Words(
        "What creating a lease would do",
        {200: Answer("What would be picked.", _LEASE)},
        refusals=_MAY_NOT_BE_BUILT,
    ),
    "POST /v1/leases/{lease_id}/dry-run": Words(
        "What changing a lease would do",
        {200: Answer("What would be picked.", _LEASE)},
        refusals=_MAY_NOT_BE_BUILT,
    ),
    "GET /v1/leases/{lease_id}/prolongation": Words(
        "How far a lease can be prolonged",
        {200: Answer("The latest end.", _has("prolongation"))},
        refusals=frozenset({409}),
    ),
    "GET /v1/leases/{lease_id}/timeline": Words(
        "What happens to a lease, step by step",
        {200: Answer("Its events in their order, and how far their steps are.", _has("timeline", "array"))},
    ),
    "POST /v1/offers": Words(
        "When there is room next",
        {200: Answer("The next periods.", _has("offers", "array", "earliest_start"))},
        refusals=_MAY_NOT_BE_BUILT,
    ),
    "POST /v1/leases/series": Words(
        "Create a lease again and again, all or none",
        {201: Answer("The leases.", _has("leases", "array"))},
        refusals=_MAY_NOT_BE_BUILT,
    ),
    "POST /v1/leases/series/dry-run": Words(
        "What creating a lease again and again would do",
        {200: Answer("What would be picked for each.", _has("leases", "array"))},
        refusals=_MAY_NOT_BE_BUILT,
    ),
    "POST /v1/maintenance": Words(
        "Lease whole hosts for maintenance",
        {201: Answer("The lease.", _LEASE)},
        refusals=frozenset({404}),
    ),
    "POST /v1/maintenance/dry-run": Words(
        "Which leases a maintenance would touch",
        {200: Answer("The leases.", _has("leases", "array"))},
        refusals=frozenset({404}),
    ),
    "GET /v1/calendar": Words(
        "How busy the hosts are, and the project's leases",
        {200: Answer("Others' leases are busy time and nothing else.", _has("calendar"))},
        query=calendar.VIEW,
    ),
    "GET /v1/calendar.ics": Words(
        "The project's leases as a calendar feed", {200: Answer("iCalendar.", Schema({}), ical.CONTENT_TYPE)}
    ),
    "GET /v1/limits": Words("How much the project may reserve", {200: Answer("Its limits.", _has("limits"))}),
    "GET /v1/limits/{project_id}": Words(
        "How much a project may reserve", {200: Answer("Its limits.", _has("limits"))}
    ),
    "PUT /v1/limits/{project_id}": Words(
        "Set how much a project may reserve", {200: Answer("As they are now.", _has("limits"))}
    ),
    "GET /v1/holds": Words("List the project's holds", {200: Answer("The holds.", _has("holds", "array"))}),
    "POST /v1/holds": Words("Hold the next room", {201: Answer("The hold.", _has("hold"))}, refusals=_MAY_NOT_BE_BUILT),
    "GET /v1/holds/{hold_id}": Words("Show a hold", {200: Answer("The hold.", _has("hold"))}),
    "DELETE /v1/holds/{hold_id}": Words("Let go of a hold", _GONE),
    f"GET {DOCUMENT_PATH}": Words(
        "This document: of the microversion that is named, or of all",
        {200: Answer("OpenAPI 3.1.", Schema({"type": "object"}))},
    ),
}

_ID = {"type": "string"}

ABOUT = About(
    title="Reservation",
    description="Leases, the hosts under reservation, and what fits when: the Reservation API as Blazar speaks it in "
    "1.0, and what Moorage adds from 1.1 on. Routes of 1.0 also answer with `.json` behind them.",
    operations=_PEERS | _OURS,
    parameters=dict.fromkeys(("lease_id", "hold_id", "project_id", "host_id", "floatingip_id", "name"), _ID),
    refusal=_REFUSAL,
)
