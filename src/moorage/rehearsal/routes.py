"""``/moorage``: the plane's clock. It is served only where ``[plane] clock = adjustable``."""

from moorage.core.clock import AdjustableClock
from moorage.identity.policy import RuleTable, admin, anyone
from moorage.wire.app import ServiceApi
from moorage.wire.body import Schema
from moorage.wire.errors import Problem
from moorage.wire.http import Request, Response, Route

#: A jump may be as long as the longest lease that somebody rehearses.
MAX_ADVANCE_S = 10 * 365 * 86400

_ADVANCE = Schema(
    {
        "type": "object",
        "properties": {"advance_s": {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_ADVANCE_S}},
        "required": ["advance_s"],
        "additionalProperties": False,
    }
)


def show_clock(request: Request[AdjustableClock]) -> Response:
    return Response(body={"now": request.service.now().isoformat()})


def advance_clock(request: Request[AdjustableClock]) -> Response:
    request.service.advance(request.json["advance_s"])
    return show_clock(request)


def _error(problem: Problem) -> Response:
    return Response(
        problem.status, {"message": problem.message, "code": problem.code, "request_id": problem.request_id}
    )


RULES = RuleTable({"moorage:clock:get": anyone, "moorage:clock:advance": admin})

API: ServiceApi[AdjustableClock] = ServiceApi(
    name="rehearsal",
    routes=(
        Route("GET", "/v1/clock", show_clock, "moorage:clock:get"),
        Route("POST", "/v1/clock", advance_clock, "moorage:clock:advance", schema=_ADVANCE),
    ),
    error_shape=_error,
    schema_error_message=lambda error: f"{error.json_path}: {error.message}",
)
