"""Decodes request bodies, with a length or chunked, and defines how the server reads them (`BodyIntake`).

`SizedBody` and `ChunkedBody` do no I/O: `feed` passes bytes in. `StreamedBody` is the file from which an application
reads a body while it arrives.
"""

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from moorage.core.errors import Invalid, MoorageError, TooLarge

#: Bytes per read from a socket.
READ_BYTES = 64 * 1024
_MAX_LINE_BYTES = 4096
_MAX_TRAILER_LINES = 64
#: Chunk extensions are ignored, but must be text.
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?\Z")
_TRAILER = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[^\x00-\x08\x0a-\x1f\x7f]*\Z")
_FRAMING = frozenset({b"content-length", b"transfer-encoding", b"host"})


@dataclass(frozen=True, slots=True)
class BodyIntake:
    """The way in which the server reads the body of a request, decided from its head."""

    #: Bound of a body that is collected before the application is called.
    most_bytes: int = 0
    #: Whether the application reads the body while it arrives; `owner` is the project whose share of uploads it uses.
    streams: bool = False
    owner: str = ""
    #: Whether the client is authenticated.
    is_known: bool = False
    #: The error that the application gets when it reads a rejected body; None: `TooLarge`.
    refusal: MoorageError | None = None


class BodyAdmission(Protocol):
    """Decides about bodies that are large, of unknown length or announced (``Expect``), when the head is complete."""

    def __call__(self, environ: Mapping[str, Any]) -> BodyIntake: ...

    def is_urgent(self, target: str) -> bool:
        """Whether a request to this target may use the reserved threads: health, identity, agents."""
        ...


class BodyDecoder(Protocol):
    is_complete: bool
    #: Bytes behind the end of the body.
    remainder: bytes

    def feed(self, piece: bytes) -> bytes:
        """The bytes that `piece` adds to the body. Raises `Invalid`."""
        ...


class SizedBody:
    def __init__(self, length: int) -> None:
        self._left = length
        self.is_complete = not length
        self.remainder = b""

    def feed(self, piece: bytes) -> bytes:
        if len(piece) < self._left:
            self._left -= len(piece)
            return piece
        body, self.remainder = piece[: self._left], self.remainder + piece[self._left :]
        self._left, self.is_complete = 0, True
        return body


class ChunkedBody:
    """A chunked body (RFC 9112). `feed` raises `Invalid` for malformed chunks."""

    def __init__(self) -> None:
        self._ahead = b""
        self._left = 0
        self._next: Callable[[bytes], None] = self._size
        self._trailers = 0
        self.is_complete = False
        self.remainder = b""

    def feed(self, piece: bytes) -> bytes:
        self._ahead += piece
        parts: list[bytes] = []
        while not self.is_complete:
            if self._left:
                if not self._ahead:
                    break
                part, self._ahead = self._ahead[: self._left], self._ahead[self._left :]
                self._left -= len(part)
                parts.append(part)
            elif (line := self._line()) is not None:
                self._next(line)
            else:
                break
        if self.is_complete:
            self.remainder, self._ahead = self.remainder + self._ahead, b""
        return b"".join(parts)

    def _line(self) -> bytes | None:
        """The next line without its line end; None if it is incomplete."""
        end = self._ahead.find(b"\r\n", 0, _MAX_LINE_BYTES + 2)
        if end < 0:
            if len(self._ahead) > _MAX_LINE_BYTES:
                raise Invalid("a line between the chunks of the body is too long")
            return None
        line, self._ahead = self._ahead[:end], self._ahead[end + 2 :]
        return line

    def _size(self, line: bytes) -> None:
        found = _CHUNK.match(line)
        if found is None:
            raise Invalid("a chunk of the body does not begin with its length")
        self._left = int(found[1], 16)
        self._next = self._end if self._left else self._trailer

    def _end(self, line: bytes) -> None:
        if line:
            raise Invalid("a chunk of the body is longer than it says")
        self._next = self._size

    def _trailer(self, line: bytes) -> None:
        if not line:
            self.is_complete = True
            return
        self._trailers += 1
        if self._trailers > _MAX_TRAILER_LINES:
            raise Invalid("the body has too many trailer lines")
        found = _TRAILER.match(line)
        if found is None:
            raise Invalid("a trailer line of the body is not NAME: VALUE")
        if found[1].lower() in _FRAMING:
            raise Invalid("a trailer line must not be Content-Length, Transfer-Encoding or Host")


class StreamedBody(io.RawIOBase):
    """`receive` waits for the next bytes and returns none at the end of the connection; it may raise `Invalid`."""

    def __init__(self, decoder: BodyDecoder, came: bytes, receive: Callable[[], bytes]) -> None:
        self.decoder = decoder
        self.receive = receive
        self._rest = memoryview(b"")
        #: The fault of the bytes that came with the head; the application gets it when it reads.
        self._fault: Invalid | None = None
        try:
            self._rest = memoryview(decoder.feed(came))
        except Invalid as error:
            self._fault = error

    def readable(self) -> bool:
        return True

    # typeshed declares `Buffer`, which only Python 3.12 has; RawIOBase and BufferedReader pass a memoryview.
    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            if self._fault is not None:
                raise self._fault
            if self.decoder.is_complete:
                return 0
            if not (piece := self.receive()):
                raise Invalid("the body ended in the middle")
            self._rest = memoryview(self.decoder.feed(piece))
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


class RefusedBody(io.RawIOBase):
    """A body that is not read: an application that reads it gets the reason as an exception."""

    def __init__(self, intake: BodyIntake) -> None:
        self._refusal = intake.refusal or TooLarge(f"the body may have at most {intake.most_bytes} bytes")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        raise self._refusal
