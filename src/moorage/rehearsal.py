"""Rehearsals: a plane whose clock an administrator can move forward, to see leases start and end.

The clock's offset is kept in ``clock`` in the state directory, and ``/moorage/v1/clock`` is its API. The wiring builds
it only with ``[plane] clock = adjustable``; production planes have none of it. The commands `moorage clock` and
`moorage status` use it, too.

Not here: virtual time for tests (`moorage.core.clock`).
"""

from datetime import timedelta
from pathlib import Path

from moorage.core.clock import AdjustableClock
from moorage.core.errors import StartError
from moorage.durable import write_durably
from moorage.identity.policy import RuleTable, admin, anyone
from moorage.wire.app import ServiceApi
from moorage.wire.body import Schema
from moorage.wire.errors import Problem
from moorage.wire.http import Request, Response, Route


def open_clock(state: Path) -> AdjustableClock:
    """The clock with its saved offset; none at the first start. Raises `StartError` for an invalid file."""
    path = state / "clock"

    def save(offset: timedelta) -> None:
        write_durably(path, f"{offset.total_seconds()}\n".encode("ascii"))

    try:
        clock = AdjustableClock(timedelta(seconds=float(path.read_text(encoding="ascii"))), save)
        clock.now()  # raises if the offset is out of range
    except FileNotFoundError:
        clock = AdjustableClock(save=save)
    except (OSError, ValueError, OverflowError) as error:
        raise StartError(
            f"{path} must contain the clock's offset in seconds: {error}; delete it to return to the machine's time"
        ) from error
    return clock


#: Maximum jump: ten years, longer than any lease to rehearse.
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
