from moorage.reservation.api.schemas import floating_ip as schema
from moorage.reservation.service import ReservationService
from moorage.wire.http import Call, Reply


def index(call: Call[ReservationService]) -> Reply:
    return Reply(200, {"floatingips": [schema.encode(each) for each in call.service.floating_ips.index()]})


def create(call: Call[ReservationService]) -> Reply:
    made = call.service.floating_ips.create(call.json["floating_network_id"], call.json["floating_ip_address"])
    return Reply(201, {"floatingip": schema.encode(made)})


def show(call: Call[ReservationService], floatingip_id: str) -> Reply:
    return Reply(200, {"floatingip": schema.encode(call.service.floating_ips.show(floatingip_id))})


def delete(call: Call[ReservationService], floatingip_id: str) -> Reply:
    call.service.floating_ips.delete(floatingip_id)
    return Reply(204)
