from typing import Any

from moorage.reservation.api.schemas import host as schema
from moorage.reservation.model.leases import Allocation, RegisteredHost
from moorage.reservation.service import ReservationService
from moorage.wire.http import Call, Reply

_TRUE = ("true", "1", "yes", "t", "y", "on")


def index(call: Call[ReservationService]) -> Reply:
    return Reply(200, {"hosts": [schema.encode(host) for host in call.service.hosts.index()]})


def create(call: Call[ReservationService]) -> Reply:
    name, extra = schema.decode_create(call.json)
    return Reply(201, {"host": schema.encode(call.service.hosts.create(name, extra))})


def show(call: Call[ReservationService], host_id: str) -> Reply:
    return Reply(200, {"host": schema.encode(call.service.hosts.show(host_id))})


def update(call: Call[ReservationService], host_id: str) -> Reply:
    host = call.service.hosts.update(host_id, schema.decode_update(call.json))
    return Reply(200, {"host": schema.encode(host)})


def delete(call: Call[ReservationService], host_id: str) -> Reply:
    call.service.hosts.delete(host_id)
    return Reply(204)


def allocations(call: Call[ReservationService]) -> Reply:
    found = [filtered(call, host, slots) for host, slots in call.service.hosts.allocations()]
    # A host without a matching reservation is left out, as the peer does.
    return Reply(200, {"allocations": [each for each in found if each["reservations"]]})


def allocation(call: Call[ReservationService], host_id: str) -> Reply:
    return Reply(200, {"allocation": filtered(call, *call.service.hosts.allocation(host_id))})


def properties(call: Call[ReservationService]) -> Reply:
    detail, everything = (str(call.query.first(name)).lower() in _TRUE for name in ("detail", "all"))
    found = call.service.hosts.properties(everything=everything)
    return Reply(200, {"resource_properties": [schema.encode_property(*each, detail=detail) for each in found]})


def set_private(call: Call[ReservationService], name: str) -> Reply:
    row = call.service.hosts.set_private(name, private=call.json["private"])
    return Reply(200, {"resource_property": schema.encode_property_row(row)})


def filtered(
    call: Call[ReservationService], host: RegisteredHost, slots: list[tuple[str, Allocation]]
) -> dict[str, Any]:
    lease_id, reservation_id = call.query.first("lease_id"), call.query.first("reservation_id")
    wanted = [
        (lease, slot)
        for lease, slot in slots
        if lease_id in (None, lease) and reservation_id in (None, slot.reservation_id)
    ]
    return schema.encode_allocation(host, wanted)
