"""The Reservation API v1: routes, policy rules, the shape of errors. Every route also answers with ``.json``."""

from collections.abc import Callable

from moorage.core import errors as e
from moorage.identity.policy import RuleTable, admin, reader
from moorage.identity.policy import member as member_role
from moorage.reservation.api.handlers import (
    availability,
    calendar,
    floating_ips,
    hosts,
    leases,
    limits,
    paged_lists,
    root,
    series,
)
from moorage.reservation.api.openapi import ABOUT, DOCUMENT_PATH
from moorage.reservation.api.schemas import availability as offer_schema
from moorage.reservation.api.schemas import floating_ip as floating_ip_schema
from moorage.reservation.api.schemas import host as host_schema
from moorage.reservation.api.schemas import lease as lease_schema
from moorage.reservation.api.schemas import limit as limit_schema
from moorage.reservation.api.schemas import series as series_schema
from moorage.reservation.api.schemas.common import word
from moorage.reservation.service import ReservationService
from moorage.wire.app import ServiceApi
from moorage.wire.body import Schema, VersionedSchema
from moorage.wire.errors import Problem
from moorage.wire.http import Response, Route
from moorage.wire.microversion import Version
from moorage.wire.openapi import openapi_route

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


#: The peer's version, and the one that the rest came with.
_PEERS, _OURS = Version(1, 0), Version(1, 1)


def _both(
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
    Route("GET", "/", root.versions, None),
    Route("GET", "/versions", root.versions, None),
    *_both("GET", "/v1", root.version, None),
    Route("GET", "/v1/", root.version, None),
    *_both("GET", "/v1/leases", leases.index, "blazar:leases:get", until=_PEERS),
    *_both("GET", "/v1/leases", paged_lists.leases, "blazar:leases:get", since=_OURS),
    *_both("POST", "/v1/leases", leases.create, "blazar:leases:post", lease_schema.CREATE, until=_PEERS),
    *_both("POST", "/v1/leases", availability.create_lease, "blazar:leases:post", offer_schema.CREATE, since=_OURS),
    Route(
        "POST",
        "/v1/leases/dry-run",
        availability.rehearse_create,
        "blazar:leases:post",
        lease_schema.CREATE_OURS,
        since=_OURS,
        effect="none",
    ),
    *_both("GET", "/v1/leases/{lease_id}", leases.show, "blazar:leases:get"),
    *_both("PUT", "/v1/leases/{lease_id}", leases.update, "blazar:leases:put", lease_schema.UPDATE_BY_VERSION),
    *_both("DELETE", "/v1/leases/{lease_id}", leases.delete, "blazar:leases:delete"),
    Route(
        "POST",
        "/v1/leases/{lease_id}/dry-run",
        availability.rehearse_update,
        "blazar:leases:put",
        lease_schema.UPDATE_OURS,
        since=_OURS,
        effect="none",
    ),
    Route("GET", "/v1/leases/{lease_id}/prolongation", availability.prolongation, "blazar:leases:get", since=_OURS),
    Route("GET", "/v1/leases/{lease_id}/timeline", paged_lists.timeline, "blazar:leases:get", since=_OURS),
    Route("POST", "/v1/leases/series", series.create, "blazar:leases:post", series_schema.CREATE, since=_OURS),
    Route(
        "POST",
        "/v1/leases/series/dry-run",
        availability.rehearse_series,
        "blazar:leases:post",
        series_schema.CREATE,
        since=_OURS,
        effect="none",
    ),
    Route("POST", "/v1/maintenance", series.maintain, "blazar:oshosts:put", series_schema.MAINTENANCE, since=_OURS),
    Route(
        "POST",
        "/v1/maintenance/dry-run",
        series.touched,
        "blazar:oshosts:get",
        series_schema.MAINTENANCE,
        since=_OURS,
        effect="none",
    ),
    Route(
        "POST", "/v1/offers", availability.find, "blazar:leases:get", offer_schema.SEARCH, since=_OURS, effect="none"
    ),
    Route("GET", "/v1/holds", availability.holds, "blazar:leases:get", since=_OURS),
    Route("POST", "/v1/holds", availability.hold, "blazar:leases:post", offer_schema.HOLD, since=_OURS),
    Route("GET", "/v1/holds/{hold_id}", availability.show_hold, "blazar:leases:get", since=_OURS),
    Route("DELETE", "/v1/holds/{hold_id}", availability.release, "blazar:leases:post", since=_OURS),
    Route("GET", "/v1/calendar", calendar.show, "blazar:leases:get", since=_OURS),
    Route("GET", "/v1/calendar.ics", calendar.feed, "blazar:leases:get", since=_OURS),
    Route("GET", "/v1/limits", limits.own, "blazar:leases:get", since=_OURS),
    Route("GET", "/v1/limits/{project_id}", limits.show, "moorage:limits:get", since=_OURS),
    Route("PUT", "/v1/limits/{project_id}", limits.update, "moorage:limits:put", limit_schema.UPDATE, since=_OURS),
    *_both("GET", "/v1/os-hosts", hosts.index, "blazar:oshosts:get", until=_PEERS),
    *_both("GET", "/v1/os-hosts", paged_lists.hosts, "blazar:oshosts:get", since=_OURS),
    *_both("POST", "/v1/os-hosts", hosts.create, "blazar:oshosts:post", host_schema.ANY_OBJECT),
    *_both("GET", "/v1/os-hosts/allocations", hosts.allocations, "blazar:oshosts:get_allocations", until=_PEERS),
    *_both("GET", "/v1/os-hosts/allocations", paged_lists.allocations, "blazar:oshosts:get_allocations", since=_OURS),
    *_both("GET", "/v1/os-hosts/properties", hosts.properties, "blazar:oshosts:get"),
    *_both("PATCH", "/v1/os-hosts/properties/{name}", hosts.set_private, "blazar:oshosts:put", host_schema.PRIVATE),
    *_both("GET", "/v1/os-hosts/{host_id}", hosts.show, "blazar:oshosts:get"),
    *_both("PUT", "/v1/os-hosts/{host_id}", hosts.update, "blazar:oshosts:put", host_schema.ANY_OBJECT),
    *_both("DELETE", "/v1/os-hosts/{host_id}", hosts.delete, "blazar:oshosts:delete"),
    *_both("GET", "/v1/os-hosts/{host_id}/allocation", hosts.allocation, "blazar:oshosts:get_allocations"),
    *_both("GET", "/v1/floatingips", floating_ips.index, "blazar:floatingips:get"),
    *_both("POST", "/v1/floatingips", floating_ips.create, "blazar:floatingips:post", floating_ip_schema.CREATE),
    *_both("GET", "/v1/floatingips/{floatingip_id}", floating_ips.show, "blazar:floatingips:get"),
    *_both("DELETE", "/v1/floatingips/{floatingip_id}", floating_ips.delete, "blazar:floatingips:delete"),
]

#: All but those that are the same with ``.json`` behind them.
DOCUMENTED = [route for route in ROUTES if not route.path.endswith(".json")]
DOCUMENTED.append(openapi_route(DOCUMENT_PATH, DOCUMENTED, ABOUT, root.VERSIONS))
ROUTES.append(DOCUMENTED[-1])

#: What the peer refuses before it knows which resource is meant: another shape.
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
    versions=root.VERSIONS,
    schema_error_message=word,
    max_json_bytes=1 << 20,
)
