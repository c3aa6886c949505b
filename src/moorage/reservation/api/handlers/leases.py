from collections.abc import Sequence
from typing import Any

from moorage.reservation.api.schemas import lease as schema
from moorage.reservation.model.leases import Lease
from moorage.reservation.service import ReservationService
from moorage.wire.http import Request, Response


def shown(request: Request[ReservationService], leases: Sequence[Lease]) -> list[dict[str, Any]]:
    """As the version of the request has them."""
    if request.version < (1, 1):
        return [schema.encode(lease) for lease in leases]
    done = request.service.lists.done_before_end(leases)
    return [schema.encode_ours(lease, done[lease.id], to_admin=request.caller.is_admin) for lease in leases]


def index(request: Request[ReservationService]) -> Response:
    return Response(200, {"leases": shown(request, request.service.leases.index(request.caller))})


def create(request: Request[ReservationService]) -> Response:
    """Before 1.1; from then on `offers.create_lease`."""
    lease = request.service.leases.create(request.caller, schema.decode_create(request.json, peers_only=True))
    return Response(201, {"lease": schema.encode(lease)})


def show(request: Request[ReservationService], lease_id: str) -> Response:
    return Response(200, {"lease": shown(request, [request.service.leases.show(request.caller, lease_id)])[0]})


def update(request: Request[ReservationService], lease_id: str) -> Response:
    lease = request.service.leases.update(request.caller, lease_id, schema.decode_update(request.json))
    return Response(200, {"lease": shown(request, [lease])[0]})


def delete(request: Request[ReservationService], lease_id: str) -> Response:
    request.service.leases.delete(request.caller, lease_id)
    return Response(204)
