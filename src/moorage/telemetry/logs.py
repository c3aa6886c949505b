"""One JSON object per line: time, level, service, request ids, project, user, trace, event, fields of ``extra``."""

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import IO

import orjson

from moorage.telemetry import tracing

#: (service, request id) of the request or job that this thread is working on.
request_context: ContextVar[tuple[str, str]] = ContextVar("request_context", default=("", ""))

#: The request id that the client sent with this request: another service's id, or one that the client uses for several
#: requests. Empty if the client sent none. Our own id never depends on it.
global_request: ContextVar[str] = ContextVar("global_request", default="")

#: (project id, user id) of the caller, if known; empty in background work.
caller_context: ContextVar[tuple[str, str]] = ContextVar("caller_context", default=("", ""))


@contextmanager
def job_context(service: str, payload: Mapping[str, object]) -> Iterator[None]:
    """Inside, log lines and calls to other services have the id of the request that caused the job (``request_id`` in
    its payload), and nothing of a request that this thread handled before.
    """
    before = request_context.get(), global_request.get(), caller_context.get()
    request_context.set((service, str(payload.get("request_id", ""))))
    global_request.set("")
    caller_context.set(("", ""))
    try:
        yield
    finally:
        request_context.set(before[0])
        global_request.set(before[1])
        caller_context.set(before[2])


_STANDARD = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def fields_of(record: logging.LogRecord) -> dict[str, object]:
    """What the caller gave as ``extra``."""
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD}


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        service, request_id = request_context.get()
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        if service:
            line["service"] = service
        if request_id:
            line["request_id"] = request_id
        if given := global_request.get():
            line["global_request_id"] = given
        project, user = caller_context.get()
        if project:
            line["project"] = project
        if user:
            line["user"] = user
        if trace := tracing.trace_id():
            line["trace_id"] = trace
        line |= fields_of(record)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def set_up_logging(level: str = "info", stream: IO[str] | None = None) -> None:
    """Send everything of level `level` and above to `stream` (standard error)."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in ("alembic", "httpx", "httpcore", "pika"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
