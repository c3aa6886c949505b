"""Limits of projects, from microversion 1.1 on."""

from moorage.reservation.api.schemas import limit as schema
from moorage.reservation.model.limits import ProjectLimits
from moorage.reservation.service import ReservationService
from moorage.wire.http import Call, Reply


def own(call: Call[ReservationService]) -> Reply:
    return show(call, call.caller.project_id)


def show(call: Call[ReservationService], project_id: str) -> Reply:
    return _reply(call, project_id, call.service.enforcement.limits_of(project_id))


def update(call: Call[ReservationService], project_id: str) -> Reply:
    return _reply(call, project_id, call.service.enforcement.set_limits(project_id, schema.decode(call.json)))


def _reply(call: Call[ReservationService], project_id: str, limits: ProjectLimits) -> Reply:
    return Reply(200, schema.encode(project_id, limits, call.service.enforcement.period))
