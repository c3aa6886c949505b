"""Which web pages of other origins may call us from a browser (CORS).

Source: WHATWG Fetch, "HTTP extensions". The details that the standard leaves open are as the peers have them
(measured on Placement 16.0.0): every OPTIONS is answered here, without a token, 200 and empty; what is refused merely
lacks the headers; and no ``*``, so a page is let in by name or not at all.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from moorage.wire.app import WsgiApp

_METHODS = frozenset({"GET", "PUT", "POST", "DELETE", "PATCH"})
#: What a page may read of an answer, beyond what every page may.
_EXPOSED = "X-Auth-Token,X-Openstack-Request-Id,X-Subject-Token,X-Service-Token,OpenStack-API-Version"
#: May always be sent.
_SIMPLE_HEADERS = frozenset({"accept", "accept-language", "cache-control", "content-language", "content-type"})
_MAX_AGE_S = 3600

Headers = list[tuple[str, str]]


@dataclass(frozen=True)
class CrossOrigin:
    """`origins` as browsers send them (``https://console.example.org``); `headers` that pages may send, lower case."""

    origins: frozenset[str]
    headers: frozenset[str]

    def wrap(self, app: WsgiApp) -> WsgiApp:
        def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            origin = environ.get("HTTP_ORIGIN", "")
            if environ["REQUEST_METHOD"] == "OPTIONS":
                start_response("200 OK", [("content-length", "0"), *self._preflight(origin, environ)])
                return [b""]
            if origin not in self.origins:
                return app(environ, start_response)

            def start(status: str, headers: Headers, *exc_info: Any) -> Any:
                return start_response(status, _readable(origin, headers), *exc_info)

            return app(environ, start)

        return application

    def _preflight(self, origin: str, environ: Mapping[str, Any]) -> Headers:
        method = environ.get("HTTP_ACCESS_CONTROL_REQUEST_METHOD", "")
        asked = [name.strip() for name in environ.get("HTTP_ACCESS_CONTROL_REQUEST_HEADERS", "").split(",")]
        wanted = [name for name in asked if name]
        if origin not in self.origins or method not in _METHODS:
            return []
        if not {name.lower() for name in wanted} <= self.headers | _SIMPLE_HEADERS:
            return []
        allowed = [
            ("vary", "Origin"),
            *_allowed(origin),
            ("access-control-max-age", str(_MAX_AGE_S)),
            ("access-control-allow-methods", method),
        ]
        return allowed + ([("access-control-allow-headers", ",".join(wanted))] if wanted else [])


def _allowed(origin: str) -> Headers:
    return [("access-control-allow-origin", origin), ("access-control-allow-credentials", "true")]


def _readable(origin: str, headers: Headers) -> Headers:
    """`headers` of an answer, for a page of `origin`; no cache may give them to a page of another one."""
    varying = [value for name, value in headers if name.lower() == "vary"]
    others = [(name, value) for name, value in headers if name.lower() != "vary"]
    return [
        *others,
        ("vary", ",".join([*varying, "Origin"])),
        *_allowed(origin),
        ("access-control-expose-headers", _EXPOSED),
    ]
