"""An OTLP/HTTP receiver on 127.0.0.1, which records what a collector would receive."""

import contextlib
import gzip
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Received:
    service: str  #: ``service.name`` of the process
    instance: str
    trace: str
    id: str
    parent: str
    name: str
    attributes: dict[str, str] = field(hash=False)


@dataclass
class Receiver:
    url: str
    spans: list[Received]

    def traces(self) -> dict[str, list[Received]]:
        found: dict[str, list[Received]] = {}
        for span in list(self.spans):
            found.setdefault(span.trace, []).append(span)
        return found

    def trace_of(self, name: str, route: str) -> list[Received]:
        """The trace that begins with this request; empty if it has not arrived yet."""
        return next(
            (
                spans
                for spans in self.traces().values()
                if any(
                    one.name == name and one.attributes.get("http.route") == route and not one.parent for one in spans
                )
            ),
            [],
        )


@contextlib.contextmanager
def receiving() -> Iterator[Receiver]:
    spans: list[Received] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            spans.extend(_decoded(body))
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_args):
            """Prints nothing: the tests look at the recorded traces."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Receiver(f"http://127.0.0.1:{server.server_port}", spans)
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def _decoded(body: bytes) -> Iterator[Received]:
    for of_process in ExportTraceServiceRequest.FromString(body).resource_spans:
        process = _attributes(of_process.resource.attributes)
        for scope in of_process.scope_spans:
            for one in scope.spans:
                yield Received(
                    process["service.name"],
                    process["service.instance.id"],
                    one.trace_id.hex(),
                    one.span_id.hex(),
                    one.parent_span_id.hex(),
                    one.name,
                    _attributes(one.attributes),
                )


def _attributes(pairs) -> dict[str, str]:
    return {pair.key: pair.value.string_value or str(pair.value.int_value) for pair in pairs}
