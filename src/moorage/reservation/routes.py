"""The Reservation API v1: routes, policy rules, the shape of errors. Every route also answers with ``.json``."""

from collections.abc import Callable

from moorage.core import errors as e
from moorage.identity.policy import RuleTable, admin, reader
from moorage.identity.policy import member as member_role
from moorage.reservation.handlers import hosts, leases, root
from moorage.reservation.schemas import host as host_schema
from moorage.reservation.schemas import lease as lease_schema
from moorage.reservation.schemas.common import word
from moorage.reservation.service import ReservationService
from moorage.wire.app import ServiceApi
from moorage.wire.body import Schema
from moorage.wire.call import Reply, Route
from moorage.wire.errors import Problem
from moorage.wire.microversion import Version, VersionRange

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
        "blazar:floatingips:get": reader,
        "blazar:floatingips:post": admin,
        "blazar:floatingips:delete": admin,
    },
    refusal_text="Policy doesn't allow {rule} to be performed",
)

Handler = Callable[..., Reply]


def _both(
    method: str, path: str, handler: Handler, rule: str | None, schema: Schema | None = None
) -> list[Route[ReservationService]]:
    return [Route(method, path + suffix, handler, rule, schema) for suffix in ("", ".json")]


_ROUTES: list[Route[ReservationService]] = [
    Route("GET", "/", root.versions, None),
    Route("GET", "/versions", root.versions, None),
    *_both("GET", "/v1", root.version, None),
    Route("GET", "/v1/", root.version, None),
    *_both("GET", "/v1/leases", leases.index, "blazar:leases:get"),
    *_both("POST", "/v1/leases", leases.create, "blazar:leases:post", lease_schema.CREATE),
    *_both("GET", "/v1/leases/{lease_id}", leases.show, "blazar:leases:get"),
    *_both("PUT", "/v1/leases/{lease_id}", leases.update, "blazar:leases:put", lease_schema.UPDATE),
    *_both("DELETE", "/v1/leases/{lease_id}", leases.delete, "blazar:leases:delete"),
    *_both("GET", "/v1/os-hosts", hosts.index, "blazar:oshosts:get"),
    *_both("POST", "/v1/os-hosts", hosts.create, "blazar:oshosts:post", host_schema.ANY_OBJECT),
    *_both("GET", "/v1/os-hosts/allocations", hosts.allocations, "blazar:oshosts:get_allocations"),
    *_both("GET", "/v1/os-hosts/properties", hosts.properties, "blazar:oshosts:get"),
    *_both("PATCH", "/v1/os-hosts/properties/{name}", hosts.set_private, "blazar:oshosts:put", host_schema.PRIVATE),
    *_both("GET", "/v1/os-hosts/{host_id}", hosts.show, "blazar:oshosts:get"),
    *_both("PUT", "/v1/os-hosts/{host_id}", hosts.update, "blazar:oshosts:put", host_schema.ANY_OBJECT),
    *_both("DELETE", "/v1/os-hosts/{host_id}", hosts.delete, "blazar:oshosts:delete"),
    *_both("GET", "/v1/os-hosts/{host_id}/allocation", hosts.allocation, "blazar:oshosts:get_allocations"),
    *_both("GET", "/v1/floatingips", root.floating_ips, "blazar:floatingips:get"),
    *_both("POST", "/v1/floatingips", root.floating_ips, "blazar:floatingips:post"),
    *_both("GET", "/v1/floatingips/{floatingip_id}", root.floating_ips, "blazar:floatingips:get"),
    *_both("DELETE", "/v1/floatingips/{floatingip_id}", root.floating_ips, "blazar:floatingips:delete"),
]

#: What the peer refuses before it knows which resource is meant: another shape.
_HTTP_LEVEL = (e.Unauthorized, e.MethodNotAllowed, e.NotAcceptable, e.TooLarge, e.UnsupportedMedia)


def error_shape(problem: Problem) -> Reply:
    if isinstance(problem.error, _HTTP_LEVEL) or problem.code == "moorage.microversion":
        message = problem.message.removeprefix("Unacceptable version header: ")
        if isinstance(problem.error, e.NotAcceptable):
            message = message[message.find("Version ") :]
        return Reply(problem.status, {"error": problem.status, "error_message": message})
    name: int | str = problem.status if problem.error is not None else "INTERNAL_SERVER_ERROR"
    return Reply(problem.status, {"error_code": problem.status, "error_message": problem.message, "error_name": name})


API: ServiceApi[ReservationService] = ServiceApi(
    name="reservation",
    routes=_ROUTES,
    error_shape=error_shape,
    versions=VersionRange("reservation", Version(1, 0), Version(1, 0)),
    word_schema_error=word,
    max_json_bytes=1 << 20,
)
