from typing import Any

from moorage.reservation.api.schemas import host as schema
from moorage.reservation.model.leases import Allocation, RegisteredHost
from moorage.reservation.service import ReservationService
from moorage.wire.http import Request, Response

_TRUE = ("true", "1", "yes", "t", "y", "on")


def index(request: Request[ReservationService]) -> Response:
    return Response(200, {"hosts": [schema.encode(host) for host in request.service.hosts.index()]})


def create(request: Request[ReservationService]) -> Response:
    name, extra = schema.decode_create(request.json)
    return Response(201, {"host": schema.encode(request.service.hosts.create(name, extra))})


def show(request: Request[ReservationService], host_id: str) -> Response:
    return Response(200, {"host": schema.encode(request.service.hosts.show(host_id))})


def update(request: Request[ReservationService], host_id: str) -> Response:
    host = request.service.hosts.update(host_id, schema.decode_update(request.json))
    return Response(200, {"host": schema.encode(host)})


def delete(request: Request[ReservationService], host_id: str) -> Response:
    request.service.hosts.delete(host_id)
    return Response(204)


def allocations(request: Request[ReservationService]) -> Response:
    found = [filtered(request, host, slots) for host, slots in request.service.hosts.allocations()]
    # A host without a matching reservation is left out, as the peer does.
    return Response(200, {"allocations": [each for each in found if each["reservations"]]})


def allocation(request: Request[ReservationService], host_id: str) -> Response:
    return Response(200, {"allocation": filtered(request, *request.service.hosts.allocation(host_id))})


def properties(request: Request[ReservationService]) -> Response:
    detail, everything = (str(request.query.first(name)).lower() in _TRUE for name in ("detail", "all"))
    found = request.service.hosts.properties(everything=everything)
    return Response(200, {"resource_properties": [schema.encode_property(*each, detail=detail) for each in found]})


def set_private(request: Request[ReservationService], name: str) -> Response:
    row = request.service.hosts.set_private(name, private=request.json["private"])
    return Response(200, {"resource_property": schema.encode_property_row(row)})


def filtered(
    request: Request[ReservationService], host: RegisteredHost, slots: list[tuple[str, Allocation]]
) -> dict[str, Any]:
    lease_id, reservation_id = request.query.first("lease_id"), request.query.first("reservation_id")
    wanted = [
        (lease, slot)
        for lease, slot in slots
        if lease_id in (None, lease) and reservation_id in (None, slot.reservation_id)
    ]
    return schema.encode_allocation(host, wanted)
