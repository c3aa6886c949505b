"""One request of a connection through a WSGI application (PEP 3333), and its answer on the wire."""

import logging
import time
from collections.abc import Callable, Iterable
from email.utils import formatdate
from functools import lru_cache
from typing import IO, Any

from moorage.core import waiting
from moorage.wire import http1
from moorage.wire.app import WsgiApp
from moorage.wire.connection import MOST_UNSENT_BYTES, Connection, Gone
from moorage.wire.http1 import Request

log = logging.getLogger(__name__)

#: Longer ones are sent from where they lie.
_COPIED_BYTES = 16 * 1024

_FAILED = "500 Internal Server Error"


def answer(app: WsgiApp, connection: Connection, request: Request, body: IO[bytes], *, is_last: bool) -> None:
    """`is_last`: no other request is taken from this connection. Raises `moorage.wire.connection.Gone`."""
    _Answer(connection, request, is_last=is_last).give(app, body)


class _Answer:
    def __init__(self, connection: Connection, request: Request, *, is_last: bool) -> None:
        self._connection = connection
        self._request = request
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
        try:
            if isinstance(result, list) and self._status:
                self._whole(result)
            else:
                self._stream(iter(result))
        except ValueError:
            log.exception("the application answered what cannot be sent")
            self._fail()
        finally:
            if (close := getattr(result, "close", None)) is not None:
                close()

    def _start(self, status: str, headers: list[tuple[str, str]], _failure: object = None) -> Callable[[bytes], Any]:
        self._status, self._headers = status, headers
        return _write

    def _fail(self) -> None:
        self._connection.closes = True
        self._connection.send(http1.answer_head(_FAILED, [("content-length", "0"), ("connection", "close")], ()))

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
        return http1.answer_head(self._status, self._headers, (*more, _date(), *last))

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

    def _stream(self, chunks: Iterable[bytes]) -> None:
        """As it comes. Where it ends too early, or its source fails, so does the connection: the client must see it."""
        waiting.waits()
        iterator = iter(chunks)
        first = next(iterator, b"") if not self._status else b""
        length = self._length()
        if not self._shows_body:
            self._connection.send(self._head())
            self._connection.answered()
            return
        is_chunked = length is None and not self._request.is_old
        self._connection.send(self._head(*(["transfer-encoding: chunked"] if is_chunked else [])))
        sent = 0
        try:
            for chunk in _with(first, iterator):
                sent += len(chunk)
                self._send_piece(chunk, is_chunked=is_chunked)
        except Gone:
            raise
        except Exception as error:  # whatever the source of the answer raises: its head is sent already
            log.exception("an answer is broken off")
            raise Gone from error
        if length is not None and sent != length:
            log.error("an answer is broken off", extra={"sent": sent, "length": length})
            raise Gone
        if is_chunked:
            self._connection.send(b"0\r\n\r\n")
        self._connection.answered()

    def _send_piece(self, chunk: bytes, *, is_chunked: bool) -> None:
        if is_chunked:
            self._connection.send(b"%x\r\n" % len(chunk), chunk, b"\r\n")
        else:
            self._connection.send(chunk)
        self._connection.wait_for_reader(MOST_UNSENT_BYTES)


def _with(first: bytes, others: Iterable[bytes]) -> Iterable[bytes]:
    """Empty ones would end a chunked answer."""
    if first:
        yield first
    for chunk in others:
        if chunk:
            yield chunk


def _write(_data: bytes) -> None:
    raise NotImplementedError("an application here returns its answer; PEP 3333's write() is for older ones")


def _date() -> str:
    return _dated(int(time.time()))  # noqa: TID251 - what an answer says of itself; no state depends on it


@lru_cache(maxsize=2)
def _dated(second: int) -> str:
    return f"date: {formatdate(second, usegmt=True)}"
