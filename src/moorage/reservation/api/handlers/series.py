"""Recurring leases and maintenance windows, from microversion 1.1 on."""

from moorage.reservation.api.handlers.leases import shown
from moorage.reservation.api.schemas import series as schema
from moorage.reservation.service import ReservationService
from moorage.wire.http import Request, Response


def create(request: Request[ReservationService]) -> Response:
    news = schema.decode(request.json, request.service.now())
    made = request.service.leases.create_series(request.caller, news)
    return Response(201, {"leases": shown(request, made)})


def maintain(request: Request[ReservationService]) -> Response:
    lease = request.service.maintenance.create(request.caller, *schema.decode_maintenance(request.json))
    return Response(201, {"lease": shown(request, [lease])[0]})


def touched(request: Request[ReservationService]) -> Response:
    found = request.service.maintenance.touched(*schema.decode_maintenance(request.json))
    return Response(200, {"leases": schema.encode_touched(found)})
