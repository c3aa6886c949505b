"""A TCP line that can be cut: stands between a client and a server that other tests use, too."""

import contextlib
import socket
import threading
from urllib.parse import urlsplit


class Line:
    """Forwards ``127.0.0.1:port`` to the server of `url` until it is `cut`, and again after `mend`."""

    def __init__(self, url: str) -> None:
        at = urlsplit(url)
        self._target = (at.hostname, at.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        user, _, _ = at.netloc.rpartition("@")
        #: `url`, through this line.
        self.url = at._replace(netloc=f"{user}@127.0.0.1:{self.port}").geturl()
        self._whole = True
        self._lock = threading.Lock()
        self._sockets = []
        #: Connections that came through.
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Every connection is reset, and new ones are, until `mend`."""
        with self._lock:
            self._whole = False
            sockets, self._sockets = self._sockets, []
        for one in sockets:
            _shut(one)

    def mend(self) -> None:
        with self._lock:
            self._whole = True

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
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source, sink) -> None:
    with contextlib.suppress(OSError):
        while block := source.recv(65536):
            sink.sendall(block)
    _shut(source)
    _shut(sink)


def _shut(one) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
