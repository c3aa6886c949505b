"""An API on a Unix socket. Every process that may open the socket (mode 0600) may call it; it is served nowhere else.

An error is ``{"error": {"code", "message"}}``.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from moorage.core.caller import ANONYMOUS, Caller
from moorage.core.ids import Ids
from moorage.telemetry.trail import Trail
from moorage.wire.app import AppContext, ServiceApi, WsgiApp, build_app
from moorage.wire.errors import Problem
from moorage.wire.http import Response, Route

S = TypeVar("S")


def unix_socket_api(name: str, routes: Sequence[Route[S]]) -> ServiceApi[S]:
    return ServiceApi(name, routes, error_shape=_error, schema_error_message=lambda error: error.message)


def build_unix_socket_app(api: ServiceApi[S], service: S, ids: Ids, trail: Trail | None = None) -> WsgiApp:
    everything = _AllowEverything()
    return build_app(
        api,
        service,
        AppContext(authenticator=everything, policy=everything, ids=ids, trail=trail, reveals_details=True),
    )


class _AllowEverything:
    """Allows every request without authentication."""

    def authenticate(self, headers: Mapping[str, str], environ: Mapping[str, object]) -> Caller:
        return ANONYMOUS

    def allows(self, rule: str, caller: Caller) -> bool:
        return True

    def refusal_message(self, rule: str) -> str:
        return f"{rule} is not allowed"


def _error(problem: Problem) -> Response:
    return Response(problem.status, {"error": {"code": problem.code, "message": problem.message}})
