"""A connection of the server: collects bytes until a request is complete, and keeps response bytes until they are sent.

One thread at a time uses a connection; `moorage.wire.server.http_server` decides which. Its socket does not block.
"""

import io
import select
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import IO, Protocol

from moorage.core import blocking_hook
from moorage.core.errors import Invalid
from moorage.wire.server import http1
from moorage.wire.server.http1 import BadRequestHead, RequestHead
from moorage.wire.server.limits import Pace, ServerLimits
from moorage.wire.server.request_body import (
    READ_BYTES,
    BodyAdmission,
    BodyDecoder,
    BodyIntake,
    ChunkedBody,
    RefusedBody,
    SizedBody,
    StreamedBody,
)
from moorage.wire.server.tls import TlsSocket

#: Seconds for which the rest of a rejected request is read and discarded. Without this, the client might not see the
#: response.
LINGER_S = 2.0

#: A body up to this size is collected before the client is authenticated.
EAGER_BYTES = 64 * 1024
_NEVER = float("inf")
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_SMALL = BodyIntake(EAGER_BYTES)


class ClientGone(Exception):
    """The client has closed the connection or does not take its response."""


class StreamedResponse(Protocol):
    """A response that is produced while it is sent."""

    def go_on(self) -> None:
        """Send as much as the client takes now, up to a bound per turn. Raises `ClientGone`."""
        ...

    def close(self) -> None: ...


class ReadyRequest:
    """A request that can be handled: its body is complete, or will be read while it arrives (`intake.streams`)."""

    __slots__ = ("body", "intake", "request")

    def __init__(self, request: RequestHead, body: IO[bytes], intake: BodyIntake) -> None:
        self.request = request
        self.body = body
        self.intake = intake


class _PartialBody:
    """A body that is collected until it is complete."""

    __slots__ = ("content", "decoder", "intake", "request")

    def __init__(self, request: RequestHead, intake: BodyIntake, decoder: BodyDecoder) -> None:
        self.request = request
        self.intake = intake
        self.decoder = decoder
        self.content = bytearray()


class HttpConnection:
    def __init__(
        self,
        sock: socket.socket | TlsSocket,
        environ: Mapping[str, object],
        limits: ServerLimits,
        admission: BodyAdmission,
    ) -> None:
        """`environ`: the WSGI environment that all its requests share."""
        self.environ = environ
        self.descriptor = sock.fileno()
        #: Monotonic time at which the server ends the connection.
        self.deadline = time.monotonic() + limits.head_timeout_s
        #: When the present wait for the client began, and the number of requests answered so far.
        self.waits_since = time.monotonic()
        self.answers = 0
        #: Whether the connection closes after the present response.
        self.closes = False
        #: Whether everything that still arrives is discarded.
        self.lingers = False
        #: Whether the client of the present response is authenticated.
        self.is_known = False
        #: A streamed response in progress.
        self.streaming: StreamedResponse | None = None
        #: A request that waits for a thread slot.
        self.ready_request: ReadyRequest | None = None
        self._socket = sock
        self._limits = limits
        self._admission = admission
        self._received = b""
        self._searched = 0
        self._waiting: RequestHead | None = None
        self._partial_body: _PartialBody | None = None
        self._streamed_body: StreamedBody | None = None
        self._has_received = False
        self._is_unread = False
        self._is_late = False
        self._body_pace: Pace | None = None
        self._answer_pace: Pace | None = None
        self._unsent = memoryview(b"")

    # --- requests -----------------------------------------------------------------------------------------------

    def receive(self) -> None:
        """Read the bytes that are available now. Raises `ClientGone` if the connection has ended."""
        try:
            piece = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            raise ClientGone from error
        if not piece:
            raise ClientGone
        self._has_received = True
        if self.lingers:
            return
        if self._partial_body is not None and self._body_pace is not None:
            self._body_pace.record_transfer(len(piece), time.monotonic())
        elif not self._received and self._waiting is None:
            self.deadline = _NEVER
        self._received = self._received + piece if self._received else piece

    def next_request(self) -> ReadyRequest | None:
        """The next request; None if more bytes are needed. Raises `moorage.wire.server.http1.BadRequestHead`."""
        if self.ready_request is not None:
            arrived, self.ready_request = self.ready_request, None
            return arrived
        if self._partial_body is not None:
            return self._gather(self._partial_body)
        request = self._waiting or self._next_head()
        if request is None:
            return None
        fields, self._waiting = request.fields, None
        length = fields.length or 0
        if fields.is_chunked or length > EAGER_BYTES or (length and fields.expects_continue):
            return self._large(request)
        if len(self._received) < length:
            self._waiting = request
            return None
        body, self._received = self._received[:length], self._received[length:]
        return ReadyRequest(request, io.BytesIO(body), _SMALL)

    def _next_head(self) -> RequestHead | None:
        end = http1.find_head_end(self._received, self._searched)
        if not end:
            self._searched = len(self._received)
            return None
        head, self._received, self._searched = self._received[:end], self._received[end:], 0
        return http1.parse_head(head)

    def _large(self, request: RequestHead) -> ReadyRequest | None:
        """Ask the admission, which authenticates the client, how to read a large body."""
        fields = request.fields
        intake = self._admission(request.environ(self.environ))
        if (not intake.streams and (fields.length or 0) > intake.most_bytes) or intake.refusal is not None:
            return self._unread(request, intake)
        decoder: BodyDecoder = ChunkedBody() if fields.is_chunked else SizedBody(fields.length or 0)
        self._body_pace = pace = self._pace(is_known=intake.is_known)
        if intake.streams:
            came, self._received = self._received, b""
            receive = partial(self._continued if fields.expects_continue else self._wait_for, pace)
            self._streamed_body = StreamedBody(decoder, came, receive)
            return ReadyRequest(request, io.BufferedReader(self._streamed_body, READ_BYTES), intake)
        if fields.expects_continue:
            try:
                self.send(_CONTINUE)
            except ClientGone:
                return self._unread(request, intake)
        self._partial_body = _PartialBody(request, intake, decoder)
        return self._gather(self._partial_body)

    def _gather(self, gathering: _PartialBody) -> ReadyRequest | None:
        piece, self._received = self._received, b""
        try:
            found = gathering.decoder.feed(piece)
        except Invalid as error:
            raise BadRequestHead(400, error.message) from error
        gathering.content += found
        if len(gathering.content) > gathering.intake.most_bytes:
            self._partial_body = None
            return self._unread(gathering.request, gathering.intake)
        if not gathering.decoder.is_complete:
            return None
        self._received, self._partial_body = gathering.decoder.remainder, None
        return ReadyRequest(gathering.request, io.BytesIO(gathering.content), gathering.intake)

    def _unread(self, request: RequestHead, intake: BodyIntake) -> ReadyRequest:
        """A request whose body is not read. The connection closes after the response."""
        self._is_unread, self._received = True, b""
        return ReadyRequest(request, io.BufferedReader(RefusedBody(intake)), intake)

    def _continued(self, pace: Pace) -> bytes:
        """Send ``100 Continue``, which the client awaits, and wait for the body."""
        if self._streamed_body is not None:
            self._streamed_body.receive = partial(self._wait_for, pace)
        try:
            self.send(_CONTINUE)
        except ClientGone:
            return b""
        return self._wait_for(pace)

    def _wait_for(self, pace: Pace) -> bytes:
        """Wait for the next bytes; blocks the thread. Empty at the end."""
        while True:
            try:
                piece = self._socket.recv(READ_BYTES)
            except BlockingIOError:
                now = time.monotonic()
                if not self._is_ready(select.POLLIN, pace.start_waiting(now) - now):
                    raise Invalid(
                        f"the body arrives at less than {self._limits.min_rate_bytes_s} bytes per second; send it again"
                    ) from None
            except OSError:
                return b""
            else:
                pace.record_transfer(len(piece), time.monotonic())
                return piece

    @property
    def was_read(self) -> bool:
        """Whether the body was read to its end, so that the next request can follow."""
        return not self._is_unread and (self._streamed_body is None or self._streamed_body.decoder.is_complete)

    def response_finished(self) -> None:
        """Record the end of a response; the next request may follow."""
        self.answers += 1
        if self._streamed_body is not None:
            self._received, self._streamed_body = self._streamed_body.decoder.remainder, None

    # --- answers ------------------------------------------------------------------------------------------------

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    @property
    def has_more(self) -> bool:
        """Whether there are unread bytes of the client, or a streamed response in progress."""
        return bool(self._received) or self.streaming is not None

    def send(self, *parts: bytes) -> None:
        """Send bytes; the part that the client does not take at once is kept for `send_more`. Raises `ClientGone`."""
        if self._unsent:
            self._unsent = memoryview(b"".join([self._unsent, *parts]))
            self.send_more()
            return
        try:
            sent = self._socket.sendmsg(parts)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            raise ClientGone from error
        for index, part in enumerate(parts):
            if sent < len(part):
                # Avoids copying a large response: almost always, only its last part is left.
                rest = memoryview(part)[sent:]
                behind = parts[index + 1 :]
                self._unsent = memoryview(b"".join([rest, *behind])) if behind else rest
                return
            sent -= len(part)

    def send_more(self) -> None:
        """Send as much of the kept bytes as the client takes now. Raises `ClientGone`."""
        try:
            sent = self._socket.send(self._unsent)
        except BlockingIOError:
            return
        except OSError as error:
            raise ClientGone from error
        self._unsent = self._unsent[sent:]
        if self._answer_pace is not None:
            if self._unsent:
                self._answer_pace.record_transfer(sent, time.monotonic())
            else:
                self._answer_pace = None

    def finish_response(self, give_up: float) -> None:
        """Send the rest of the response, until the monotonic time `give_up`. Raises `ClientGone`."""
        while self._unsent or self.streaming is not None:
            if self._unsent:
                if not self._is_ready(select.POLLOUT, give_up - time.monotonic()):
                    raise ClientGone
                self.send_more()
            elif self.streaming is not None:
                self.streaming.go_on()

    def _is_ready(self, for_what: int, timeout_s: float) -> bool:
        if timeout_s <= 0:
            return False
        blocking_hook.about_to_block()
        poll = select.poll()
        poll.register(self.descriptor, for_what)
        return bool(poll.poll(timeout_s * 1e3))

    # --- its time -----------------------------------------------------------------------------------------------

    def _pace(self, *, is_known: bool) -> Pace:
        limits = self._limits
        return Pace(limits.stall_s if is_known else limits.public_stall_s, limits.min_rate_bytes_s)

    def request_started(self) -> None:
        """A request is being handled, which has no deadline."""
        self.deadline = _NEVER

    @property
    def is_resting(self) -> bool:
        """Whether the connection waits for its client."""
        return self.deadline != _NEVER

    @property
    def held_bytes(self) -> int:
        """Bytes kept for the client."""
        gathered = 0 if self._partial_body is None else len(self._partial_body.content)
        return len(self._received) + gathered + len(self._unsent)

    def start_waiting(self) -> int:
        """Set the deadline for the client's next step. Returns the bytes kept for the client meanwhile."""
        if not self._has_received:  # the first deadline includes the handshake of TLS
            return 0
        now, before = time.monotonic(), self.deadline
        if before == _NEVER:
            self.waits_since = now
        if not (
            self._unsent
            or self._received
            or self._waiting
            or self._partial_body
            or self.streaming
            or self.ready_request
        ):
            if not self.lingers:
                self.deadline = now + self._limits.idle_timeout_s
            return 0
        if self._unsent:
            self._answer_pace = self._answer_pace or self._pace(is_known=self.is_known)
            self.deadline = self._answer_pace.start_waiting(now)
        elif self.streaming is not None:
            self.deadline = _NEVER
        elif self.ready_request is not None:  # an upload may have to wait for other long uploads
            self.deadline = now + self._limits.idle_timeout_s if self.ready_request.intake.streams else _NEVER
        elif self._partial_body is not None and self._body_pace is not None:
            self.deadline = self._body_pace.start_waiting(now)
        else:
            self.deadline = min(before, now + self._limits.head_timeout_s)
        return self.held_bytes

    def linger(self) -> None:
        """Close the sending side and discard everything that arrives for `LINGER_S`."""
        self.lingers = True
        self._received, self._waiting, self._partial_body = b"", None, None
        self.deadline = time.monotonic() + LINGER_S
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise ClientGone from error

    def end(self) -> None:
        """Shut the socket down, from any thread. The thread that uses the connection then gets `ClientGone`."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # it is closed already

    def end_late(self) -> None:
        """Like `end`, but `say_late` can still tell the reason to a client in the middle of its request."""
        self.deadline = _NEVER
        self._is_late = not self._unsent and self.streaming is None and bool(self.held_bytes or self._waiting)
        try:
            self._socket.shutdown(socket.SHUT_RD if self._is_late else socket.SHUT_RDWR)
        except OSError:
            return  # it is closed already

    def say_late(self) -> None:
        """Send a 408, if the request was too slow; without waiting."""
        if self._is_late:
            with suppress(OSError):
                self._socket.send(http1.error_response(BadRequestHead(408, "the request arrived too slowly")))

    def close(self) -> None:
        self._socket.close()
        if self.streaming is not None:
            self.streaming.close()
