"""Offers, holds, rehearsals and prolongations, from microversion 1.1 on."""

from collections.abc import Mapping

from moorage.reservation.api.handlers.leases import shown
from moorage.reservation.api.schemas import availability as schema
from moorage.reservation.api.schemas import lease as lease_schema
from moorage.reservation.api.schemas.common import word
from moorage.reservation.api.schemas.series import decode as decode_series
from moorage.reservation.service import ReservationService
from moorage.wire.http import Request, Response


def find(request: Request[ReservationService]) -> Response:
    return Response(200, schema.encode(request.service.offers.find(request.caller, schema.decode(request.json))))


def hold(request: Request[ReservationService]) -> Response:
    made = request.service.offers.hold(request.caller, schema.decode(request.json), request.json["reservations"])
    return Response(201, {"hold": schema.encode_hold(made)})


def holds(request: Request[ReservationService]) -> Response:
    return Response(200, {"holds": [schema.encode_hold(each) for each in request.service.offers.holds(request.caller)]})


def show_hold(request: Request[ReservationService], hold_id: str) -> Response:
    return Response(200, {"hold": schema.encode_hold(request.service.offers.show_hold(request.caller, hold_id))})


def release(request: Request[ReservationService], hold_id: str) -> Response:
    request.service.offers.release(request.caller, hold_id)
    return Response(204)


def create_lease(request: Request[ReservationService]) -> Response:
    """As before 1.1, or what a hold has."""
    if "hold_id" in request.json:
        schema.FROM_HOLD.validate(request.json, word)
        held, taking = request.service.offers.taking(request.caller, request.json["hold_id"])
        new = lease_schema.decode_create(schema.lease_from(request.json, held))
        lease = request.service.leases.create(request.caller, new, taking)
    else:
        lease_schema.CREATE_OURS.validate(request.json, word)
        lease = request.service.leases.create(request.caller, lease_schema.decode_create(request.json))
    return Response(201, {"lease": shown(request, [lease])[0]})


def rehearse_create(request: Request[ReservationService]) -> Response:
    (planned,) = request.service.offers.rehearse_create(request.caller, [lease_schema.decode_create(request.json)])
    return Response(200, {"lease": schema.encode_draft(*planned, _names(request))})


def rehearse_series(request: Request[ReservationService]) -> Response:
    planned = request.service.offers.rehearse_create(request.caller, decode_series(request.json, request.service.now()))
    names = _names(request)
    return Response(200, {"leases": [schema.encode_draft(*each, names) for each in planned]})


def rehearse_update(request: Request[ReservationService], lease_id: str) -> Response:
    change, plan = request.service.offers.rehearse_update(
        request.caller, lease_id, lease_schema.decode_update(request.json)
    )
    return Response(200, {"lease": schema.encode_change(change, plan, _names(request))})


def prolongation(request: Request[ReservationService], lease_id: str) -> Response:
    found = request.service.offers.prolongation(request.caller, lease_id)
    return Response(200, {"prolongation": schema.encode_prolongation(found)})


def _names(request: Request[ReservationService]) -> Mapping[int, str] | None:
    """Which host is which is the operators' business, as it is in Nova."""
    return request.service.offers.names_of_hosts() if request.caller.is_admin else None
