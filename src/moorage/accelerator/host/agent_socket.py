"""A WSGI application on a Unix socket that only this user can open.

A few local callers at a time: the standard library's server is enough, and needs no process of its own.
"""

import contextlib
import logging
import socket
import socketserver
import threading
from pathlib import Path
from typing import IO, Any, cast
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, WSGIServer

from moorage.core.errors import StartError
from moorage.wire.app import WsgiApp

log = logging.getLogger(__name__)

#: The kernel's bound on the path of a socket, less the ending used while it is being made.
_MAX_PATH_BYTES = 104


def is_socket_path_too_long(path: Path) -> bool:
    return len(bytes(path)) > _MAX_PATH_BYTES


class SocketServer:
    """Serves `app` at `path` from `start` to `stop`, a thread per request."""

    def __init__(self, app: WsgiApp, path: Path) -> None:
        self._app = app
        self.path = path
        self._server: _UnixServer | None = None

    def start(self) -> None:
        """Listens once this returns. A socket that an earlier process left behind is replaced."""
        if is_socket_path_too_long(self.path):
            raise StartError(
                f"{self.path} is too long for a socket ({_MAX_PATH_BYTES} bytes); choose a shorter directory"
            )
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Bound beside and renamed: at its own name the socket never had another mode.
        part = self.path.with_name(self.path.name + ".n")
        part.unlink(missing_ok=True)
        self._server = _UnixServer(str(part), _RequestHandler)  # type: ignore[arg-type]  # typeshed knows only addresses of AF_INET
        part.chmod(0o600)
        part.rename(self.path)
        self._server.set_app(self._app)
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name=f"serve {self.path}", daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
            with contextlib.suppress(FileNotFoundError):
                self.path.unlink()


class _UnixServer(socketserver.ThreadingMixIn, WSGIServer):
    address_family = socket.AF_UNIX
    daemon_threads = True
    request_queue_size = 64

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)
        self.server_name = "localhost"
        self.server_port = 0
        self.setup_environ()

    def get_request(self) -> tuple[Any, Any]:
        connection, _ = self.socket.accept()
        return connection, ("local", 0)


class _Exchange(ServerHandler):
    def __init__(self, handler: "_RequestHandler", environ: dict[str, str]) -> None:
        streams = cast(IO[bytes], handler.rfile), cast(IO[bytes], handler.wfile), handler.get_stderr()
        super().__init__(*streams, environ, multithread=True)
        #: The standard library would mix the process's environment into the request's.
        self.os_environ = {}
        self.request_handler = handler  # the base class logs through it


class _RequestHandler(WSGIRequestHandler):
    def handle(self) -> None:
        self.raw_requestline = self.rfile.readline(65537)
        if len(self.raw_requestline) > 65536 or not self.parse_request():
            return
        environ = {key: value for key, value in self.get_environ().items() if isinstance(value, str)}
        app = cast(_UnixServer, self.server).get_app()
        if app is not None:
            _Exchange(self, environ).run(app)

    def log_message(self, line: str, *args: Any) -> None:
        log.debug("request", extra={"line": line % args})
