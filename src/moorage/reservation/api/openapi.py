"""The texts of the published OpenAPI document; the rest of it is derived from the route table and the schemas."""

from typing import Any

from moorage.reservation.api.schemas import availability, listing
from moorage.reservation.model import ical
from moorage.wire.body import Schema
from moorage.wire.openapi import OperationDoc, ResponseDoc, ServiceDoc

#: Path of the document. It has no API version in it, and the peer has no route below it.
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
    """The schema of an answer with the required key `name` and the optional keys `more`."""
    properties: dict[str, Any] = {name: {"type": kind}} | {each: {} for each in more}
    return Schema({"type": "object", "required": [name], "properties": properties, "additionalProperties": False})


_GONE = {204: ResponseDoc("The request succeeded; the body is empty.")}
_LEASE = _has("lease")
_VERSIONS = OperationDoc("List versions", {300: ResponseDoc("The only version.", _has("versions", "array"))})
_VERSION = OperationDoc("Show the version", {200: ResponseDoc("The version and its microversions.", _has("version"))})
#: The status of requests for floating IPs if no network service is configured.
_NEEDS_NETWORK = frozenset({501})

_PEERS = {
    "GET /v1": _VERSION,
    "GET /v1/leases": OperationDoc(
        "List leases (from 1.1 on in pages)",
        {
            200: ResponseDoc(
                "The leases of the project; administrators get those of all projects.",
                _has("leases", "array", "leases_links"),
            )
        },
        query=listing.LEASES_BY_VERSION,
        example={"limit": "10", "status": "ACTIVE"},
    ),
    "POST /v1/leases": OperationDoc(
        "Create a lease (from 1.1 on also from a hold)",
        {201: ResponseDoc("The lease.", _LEASE)},
        error_statuses=_NEEDS_NETWORK | {404, 410},
    ),
    "GET /v1/leases/{lease_id}": OperationDoc("Show a lease", {200: ResponseDoc("The lease.", _LEASE)}),
    "PUT /v1/leases/{lease_id}": OperationDoc(
        "Update a lease", {200: ResponseDoc("The updated lease.", _LEASE)}, error_statuses=_NEEDS_NETWORK
    ),
    "DELETE /v1/leases/{lease_id}": OperationDoc("Delete a lease in any state", _GONE),
    "GET /v1/os-hosts": OperationDoc(
        "List registered hosts (from 1.1 on in pages)",
        {200: ResponseDoc("The hosts.", _has("hosts", "array", "hosts_links"))},
        query=listing.HOSTS_BY_VERSION,
    ),
    "POST /v1/os-hosts": OperationDoc(
        "Register a host", {201: ResponseDoc("The host.", _has("host"))}, error_statuses=frozenset({404})
    ),
    "GET /v1/os-hosts/allocations": OperationDoc(
        "List the reservations on all hosts",
        {200: ResponseDoc("The reservations on each host.", _has("allocations", "array", "allocations_links"))},
        query=listing.ALLOCATIONS_BY_VERSION,
    ),
    "GET /v1/os-hosts/properties": OperationDoc(
        "List the extra capabilities of hosts",
        {
            200: ResponseDoc(
                "The names of the capabilities; with `detail` also their values.", _has("resource_properties", "array")
            )
        },
        query=listing.PROPERTIES,
    ),
    "PATCH /v1/os-hosts/properties/{name}": OperationDoc(
        "Show or hide an extra capability", {200: ResponseDoc("The updated capability.", _has("resource_property"))}
    ),
    "GET /v1/os-hosts/{host_id}": OperationDoc("Show a host", {200: ResponseDoc("The host.", _has("host"))}),
    "PUT /v1/os-hosts/{host_id}": OperationDoc(
        "Set extra capabilities of a host; null removes one",
        {200: ResponseDoc("The updated host.", _has("host"))},
    ),
    "DELETE /v1/os-hosts/{host_id}": OperationDoc("Remove a host from reservation", _GONE),
    "GET /v1/os-hosts/{host_id}/allocation": OperationDoc(
        "Show the reservations on a host",
        {200: ResponseDoc("The reservations on the host.", _has("allocation"))},
        query=listing.OF_LEASE,
    ),
    "GET /v1/floatingips": OperationDoc(
        "List registered addresses", {200: ResponseDoc("The addresses.", _has("floatingips", "array"))}
    ),
    "POST /v1/floatingips": OperationDoc(
        "Register an address of an external network",
        {201: ResponseDoc("The address.", _has("floatingip"))},
        error_statuses=_NEEDS_NETWORK | {409},
    ),
    "GET /v1/floatingips/{floatingip_id}": OperationDoc(
        "Show a registered address", {200: ResponseDoc("The address.", _has("floatingip"))}
    ),
    "DELETE /v1/floatingips/{floatingip_id}": OperationDoc("Remove an address from reservation", _GONE),
}

_OURS = {
    "GET /": _VERSIONS,
    "GET /versions": _VERSIONS,
    "GET /v1/": _VERSION,
    "POST /v1/leases/dry-run": OperationDoc(
        "Dry run: create a lease",
        {200: ResponseDoc("The lease with the resources that would be selected.", _LEASE)},
        error_statuses=_NEEDS_NETWORK,
    ),
    "POST /v1/leases/{lease_id}/dry-run": OperationDoc(
        "Dry run: update a lease",
        {200: ResponseDoc("The lease with the resources that would be selected.", _LEASE)},
        error_statuses=_NEEDS_NETWORK,
    ),
    "GET /v1/leases/{lease_id}/prolongation": OperationDoc(
        "Show how far a lease can be prolonged",
        {200: ResponseDoc("The latest possible end.", _has("prolongation"))},
        error_statuses=frozenset({409}),
    ),
    "GET /v1/leases/{lease_id}/timeline": OperationDoc(
        "Show the events of a lease and their steps",
        {200: ResponseDoc("The events in order, with the progress of their steps.", _has("timeline", "array"))},
    ),
    "POST /v1/offers": OperationDoc(
        "Find the next periods in which reservations fit",
        {200: ResponseDoc("The offers.", _has("offers", "array", "earliest_start"))},
        error_statuses=_NEEDS_NETWORK,
    ),
    "POST /v1/leases/series": OperationDoc(
        "Create a series of leases, all or none",
        {201: ResponseDoc("The leases.", _has("leases", "array"))},
        error_statuses=_NEEDS_NETWORK,
    ),
    "POST /v1/leases/series/dry-run": OperationDoc(
        "Dry run: create a series of leases",
        {200: ResponseDoc("The leases with the resources that would be selected.", _has("leases", "array"))},
        error_statuses=_NEEDS_NETWORK,
    ),
    "POST /v1/maintenance": OperationDoc(
        "Create a lease of whole hosts for maintenance",
        {201: ResponseDoc("The lease.", _LEASE)},
        error_statuses=frozenset({404}),
    ),
    "POST /v1/maintenance/dry-run": OperationDoc(
        "List the leases that a maintenance would affect",
        {200: ResponseDoc("The leases.", _has("leases", "array"))},
        error_statuses=frozenset({404}),
    ),
    "GET /v1/calendar": OperationDoc(
        "Show the usage of the hosts and the project's leases",
        {200: ResponseDoc("Leases of other projects appear only in the usage.", _has("calendar"))},
        query=availability.CALENDAR_QUERY,
    ),
    "GET /v1/calendar.ics": OperationDoc(
        "Show the project's leases as a calendar feed",
        {200: ResponseDoc("An iCalendar document.", Schema({}), ical.CONTENT_TYPE)},
    ),
    "GET /v1/limits": OperationDoc(
        "Show the limits of the caller's project", {200: ResponseDoc("The limits.", _has("limits"))}
    ),
    "GET /v1/limits/{project_id}": OperationDoc(
        "Show the limits of a project", {200: ResponseDoc("The limits.", _has("limits"))}
    ),
    "PUT /v1/limits/{project_id}": OperationDoc(
        "Set the limits of a project", {200: ResponseDoc("The updated limits.", _has("limits"))}
    ),
    "GET /v1/holds": OperationDoc("List the project's holds", {200: ResponseDoc("The holds.", _has("holds", "array"))}),
    "POST /v1/holds": OperationDoc(
        "Create a hold on the next period that fits",
        {201: ResponseDoc("The hold.", _has("hold"))},
        error_statuses=_NEEDS_NETWORK,
    ),
    "GET /v1/holds/{hold_id}": OperationDoc("Show a hold", {200: ResponseDoc("The hold.", _has("hold"))}),
    "DELETE /v1/holds/{hold_id}": OperationDoc("Release a hold", _GONE),
    f"GET {DOCUMENT_PATH}": OperationDoc(
        "Show this document, for the requested microversion or for all",
        {200: ResponseDoc("An OpenAPI 3.1 document.", Schema({"type": "object"}))},
    ),
}

_ID = {"type": "string"}

ABOUT = ServiceDoc(
    title="Reservation",
    description="Leases, registered hosts, offers and holds. Microversion 1.0 equals Blazar's Reservation API; 1.1 "
    "adds what Blazar does not have. The routes of 1.0 also accept the suffix `.json`.",
    operations=_PEERS | _OURS,
    parameters=dict.fromkeys(("lease_id", "hold_id", "project_id", "host_id", "floatingip_id", "name"), _ID),
    error_schema=_REFUSAL,
)
