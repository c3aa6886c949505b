"""A TCP connection that a test can cut, between a client and a server that other tests also use."""

import contextlib
import socket
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

#: A function that receives bytes and returns those to forward.
Filter = Callable[[bytes], bytes]


class Line:
    """Forwards ``127.0.0.1:port`` to the server of `url` until it is `cut`, and again after `mend`."""

    def __init__(self, url: str) -> None:
        at = urlsplit(url)
        self._target = (at.hostname, at.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        user, _, _ = at.netloc.rpartition("@")
        #: `url` with the address of this line.
        self.url = at._replace(netloc=f"{user}@127.0.0.1:{self.port}").geturl()
        self._whole = True
        self._swallows = False
        self._lock = threading.Lock()
        self._sockets = []
        #: The number of connections so far.
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Resets all connections and refuses new ones, until `mend`."""
        with self._lock:
            self._whole = False
            sockets, self._sockets = self._sockets, []
        for one in sockets:
            _shut(one)

    def swallow(self) -> None:
        """Keeps connections and accepts new ones, but forwards no byte in either direction, until `cut`."""
        self._swallows = True

    def mend(self) -> None:
        with self._lock:
            self._whole = True
            self._swallows = False

    def filters(self) -> tuple[Filter, Filter]:
        """The filters of one connection: for bytes to the server, and for bytes from it."""
        return bytes, bytes

    def close(self) -> None:
        self.cut()
        _shut(self._listener)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                if not self._whole:
                    _shut(client)
                    continue
                self.connections += 1
                try:
                    server = socket.create_connection(self._target)
                except OSError:
                    _shut(client)
                    continue
                self._sockets += [client, server]
            for source, sink, passing in zip((client, server), (server, client), self.filters(), strict=True):
                threading.Thread(target=self._pump, args=(source, sink, passing), daemon=True).start()

    def _pump(self, source, sink, passing: Filter) -> None:
        with contextlib.suppress(OSError):
            while block := source.recv(65536):
                if not self._swallows:
                    sink.sendall(passing(block))
        _shut(source)
        _shut(sink)


def _shut(one) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
