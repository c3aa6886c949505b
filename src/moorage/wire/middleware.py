"""WSGI applications around and beside those of the services: CORS, trace spans, and GET /metrics for Prometheus.

`CrossOrigin` tells which web pages of other origins may call these APIs from a browser. Source: WHATWG Fetch, "HTTP
extensions". Details that the standard leaves open are as upstream (measured on Placement 16.0.0): this middleware
answers every OPTIONS request with an empty 200, without a token; a rejected preflight merely lacks the CORS headers;
and ``*`` is never sent, so an origin must be configured by name.

Trace spans, around an application and around a client's transport, are used only if tracing is on.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from wsgiref.types import WSGIEnvironment

from moorage.telemetry.metrics import CONTENT_TYPE, Metrics
from moorage.telemetry.tracing import HEADER, Tracer
from moorage.wire import forwarded
from moorage.wire.app import ROUTE_KEY, WsgiApp
from moorage.wire.transports import ClientResponse, Transport

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


def metrics_app(metrics: Metrics, *, beyond_loopback: bool) -> WsgiApp:
    """The endpoint. It needs no credentials, as Prometheus sends none by default; other machines need
    `beyond_loopback`.

    Metrics name services, routes and background tasks, but never a project, user, provider or consumer.
    """

    def scrape(environ: WSGIEnvironment, start_response: Callable[..., object]) -> Iterable[bytes]:
        if environ.get("PATH_INFO") not in ("", "/"):
            return _text_response(start_response, "404 Not Found", b"metrics are at /metrics\n")
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            return _text_response(start_response, "405 Method Not Allowed", b"metrics are read with GET\n")
        if not (beyond_loopback or _is_local(environ)):
            message = (
                b"metrics are served to this machine only; set [server] metrics = everywhere to serve them to others\n"
            )
            return _text_response(start_response, "403 Forbidden", message)
        return _text_response(start_response, "200 OK", metrics.render(), CONTENT_TYPE)

    return scrape


def _is_local(environ: WSGIEnvironment) -> bool:
    # A request through a proxy comes from another machine, even if the proxy runs here.
    if not environ.keys().isdisjoint(forwarded.FORWARDING_HEADERS):
        return False
    try:
        return ip_address(environ.get("REMOTE_ADDR", "").partition("%")[0]).is_loopback
    except ValueError:
        return False


def _text_response(
    start_response: Callable[..., object], status: str, body: bytes, content_type: str = "text/plain; charset=utf-8"
) -> list[bytes]:
    start_response(status, [("content-type", content_type), ("content-length", str(len(body)))])
    return [body]


#: The traceparent that background work sends: not sampled, so neither side records a trace.
_UNSAMPLED = "00-00000000000000000000000000000001-0000000000000001-00"


def traced_app(app: WsgiApp, service: str, tracer: Tracer) -> WsgiApp:
    """`app` with a span around each request, a child of the caller's span; named by the route, never by the path."""

    def serve(environ: WSGIEnvironment, start_response: Callable[..., object]) -> Iterable[bytes]:
        method = environ["REQUEST_METHOD"]
        about = {"http.request.method": method, "moorage.service": service}
        status = [0]

        def started(line: str, headers: list[tuple[str, str]], *more: object) -> object:
            status[0] = int(line[:3])
            return start_response(line, headers, *more)

        with tracer.span(f"{method} {service}", "server", environ.get("HTTP_TRACEPARENT"), about) as span:
            answer = app(environ, started)
            span.set_attributes(
                http__route=str(environ.get(ROUTE_KEY, "(none)")), http__response__status_code=status[0]
            )
            if status[0] >= 500:
                span.set_error(f"answered {status[0]}")
            return answer

    return serve


class TracedTransport:
    """A transport to `service` that opens a span around each request and passes the trace on."""

    def __init__(self, inner: Transport, service: str, tracer: Tracer) -> None:
        self._inner = inner
        self._service = service
        self._tracer = tracer

    def send(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | Iterable[bytes] | None = None
    ) -> ClientResponse:
        if self._tracer.traceparent() is None:
            return self._inner.send(method, path, {**headers, HEADER: _UNSAMPLED}, body)
        about = {"http.request.method": method, "moorage.peer": self._service}
        with self._tracer.span(f"{method} {self._service}", "client", None, about) as span:
            answer = self._inner.send(method, path, self._with_traceparent(headers), body)
            span.set_attributes(http__response__status_code=answer.status)
            if answer.status >= 500:
                span.set_error(f"answered {answer.status}")
            return answer

    @contextmanager
    def stream(
        self, method: str, path: str, headers: Mapping[str, str]
    ) -> Iterator[tuple[int, Mapping[str, str], Iterator[bytes]]]:
        with self._inner.stream(method, path, self._with_traceparent(headers)) as answer:
            yield answer

    def _with_traceparent(self, headers: Mapping[str, str]) -> dict[str, str]:
        return {**headers, HEADER: self._tracer.traceparent() or _UNSAMPLED}
