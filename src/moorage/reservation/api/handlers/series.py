"""Recurring leases and maintenance windows, from microversion 1.1 on."""

from moorage.reservation.api.handlers.leases import shown
from moorage.reservation.api.schemas import series as schema
from moorage.reservation.service import ReservationService
from moorage.wire.http import Call, Reply


def create(call: Call[ReservationService]) -> Reply:
    news = schema.decode(call.json, call.service.now())
    made = call.service.leases.create_series(call.caller, news)
    return Reply(201, {"leases": shown(call, made)})


def maintain(call: Call[ReservationService]) -> Reply:
    lease = call.service.maintenance.create(call.caller, *schema.decode_maintenance(call.json))
    return Reply(201, {"lease": shown(call, [lease])[0]})


def touched(call: Call[ReservationService]) -> Reply:
    found = call.service.maintenance.touched(*schema.decode_maintenance(call.json))
    return Reply(200, {"leases": schema.encode_touched(found)})
