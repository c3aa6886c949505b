"""Switches traces on where [tracing] endpoint says where they go."""

import contextlib
import socket
from collections.abc import Iterator

from sqlalchemy import Engine, event

from moorage.config import Config
from moorage.core.errors import StartError
from moorage.db.prepared_transactions import wrap_statements
from moorage.telemetry import tracing


def open_tracer(config: Config) -> "tracing.Tracer | None":
    """None where traces are off. Raises `StartError`."""
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
    """A span for each statement that goes through SQLAlchemy or is prepared, with its text and never its values."""
    open_spans: dict[int, contextlib.AbstractContextManager[object]] = {}

    @contextlib.contextmanager
    def statement_span(text: str) -> Iterator[None]:
        with tracing.span(f"SQL {service}", "client", **{"db.query.text": text}):
            yield

    wrap_statements(engine, statement_span)

    @event.listens_for(engine, "before_cursor_execute")
    def before(_connection: object, cursor: object, statement: str, *_: object) -> None:
        span = statement_span(statement)
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
