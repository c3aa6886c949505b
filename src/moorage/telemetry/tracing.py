"""Traces: which work belongs to which request, through processes and jobs. Nothing is imported for it while it is off.

A request of a user begins a trace; what a service asks of others, the jobs that it writes, and what hosts do and report
for those belong to it. Background work of which no request is the cause (polls, heartbeats) makes none.

What exports spans is `moorage.telemetry.otel`, which `[tracing] endpoint` switches on. This module knows what crosses
processes: a W3C `traceparent`, as a header and as an entry of a job's payload.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Protocol

HEADER = "traceparent"
#: The entry of a job's payload.
PAYLOAD_KEY = "traceparent"

Kind = Literal["server", "client", "consumer", "internal"]


class Span(Protocol):
    def set_attributes(self, **attributes: str | int) -> None:
        """More about it, while it is open."""
        ...

    def set_error(self, why: str) -> None: ...


class Tracer(Protocol):
    def span(
        self, name: str, kind: Kind, parent: str | None, attributes: Mapping[str, str | int]
    ) -> contextlib.AbstractContextManager[Span]:
        """Below `parent` (a traceparent), else below the open span of this thread, else the beginning of a trace."""
        ...

    def traceparent(self) -> str | None:
        """Of the open span of this thread; None outside of any."""
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
    """Of this process: what is None costs one look."""

    tracer: Tracer | None = None


def set_tracer(tracer: Tracer | None) -> None:
    _Switch.tracer = tracer


def current_tracer() -> Tracer | None:
    return _Switch.tracer


@contextlib.contextmanager
def span(name: str, kind: Kind = "internal", **attributes: str | int) -> Iterator[Span]:
    """A part of the trace that this thread works for; nothing outside of any."""
    active = _Switch.tracer
    if active is None or active.traceparent() is None:
        yield _NO_SPAN
        return
    with active.span(name, kind, None, attributes) as opened:
        yield opened


@contextlib.contextmanager
def job_span(kind: str, payload: Mapping[str, Any], **attributes: str | int) -> Iterator[Span]:
    """Work on a job, in the trace of the request that it was written for."""
    active, parent = _Switch.tracer, payload.get(PAYLOAD_KEY)
    if active is None or not isinstance(parent, str):
        yield _NO_SPAN
        return
    with active.span(f"job {kind}", "consumer", parent, attributes) as opened:
        yield opened


def with_trace(payload: dict[str, Any]) -> dict[str, Any]:
    """The payload of a job that is written now, with the trace that it belongs to; one that it has already stays."""
    active = _Switch.tracer
    if active is None or PAYLOAD_KEY in payload or (parent := active.traceparent()) is None:
        return payload
    return {**payload, PAYLOAD_KEY: parent}


def trace_id() -> str | None:
    """For the log."""
    active = _Switch.tracer
    return None if active is None else active.trace_id()
