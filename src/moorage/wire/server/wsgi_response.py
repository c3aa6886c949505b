"""One request of a connection through a WSGI application (PEP 3333), and its answer on the wire.

An answer that the application streams is asked for as its client takes it: between two pieces it holds no thread, and the
next piece may be asked for in another one.
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

#: Longer ones are sent from where they lie.
_COPIED_BYTES = 16 * 1024

#: Of a streamed answer at one turn; then others have theirs.
_TURN_BYTES = 256 * 1024

_FAILED = "500 Internal Server Error"


def run_application(app: WsgiApp, connection: HttpConnection, arrived: ReadyRequest, *, is_last: bool) -> None:
    """`is_last`: no other request is taken from this connection. Raises `moorage.wire.server.connection.ClientGone`."""
    _ResponseWriter(connection, arrived, is_last=is_last).give(app, arrived.body)


class _ResponseWriter:
    def __init__(self, connection: HttpConnection, arrived: ReadyRequest, *, is_last: bool) -> None:
        self._connection = connection
        self._request = arrived.request
        self._is_last = is_last
        self._status = ""
        self._headers: list[tuple[str, str]] = []

    def give(self, app: WsgiApp, body: IO[bytes]) -> None:
        environ = self._request.environ(self._connection.environ)
        environ["wsgi.input"] = body
        try:
            result = app(environ, self._start)
        except Exception:  # the top of a request
            log.exception("the application failed")
            self._fail()
            return
        self._connection.is_known = AUTHENTICATED_KEY in environ
        try:
            if isinstance(result, list) and self._status:
                self._whole(result)
            else:
                self._stream(result)
        except ValueError:
            log.exception("the application answered what cannot be sent")
            self._fail()

    def _start(self, status: str, headers: list[tuple[str, str]], _failure: object = None) -> Callable[[bytes], Any]:
        self._status, self._headers = status, headers
        return _write

    def _fail(self) -> None:
        self._connection.closes = True
        self._connection.send(http1.response_head(_FAILED, [("content-length", "0"), ("connection", "close")], ()))

    @property
    def _shows_body(self) -> bool:
        return self._request.method != "HEAD" and not http1.has_no_body(self._status)

    def _length(self) -> int | None:
        """What the application says."""
        for name, value in self._headers:
            if name.lower() == "content-length":
                return int(value)
        return None

    def _head(self, *more: str) -> bytes:
        connection = self._connection
        connection.closes = self._is_last or not (self._request.may_stay and connection.was_read)
        last = ("connection: close",) if connection.closes else ()
        return http1.response_head(self._status, self._headers, (*more, _date(), *last))

    def _whole(self, parts: list[bytes]) -> None:
        """All of it is there."""
        content = (parts[0] if len(parts) == 1 else b"".join(parts)) if self._shows_body else b""
        length = self._length()
        if length is None:
            head = self._head(f"content-length: {len(content)}") if self._shows_body else self._head()
        elif self._shows_body and length != len(content):
            raise ValueError(f"an answer of {len(content)} bytes says that it has {length}")
        else:
            head = self._head()
        if len(content) > _COPIED_BYTES:
            self._connection.send(head, content)
        else:
            self._connection.send(head + content)
        self._connection.answered()

    def _stream(self, result: Iterable[bytes]) -> None:
        """The head, and of the rest as much as is taken now."""
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
        except BaseException:
            stream.close()
            raise
        stream.go_on()


class _ResponseStream:
    """An answer whose pieces the application makes one by one. What fails ends the connection: the client must see it."""

    def __init__(self, connection: HttpConnection, result: Iterable[bytes]) -> None:
        self._connection = connection
        self._close: Callable[[], object] | None = getattr(result, "close", None)
        self._pieces: Iterator[bytes] = iter(result)
        #: Of the thread that began it: the ids for the log, the trace.
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
        """Pieces until the client has some to take, or it is over. Raises `ClientGone`."""
        blocking_hook.about_to_block()
        connection, turn = self._connection, 0
        while turn < _TURN_BYTES and not connection.has_unsent:
            try:
                piece = self._next()
            except Exception as error:  # whatever the source of the answer raises: its head is sent already
                log.exception("an answer is broken off")
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
            log.error("an answer is broken off", extra={"sent": self._sent, "length": self._length})
            raise ClientGone
        if self._is_chunked:
            self._connection.send(b"0\r\n\r\n")
        self.end()

    def end(self) -> None:
        self._connection.streaming = None
        self.close()
        self._connection.answered()

    def close(self) -> None:
        close, self._close = self._close, None
        if close is not None:
            self._context.run(close)


def _write(_data: bytes) -> None:
    raise NotImplementedError("an application here returns its answer; PEP 3333's write() is for older ones")


def _date() -> str:
    return _dated(int(time.time()))  # noqa: TID251 - what an answer says of itself; no state depends on it


@lru_cache(maxsize=2)
def _dated(second: int) -> str:
    return f"date: {formatdate(second, usegmt=True)}"
