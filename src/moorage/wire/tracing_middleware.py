"""Trace spans around a service's application and around a client's transport. Used only if tracing is on."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from wsgiref.types import WSGIEnvironment

from moorage.telemetry.tracing import HEADER, Tracer
from moorage.wire.app import ROUTE_KEY, WsgiApp
from moorage.wire.transports import ClientResponse, Transport

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
