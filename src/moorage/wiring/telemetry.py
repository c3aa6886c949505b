"""Builds the tracer from [tracing] and the audit trail from [trail]."""

import contextlib
import socket

from sqlalchemy import Engine, event

from moorage.config import Config
from moorage.core.clock import Clock
from moorage.core.errors import StartError
from moorage.telemetry import tracing
from moorage.telemetry.metrics import Metrics
from moorage.telemetry.trail import MAX_ENTRY_BYTES, SyslogSink, Trail, TrailFile, TrailSink


def open_tracer(config: Config) -> "tracing.Tracer | None":
    """The tracer; None if tracing is off. Raises `StartError`."""
    options = config.tracing
    if not options.endpoint:
        return None
    if not 0 <= options.sample <= 1:
        raise StartError(f"{config.source}: [tracing] sample is {options.sample:g}; it takes 0 to 1")
    try:
        from moorage.telemetry.otel import OtlpTracer
    except ImportError as error:
        raise StartError(f"{config.source}: [tracing] needs OpenTelemetry: pip install 'moorage[otel]'") from error
    instance = f"{socket.gethostname()}:{config.server.port}"
    return OtlpTracer(options.endpoint, service=options.service_name, instance=instance, sample=options.sample)


def trace_statements(engine: Engine, service: str, tracer: tracing.Tracer) -> None:
    """Records a span for each statement of a transaction: its text, never its values."""
    open_spans: dict[int, contextlib.AbstractContextManager[object]] = {}

    @event.listens_for(engine, "before_cursor_execute")
    def before(_connection: object, cursor: object, statement: str, *_: object) -> None:
        span = tracing.span(f"SQL {service}", "client", **{"db.query.text": statement})
        span.__enter__()
        open_spans[id(cursor)] = span

    @event.listens_for(engine, "after_cursor_execute")
    def after(_connection: object, cursor: object, *_: object) -> None:
        if (span := open_spans.pop(id(cursor), None)) is not None:
            span.__exit__(None, None, None)

    @event.listens_for(engine, "handle_error")
    def failed(context: object) -> None:
        if (span := open_spans.pop(id(getattr(context, "cursor", None)), None)) is not None:
            span.__exit__(None, None, None)


_MAX_KEPT = 1000
_MIB = 1 << 20


def open_trail(config: Config, clock: Clock, metrics: Metrics) -> Trail | None:
    """The audit trail; None if it is off. Opens nothing yet. Raises `StartError`."""
    options = config.trail
    if not options.enabled:
        return None
    sinks: list[TrailSink] = []
    if options.path:
        rotate_bytes = int(options.rotate_mb * _MIB)
        if rotate_bytes < MAX_ENTRY_BYTES:
            raise StartError(f"{config.source}: [trail] rotate_mb is {options.rotate_mb:g}; it must be at least 0.004")
        if not 1 <= options.keep <= _MAX_KEPT:
            raise StartError(f"{config.source}: [trail] keep is {options.keep}; it takes 1 to {_MAX_KEPT}")
        sinks.append(TrailFile(config.state / options.path, rotate_bytes=rotate_bytes, keep=options.keep))
    if options.syslog:
        sinks.append(SyslogSink(options.syslog, clock))
    if not sinks:
        raise StartError(
            f"{config.source}: [trail] has neither path nor syslog; set enabled = false to turn the trail off"
        )
    return Trail(
        sinks,
        clock,
        observer=socket.gethostname(),
        required=options.required,
        agents=options.agents,
        knows_services=config.identity.mode != "none",
        lost=lambda sink: metrics.trail_losses.labels(sink).inc(),
    )
