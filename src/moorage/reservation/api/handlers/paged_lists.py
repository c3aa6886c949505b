"""Lists in pages, from microversion 1.1 on: as many rows as ``limit`` says, and a link where more follow."""

from typing import Any
from urllib.parse import urlencode

from moorage.reservation.api.handlers.hosts import filtered
from moorage.reservation.api.handlers.leases import shown
from moorage.reservation.api.schemas import host as host_schema
from moorage.reservation.api.schemas import lease as lease_schema
from moorage.reservation.api.schemas import listing as schema
from moorage.reservation.service import ReservationService
from moorage.wire.http import Call, Reply


def leases(call: Call[ReservationService]) -> Reply:
    wanted = schema.decode_leases(schema.asked(call.query, schema.LEASES))
    found, more = call.service.lists.leases(call.caller, wanted)
    return _page(call, "leases", shown(call, found), found[-1].id if more else None)


def timeline(call: Call[ReservationService], lease_id: str) -> Reply:
    found = call.service.lists.timeline(call.service.leases.show(call.caller, lease_id))
    return Reply(200, {"timeline": lease_schema.encode_timeline(found, to_admin=call.caller.is_admin)})


def hosts(call: Call[ReservationService]) -> Reply:
    wanted = schema.decode_hosts(schema.asked(call.query, schema.HOSTS))
    found, more = call.service.lists.hosts(wanted)
    return _page(call, "hosts", [host_schema.encode(host) for host in found], str(found[-1].id) if more else None)


def allocations(call: Call[ReservationService]) -> Reply:
    """Unlike before 1.1 a page has all its hosts, also those without a matching reservation."""
    wanted = schema.decode_hosts(schema.asked(call.query, schema.ALLOCATIONS))
    found, more = call.service.lists.allocations(wanted)
    rows = [filtered(call, host, slots) for host, slots in found]
    return _page(call, "allocations", rows, str(found[-1][0].id) if more else None)


def _page(call: Call[ReservationService], name: str, rows: list[dict[str, Any]], last: str | None) -> Reply:
    body: dict[str, Any] = {name: rows}
    if last is not None:
        pairs = [(key, value) for key, value in call.query.pairs if key != "marker"]
        href = f"{call.base_url}{call.path}?{urlencode([*pairs, ('marker', last)])}"
        body[f"{name}_links"] = [{"rel": "next", "href": href}]
    return Reply(200, body)
