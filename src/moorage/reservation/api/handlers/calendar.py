"""The calendar, from microversion 1.1 on."""

from moorage.reservation.api.schemas import calendar as schema
from moorage.reservation.api.schemas.listing import asked
from moorage.reservation.model import ical
from moorage.reservation.service import ReservationService
from moorage.wire.http import Request, Response


def show(request: Request[ReservationService]) -> Response:
    view = request.service.agenda.view(request.caller, *schema.decode(asked(request.query, schema.VIEW)))
    return Response(200, {"calendar": schema.encode(view)})


def feed(request: Request[ReservationService]) -> Response:
    return Response(200, ical.feed(request.service.agenda.feed(request.caller)), content_type=ical.CONTENT_TYPE)
