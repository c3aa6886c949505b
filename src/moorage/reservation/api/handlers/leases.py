from collections.abc import Sequence
from typing import Any

from moorage.reservation.api.schemas import lease as schema
from moorage.reservation.model.leases import Lease
from moorage.reservation.service import ReservationService
from moorage.wire.http import Call, Reply


def shown(call: Call[ReservationService], leases: Sequence[Lease]) -> list[dict[str, Any]]:
    """As the version of the request has them."""
    if call.version < (1, 1):
        return [schema.encode(lease) for lease in leases]
    done = call.service.lists.done_before_end(leases)
    return [schema.encode_ours(lease, done[lease.id], to_admin=call.caller.is_admin) for lease in leases]


def index(call: Call[ReservationService]) -> Reply:
    return Reply(200, {"leases": shown(call, call.service.leases.index(call.caller))})


def create(call: Call[ReservationService]) -> Reply:
    """Before 1.1; from then on `offers.create_lease`."""
    lease = call.service.leases.create(call.caller, schema.decode_create(call.json, peers_only=True))
    return Reply(201, {"lease": schema.encode(lease)})


def show(call: Call[ReservationService], lease_id: str) -> Reply:
    return Reply(200, {"lease": shown(call, [call.service.leases.show(call.caller, lease_id)])[0]})


def update(call: Call[ReservationService], lease_id: str) -> Reply:
    lease = call.service.leases.update(call.caller, lease_id, schema.decode_update(call.json))
    return Reply(200, {"lease": shown(call, [lease])[0]})


def delete(call: Call[ReservationService], lease_id: str) -> Reply:
    call.service.leases.delete(call.caller, lease_id)
    return Reply(204)
