"""An API on a socket of this machine: whoever may open the socket (mode 0600) may ask, and it is served nowhere else.

An error is ``{"error": {"code", "message"}}``.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from moorage.core.caller import ANONYMOUS, Caller
from moorage.core.ids import Ids
from moorage.telemetry.trail import Trail
from moorage.wire.app import ServiceApi, Surroundings, WsgiApp, build
from moorage.wire.errors import Problem
from moorage.wire.http import Response, Route

S = TypeVar("S")


def local_api(name: str, routes: Sequence[Route[S]]) -> ServiceApi[S]:
    return ServiceApi(name, routes, error_shape=_error, word_schema_error=lambda error: error.message)


def build_local(api: ServiceApi[S], service: S, ids: Ids, trail: Trail | None = None) -> WsgiApp:
    everything = _Everything()
    return build(
        api, service, Surroundings(authenticator=everything, policy=everything, ids=ids, trail=trail, tells_all=True)
    )


class _Everything:
    """Asks nobody who they are, and allows it."""

    def authenticate(self, headers: Mapping[str, str], environ: Mapping[str, object]) -> Caller:
        return ANONYMOUS

    def allows(self, rule: str, caller: Caller) -> bool:
        return True

    def refusal(self, rule: str) -> str:
        return f"{rule} is not allowed"


def _error(problem: Problem) -> Response:
    return Response(problem.status, {"error": {"code": problem.code, "message": problem.message}})
