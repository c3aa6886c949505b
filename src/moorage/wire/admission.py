"""How much of a request's body is taken, decided from its head: by the route, and by who sends it.

A client that has not shown who it is may send a small body to a route that is for everybody, and nothing else; what it sends
beyond that is not read. JSON and forms are collected by the server; images are read while they come.

Not here: answers to what is refused. The application gives them; it is called without a body, and authenticates again.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from moorage.core import errors as e
from moorage.core.caller import ANONYMOUS, Caller
from moorage.wire.app import ServiceApi
from moorage.wire.http import Route
from moorage.wire.server.request_body import BodyIntake

#: From anybody, to routes that are for everybody.
MAX_PUBLIC_BYTES = 64 * 1024

#: The last threads are for these: what proxies and people look at, tokens, and hosts that must not count as down.
_URGENT_TARGET = re.compile(r"/[^/?]+/healthcheck(?:\?|\Z)|/identity/|/metrics(?:\?|\Z)|/[^/?]+/agent/v1/")

Identify = Callable[[Mapping[str, Any]], Caller]


class Admissions:
    """An `Admission` for the services of a plane, each below its prefix."""

    def __init__(self) -> None:
        self._services: dict[str, _Service] = {}

    def add(self, prefix: str, api: ServiceApi[Any], identify: Identify) -> None:
        """`identify`: who sent the request with this WSGI environment; raises `MoorageError`."""
        self._services[prefix] = _Service(api, identify)

    def __call__(self, environ: Mapping[str, Any]) -> BodyIntake:
        prefix, _, path = environ["PATH_INFO"][1:].partition("/")
        service = self._services.get(f"/{prefix}")
        return BodyIntake() if service is None else service.intake(environ, f"/{path}")

    def is_urgent(self, target: str) -> bool:
        return _URGENT_TARGET.match(target) is not None


class _Service:
    def __init__(self, api: ServiceApi[Any], identify: Identify) -> None:
        self._api = api
        self._identify = identify
        self._routes = [(route.method, _pattern(route.path), route) for route in api.routes]

    def intake(self, environ: Mapping[str, Any], path: str) -> BodyIntake:
        route = self._route(environ["REQUEST_METHOD"], path)
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
        """Of several that differ by version the first."""
        return next((route for verb, pattern, route in self._routes if verb == method and pattern.match(path)), None)


def _pattern(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{[^}]*\}", template)
    return re.compile("[^/]+".join(map(re.escape, parts)) + r"\Z")
