"""The HTTP server: serves a WSGI application on one listening socket, with one request per thread at a time.

One thread is the leader (`moorage.wire.server.threads`): it waits on the epoll for a ready connection, reads
the request, handles it and sends the response itself; no request changes threads. Before it blocks, it gives the
leadership to another thread. Slow and idle clients hold no thread: a body is collected here until it is complete, and a
streamed response is produced as the client takes it. Only bodies that an application must read while they arrive
(images) occupy a thread that waits, and `threads` limits their number.

When connections or memory for slow clients run out, the client that has held them longest is dropped.

Not here: how long a connection may stay idle (`moorage.wire.server.connection`), and how much of a body is read
(`moorage.wire.admission`). docs/evidence/decisions/0014 explains why we do not use another server.
"""

import logging
import resource
import select
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from moorage.wire.app import WsgiApp
from moorage.wire.server import http1
from moorage.wire.server.connection import ClientGone, HttpConnection, ReadyRequest
from moorage.wire.server.http1 import BadRequestHead
from moorage.wire.server.limits import ServerLimits
from moorage.wire.server.request_body import BodyAdmission, BodyIntake
from moorage.wire.server.threads import LeaderFollowers, Leadership, ThreadSlots
from moorage.wire.server.tls import ServerTls
from moorage.wire.server.wsgi_response import run_application

log = logging.getLogger(__name__)

BACKLOG = 1024
#: Seconds between checks for connections past their deadline.
LOOK_S = 1.0
#: Connections that one check ends at most, since each becomes an event that the leader must handle among others.
_ENDED_AT_ONCE = 64
#: Connections accepted before other connections get their turn.
_ACCEPTED_AT_ONCE = 16
#: Pause if there is no descriptor left for another connection, and no idle connection to drop.
NO_DESCRIPTOR_S = 0.1
#: Unsent bytes of a response that the kernel buffers, so that thousands of slow readers cannot fill its memory.
_KERNEL_BYTES = 256 * 1024
#: Descriptors reserved for databases, files and other services.
_OTHER_DESCRIPTORS = 256

#: One-shot: an event goes to one thread, and there is no other event until the connection is armed again.
_READABLE = select.EPOLLIN | select.EPOLLONESHOT
_WRITABLE = select.EPOLLOUT | select.EPOLLONESHOT


class StreamEverything:
    """The default `BodyAdmission`: the application reads large bodies while they arrive."""

    def __call__(self, environ: Mapping[str, Any]) -> BodyIntake:
        return BodyIntake(streams=True)

    def is_urgent(self, target: str) -> bool:
        return False


class HttpServer:
    """`listener`: a bound TCP socket; `stop` closes it. Without `tls`, clients speak plain HTTP."""

    def __init__(
        self,
        app: WsgiApp,
        listener: socket.socket,
        *,
        threads: int,
        limits: ServerLimits | None = None,
        admission: BodyAdmission | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        self._app = app
        self._limits = limits or ServerLimits()
        self._admission = admission or StreamEverything()
        self._tls = tls
        self._slots = ThreadSlots(threads, self._limits.uploads)
        self._most_connections = _connections(self._limits.connections)
        #: Bytes kept for clients, per connection and in total; counted when a connection starts to wait for its client.
        self._held: dict[int, int] = {}
        self._held_bytes = 0
        self._held_lock = threading.Lock()
        #: Ended connections by reason, for tests, which count work instead of seconds.
        self.ended = Counter[str]()
        self._listener = listener
        self._epoll = select.epoll()
        self._connections: dict[int, HttpConnection] = {}
        # A single client waits for its response before the next request. If another client connects, the deputy
        # notices.
        self._leaders = LeaderFollowers(lambda: len(self._connections) > 1)
        self._ends = threading.Event()
        self._retires = threading.Event()
        self._wake, self._wakes = socket.socketpair()
        self._threads = [
            threading.Thread(target=self._run_thread, name=f"http-{number}", daemon=True) for number in range(threads)
        ]
        self.address = listener.getsockname()
        self._environ = _environ(self.address, "http" if tls is None else "https")

    def start(self) -> None:
        """Listen and start the threads. No connection is accepted before."""
        # Accepted sockets inherit these options.
        self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _KERNEL_BYTES)
        self._listener.listen(BACKLOG)
        self._listener.setblocking(False)
        self._epoll.register(self._listener, _READABLE)
        self._epoll.register(self._wake, _READABLE)
        for thread in self._threads:
            thread.start()
        threading.Thread(target=self._watch_deadlines, name="http-idle", daemon=True).start()

    def retire(self) -> None:
        """Close each connection after its next response, so that clients reconnect, perhaps to another process."""
        self._retires.set()

    def stop(self, timeout_s: float) -> None:
        """Answer the requests that have arrived and accept no more; wait at most `timeout_s` for the responses."""
        give_up = time.monotonic() + timeout_s
        self._ends.set()
        # Connections in the kernel's queue have usually sent their request already.
        self._accept()
        for connection in self._slots.release_all():
            self._wake_up(connection)
        self._listener.shutdown(socket.SHUT_RDWR)
        self._wakes.send(b"\0")
        for thread in self._threads:
            thread.join(max(0.0, give_up - time.monotonic()))
        for connection in list(self._connections.values()):
            with suppress(ClientGone):
                connection.finish_response(give_up)
            connection.end()
        self._leaders.close()
        self._listener.close()

    def end_late_connections(self, most: int = _ENDED_AT_ONCE) -> int:
        """Closes up to `most` connections past their deadline; returns the number closed."""
        now = time.monotonic()
        late = [one for one in list(self._connections.values()) if one.deadline < now][:most]
        for connection in late:
            self._end(connection, "late")
        return len(late)

    def _watch_deadlines(self) -> None:
        while not self._ends.wait(LOOK_S):
            while self.end_late_connections() == _ENDED_AT_ONCE and not self._ends.wait(LOOK_S / 20):
                pass

    def _end(self, connection: HttpConnection, why: str) -> None:
        """Shut the connection down. The thread that receives its event then calls `_forget`."""
        self.ended[why] += 1
        connection.end_late()

    def _end_oldest(self) -> bool:
        """End the connection that has waited longest for its client, preferring one without any request so far. Returns
        False if all connections have a request in progress.
        """
        resting = (one for one in list(self._connections.values()) if one.is_resting)
        oldest = min(resting, key=_seniority, default=None)
        if oldest is None:
            return False
        self._end(oldest, "crowded out")
        return True

    # --- for tests ----------------------------------------------------------------------------------------------

    @property
    def kept_bytes(self) -> int:
        """Bytes kept for requests that arrive slowly and responses that are taken slowly."""
        return self._held_bytes

    @property
    def at_work(self) -> int:
        """Threads that are handling a request."""
        return self._slots.at_work

    @property
    def waiting(self) -> int:
        """Requests that wait for a thread slot."""
        return self._slots.waiting

    # --- a thread -----------------------------------------------------------------------------------------------

    def _run_thread(self) -> None:
        while (leadership := self._leaders.wait_to_lead()) is not None:
            self._lead(leadership)

    def _lead(self, leadership: Leadership) -> None:
        """Lead until the leadership ends, or until the server ends and all arrived requests are answered."""
        poll, listener = self._epoll.poll, self._listener.fileno()
        while not leadership.is_over:
            events = poll(0 if self._ends.is_set() else -1, 1)
            if not events:
                self._leaders.close()
                return
            for descriptor, _ in events:
                self._leaders.begin_turn(leadership)
                if descriptor == listener:
                    self._accept()
                elif connection := self._connections.get(descriptor):
                    self._turn(connection)
                self._leaders.end_turn(leadership)

    def _accept(self) -> None:
        try:
            for _ in range(_ACCEPTED_AT_ONCE if not self._ends.is_set() else BACKLOG):
                sock, peer = self._listener.accept()
                sock.setblocking(False)
                environ = {**self._environ, "REMOTE_ADDR": peer[0], "REMOTE_PORT": str(peer[1])}
                client = sock if self._tls is None else self._tls.wrap(sock)
                connection = HttpConnection(client, environ, self._limits, self._admission)
                self._connections[connection.descriptor] = connection
                self._epoll.register(connection.descriptor, _READABLE)
                if len(self._connections) > self._most_connections:
                    self._end_oldest()
        except BlockingIOError:
            pass
        except OSError as error:
            if self._ends.is_set():
                return
            log.warning("a connection is not accepted", extra={"reason": str(error)})
            if not self._end_oldest():
                time.sleep(NO_DESCRIPTOR_S)
        if not self._ends.is_set():
            self._epoll.modify(self._listener.fileno(), _READABLE)

    def _turn(self, connection: HttpConnection) -> None:
        """Does all work that is possible for the connection now, then arms it for its next event."""
        try:
            if connection.has_unsent:
                connection.send_more()
            elif connection.streaming is None and connection.ready_request is None:
                connection.receive()
            while self._go_on(connection):
                pass
            if connection.closes and not (connection.has_unsent or connection.streaming or connection.lingers):
                connection.linger()
            self._record_held_bytes(connection, connection.start_waiting())
            self._arm(connection)
        except ClientGone:
            connection.say_late()
            self._forget(connection)
        except Exception:  # the top of a thread, which must serve the next connection
            log.exception("a connection is closed after an unexpected error in the server")
            self._forget(connection)

    def _arm(self, connection: HttpConnection) -> None:
        """Arm the next event. Must be the last step of a turn: another thread may then use the connection."""
        arrived = connection.ready_request
        if arrived is not None and self._slots.enqueue(connection, arrived.intake):
            return
        has_more = arrived is not None or connection.streaming is not None or connection.has_unsent
        self._epoll.modify(connection.descriptor, _WRITABLE if has_more else _READABLE)

    def _go_on(self, connection: HttpConnection) -> bool:
        """Continue a response or handle the next request; returns False if nothing can be done now."""
        if connection.has_unsent or (connection.closes and connection.streaming is None):
            return False
        if connection.streaming is not None:
            connection.streaming.go_on()
            return connection.streaming is None
        try:
            arrived = connection.next_request()
        except BadRequestHead as refused:
            connection.closes = True
            connection.send(http1.error_response(refused))
            return False
        if arrived is None:
            return False
        if not self._slots.acquire(arrived.intake, is_urgent=False) and not self._enters_urgently(arrived):
            connection.ready_request = arrived
            return False
        connection.request_started()
        try:
            run_application(self._app, connection, arrived, is_last=self._retires.is_set() or self._ends.is_set())
        finally:
            for waiting in self._slots.release(arrived.intake):
                self._wake_up(waiting)
        return connection.has_more

    def _enters_urgently(self, arrived: ReadyRequest) -> bool:
        is_urgent = self._admission.is_urgent(arrived.request.target)
        return is_urgent and self._slots.acquire(arrived.intake, is_urgent=True)

    def _wake_up(self, connection: HttpConnection) -> None:
        """Arm the connection for writing, which causes an event at once."""
        self._epoll.modify(connection.descriptor, _WRITABLE)

    def _record_held_bytes(self, connection: HttpConnection, size: int) -> None:
        """Record the `size` in bytes kept for this connection. If the total is too large, end the connection that has
        waited longest.
        """
        descriptor = connection.descriptor
        if not size and descriptor not in self._held:
            return
        with self._held_lock:
            self._held_bytes += size - self._held.pop(descriptor, 0)
            if size:
                self._held[descriptor] = size
            if self._held_bytes <= self._limits.buffer_bytes:
                return
            holding = [one for one in map(self._connections.get, self._held) if one is not None and one.is_resting]
            oldest = min(holding, key=_seniority, default=None)
            if oldest is None:
                return
            self._held_bytes -= self._held.pop(oldest.descriptor)
        self._end(oldest, "buffers full")

    def _forget(self, connection: HttpConnection) -> None:
        del self._connections[connection.descriptor]
        if connection.descriptor in self._held:
            with self._held_lock:
                self._held_bytes -= self._held.pop(connection.descriptor)
        connection.close()
        for waiting in self._slots.next_waiting():  # it may have been offered a slot that it did not take
            self._wake_up(waiting)


def _seniority(connection: HttpConnection) -> tuple[bool, float]:
    return bool(connection.answers), connection.waits_since


def _connections(wanted: int) -> int:
    """`wanted`, or as many connections as the process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = wanted if soft == resource.RLIM_INFINITY else max(16, soft - _OTHER_DESCRIPTORS)
    return min(wanted, possible)


def _environ(address: tuple[Any, ...], scheme: str) -> dict[str, object]:
    return {
        "SCRIPT_NAME": "",
        "SERVER_NAME": address[0],
        "SERVER_PORT": str(address[1]),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scheme,
        "wsgi.errors": sys.stderr,
        "wsgi.input_terminated": True,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
