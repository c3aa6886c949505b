"""One connection of the server: what came and is not a request yet, what was answered and is not sent yet.

One thread at a time uses it; which one, `moorage.wire.server` decides. Its socket does not block.
"""

import io
import select
import socket
import time
from collections.abc import Mapping
from typing import IO

from moorage.core import waiting
from moorage.core.errors import Invalid
from moorage.wire import http1
from moorage.wire.http1 import Request
from moorage.wire.incoming import ChunkedBody, SizedBody, Source

#: A head, and a body that is waited for, must be there so long after the first byte.
REQUEST_TIMEOUT_S = 30.0
#: Without a request for so long the connection ends.
IDLE_TIMEOUT_S = 120.0
#: So long nothing comes of a body that is being read, or nothing of an answer is taken.
STALLED_S = 30.0
#: What a client still sends that was refused is read for so long: else it might not get to read the answer.
LINGER_S = 2.0

#: A body up to here is there before a thread takes the request up.
EAGER_BYTES = 64 * 1024
#: Of a streamed answer so much may wait for a slow reader without holding a thread.
MOST_UNSENT_BYTES = 512 * 1024
_PIECE = 64 * 1024

_NEVER = float("inf")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Gone(Exception):
    """The client has closed the connection, or does not take its answer."""


class Connection:
    def __init__(self, sock: socket.socket, environ: Mapping[str, object]) -> None:
        """`environ`: what all its requests have in common."""
        self.environ = environ
        self.descriptor = sock.fileno()
        #: On the monotonic clock; whoever looks after connections ends it then.
        self.deadline = time.monotonic() + REQUEST_TIMEOUT_S
        #: No request is read behind the answer that is being sent.
        self.closes = False
        #: Only read until its end from now on.
        self.lingers = False
        self._socket = sock
        self._came = b""
        self._searched = 0
        self._waiting: Request | None = None
        self._body: SizedBody | ChunkedBody | None = None
        self._source = Source(b"", self._wait_for)
        self._unsent = memoryview(b"")

    # --- requests -----------------------------------------------------------------------------------------------

    def take(self) -> None:
        """What there is at this moment. Raises `Gone` at the end."""
        try:
            piece = self._socket.recv(_PIECE)
        except BlockingIOError:
            return
        except OSError as error:
            raise Gone from error
        if not piece:
            raise Gone
        if self.lingers:
            return
        if not self._came and self._waiting is None:
            self.deadline = _NEVER
        self._came += piece

    def next_request(self) -> tuple[Request, IO[bytes]] | None:
        """And its body; None where more must come first. Raises `moorage.wire.http1.Refused`."""
        request = self._waiting or self._next_head()
        if request is None:
            return None
        fields, self._waiting = request.fields, None
        length = fields.length or 0
        if fields.is_chunked or length > EAGER_BYTES or (length and fields.expects_continue):
            return request, self._body_to_come(request)
        if len(self._came) < length:
            self._waiting = request
            return None
        body, self._came = self._came[:length], self._came[length:]
        return request, io.BytesIO(body)

    def _next_head(self) -> Request | None:
        if self._came.startswith(b"\r\n"):  # some clients send a line too much behind a body
            self._came = self._came.lstrip(b"\r\n")
        end = http1.head_of(self._came, self._searched)
        if not end:
            self._searched = len(self._came)
            return None
        head, self._came, self._searched = self._came[:end], self._came[end:], 0
        return http1.parse(head)

    def _body_to_come(self, request: Request) -> IO[bytes]:
        self._source = Source(self._came, self._continued if request.fields.expects_continue else self._wait_for)
        self._came = b""
        if request.fields.is_chunked:
            self._body = ChunkedBody(self._source)
        else:
            self._body = SizedBody(self._source, request.fields.length or 0)
        return io.BufferedReader(self._body, _PIECE)

    def _continued(self, most: int) -> bytes:
        """The client sends its body when it is told that somebody reads it."""
        self._source.receive = self._wait_for
        try:
            self.send(_CONTINUE)
        except Gone:
            return b""
        return self._wait_for(most)

    def _wait_for(self, most: int) -> bytes:
        while True:
            try:
                return self._socket.recv(most)
            except BlockingIOError:
                if not self._is_ready(select.POLLIN):
                    raise Invalid(f"nothing of the body came for {STALLED_S:.0f} s") from None
            except OSError:
                return b""

    @property
    def was_read(self) -> bool:
        """All of the body: the next request can be read behind it."""
        return self._body is None or self._body.is_over

    def answered(self) -> None:
        """The next request may come."""
        if self._body is not None:
            self._came, self._body = self._source.ahead, None

    # --- answers ------------------------------------------------------------------------------------------------

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def send(self, *parts: bytes) -> None:
        """What the client does not take at once stays here, for `send_more`. Raises `Gone`."""
        if self._unsent:
            self._unsent = memoryview(b"".join([self._unsent, *parts]))
            self.send_more()
            return
        try:
            sent = self._socket.sendmsg(parts)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise Gone from error
        if sent < sum(map(len, parts)):
            self._unsent = memoryview(b"".join(parts))[sent:]

    def send_more(self) -> None:
        """Of what is left; as much as is taken at this moment. Raises `Gone`."""
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError as error:
            raise Gone from error
        self._unsent = self._unsent[sent:]

    def wait_for_reader(self, most_bytes: int, timeout_s: float = STALLED_S) -> None:
        """Until at most so much is unsent. Raises `Gone` where nothing of it is taken for so long."""
        while len(self._unsent) > most_bytes:
            if not self._is_ready(select.POLLOUT, timeout_s):
                raise Gone
            self.send_more()

    def _is_ready(self, for_what: int, timeout_s: float = STALLED_S) -> bool:
        waiting.waits()
        poll = select.poll()
        poll.register(self.descriptor, for_what)
        return bool(poll.poll(timeout_s * 1e3))

    # --- its time -----------------------------------------------------------------------------------------------

    def works(self) -> None:
        """A request is being answered, however long that takes."""
        self.deadline = _NEVER

    def rests(self) -> None:
        """Nothing can be done until the client does something."""
        now = time.monotonic()
        if self._unsent:
            self.deadline = now + STALLED_S
        elif self._came or self._waiting is not None:
            self.deadline = min(self.deadline, now + REQUEST_TIMEOUT_S)
        elif not self.lingers:
            self.deadline = now + IDLE_TIMEOUT_S

    def linger(self) -> None:
        """No more answers; what still comes is thrown away for a moment."""
        self.lingers = True
        self._came = b""
        self.deadline = time.monotonic() + LINGER_S
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise Gone from error

    def end(self) -> None:
        """From any thread: whoever has it, or waits for it, finds it at its end."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it is closed already

    def close(self) -> None:
        self._socket.close()
