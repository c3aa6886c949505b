"""The body of a request that is still coming while the application reads it: with a length, or in chunks.

Small ones with a length are there before the application is called, and hold none of its threads while they come; for them
this is not used.
"""

import io
import re
from collections.abc import Callable

from moorage.core.errors import Invalid

#: Bytes asked for at once.
_PIECE = 64 * 1024
_MAX_LINE_BYTES = 4096
_MAX_TRAILER_LINES = 64
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?\Z")


class Source:
    """Bytes of one connection: what was read ahead, then what comes."""

    def __init__(self, ahead: bytes, receive: Callable[[int], bytes]) -> None:
        """`receive` waits for some bytes, at most so many; none at the end. Raises `Invalid` when it waited too long."""
        self.ahead = ahead
        self.receive = receive

    def some(self, most: int) -> bytes:
        if not self.ahead:
            return self.receive(most)
        piece, self.ahead = self.ahead[:most], self.ahead[most:]
        return piece

    def line(self) -> bytes:
        """Without its end."""
        while (end := self.ahead.find(b"\r\n")) < 0:
            if len(self.ahead) > _MAX_LINE_BYTES:
                raise Invalid("a line between the chunks of the body is too long")
            if not (piece := self.receive(_MAX_LINE_BYTES)):
                raise Invalid("the body ended in the middle")
            self.ahead += piece
        line, self.ahead = self.ahead[:end], self.ahead[end + 2 :]
        return line


class SizedBody(io.RawIOBase):
    """`is_over` tells that the next request can be read behind it."""

    def __init__(self, source: Source, length: int) -> None:
        self._source = source
        self._left = length

    @property
    def is_over(self) -> bool:
        return not self._left

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # io calls it with a memoryview; a type for all buffers is Python 3.12's
        if not self._left:
            return 0
        piece = self._source.some(min(len(buffer), self._left, _PIECE))
        if not piece:
            raise Invalid(f"the body ended {self._left} bytes before its Content-Length")
        buffer[: len(piece)] = piece
        self._left -= len(piece)
        return len(piece)


class ChunkedBody(io.RawIOBase):
    """As `SizedBody`. Raises `Invalid` for what is no chunk."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._left = 0
        self._has_begun = False
        self.is_over = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # io calls it with a memoryview; a type for all buffers is Python 3.12's
        if not self._left and not self.is_over:
            self._next_chunk()
        if self.is_over:
            return 0
        piece = self._source.some(min(len(buffer), self._left, _PIECE))
        if not piece:
            raise Invalid("the body ended in the middle")
        buffer[: len(piece)] = piece
        self._left -= len(piece)
        return len(piece)

    def _next_chunk(self) -> None:
        if self._has_begun and self._source.line():
            raise Invalid("a chunk of the body is longer than it says")
        self._has_begun = True
        found = _CHUNK.match(self._source.line())
        if found is None:
            raise Invalid("a chunk of the body does not begin with its length")
        self._left = int(found[1], 16)
        if not self._left:
            self._skip_trailers()
            self.is_over = True

    def _skip_trailers(self) -> None:
        for _ in range(_MAX_TRAILER_LINES):
            if not self._source.line():
                return
        raise Invalid("there are too many lines behind the body")
