"""The HTTP server: a WSGI application behind one listening socket, with as many requests at once as it has threads.

One thread has the wheel (`moorage.wire.wheel`): it waits on the epoll for a connection that has something, reads the
request, answers it, and sends the answer itself; no request changes threads. Who has to wait for it gives the wheel to
another thread. Who sends slowly, reads slowly or asks nothing holds none of them; only a body above
`connection.EAGER_BYTES` is read, and a streamed answer written, by a thread that waits, within bounds.

Nothing here decides how long a connection may rest: see `moorage.wire.connection`. Why not somebody else's server:
docs/decisions/0014.
"""

import logging
import select
import socket
import sys
import threading
import time
from contextlib import suppress
from typing import Any

from moorage.wire import http1
from moorage.wire.answering import answer
from moorage.wire.app import WsgiApp
from moorage.wire.connection import Connection, Gone
from moorage.wire.http1 import Refused
from moorage.wire.wheel import Drive, Wheel

log = logging.getLogger(__name__)

BACKLOG = 1024
#: How often connections are looked at whose time may be over.
LOOK_S = 2.0
#: Where there is no descriptor left for another connection.
NO_ROOM_S = 0.1

#: One thread is told of an event, and nobody of another one before it says so.
_READABLE = select.EPOLLIN | select.EPOLLONESHOT
_WRITABLE = select.EPOLLOUT | select.EPOLLONESHOT


class Server:
    """`listener`: a bound socket of TCP, which is closed with the server."""

    def __init__(self, app: WsgiApp, listener: socket.socket, *, threads: int) -> None:
        self._app = app
        self._listener = listener
        self._epoll = select.epoll()
        self._connections: dict[int, Connection] = {}
        # Who is the only client waits for the answer before asking again; should another one come, the deputy looks.
        self._wheel = Wheel(lambda: len(self._connections) > 1)
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
        self._listener.shutdown(socket.SHUT_RDWR)
        self._wakes.send(b"\0")
        for thread in self._threads:
            thread.join(max(0.0, give_up - time.monotonic()))
        for connection in list(self._connections.values()):
            with suppress(Gone):
                connection.wait_for_reader(0, max(0.0, give_up - time.monotonic()))
            connection.end()
        self._wheel.close()
        self._listener.close()

    def _look_after(self) -> None:
        while not self._ends.wait(LOOK_S):
            now = time.monotonic()
            for connection in list(self._connections.values()):
                if connection.deadline < now:
                    connection.end()

    # --- a thread -----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (drive := self._wheel.take()) is not None:
            self._drive(drive)

    def _drive(self, drive: Drive) -> None:
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
            while True:
                sock, peer = self._listener.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection = Connection(sock, {**self._environ, "REMOTE_ADDR": peer[0], "REMOTE_PORT": str(peer[1])})
                self._connections[connection.descriptor] = connection
                self._epoll.register(connection.descriptor, _READABLE)
        except BlockingIOError:
            pass
        except OSError as error:
            if self._ends.is_set():
                return
            log.warning("a connection is not accepted", extra={"reason": str(error)})
            time.sleep(NO_ROOM_S)
        if not self._ends.is_set():
            self._epoll.modify(self._listener.fileno(), _READABLE)

    def _turn(self, connection: Connection) -> None:
        """All that can be done for it now; then somebody is told when there is more."""
        try:
            if connection.has_unsent:
                connection.send_more()
            else:
                connection.take()
            while not (connection.has_unsent or connection.closes):
                if not self._one(connection):
                    break
            if connection.closes and not (connection.has_unsent or connection.lingers):
                connection.linger()
            connection.rests()
            self._epoll.modify(connection.descriptor, _WRITABLE if connection.has_unsent else _READABLE)
        except Gone:
            self._forget(connection)
        except Exception:  # the top of a thread, which must serve the next connection
            log.exception("a connection ends by a mistake of the server")
            self._forget(connection)

    def _one(self, connection: Connection) -> bool:
        """The next request, if it is there."""
        try:
            found = connection.next_request()
        except Refused as refused:
            connection.closes = True
            connection.send(http1.refusal(refused))
            return True
        if found is None:
            return False
        connection.works()
        answer(self._app, connection, *found, is_last=self._retires.is_set() or self._ends.is_set())
        return True

    def _forget(self, connection: Connection) -> None:
        del self._connections[connection.descriptor]
        connection.close()


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
