"""The Reservation API v1: routes with the texts of their OpenAPI document, policy rules and the format of errors.

The peer's routes also accept ``.json``.
"""

from collections.abc import Callable

from moorage.core import errors as e
from moorage.core.json import Json
from moorage.identity.policy import RuleTable, admin, reader
from moorage.identity.policy import member as member_role
from moorage.reservation.api.handlers import availability, feeds, hosts, leases
from moorage.reservation.api.schemas import availability as offer_schema
from moorage.reservation.api.schemas import host as host_schema
from moorage.reservation.api.schemas import lease as lease_schema
from moorage.reservation.api.schemas import listing as listing_schema
from moorage.reservation.api.schemas.common import OURS, PEERS, peer_wording
from moorage.reservation.model import ical
from moorage.reservation.service import ReservationService
from moorage.wire.app import ServiceApi
from moorage.wire.body import Schema, VersionedSchema
from moorage.wire.errors import Problem
from moorage.wire.http import OperationDoc, Request, Response, ResponseDoc, Route
from moorage.wire.microversion import Version, VersionRange
from moorage.wire.openapi import ServiceDoc, openapi_route

#: 1.0 equals the peer's API byte for byte. 1.1 has our additions; docs/wire/reservation.md lists them.
VERSIONS = VersionRange("reservation", Version(1, 0), Version(1, 1))


def list_versions(request: Request[ReservationService]) -> Response:
    """Status 300, without authentication: some clients read the versions before they have a token."""
    return Response(300, {"versions": [_version(request)]})


def show_version(request: Request[ReservationService]) -> Response:
    return Response(200, {"version": _version(request)})


def _version(request: Request[ReservationService]) -> dict[str, Json]:
    return {
        "id": "v1.0",
        "status": "CURRENT",
        "links": [{"href": f"{request.base_url}/v1", "rel": "self"}],
        "min_version": str(VERSIONS.minimum),
        "max_version": str(VERSIONS.maximum),
    }


RULES = RuleTable(
    {
        "blazar:leases:get": reader,
        "blazar:leases:post": member_role,
        "blazar:leases:put": member_role,
        "blazar:leases:delete": member_role,
        "blazar:oshosts:get": admin,
        "blazar:oshosts:post": admin,
        "blazar:oshosts:put": admin,
        "blazar:oshosts:delete": admin,
        "blazar:oshosts:get_allocations": admin,
        "moorage:limits:get": admin,
        "moorage:limits:put": admin,
        "blazar:floatingips:get": reader,
        "blazar:floatingips:post": admin,
        "blazar:floatingips:delete": admin,
    },
    refusal_text="Policy doesn't allow {rule} to be performed",
)

Handler = Callable[..., Response]


def _with_json_suffix(
    method: str,
    path: str,
    handler: Handler,
    rule: str | None,
    schema: Schema | VersionedSchema | None = None,
    *,
    since: Version | None = None,
    until: Version | None = None,
    doc: OperationDoc | None = None,
) -> list[Route[ReservationService]]:
    return [Route(method, path + suffix, handler, rule, schema, since, until, doc=doc) for suffix in ("", ".json")]


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


ABOUT = ServiceDoc(
    title="Reservation",
    description="Leases, registered hosts, offers and holds. Microversion 1.0 equals Blazar's Reservation API; 1.1 "
    "adds what Blazar does not have. The routes of 1.0 also accept the suffix `.json`.",
    parameters={
        name: {"type": "string"}
        for name in ("lease_id", "hold_id", "feed_id", "project_id", "user_id", "host_id", "floatingip_id", "name")
    },
    error_schema=_REFUSAL,
)


def _has(name: str, kind: str = "object", *more: str) -> Schema:
    """The schema of an answer with the required key `name` and the optional keys `more`."""
    properties: dict[str, object] = {name: {"type": kind}, **{each: {} for each in more}}
    return Schema({"type": "object", "required": [name], "properties": properties, "additionalProperties": False})


# Parts of the operations' documentation.
_GONE = {204: ResponseDoc("The request succeeded; the body is empty.")}
_LEASE = _has("lease")
_VERSIONS = OperationDoc("List versions", {300: ResponseDoc("The only version.", _has("versions", "array"))})
_VERSION = OperationDoc("Show the version", {200: ResponseDoc("The version and its microversions.", _has("version"))})
#: The status of requests for floating IPs if no network service is configured.
_NEEDS_NETWORK = frozenset({501})

ROUTES: list[Route[ReservationService]] = [
    Route("GET", "/", list_versions, None, doc=_VERSIONS),
    Route("GET", "/versions", list_versions, None, doc=_VERSIONS),
    *_with_json_suffix("GET", "/v1", show_version, None, doc=_VERSION),
    Route("GET", "/v1/", show_version, None, doc=_VERSION),
    *_with_json_suffix("GET", "/v1/leases", leases.list_leases, "blazar:leases:get", until=PEERS,
        doc=OperationDoc("List leases (from 1.1 on in pages)",
            {200: ResponseDoc("The leases of the project; administrators get those of all projects.",
                              _has("leases", "array", "leases_links"))}, query=listing_schema.LEASES_BY_VERSION,
            example={"limit": "10", "status": "ACTIVE"})),
    *_with_json_suffix("GET", "/v1/leases", leases.list_leases_page, "blazar:leases:get", since=OURS),
    *_with_json_suffix("POST", "/v1/leases", leases.create_lease_before_1_1, "blazar:leases:post",
        lease_schema.CREATE_AS_PEER, until=PEERS,
        doc=OperationDoc("Create a lease (from 1.1 on also from a hold)", {201: ResponseDoc("The lease.", _LEASE)},
            error_statuses=_NEEDS_NETWORK | {404, 410})),
    *_with_json_suffix("POST", "/v1/leases", availability.create_lease, "blazar:leases:post", offer_schema.CREATE_LEASE,
        since=OURS),
    Route("POST", "/v1/leases/dry-run", availability.rehearse_create, "blazar:leases:post", lease_schema.CREATE_OURS,
        since=OURS, effect="none",
        doc=OperationDoc("Dry run: create a lease",
            {200: ResponseDoc("The lease with the resources that would be selected.", _LEASE)},
            error_statuses=_NEEDS_NETWORK)),
    *_with_json_suffix("GET", "/v1/leases/{lease_id}", leases.show_lease, "blazar:leases:get",
        doc=OperationDoc("Show a lease", {200: ResponseDoc("The lease.", _LEASE)})),
    *_with_json_suffix("PUT", "/v1/leases/{lease_id}", leases.update_lease, "blazar:leases:put",
        lease_schema.UPDATE_BY_VERSION,
        doc=OperationDoc("Update a lease", {200: ResponseDoc("The updated lease.", _LEASE)},
            error_statuses=_NEEDS_NETWORK)),
    *_with_json_suffix("DELETE", "/v1/leases/{lease_id}", leases.delete_lease, "blazar:leases:delete",
        doc=OperationDoc("Delete a lease in any state", _GONE)),
    Route("POST", "/v1/leases/{lease_id}/dry-run", availability.rehearse_update, "blazar:leases:put",
        lease_schema.UPDATE_OURS, since=OURS, effect="none",
        doc=OperationDoc("Dry run: update a lease",
            {200: ResponseDoc("The lease with the resources that would be selected.", _LEASE)},
            error_statuses=_NEEDS_NETWORK)),
    Route("GET", "/v1/leases/{lease_id}/prolongation", availability.show_prolongation, "blazar:leases:get", since=OURS,
        doc=OperationDoc("Show how far a lease can be prolonged",
            {200: ResponseDoc("The latest possible end.", _has("prolongation"))}, error_statuses=frozenset({409}))),
    Route("GET", "/v1/leases/{lease_id}/timeline", leases.show_timeline, "blazar:leases:get", since=OURS,
        doc=OperationDoc("Show the events of a lease and their steps",
            {200: ResponseDoc("The events in order, with the progress of their steps.", _has("timeline", "array"))})),
    Route("GET", "/v1/leases/{lease_id}/hosts", leases.list_hosts_of_lease, "blazar:leases:get", since=OURS,
        doc=OperationDoc("Show on how many hosts the reservations of a lease are",
            {200: ResponseDoc("The numbers for each reservation; for administrators with the names of the hosts.",
                              _has("reservations", "array"))})),
    Route("GET", "/v1/deleted-leases", leases.list_deleted_leases, "blazar:leases:get", since=OURS,
        doc=OperationDoc("List deleted leases, in pages, the last deleted one first",
            {200: ResponseDoc("The deleted leases of the project; administrators get those of all projects.",
                              _has("leases", "array", "leases_links"))}, query=listing_schema.DELETED_LEASES)),
    Route("GET", "/v1/deleted-leases/{lease_id}", leases.show_deleted_lease, "blazar:leases:get", since=OURS,
        doc=OperationDoc("Show a deleted lease and its timeline",
            {200: ResponseDoc("The lease as it was, with the time of its deletion.",
                              _has("lease", "object", "timeline"))})),
    Route("POST", "/v1/leases/series", leases.create_series, "blazar:leases:post", lease_schema.CREATE_SERIES,
        since=OURS,
        doc=OperationDoc("Create a series of leases, all or none",
            {201: ResponseDoc("The leases.", _has("leases", "array"))}, error_statuses=_NEEDS_NETWORK)),
    Route("POST", "/v1/leases/series/dry-run", availability.rehearse_series, "blazar:leases:post",
        lease_schema.CREATE_SERIES, since=OURS, effect="none",
        doc=OperationDoc("Dry run: create a series of leases",
            {200: ResponseDoc("The leases with the resources that would be selected.", _has("leases", "array"))},
            error_statuses=_NEEDS_NETWORK)),
    Route("POST", "/v1/maintenance", leases.create_maintenance, "blazar:oshosts:put", lease_schema.MAINTENANCE,
        since=OURS,
        doc=OperationDoc("Create a lease of whole hosts for maintenance", {201: ResponseDoc("The lease.", _LEASE)},
            error_statuses=frozenset({404}))),
    Route("POST", "/v1/maintenance/dry-run", leases.rehearse_maintenance, "blazar:oshosts:get",
        lease_schema.MAINTENANCE, since=OURS, effect="none",
        doc=OperationDoc("List the leases that a maintenance would affect",
            {200: ResponseDoc("The leases.", _has("leases", "array"))}, error_statuses=frozenset({404}))),
    Route("POST", "/v1/offers", availability.find_offers, "blazar:leases:get", offer_schema.SEARCH, since=OURS,
        effect="none",
        doc=OperationDoc("Find the next periods in which reservations fit",
            {200: ResponseDoc("The offers.", _has("offers", "array", "earliest_start"))},
            error_statuses=_NEEDS_NETWORK)),
    Route("GET", "/v1/holds", availability.list_holds, "blazar:leases:get", since=OURS,
        doc=OperationDoc("List the project's holds", {200: ResponseDoc("The holds.", _has("holds", "array"))})),
    Route("POST", "/v1/holds", availability.create_hold, "blazar:leases:post", offer_schema.HOLD, since=OURS,
        doc=OperationDoc("Create a hold on the next period that fits", {201: ResponseDoc("The hold.", _has("hold"))},
            error_statuses=_NEEDS_NETWORK)),
    Route("GET", "/v1/holds/{hold_id}", availability.show_hold, "blazar:leases:get", since=OURS,
        doc=OperationDoc("Show a hold", {200: ResponseDoc("The hold.", _has("hold"))})),
    Route("DELETE", "/v1/holds/{hold_id}", availability.release_hold, "blazar:leases:post", since=OURS,
        doc=OperationDoc("Release a hold", _GONE)),
    Route("GET", "/v1/calendar", availability.show_calendar, "blazar:leases:get", since=OURS,
        doc=OperationDoc("Show the usage of the hosts and the project's leases",
            {200: ResponseDoc("Leases of other projects appear only in the usage.", _has("calendar"))},
            query=offer_schema.CALENDAR_QUERY)),
    Route("GET", "/v1/calendar.ics", feeds.show_calendar_feed, "blazar:leases:get", since=OURS,
        doc=OperationDoc("Show the project's leases as a calendar feed",
            {200: ResponseDoc("An iCalendar document.", Schema({}), ical.CONTENT_TYPE)})),
    Route("GET", "/v1/calendar-feeds", feeds.list_feeds, "blazar:leases:get", since=OURS,
        doc=OperationDoc("List the caller's calendar feeds",
            {200: ResponseDoc("The feeds; administrators get those of all users.", _has("feeds", "array"))})),
    Route("POST", "/v1/calendar-feeds", feeds.create_feed, "blazar:leases:get", feeds.CREATE, since=OURS,
        doc=OperationDoc("Create a calendar feed",
            {201: ResponseDoc("The feed with its `url`, which is not shown again.", _has("feed"))})),
    Route("DELETE", "/v1/calendar-feeds/{feed_id}", feeds.revoke_feed, "blazar:leases:get", since=OURS,
        doc=OperationDoc("Revoke a calendar feed", _GONE)),
    # Calendar programs send neither a token nor a microversion.
    Route("GET", "/v1/calendar-feeds/{feed_id}/leases.ics", feeds.read_feed, None,
        doc=OperationDoc("Read a calendar feed by its URL",
            {200: ResponseDoc("An iCalendar document.", Schema({}), ical.CONTENT_TYPE),
             304: ResponseDoc("The program has the present content (`If-None-Match`).")},
            query=feeds.KEY_QUERY, error_statuses=frozenset({404, 429}))),
    Route("GET", "/v1/limits", leases.show_own_limits, "blazar:leases:get", since=OURS,
        doc=OperationDoc("Show the limits of the caller's project", {200: ResponseDoc("The limits.", _has("limits"))})),
    Route("GET", "/v1/limits/{project_id}", leases.show_limits, "moorage:limits:get", since=OURS,
        doc=OperationDoc("Show the limits of a project", {200: ResponseDoc("The limits.", _has("limits"))})),
    Route("PUT", "/v1/limits/{project_id}", leases.update_limits, "moorage:limits:put", host_schema.UPDATE_LIMITS,
        since=OURS,
        doc=OperationDoc("Set the limits of a project", {200: ResponseDoc("The updated limits.", _has("limits"))})),
    Route("GET", "/v1/user-limits", leases.show_own_user_limits, "blazar:leases:get", since=OURS,
        doc=OperationDoc("Show the limits of the caller, in all projects together",
            {200: ResponseDoc("The limits.", _has("limits"))})),
    Route("GET", "/v1/user-limits/{user_id}", leases.show_user_limits, "moorage:limits:get", since=OURS,
        doc=OperationDoc("Show the limits of a user", {200: ResponseDoc("The limits.", _has("limits"))})),
    Route("PUT", "/v1/user-limits/{user_id}", leases.update_user_limits, "moorage:limits:put",
        host_schema.UPDATE_LIMITS, since=OURS,
        doc=OperationDoc("Set the limits of a user", {200: ResponseDoc("The updated limits.", _has("limits"))})),
    *_with_json_suffix("GET", "/v1/os-hosts", hosts.list_hosts, "blazar:oshosts:get", until=PEERS,
        doc=OperationDoc("List registered hosts (from 1.1 on in pages)",
            {200: ResponseDoc("The hosts.", _has("hosts", "array", "hosts_links"))},
            query=listing_schema.HOSTS_BY_VERSION)),
    *_with_json_suffix("GET", "/v1/os-hosts", leases.list_hosts_page, "blazar:oshosts:get", since=OURS),
    *_with_json_suffix("POST", "/v1/os-hosts", hosts.create_host, "blazar:oshosts:post", host_schema.ANY_OBJECT,
        doc=OperationDoc("Register a host", {201: ResponseDoc("The host.", _has("host"))},
            error_statuses=frozenset({404}))),
    *_with_json_suffix("GET", "/v1/os-hosts/allocations", hosts.list_allocations, "blazar:oshosts:get_allocations",
        until=PEERS,
        doc=OperationDoc("List the reservations on all hosts",
            {200: ResponseDoc("The reservations on each host.", _has("allocations", "array", "allocations_links"))},
            query=listing_schema.ALLOCATIONS_BY_VERSION)),
    *_with_json_suffix("GET", "/v1/os-hosts/allocations", leases.list_allocations_page,
        "blazar:oshosts:get_allocations", since=OURS),
    *_with_json_suffix("GET", "/v1/os-hosts/properties", hosts.list_properties, "blazar:oshosts:get",
        doc=OperationDoc("List the extra capabilities of hosts",
            {200: ResponseDoc("The names of the capabilities; with `detail` also their values.",
                              _has("resource_properties", "array"))}, query=listing_schema.PROPERTIES)),
    *_with_json_suffix("PATCH", "/v1/os-hosts/properties/{name}", hosts.update_property, "blazar:oshosts:put",
        host_schema.PRIVATE,
        doc=OperationDoc("Show or hide an extra capability",
            {200: ResponseDoc("The updated capability.", _has("resource_property"))})),
    *_with_json_suffix("GET", "/v1/os-hosts/{host_id}", hosts.show_host, "blazar:oshosts:get",
        doc=OperationDoc("Show a host", {200: ResponseDoc("The host.", _has("host"))})),
    *_with_json_suffix("PUT", "/v1/os-hosts/{host_id}", hosts.update_host, "blazar:oshosts:put", host_schema.ANY_OBJECT,
        doc=OperationDoc("Set extra capabilities of a host; null removes one",
            {200: ResponseDoc("The updated host.", _has("host"))})),
    *_with_json_suffix("DELETE", "/v1/os-hosts/{host_id}", hosts.delete_host, "blazar:oshosts:delete",
        doc=OperationDoc("Remove a host from reservation", _GONE)),
    *_with_json_suffix("GET", "/v1/os-hosts/{host_id}/allocation", hosts.show_allocation,
        "blazar:oshosts:get_allocations",
        doc=OperationDoc("Show the reservations on a host",
            {200: ResponseDoc("The reservations on the host.", _has("allocation"))}, query=listing_schema.OF_LEASE)),
    *_with_json_suffix("GET", "/v1/floatingips", hosts.list_floating_ips, "blazar:floatingips:get",
        doc=OperationDoc("List registered addresses",
            {200: ResponseDoc("The addresses.", _has("floatingips", "array"))})),
    *_with_json_suffix("POST", "/v1/floatingips", hosts.create_floating_ip, "blazar:floatingips:post",
        host_schema.CREATE_FLOATING_IP,
        doc=OperationDoc("Register an address of an external network",
            {201: ResponseDoc("The address.", _has("floatingip"))}, error_statuses=_NEEDS_NETWORK | {409})),
    *_with_json_suffix("GET", "/v1/floatingips/{floatingip_id}", hosts.show_floating_ip, "blazar:floatingips:get",
        doc=OperationDoc("Show a registered address", {200: ResponseDoc("The address.", _has("floatingip"))})),
    *_with_json_suffix("DELETE", "/v1/floatingips/{floatingip_id}", hosts.delete_floating_ip,
        "blazar:floatingips:delete",
        doc=OperationDoc("Remove an address from reservation", _GONE)),
]  # fmt: skip

#: All routes except the duplicates with the suffix ``.json``.
DOCUMENTED = [route for route in ROUTES if not route.path.endswith(".json")]
DOCUMENTED.append(
    openapi_route(
        DOCUMENT_PATH,
        DOCUMENTED,
        ABOUT,
        VERSIONS,
        OperationDoc(
            "Show this document, for the requested microversion or for all",
            {200: ResponseDoc("An OpenAPI 3.1 document.", Schema({"type": "object"}))},
        ),
    )
)
ROUTES.append(DOCUMENTED[-1])

#: Errors that the peer raises before it routes the request. They have a different format.
_HTTP_LEVEL = (e.Unauthorized, e.MethodNotAllowed, e.NotAcceptable, e.TooLarge, e.UnsupportedMedia)


def error_shape(problem: Problem) -> Response:
    if isinstance(problem.error, _HTTP_LEVEL) or problem.code == "moorage.microversion":
        message = problem.message.removeprefix("Unacceptable version header: ")
        if isinstance(problem.error, e.NotAcceptable):
            message = message[message.find("Version ") :]
        return Response(problem.status, {"error": problem.status, "error_message": message})
    name: int | str = problem.status if problem.error is not None else "INTERNAL_SERVER_ERROR"
    return Response(
        problem.status, {"error_code": problem.status, "error_message": problem.message, "error_name": name}
    )


API: ServiceApi[ReservationService] = ServiceApi(
    name="reservation",
    routes=ROUTES,
    error_shape=error_shape,
    versions=VERSIONS,
    schema_error_message=peer_wording,
    max_json_bytes=1 << 20,
)
