"""Limits of projects, from microversion 1.1 on."""

from moorage.reservation.api.schemas import limit as schema
from moorage.reservation.model.limits import ProjectLimits
from moorage.reservation.service import ReservationService
from moorage.wire.http import Request, Response


def own(request: Request[ReservationService]) -> Response:
    return show(request, request.caller.project_id)


def show(request: Request[ReservationService], project_id: str) -> Response:
    return _reply(request, project_id, request.service.enforcement.limits_of(project_id))


def update(request: Request[ReservationService], project_id: str) -> Response:
    return _reply(request, project_id, request.service.enforcement.set_limits(project_id, schema.decode(request.json)))


def _reply(request: Request[ReservationService], project_id: str, limits: ProjectLimits) -> Response:
    return Response(200, schema.encode(project_id, limits, request.service.enforcement.period))
