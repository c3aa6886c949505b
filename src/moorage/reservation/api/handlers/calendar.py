"""The calendar, from microversion 1.1 on."""

from moorage.reservation.api.schemas import calendar as schema
from moorage.reservation.api.schemas.listing import asked
from moorage.reservation.model import ical
from moorage.reservation.service import ReservationService
from moorage.wire.http import Call, Reply


def show(call: Call[ReservationService]) -> Reply:
    view = call.service.agenda.view(call.caller, *schema.decode(asked(call.query, schema.VIEW)))
    return Reply(200, {"calendar": schema.encode(view)})


def feed(call: Call[ReservationService]) -> Reply:
    return Reply(200, ical.feed(call.service.agenda.feed(call.caller)), content_type=ical.CONTENT_TYPE)
