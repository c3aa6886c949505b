"""Lists in pages, from microversion 1.1 on: as many rows as ``limit`` says, and a link where more follow."""

from typing import Any
from urllib.parse import urlencode

from moorage.reservation.api.handlers.hosts import filtered
from moorage.reservation.api.handlers.leases import shown
from moorage.reservation.api.schemas import host as host_schema
from moorage.reservation.api.schemas import lease as lease_schema
from moorage.reservation.api.schemas import listing as schema
from moorage.reservation.service import ReservationService
from moorage.wire.http import Request, Response


def leases(request: Request[ReservationService]) -> Response:
    wanted = schema.decode_leases(schema.asked(request.query, schema.LEASES))
    found, more = request.service.lists.leases(request.caller, wanted)
    return _page(request, "leases", shown(request, found), found[-1].id if more else None)


def timeline(request: Request[ReservationService], lease_id: str) -> Response:
    found = request.service.lists.timeline(request.service.leases.show(request.caller, lease_id))
    return Response(200, {"timeline": lease_schema.encode_timeline(found, to_admin=request.caller.is_admin)})


def hosts(request: Request[ReservationService]) -> Response:
    wanted = schema.decode_hosts(schema.asked(request.query, schema.HOSTS))
    found, more = request.service.lists.hosts(wanted)
    return _page(request, "hosts", [host_schema.encode(host) for host in found], str(found[-1].id) if more else None)


def allocations(request: Request[ReservationService]) -> Response:
    """Unlike before 1.1 a page has all its hosts, also those without a matching reservation."""
    wanted = schema.decode_hosts(schema.asked(request.query, schema.ALLOCATIONS))
    found, more = request.service.lists.allocations(wanted)
    rows = [filtered(request, host, slots) for host, slots in found]
    return _page(request, "allocations", rows, str(found[-1][0].id) if more else None)


def _page(request: Request[ReservationService], name: str, rows: list[dict[str, Any]], last: str | None) -> Response:
    body: dict[str, Any] = {name: rows}
    if last is not None:
        pairs = [(key, value) for key, value in request.query.pairs if key != "marker"]
        href = f"{request.base_url}{request.path}?{urlencode([*pairs, ('marker', last)])}"
        body[f"{name}_links"] = [{"rel": "next", "href": href}]
    return Response(200, body)
