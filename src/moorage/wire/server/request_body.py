"""The body of a request, as its bytes come: with a length, or in chunks. And how the server is to take one.

`SizedBody` and `ChunkedBody` do no I/O: they are fed. `StreamedBody` is the file that an application reads while the body comes.
"""

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from moorage.core.errors import Invalid, MoorageError, TooLarge

#: Bytes asked for at once.
READ_BYTES = 64 * 1024
_MAX_LINE_BYTES = 4096
_MAX_TRAILER_LINES = 64
#: Extensions have no meaning here; what is in them must be text all the same.
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?\Z")
_TRAILER = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[^\x00-\x08\x0a-\x1f\x7f]*\Z")
_FRAMING = frozenset({b"content-length", b"transfer-encoding", b"host"})


@dataclass(frozen=True, slots=True)
class BodyIntake:
    """How the body of one request is taken, by what its head says."""

    #: The body is kept until it is whole, and then the application is called; so much of it at most.
    most_bytes: int = 0
    #: The application reads it while it comes; `owner` is whose share of such bodies it counts to.
    streams: bool = False
    owner: str = ""
    #: The client has shown who it is.
    is_known: bool = False
    #: What the application is told when it reads a body that is longer than `most_bytes`.
    refusal: MoorageError | None = None


class BodyAdmission(Protocol):
    """Asked about bodies that are large, of unknown length or announced (``Expect``), when the head is there."""

    def __call__(self, environ: Mapping[str, Any]) -> BodyIntake: ...

    def is_urgent(self, target: str) -> bool:
        """Whether a request to this target may use the last threads: health, identity, agents."""
        ...


class BodyDecoder(Protocol):
    is_complete: bool
    #: What came behind the end.
    remainder: bytes

    def feed(self, piece: bytes) -> bytes:
        """What `piece` adds to the body. Raises `Invalid`."""
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
    """Raises `Invalid` for what is no chunk."""

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
        """Without its end; None where that has not come."""
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
            raise Invalid("there are too many lines behind the body")
        found = _TRAILER.match(line)
        if found is None:
            raise Invalid("a line behind the body is not NAME: VALUE")
        if found[1].lower() in _FRAMING:
            raise Invalid("a line behind the body cannot say how long the body is")


class StreamedBody(io.RawIOBase):
    """`receive` waits for some bytes, none at the end. Raises `Invalid`."""

    def __init__(self, decoder: BodyDecoder, came: bytes, receive: Callable[[], bytes]) -> None:
        self.decoder = decoder
        self.receive = receive
        self._rest = memoryview(decoder.feed(came))

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # io calls it with a memoryview; a type for all buffers is Python 3.12's
        while not self._rest:
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
    """A body that is not waited for: whoever reads it is told why."""

    def __init__(self, intake: BodyIntake) -> None:
        self._refusal = intake.refusal or TooLarge(f"a body has {intake.most_bytes} bytes at most here")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        raise self._refusal
