"""The Reservation API v1: routes, policy rules and the format of errors. The peer's routes also accept ``.json``."""

from collections.abc import Callable
from typing import Any

from moorage.core import errors as e
from moorage.identity.policy import RuleTable, admin, reader
from moorage.identity.policy import member as member_role
from moorage.reservation.api.handlers import availability, hosts, leases
from moorage.reservation.api.openapi import ABOUT, DOCUMENT_PATH
from moorage.reservation.api.schemas import availability as offer_schema
from moorage.reservation.api.schemas import host as host_schema
from moorage.reservation.api.schemas import lease as lease_schema
from moorage.reservation.api.schemas.common import peer_wording
from moorage.reservation.service import ReservationService
from moorage.wire.app import ServiceApi
from moorage.wire.body import Schema, VersionedSchema
from moorage.wire.errors import Problem
from moorage.wire.http import Request, Response, Route
from moorage.wire.microversion import Version, VersionRange
from moorage.wire.openapi import openapi_route

#: 1.0 equals the peer's API byte for byte. 1.1 has our additions; docs/wire/reservation.md lists them.
VERSIONS = VersionRange("reservation", Version(1, 0), Version(1, 1))


def list_versions(request: Request[ReservationService]) -> Response:
    """Status 300, without authentication: some clients read the versions before they have a token."""
    return Response(300, {"versions": [_version(request)]})


def show_version(request: Request[ReservationService]) -> Response:
    return Response(200, {"version": _version(request)})


def _version(request: Request[ReservationService]) -> dict[str, Any]:
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


#: The microversion of the peer's API, and the one that introduced our additions.
_PEERS, _OURS = Version(1, 0), Version(1, 1)


def _with_json_suffix(
    method: str,
    path: str,
    handler: Handler,
    rule: str | None,
    schema: Schema | VersionedSchema | None = None,
    *,
    since: Version | None = None,
    until: Version | None = None,
) -> list[Route[ReservationService]]:
    return [Route(method, path + suffix, handler, rule, schema, since, until) for suffix in ("", ".json")]


ROUTES: list[Route[ReservationService]] = [
    Route("GET", "/", list_versions, None),
    Route("GET", "/versions", list_versions, None),
    *_with_json_suffix("GET", "/v1", show_version, None),
    Route("GET", "/v1/", show_version, None),
    *_with_json_suffix("GET", "/v1/leases", leases.list_leases, "blazar:leases:get", until=_PEERS),
    *_with_json_suffix("GET", "/v1/leases", leases.list_leases_page, "blazar:leases:get", since=_OURS),
    *_with_json_suffix(
        "POST", "/v1/leases", leases.create_lease_before_1_1, "blazar:leases:post", lease_schema.CREATE, until=_PEERS
    ),
    *_with_json_suffix(
        "POST", "/v1/leases", availability.create_lease, "blazar:leases:post", offer_schema.CREATE_LEASE, since=_OURS
    ),
    Route(
        "POST",
        "/v1/leases/dry-run",
        availability.rehearse_create,
        "blazar:leases:post",
        lease_schema.CREATE_OURS,
        since=_OURS,
        effect="none",
    ),
    *_with_json_suffix("GET", "/v1/leases/{lease_id}", leases.show_lease, "blazar:leases:get"),
    *_with_json_suffix(
        "PUT", "/v1/leases/{lease_id}", leases.update_lease, "blazar:leases:put", lease_schema.UPDATE_BY_VERSION
    ),
    *_with_json_suffix("DELETE", "/v1/leases/{lease_id}", leases.delete_lease, "blazar:leases:delete"),
    Route(
        "POST",
        "/v1/leases/{lease_id}/dry-run",
        availability.rehearse_update,
        "blazar:leases:put",
        lease_schema.UPDATE_OURS,
        since=_OURS,
        effect="none",
    ),
    Route(
        "GET", "/v1/leases/{lease_id}/prolongation", availability.show_prolongation, "blazar:leases:get", since=_OURS
    ),
    Route("GET", "/v1/leases/{lease_id}/timeline", leases.show_timeline, "blazar:leases:get", since=_OURS),
    Route(
        "POST",
        "/v1/leases/series",
        leases.create_series,
        "blazar:leases:post",
        lease_schema.CREATE_SERIES,
        since=_OURS,
    ),
    Route(
        "POST",
        "/v1/leases/series/dry-run",
        availability.rehearse_series,
        "blazar:leases:post",
        lease_schema.CREATE_SERIES,
        since=_OURS,
        effect="none",
    ),
    Route(
        "POST",
        "/v1/maintenance",
        leases.create_maintenance,
        "blazar:oshosts:put",
        lease_schema.MAINTENANCE,
        since=_OURS,
    ),
    Route(
        "POST",
        "/v1/maintenance/dry-run",
        leases.rehearse_maintenance,
        "blazar:oshosts:get",
        lease_schema.MAINTENANCE,
        since=_OURS,
        effect="none",
    ),
    Route(
        "POST",
        "/v1/offers",
        availability.find_offers,
        "blazar:leases:get",
        offer_schema.SEARCH,
        since=_OURS,
        effect="none",
    ),
    Route("GET", "/v1/holds", availability.list_holds, "blazar:leases:get", since=_OURS),
    Route("POST", "/v1/holds", availability.create_hold, "blazar:leases:post", offer_schema.HOLD, since=_OURS),
    Route("GET", "/v1/holds/{hold_id}", availability.show_hold, "blazar:leases:get", since=_OURS),
    Route("DELETE", "/v1/holds/{hold_id}", availability.release_hold, "blazar:leases:post", since=_OURS),
    Route("GET", "/v1/calendar", availability.show_calendar, "blazar:leases:get", since=_OURS),
    Route("GET", "/v1/calendar.ics", availability.show_calendar_feed, "blazar:leases:get", since=_OURS),
    Route("GET", "/v1/limits", leases.show_own_limits, "blazar:leases:get", since=_OURS),
    Route("GET", "/v1/limits/{project_id}", leases.show_limits, "moorage:limits:get", since=_OURS),
    Route(
        "PUT",
        "/v1/limits/{project_id}",
        leases.update_limits,
        "moorage:limits:put",
        host_schema.UPDATE_LIMITS,
        since=_OURS,
    ),
    *_with_json_suffix("GET", "/v1/os-hosts", hosts.list_hosts, "blazar:oshosts:get", until=_PEERS),
    *_with_json_suffix("GET", "/v1/os-hosts", leases.list_hosts_page, "blazar:oshosts:get", since=_OURS),
    *_with_json_suffix("POST", "/v1/os-hosts", hosts.create_host, "blazar:oshosts:post", host_schema.ANY_OBJECT),
    *_with_json_suffix(
        "GET", "/v1/os-hosts/allocations", hosts.list_allocations, "blazar:oshosts:get_allocations", until=_PEERS
    ),
    *_with_json_suffix(
        "GET", "/v1/os-hosts/allocations", leases.list_allocations_page, "blazar:oshosts:get_allocations", since=_OURS
    ),
    *_with_json_suffix("GET", "/v1/os-hosts/properties", hosts.list_properties, "blazar:oshosts:get"),
    *_with_json_suffix(
        "PATCH", "/v1/os-hosts/properties/{name}", hosts.update_property, "blazar:oshosts:put", host_schema.PRIVATE
    ),
    *_with_json_suffix("GET", "/v1/os-hosts/{host_id}", hosts.show_host, "blazar:oshosts:get"),
    *_with_json_suffix(
        "PUT", "/v1/os-hosts/{host_id}", hosts.update_host, "blazar:oshosts:put", host_schema.ANY_OBJECT
    ),
    *_with_json_suffix("DELETE", "/v1/os-hosts/{host_id}", hosts.delete_host, "blazar:oshosts:delete"),
    *_with_json_suffix(
        "GET", "/v1/os-hosts/{host_id}/allocation", hosts.show_allocation, "blazar:oshosts:get_allocations"
    ),
    *_with_json_suffix("GET", "/v1/floatingips", hosts.list_floating_ips, "blazar:floatingips:get"),
    *_with_json_suffix(
        "POST",
        "/v1/floatingips",
        hosts.create_floating_ip,
        "blazar:floatingips:post",
        host_schema.CREATE_FLOATING_IP,
    ),
    *_with_json_suffix("GET", "/v1/floatingips/{floatingip_id}", hosts.show_floating_ip, "blazar:floatingips:get"),
    *_with_json_suffix(
        "DELETE", "/v1/floatingips/{floatingip_id}", hosts.delete_floating_ip, "blazar:floatingips:delete"
    ),
]

#: All routes except the duplicates with the suffix ``.json``.
DOCUMENTED = [route for route in ROUTES if not route.path.endswith(".json")]
DOCUMENTED.append(openapi_route(DOCUMENT_PATH, DOCUMENTED, ABOUT, VERSIONS))
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
