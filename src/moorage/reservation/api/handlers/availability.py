"""Handlers of offers, holds, dry runs, prolongations and the calendar, from microversion 1.1 on."""

from collections.abc import Mapping

from moorage.reservation.api.handlers.leases import encode_leases
from moorage.reservation.api.schemas import availability as schema
from moorage.reservation.api.schemas import lease as lease_schema
from moorage.reservation.api.schemas.common import peer_wording
from moorage.reservation.api.schemas.lease import decode_series
from moorage.reservation.api.schemas.listing import checked_query
from moorage.reservation.service import ReservationService
from moorage.wire.http import Request, Response


def find_offers(request: Request[ReservationService]) -> Response:
    return Response(
        200,
        schema.encode_offers(
            request.service.availability.find_offers(request.caller, schema.decode_search(request.json))
        ),
    )


def create_hold(request: Request[ReservationService]) -> Response:
    made = request.service.availability.create_hold(
        request.caller, schema.decode_search(request.json), request.json["reservations"]
    )
    return Response(201, {"hold": schema.encode_hold(made)})


def list_holds(request: Request[ReservationService]) -> Response:
    return Response(
        200, {"holds": [schema.encode_hold(each) for each in request.service.availability.list_holds(request.caller)]}
    )


def show_hold(request: Request[ReservationService], hold_id: str) -> Response:
    return Response(200, {"hold": schema.encode_hold(request.service.availability.show_hold(request.caller, hold_id))})


def release_hold(request: Request[ReservationService], hold_id: str) -> Response:
    request.service.availability.release_hold(request.caller, hold_id)
    return Response(204)


def create_lease(request: Request[ReservationService]) -> Response:
    """Create a lease from dates and reservations as before 1.1, or from a hold."""
    if "hold_id" in request.json:
        schema.FROM_HOLD.validate(request.json, peer_wording)
        held, conversion = request.service.availability.convert_hold(request.caller, request.json["hold_id"])
        new = lease_schema.decode_create(schema.lease_from(request.json, held))
        lease = request.service.leases.create_lease(request.caller, new, conversion)
    else:
        lease_schema.CREATE_OURS.validate(request.json, peer_wording)
        lease = request.service.leases.create_lease(request.caller, lease_schema.decode_create(request.json))
    return Response(201, {"lease": encode_leases(request, [lease])[0]})


def rehearse_create(request: Request[ReservationService]) -> Response:
    (planned,) = request.service.availability.rehearse_create(
        request.caller, [lease_schema.decode_create(request.json)]
    )
    return Response(200, {"lease": schema.encode_draft(*planned, _names(request))})


def rehearse_series(request: Request[ReservationService]) -> Response:
    planned = request.service.availability.rehearse_create(
        request.caller, decode_series(request.json, request.service.now())
    )
    names = _names(request)
    return Response(200, {"leases": [schema.encode_draft(*each, names) for each in planned]})


def rehearse_update(request: Request[ReservationService], lease_id: str) -> Response:
    change, plan = request.service.availability.rehearse_update(
        request.caller, lease_id, lease_schema.decode_update(request.json)
    )
    return Response(200, {"lease": schema.encode_change(change, plan, _names(request))})


def show_prolongation(request: Request[ReservationService], lease_id: str) -> Response:
    found = request.service.availability.prolongation(request.caller, lease_id)
    return Response(200, {"prolongation": schema.encode_prolongation(found)})


def show_calendar(request: Request[ReservationService]) -> Response:
    view = request.service.calendar.view(
        request.caller, *schema.decode_calendar_query(checked_query(request.query, schema.CALENDAR_QUERY))
    )
    return Response(200, {"calendar": schema.encode_calendar(view)})


def _names(request: Request[ReservationService]) -> Mapping[int, str] | None:
    """{host id: name} for administrators, None for others: as in Nova, tenants do not see host names."""
    return request.service.availability.host_names() if request.caller.is_admin else None
