"""CORS: which web pages of other origins may call these APIs from a browser.

Source: WHATWG Fetch, "HTTP extensions". Details that the standard leaves open are as upstream (measured on Placement
16.0.0): this middleware answers every OPTIONS request with an empty 200, without a token; a rejected preflight merely
lacks the CORS headers; and ``*`` is never sent, so an origin must be configured by name.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from wsgiref.types import WSGIEnvironment

from moorage.wire.app import WsgiApp

_METHODS = frozenset({"GET", "PUT", "POST", "DELETE", "PATCH"})
#: Response headers that a page may read in addition to the ones that CORS always exposes.
_EXPOSED = "X-Auth-Token,X-Openstack-Request-Id,X-Subject-Token,X-Service-Token,OpenStack-API-Version"
#: Request headers that a page may always send.
_SIMPLE_HEADERS = frozenset({"accept", "accept-language", "cache-control", "content-language", "content-type"})
_MAX_AGE_S = 3600

Headers = list[tuple[str, str]]


@dataclass(frozen=True)
class CrossOrigin:
    """`origins` as browsers send them (``https://console.example.org``); `headers` that pages may send, lower case."""

    origins: frozenset[str]
    headers: frozenset[str]

    def wrap(self, app: WsgiApp) -> WsgiApp:
        def application(environ: WSGIEnvironment, start_response: Callable[..., object]) -> Iterable[bytes]:
            origin = environ.get("HTTP_ORIGIN", "")
            if environ["REQUEST_METHOD"] == "OPTIONS":
                start_response("200 OK", [("content-length", "0"), *self._preflight(origin, environ)])
                return [b""]
            if origin not in self.origins:
                return app(environ, start_response)

            def start(status: str, headers: Headers, *exc_info: object) -> object:
                return start_response(status, _with_cors_headers(origin, headers), *exc_info)

            return app(environ, start)

        return application

    def _preflight(self, origin: str, environ: Mapping[str, object]) -> Headers:
        method = str(environ.get("HTTP_ACCESS_CONTROL_REQUEST_METHOD", ""))
        asked = [name.strip() for name in str(environ.get("HTTP_ACCESS_CONTROL_REQUEST_HEADERS", "")).split(",")]
        wanted = [name for name in asked if name]
        if origin not in self.origins or method not in _METHODS:
            return []
        if not {name.lower() for name in wanted} <= self.headers | _SIMPLE_HEADERS:
            return []
        allowed = [
            ("vary", "Origin"),
            *_allow_headers(origin),
            ("access-control-max-age", str(_MAX_AGE_S)),
            ("access-control-allow-methods", method),
        ]
        return allowed + ([("access-control-allow-headers", ",".join(wanted))] if wanted else [])


def _allow_headers(origin: str) -> Headers:
    return [("access-control-allow-origin", origin), ("access-control-allow-credentials", "true")]


def _with_cors_headers(origin: str, headers: Headers) -> Headers:
    """`headers` of a response for a page of `origin`. ``Vary: Origin`` tells caches that other origins differ."""
    varying = [value for name, value in headers if name.lower() == "vary"]
    others = [(name, value) for name, value in headers if name.lower() != "vary"]
    return [
        *others,
        ("vary", ",".join([*varying, "Origin"])),
        *_allow_headers(origin),
        ("access-control-expose-headers", _EXPOSED),
    ]
