from moorage.reservation.schemas import lease as schema
from moorage.reservation.service import ReservationService
from moorage.wire.call import Call, Reply


def index(call: Call[ReservationService]) -> Reply:
    return Reply(200, {"leases": [schema.encode(lease) for lease in call.service.leases.index(call.caller)]})


def create(call: Call[ReservationService]) -> Reply:
    lease = call.service.leases.create(call.caller, schema.decode_create(call.json))
    return Reply(201, {"lease": schema.encode(lease)})


def show(call: Call[ReservationService], lease_id: str) -> Reply:
    return Reply(200, {"lease": schema.encode(call.service.leases.show(call.caller, lease_id))})


def update(call: Call[ReservationService], lease_id: str) -> Reply:
    lease = call.service.leases.update(call.caller, lease_id, schema.decode_update(call.json))
    return Reply(200, {"lease": schema.encode(lease)})


def delete(call: Call[ReservationService], lease_id: str) -> Reply:
    call.service.leases.delete(call.caller, lease_id)
    return Reply(204)
