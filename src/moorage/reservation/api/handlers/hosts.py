"""Handlers of hosts with their properties and allocations, and of floating IPs: administrators register both."""

from moorage.core.json import Json
from moorage.reservation.api.schemas import host as schema
from moorage.reservation.model.leases import LeasedSlot, RegisteredHost
from moorage.reservation.service import ReservationService
from moorage.wire.http import Request, Response

_TRUE = ("true", "1", "yes", "t", "y", "on")


def list_hosts(request: Request[ReservationService]) -> Response:
    return Response(200, {"hosts": [schema.encode(host) for host in request.service.hosts.list_hosts()]})


def create_host(request: Request[ReservationService]) -> Response:
    name, extra = schema.decode_create(request.json)
    return Response(201, {"host": schema.encode(request.service.hosts.create_host(name, extra))})


def show_host(request: Request[ReservationService], host_id: str) -> Response:
    return Response(200, {"host": schema.encode(request.service.hosts.get_host(host_id))})


def update_host(request: Request[ReservationService], host_id: str) -> Response:
    host = request.service.hosts.update_host(host_id, schema.decode_update(request.json))
    return Response(200, {"host": schema.encode(host)})


def delete_host(request: Request[ReservationService], host_id: str) -> Response:
    request.service.hosts.delete_host(host_id)
    return Response(204)


def list_allocations(request: Request[ReservationService]) -> Response:
    """Every host, as the peer lists them: one without a matching reservation has an empty list."""
    found = [encode_matching_slots(request, host, slots) for host, slots in request.service.hosts.allocations()]
    return Response(200, {"allocations": found})


def show_allocation(request: Request[ReservationService], host_id: str) -> Response:
    return Response(200, {"allocation": encode_matching_slots(request, *request.service.hosts.allocation(host_id))})


def list_properties(request: Request[ReservationService]) -> Response:
    detail, everything = (str(request.query.first(name)).lower() in _TRUE for name in ("detail", "all"))
    found = request.service.hosts.properties(everything=everything)
    return Response(200, {"resource_properties": [schema.encode_property(*each, detail=detail) for each in found]})


def update_property(request: Request[ReservationService], name: str) -> Response:
    row = request.service.hosts.set_private(name, private=request.json["private"])
    return Response(200, {"resource_property": schema.encode_property_row(row)})


def list_floating_ips(request: Request[ReservationService]) -> Response:
    return Response(
        200,
        {"floatingips": [schema.encode_floating_ip(each) for each in request.service.floating_ips.list_addresses()]},
    )


def create_floating_ip(request: Request[ReservationService]) -> Response:
    made = request.service.floating_ips.create_address(
        request.json["floating_network_id"], request.json["floating_ip_address"]
    )
    return Response(201, {"floatingip": schema.encode_floating_ip(made)})


def show_floating_ip(request: Request[ReservationService], floatingip_id: str) -> Response:
    return Response(
        200, {"floatingip": schema.encode_floating_ip(request.service.floating_ips.get_address(floatingip_id))}
    )


def delete_floating_ip(request: Request[ReservationService], floatingip_id: str) -> Response:
    request.service.floating_ips.delete_address(floatingip_id)
    return Response(204)


def encode_matching_slots(
    request: Request[ReservationService], host: RegisteredHost, slots: list[LeasedSlot]
) -> dict[str, Json]:
    lease_id, reservation_id = request.query.first("lease_id"), request.query.first("reservation_id")
    wanted = [
        each
        for each in slots
        if lease_id in (None, each.lease_id) and reservation_id in (None, each.slot.reservation_id)
    ]
    return schema.encode_allocation(host, wanted, as_peer=request.version < (1, 1))
