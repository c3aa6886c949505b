"""Traces, which connect the work for one request across processes and jobs. While tracing is off, it imports nothing.

A user's request begins a trace. The trace includes the requests that a service sends to others, the jobs that it
writes, and the work and reports of hosts for those jobs. Background work without a request (polls, heartbeats) has no
trace.

`moorage.telemetry.otel` exports spans; `[tracing] endpoint` switches it on. This module only handles the W3C
`traceparent` that crosses processes, as a header and as an entry of a job's payload.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Literal, Protocol

from moorage.core.json import JsonObject

HEADER = "traceparent"
#: Key of the traceparent in a job's payload.
PAYLOAD_KEY = "traceparent"

Kind = Literal["server", "client", "consumer", "internal"]


class Span(Protocol):
    def set_attributes(self, **attributes: str | int) -> None:
        """Add attributes to the open span; ``__`` in a name stands for ``.``."""
        ...

    def set_error(self, why: str) -> None: ...


class Tracer(Protocol):
    def span(
        self, name: str, kind: Kind, parent: str | None, attributes: Mapping[str, str | int]
    ) -> contextlib.AbstractContextManager[Span]:
        """A span below `parent` (a traceparent), else below this thread's open span; without either, a new trace."""
        ...

    def traceparent(self) -> str | None:
        """The traceparent of this thread's open span; None if there is none."""
        ...

    def trace_id(self) -> str | None: ...

    def close(self) -> None: ...


class _NoSpan:
    def set_attributes(self, **attributes: str | int) -> None:
        return

    def set_error(self, why: str) -> None:
        return


_NO_SPAN = _NoSpan()


class _Switch:
    """Holds this process's tracer; while it is None, tracing costs one attribute access."""

    tracer: Tracer | None = None


def set_tracer(tracer: Tracer | None) -> None:
    _Switch.tracer = tracer


def current_tracer() -> Tracer | None:
    return _Switch.tracer


@contextlib.contextmanager
def span(name: str, kind: Kind = "internal", **attributes: str | int) -> Iterator[Span]:
    """A span in this thread's trace; does nothing if the thread has no open span."""
    active = _Switch.tracer
    if active is None or active.traceparent() is None:
        yield _NO_SPAN
        return
    with active.span(name, kind, None, attributes) as opened:
        yield opened


@contextlib.contextmanager
def job_span(kind: str, payload: Mapping[str, object], **attributes: str | int) -> Iterator[Span]:
    """A span around work on a job, in the trace of the request that wrote the job."""
    active, parent = _Switch.tracer, payload.get(PAYLOAD_KEY)
    if active is None or not isinstance(parent, str):
        yield _NO_SPAN
        return
    with active.span(f"job {kind}", "consumer", parent, attributes) as opened:
        yield opened


def with_trace(payload: JsonObject) -> JsonObject:
    """The payload of a new job with the current traceparent; an existing traceparent is kept."""
    active = _Switch.tracer
    if active is None or PAYLOAD_KEY in payload or (parent := active.traceparent()) is None:
        return payload
    return {**payload, PAYLOAD_KEY: parent}


def trace_id() -> str | None:
    """The id of the current trace, for log lines; None if there is none."""
    active = _Switch.tracer
    return None if active is None else active.trace_id()
