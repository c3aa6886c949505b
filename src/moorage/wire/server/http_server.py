"""The HTTP server: a WSGI application behind one listening socket, with as many requests at once as it has threads.

One thread has the wheel (`moorage.wire.server.leader_followers`): it waits on the epoll for a connection that has something, reads the
request, answers it, and sends the answer itself; no request changes threads. Who has to wait for it gives the wheel to
another thread. Who sends slowly, reads slowly or asks nothing holds none of them: a body is collected here until it is
whole, and a streamed answer is asked for as it is taken. Only what an application must read while it comes (images) is
read by a thread that waits, and of those there are a few (`thread_slots`).

What is scarce is taken from the client that has had it longest: connections, and memory for what came or goes slowly.

Nothing here decides how long a connection may rest (`moorage.wire.server.connection`) or how much of a body is taken
(`moorage.wire.admission`). Why not somebody else's server: docs/evidence/decisions/0014.
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
from moorage.wire.server.leader_followers import LeaderFollowers, Leadership
from moorage.wire.server.limits import ServerLimits
from moorage.wire.server.request_body import BodyAdmission, BodyIntake
from moorage.wire.server.thread_slots import ThreadSlots
from moorage.wire.server.wsgi_response import run_application

log = logging.getLogger(__name__)

BACKLOG = 1024
#: How often connections are looked at whose time may be over.
LOOK_S = 1.0
#: So many are ended at one look: each is an event for the thread at the wheel, which has others waiting.
_ENDED_AT_ONCE = 64
#: So many are accepted before it is somebody else's turn.
_ACCEPTED_AT_ONCE = 16
#: Where there is no descriptor left for another connection, and nobody to take one from.
NO_ROOM_S = 0.1
#: Of an answer so much lies in the kernel beyond what is on its way: thousands of slow readers must not fill its memory.
_KERNEL_BYTES = 256 * 1024
#: Descriptors that are left to databases, files and other services.
_OTHER_DESCRIPTORS = 256

#: One thread is told of an event, and nobody of another one before it says so.
_READABLE = select.EPOLLIN | select.EPOLLONESHOT
_WRITABLE = select.EPOLLOUT | select.EPOLLONESHOT


class StreamEverything:
    """An `BodyAdmission` for applications that nothing else is known of: they read large bodies as they come."""

    def __call__(self, environ: Mapping[str, Any]) -> BodyIntake:
        return BodyIntake(streams=True)

    def is_urgent(self, target: str) -> bool:
        return False


class HttpServer:
    """`listener`: a bound socket of TCP, which is closed with the server."""

    def __init__(
        self,
        app: WsgiApp,
        listener: socket.socket,
        *,
        threads: int,
        limits: ServerLimits | None = None,
        admission: BodyAdmission | None = None,
    ) -> None:
        self._app = app
        self._limits = limits or ServerLimits()
        self._admission = admission or StreamEverything()
        self._places = ThreadSlots(threads, self._limits.uploads)
        self._most_connections = _connections(self._limits.connections)
        #: Bytes kept for clients, by connection and in all; counted when a connection comes to rest.
        self._held: dict[int, int] = {}
        self._held_bytes = 0
        self._scale = threading.Lock()
        #: Connections that were ended, by the reason: for tests, which count work and no seconds.
        self.ended = Counter[str]()
        self._listener = listener
        self._epoll = select.epoll()
        self._connections: dict[int, HttpConnection] = {}
        # Who is the only client waits for the answer before asking again; should another one come, the deputy looks.
        self._wheel = LeaderFollowers(lambda: len(self._connections) > 1)
        self._ends = threading.Event()
        self._retires = threading.Event()
        self._wake, self._wakes = socket.socketpair()
        self._threads = [
            threading.Thread(target=self._work, name=f"http-{number}", daemon=True) for number in range(threads)
        ]
        self.address = listener.getsockname()
        self._environ = _environ(self.address)

    def start(self) -> None:
        """Until here nobody is let in."""
        # What is accepted inherits it.
        self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _KERNEL_BYTES)
        self._listener.listen(BACKLOG)
        self._listener.setblocking(False)
        self._epoll.register(self._listener, _READABLE)
        self._epoll.register(self._wake, _READABLE)
        for thread in self._threads:
            thread.start()
        threading.Thread(target=self._look_after, name="http-idle", daemon=True).start()

    def retire(self) -> None:
        """From now on each answer is the last one on its connection: whoever comes again may come to another process."""
        self._retires.set()

    def stop(self, timeout_s: float) -> None:
        """Answer what has come by now, and take no more; wait for answers so long."""
        give_up = time.monotonic() + timeout_s
        self._ends.set()
        # Who stands in the kernel's queue of connections has mostly sent its request already.
        self._accept()
        for connection in self._places.release_all():
            self._wake_up(connection)
        self._listener.shutdown(socket.SHUT_RDWR)
        self._wakes.send(b"\0")
        for thread in self._threads:
            thread.join(max(0.0, give_up - time.monotonic()))
        for connection in list(self._connections.values()):
            with suppress(ClientGone):
                connection.finish(give_up)
            connection.end()
        self._wheel.close()
        self._listener.close()

    def _look_after(self) -> None:
        while not self._ends.wait(LOOK_S):
            while self._end_late(_ENDED_AT_ONCE) == _ENDED_AT_ONCE and not self._ends.wait(LOOK_S / 20):
                pass

    def _end_late(self, most: int) -> int:
        """Those whose time is over, `most` at once; how many it were."""
        now = time.monotonic()
        late = [one for one in list(self._connections.values()) if one.deadline < now][:most]
        for connection in late:
            self._end(connection, "late")
        return len(late)

    def _end(self, connection: HttpConnection, why: str) -> None:
        """Not `_forget`: it belongs to whoever is told of its event, and finds it at its end."""
        self.ended[why] += 1
        connection.end_late()

    def _end_oldest(self) -> bool:
        """The one that waits longest for its client, first of all one whose client never asked anything; False where all are
        being answered.
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
        """Of requests that come and answers that go slowly."""
        return self._held_bytes

    @property
    def at_work(self) -> int:
        """Threads that answer a request."""
        return self._places.at_work

    @property
    def waiting(self) -> int:
        """Requests that wait for a thread that they may use."""
        return self._places.waiting

    # --- a thread -----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (drive := self._wheel.wait_to_lead()) is not None:
            self._drive(drive)

    def _drive(self, drive: Leadership) -> None:
        """Until it is over, or the server ends and nothing has come that is not answered."""
        poll, listener = self._epoll.poll, self._listener.fileno()
        while not drive.is_over:
            events = poll(0 if self._ends.is_set() else -1, 1)
            if not events:
                self._wheel.close()
                return
            for descriptor, _ in events:
                self._wheel.begin_turn(drive)
                if descriptor == listener:
                    self._accept()
                elif connection := self._connections.get(descriptor):
                    self._turn(connection)
                self._wheel.end_turn(drive)

    def _accept(self) -> None:
        try:
            for _ in range(_ACCEPTED_AT_ONCE if not self._ends.is_set() else BACKLOG):
                sock, peer = self._listener.accept()
                sock.setblocking(False)
                environ = {**self._environ, "REMOTE_ADDR": peer[0], "REMOTE_PORT": str(peer[1])}
                connection = HttpConnection(sock, environ, self._limits, self._admission)
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
                time.sleep(NO_ROOM_S)
        if not self._ends.is_set():
            self._epoll.modify(self._listener.fileno(), _READABLE)

    def _turn(self, connection: HttpConnection) -> None:
        """All that can be done for it now; then somebody is told when there is more."""
        try:
            if connection.has_unsent:
                connection.send_more()
            elif connection.streaming is None and connection.arrived is None:
                connection.take()
            while self._go_on(connection):
                pass
            if connection.closes and not (connection.has_unsent or connection.streaming or connection.lingers):
                connection.linger()
            self._weigh(connection, connection.rests())
            self._arm(connection)
        except ClientGone:
            connection.say_late()
            self._forget(connection)
        except Exception:  # the top of a thread, which must serve the next connection
            log.exception("a connection ends by a mistake of the server")
            self._forget(connection)

    def _arm(self, connection: HttpConnection) -> None:
        """The last thing of a turn: from here on the connection is another thread's."""
        arrived = connection.arrived
        if arrived is not None and self._places.enqueue(connection, arrived.intake):
            return
        has_more = arrived is not None or connection.streaming is not None or connection.has_unsent
        self._epoll.modify(connection.descriptor, _WRITABLE if has_more else _READABLE)

    def _go_on(self, connection: HttpConnection) -> bool:
        """The rest of an answer, or the next request; False where there is nothing that could be done now."""
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
        if not self._places.acquire(arrived.intake, is_urgent=False) and not self._enters_urgently(arrived):
            connection.arrived = arrived
            return False
        connection.works()
        try:
            run_application(self._app, connection, arrived, is_last=self._retires.is_set() or self._ends.is_set())
        finally:
            for waiting in self._places.release(arrived.intake):
                self._wake_up(waiting)
        return connection.has_more

    def _enters_urgently(self, arrived: ReadyRequest) -> bool:
        is_urgent = self._admission.is_urgent(arrived.request.target)
        return is_urgent and self._places.acquire(arrived.intake, is_urgent=True)

    def _wake_up(self, connection: HttpConnection) -> None:
        """It can be written to at once: somebody is told."""
        self._epoll.modify(connection.descriptor, _WRITABLE)

    def _weigh(self, connection: HttpConnection, size: int) -> None:
        """Where too much is kept, the one that has kept it longest is ended. `size`: what this one keeps, in bytes."""
        descriptor = connection.descriptor
        if not size and descriptor not in self._held:
            return
        with self._scale:
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
        self._end(oldest, "out of room")

    def _forget(self, connection: HttpConnection) -> None:
        del self._connections[connection.descriptor]
        if connection.descriptor in self._held:
            with self._scale:
                self._held_bytes -= self._held.pop(connection.descriptor)
        connection.close()
        for waiting in self._places.next_waiting():  # it may have been told of a place, and not lived to take it
            self._wake_up(waiting)


def _seniority(connection: HttpConnection) -> tuple[bool, float]:
    return bool(connection.answers), connection.waits_since


def _connections(wanted: int) -> int:
    """As many as the process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = wanted if soft == resource.RLIM_INFINITY else max(16, soft - _OTHER_DESCRIPTORS)
    return min(wanted, room)


def _environ(address: tuple[Any, ...]) -> dict[str, object]:
    return {
        "SCRIPT_NAME": "",
        "SERVER_NAME": address[0],
        "SERVER_PORT": str(address[1]),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.errors": sys.stderr,
        "wsgi.input_terminated": True,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
