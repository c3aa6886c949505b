"""Records spans with OpenTelemetry and exports them with OTLP over HTTP. Imported only if tracing is on.

A separate thread exports them from a bounded queue: if the collector is down, spans are lost, but no request waits.
"""

import contextlib
from collections.abc import Iterator, Mapping

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from moorage.telemetry.tracing import HEADER, Kind

_KINDS = {
    "server": SpanKind.SERVER,
    "client": SpanKind.CLIENT,
    "consumer": SpanKind.CONSUMER,
    "internal": SpanKind.INTERNAL,
}
_PROPAGATOR = TraceContextTextMapPropagator()


class OtlpTracer:
    """`endpoint`: URL of a receiver, without ``/v1/traces``. `sample`: the fraction of traces to record, 0 to 1."""

    def __init__(
        self, endpoint: str, *, service: str, instance: str, sample: float = 1.0, timeout_s: float = 5.0
    ) -> None:
        resource = Resource.create({"service.name": service, "service.instance.id": instance})
        self._provider = TracerProvider(resource=resource, sampler=ParentBased(TraceIdRatioBased(sample)))
        exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=timeout_s)
        self._provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=1000))
        self._tracer = self._provider.get_tracer("moorage")

    @contextlib.contextmanager
    def span(
        self, name: str, kind: Kind, parent: str | None, attributes: Mapping[str, str | int]
    ) -> "Iterator[_OpenSpan]":
        context = None if parent is None else _PROPAGATOR.extract({HEADER: parent})
        with self._tracer.start_as_current_span(
            name, context=context, kind=_KINDS[kind], attributes=dict(attributes)
        ) as opened:
            yield _OpenSpan(opened)

    def traceparent(self) -> str | None:
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        return carrier.get(HEADER)

    def trace_id(self) -> str | None:
        context = trace.get_current_span().get_span_context()
        return f"{context.trace_id:032x}" if context.is_valid else None

    def close(self) -> None:
        """Export the queued spans, for some seconds at most."""
        self._provider.shutdown()


class _OpenSpan:
    def __init__(self, opened: trace.Span) -> None:
        self._opened = opened

    def set_attributes(self, **attributes: str | int) -> None:
        for name, value in attributes.items():
            self._opened.set_attribute(name.replace("__", "."), value)

    def set_error(self, why: str) -> None:
        self._opened.set_status(Status(StatusCode.ERROR, why))
