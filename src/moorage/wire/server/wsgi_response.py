"""Calls a WSGI application (PEP 3333) for a request of a connection, and sends its response.

A streamed response is produced as fast as the client takes it. Between two pieces it holds no thread, and another
thread may produce the next piece.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import Context, copy_context
from email.utils import formatdate
from functools import lru_cache
from typing import IO, Any

from moorage.core import blocking_hook
from moorage.wire.app import AUTHENTICATED_KEY, WsgiApp
from moorage.wire.server import http1
from moorage.wire.server.connection import ClientGone, HttpConnection, ReadyRequest

log = logging.getLogger(__name__)

#: Longer bodies are sent without being copied behind the head.
_COPIED_BYTES = 16 * 1024

#: Bytes of a streamed response per turn; then other connections get theirs.
_TURN_BYTES = 256 * 1024

_FAILED = "500 Internal Server Error"


def run_application(app: WsgiApp, connection: HttpConnection, arrived: ReadyRequest, *, is_last: bool) -> None:
    """`is_last`: the connection closes after the response. Raises `moorage.wire.server.connection.ClientGone`."""
    _ResponseWriter(connection, arrived, is_last=is_last).run(app, arrived.body)


class _ResponseWriter:
    def __init__(self, connection: HttpConnection, arrived: ReadyRequest, *, is_last: bool) -> None:
        self._connection = connection
        self._request = arrived.request
        self._is_last = is_last
        self._status = ""
        self._headers: list[tuple[str, str]] = []

    def run(self, app: WsgiApp, body: IO[bytes]) -> None:
        environ = self._request.environ(self._connection.environ)
        environ["wsgi.input"] = body
        try:
            result = app(environ, self._start_response)
        except Exception:  # the top of a request: the client gets a 500, the log the traceback
            log.exception("the application failed")
            self._fail()
            return
        self._connection.is_known = AUTHENTICATED_KEY in environ
        try:
            if isinstance(result, list) and self._status:
                self._send_complete(result)
            else:
                self._start_stream(result)
        except ValueError:
            log.exception("the application's response is invalid")
            self._fail()

    def _start_response(
        self, status: str, headers: list[tuple[str, str]], _failure: object = None
    ) -> Callable[[bytes], Any]:
        self._status, self._headers = status, headers
        return _write

    def _fail(self) -> None:
        self._connection.closes = True
        self._connection.send(http1.response_head(_FAILED, [("content-length", "0"), ("connection", "close")], ()))

    @property
    def _shows_body(self) -> bool:
        return self._request.method != "HEAD" and not http1.has_no_body(self._status)

    def _length(self) -> int | None:
        """The application's Content-Length; None if it sets none."""
        for name, value in self._headers:
            if name.lower() == "content-length":
                return int(value)
        return None

    def _head(self, *more: str) -> bytes:
        connection = self._connection
        connection.closes = self._is_last or not (self._request.may_stay and connection.was_read)
        last = ("connection: close",) if connection.closes else ()
        return http1.response_head(self._status, self._headers, (*more, _date(), *last))

    def _send_complete(self, parts: list[bytes]) -> None:
        """Send a response that is already complete."""
        content = (parts[0] if len(parts) == 1 else b"".join(parts)) if self._shows_body else b""
        length = self._length()
        if length is None:
            head = self._head(f"content-length: {len(content)}") if self._shows_body else self._head()
        elif self._shows_body and length != len(content):
            raise ValueError(f"a response of {len(content)} bytes has Content-Length {length}")
        else:
            head = self._head()
        if len(content) > _COPIED_BYTES:
            self._connection.send(head, content)
        else:
            self._connection.send(head + content)
        self._connection.response_finished()

    def _start_stream(self, result: Iterable[bytes]) -> None:
        """Send the head, and as much of the body as the client takes now."""
        blocking_hook.about_to_block()
        stream = _ResponseStream(self._connection, result)
        try:
            if not self._status:  # an application may begin with its first piece
                stream.look_ahead()
            if not self._shows_body:
                self._connection.send(self._head())
                stream.end()
                return
            length = self._length()
            is_chunked = length is None and not self._request.is_old
            self._connection.send(self._head(*(["transfer-encoding: chunked"] if is_chunked else [])))
            stream.begin(length, is_chunked=is_chunked)
        except BaseException:  # WSGI wants the application's iterable closed after any failure
            stream.close()
            raise
        stream.go_on()


class _ResponseStream:
    """A response whose pieces the application produces one by one. A failure closes the connection, so that the client
    notices it.
    """

    def __init__(self, connection: HttpConnection, result: Iterable[bytes]) -> None:
        self._connection = connection
        self._close: Callable[[], object] | None = getattr(result, "close", None)
        self._pieces: Iterator[bytes] = iter(result)
        #: Context of the thread that began it: the ids for the log, and the trace.
        self._context: Context = copy_context()
        self._first: bytes | None = None
        self._length: int | None = None
        self._is_chunked = False
        self._sent = 0

    def look_ahead(self) -> None:
        self._first = self._context.run(next, self._pieces, b"")

    def begin(self, length: int | None, *, is_chunked: bool) -> None:
        self._length, self._is_chunked = length, is_chunked
        self._connection.streaming = self

    def go_on(self) -> None:
        """Send pieces until the client cannot take more or the response is complete. Raises `ClientGone`."""
        blocking_hook.about_to_block()
        connection, turn = self._connection, 0
        while turn < _TURN_BYTES and not connection.has_unsent:
            try:
                piece = self._next()
            except Exception as error:  # any error of the application: the head is already sent
                log.exception("a streamed response is aborted")
                raise ClientGone from error
            if piece is None:
                self._finish()
                return
            if piece:  # an empty one would end a chunked answer
                self._sent += len(piece)
                turn += len(piece)
                connection.send(*((b"%x\r\n" % len(piece), piece, b"\r\n") if self._is_chunked else (piece,)))

    def _next(self) -> bytes | None:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        return self._context.run(next, self._pieces, None)

    def _finish(self) -> None:
        if self._length is not None and self._sent != self._length:
            log.error("a streamed response is aborted", extra={"sent": self._sent, "length": self._length})
            raise ClientGone
        if self._is_chunked:
            self._connection.send(b"0\r\n\r\n")
        self.end()

    def end(self) -> None:
        self._connection.streaming = None
        self.close()
        self._connection.response_finished()

    def close(self) -> None:
        close, self._close = self._close, None
        if close is not None:
            self._context.run(close)


def _write(_data: bytes) -> None:
    raise NotImplementedError("applications must return their response; PEP 3333's write() is not supported")


def _date() -> str:
    return _dated(int(time.time()))  # noqa: TID251 - the Date header is real time, even in a rehearsal


@lru_cache(maxsize=2)
def _dated(second: int) -> str:
    return f"date: {formatdate(second, usegmt=True)}"
