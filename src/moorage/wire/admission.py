"""Decides, from the head of a request, how much of its body the server reads: by the route and by the caller.

A client that is not authenticated may send a small body to a public route and nothing else; the server does not read
the rest. The server collects JSON and forms completely; a handler reads images while they arrive.

Not here: the response to a rejected body. The application is called without the body, authenticates again and gives it.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from moorage.core import errors as e
from moorage.core.caller import ANONYMOUS, Caller
from moorage.wire.app import ServiceApi
from moorage.wire.http import Route
from moorage.wire.server.request_body import BodyIntake

#: Bound of a body from any client to a public route.
MAX_PUBLIC_BYTES = 64 * 1024

#: Requests that may use the last free threads: health checks, metrics, tokens, and the agents of hosts, which would
#: otherwise count as down. Not those about one server, which may wait for the network service.
_URGENT_TARGET = re.compile(
    r"/[^/?]+/healthcheck(?:\?|\Z)|/identity/|/metrics(?:\?|\Z)|/[^/?]+/agent/v1/(?!hosts/[^/?]+/servers/)"
)

Identify = Callable[[Mapping[str, object]], Caller]


class Admissions:
    """The `BodyAdmission` of all services of a plane, each below its prefix."""

    def __init__(self) -> None:
        self._services: dict[str, _Service] = {}

    def add_service(self, prefix: str, api: ServiceApi[Any], identify: Identify) -> None:
        """`identify` returns the caller of the request with a given WSGI environment; raises `MoorageError`."""
        self._services[prefix] = _Service(api, identify)

    def __call__(self, environ: Mapping[str, object]) -> BodyIntake:
        prefix, _, path = str(environ["PATH_INFO"])[1:].partition("/")
        service = self._services.get(f"/{prefix}")
        return BodyIntake() if service is None else service.body_intake(environ, f"/{path}")

    def is_urgent(self, target: str) -> bool:
        return _URGENT_TARGET.match(target) is not None


class _Service:
    def __init__(self, api: ServiceApi[Any], identify: Identify) -> None:
        self._api = api
        self._identify = identify
        self._routes = [(route.method, _pattern(route.path), route) for route in api.routes]

    def body_intake(self, environ: Mapping[str, object], path: str) -> BodyIntake:
        route = self._route(str(environ["REQUEST_METHOD"]), path)
        if route is None or route.reads == "none":
            return BodyIntake()
        if route.rule is None:
            return BodyIntake(route.max_bytes or MAX_PUBLIC_BYTES)
        try:
            caller = self._identify(environ)
        except e.MoorageError as error:
            return BodyIntake(refusal=error)
        if caller is ANONYMOUS:
            return BodyIntake(MAX_PUBLIC_BYTES)
        if route.reads == "stream":
            return BodyIntake(streams=True, owner=caller.project_id, is_known=True)
        return BodyIntake(route.max_bytes or self._api.max_json_bytes, is_known=True)

    def _route(self, method: str, path: str) -> Route[Any] | None:
        """The first matching route; routes of one path may differ by microversion."""
        return next((route for verb, pattern, route in self._routes if verb == method and pattern.match(path)), None)


def _pattern(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{[^}]*\}", template)
    return re.compile("[^/]+".join(map(re.escape, parts)) + r"\Z")
