from moorage.reservation.api.schemas import floating_ip as schema
from moorage.reservation.service import ReservationService
from moorage.wire.http import Request, Response


def index(request: Request[ReservationService]) -> Response:
    return Response(200, {"floatingips": [schema.encode(each) for each in request.service.floating_ips.index()]})


def create(request: Request[ReservationService]) -> Response:
    made = request.service.floating_ips.create(request.json["floating_network_id"], request.json["floating_ip_address"])
    return Response(201, {"floatingip": schema.encode(made)})


def show(request: Request[ReservationService], floatingip_id: str) -> Response:
    return Response(200, {"floatingip": schema.encode(request.service.floating_ips.show(floatingip_id))})


def delete(request: Request[ReservationService], floatingip_id: str) -> Response:
    request.service.floating_ips.delete(floatingip_id)
    return Response(204)
