"""Offers, holds, rehearsals and prolongations, from microversion 1.1 on."""

from collections.abc import Mapping

from moorage.reservation.api.handlers.leases import shown
from moorage.reservation.api.schemas import availability as schema
from moorage.reservation.api.schemas import lease as lease_schema
from moorage.reservation.api.schemas.common import word
from moorage.reservation.api.schemas.series import decode as decode_series
from moorage.reservation.service import ReservationService
from moorage.wire.http import Call, Reply


def find(call: Call[ReservationService]) -> Reply:
    return Reply(200, schema.encode(call.service.offers.find(call.caller, schema.decode(call.json))))


def hold(call: Call[ReservationService]) -> Reply:
    made = call.service.offers.hold(call.caller, schema.decode(call.json), call.json["reservations"])
    return Reply(201, {"hold": schema.encode_hold(made)})


def holds(call: Call[ReservationService]) -> Reply:
    return Reply(200, {"holds": [schema.encode_hold(each) for each in call.service.offers.holds(call.caller)]})


def show_hold(call: Call[ReservationService], hold_id: str) -> Reply:
    return Reply(200, {"hold": schema.encode_hold(call.service.offers.show_hold(call.caller, hold_id))})


def release(call: Call[ReservationService], hold_id: str) -> Reply:
    call.service.offers.release(call.caller, hold_id)
    return Reply(204)


def create_lease(call: Call[ReservationService]) -> Reply:
    """As before 1.1, or what a hold has."""
    if "hold_id" in call.json:
        schema.FROM_HOLD.check(call.json, word)
        held, taking = call.service.offers.taking(call.caller, call.json["hold_id"])
        new = lease_schema.decode_create(schema.lease_from(call.json, held))
        lease = call.service.leases.create(call.caller, new, taking)
    else:
        lease_schema.CREATE_OURS.check(call.json, word)
        lease = call.service.leases.create(call.caller, lease_schema.decode_create(call.json))
    return Reply(201, {"lease": shown(call, [lease])[0]})


def rehearse_create(call: Call[ReservationService]) -> Reply:
    (planned,) = call.service.offers.rehearse_create(call.caller, [lease_schema.decode_create(call.json)])
    return Reply(200, {"lease": schema.encode_draft(*planned, _names(call))})


def rehearse_series(call: Call[ReservationService]) -> Reply:
    planned = call.service.offers.rehearse_create(call.caller, decode_series(call.json, call.service.now()))
    names = _names(call)
    return Reply(200, {"leases": [schema.encode_draft(*each, names) for each in planned]})


def rehearse_update(call: Call[ReservationService], lease_id: str) -> Reply:
    change, plan = call.service.offers.rehearse_update(call.caller, lease_id, lease_schema.decode_update(call.json))
    return Reply(200, {"lease": schema.encode_change(change, plan, _names(call))})


def prolongation(call: Call[ReservationService], lease_id: str) -> Reply:
    found = call.service.offers.prolongation(call.caller, lease_id)
    return Reply(200, {"prolongation": schema.encode_prolongation(found)})


def _names(call: Call[ReservationService]) -> Mapping[int, str] | None:
    """Which host is which is the operators' business, as it is in Nova."""
    return call.service.offers.names_of_hosts() if call.caller.is_admin else None
