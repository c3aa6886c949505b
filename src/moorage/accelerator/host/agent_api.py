"""The HTTP API of a host's accelerator agent, for `os_acc`, on a Unix socket that only this user can open.

::

    GET  /v1/ready?wait_s=5      200 {"ready": true, "host": "compute-1"}, after `wait_s` at most
    POST /v1/plug                {"instance_info", "selected_rp", "flavor_extra_specs"} -> {"devices": [ENTRY]}
    POST /v1/unplug              {"instance_info"} -> {"released": 1}
    POST /v1/handles/{pci_id}/release     204: a quarantined handle was cleaned and is free

For ENTRY see `os_acc.plug`, for permissions and errors `moorage.wire.unix_socket_api`. The server is that of the
standard library, because only few local callers use it, and it needs no process of its own.
"""

import contextlib
import logging
import socket
import socketserver
import threading
from pathlib import Path
from typing import IO, Any, cast
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, WSGIServer

from moorage.accelerator.host.agent import AcceleratorAgent
from moorage.core.errors import Invalid, StartError
from moorage.core.ids import Ids
from moorage.telemetry.trail import Trail
from moorage.wire.app import ServiceApi, WsgiApp
from moorage.wire.body import Schema
from moorage.wire.http import Request, Response, Route
from moorage.wire.unix_socket_api import build_unix_socket_app, unix_socket_api

#: Upper bound for `wait_s` of GET /v1/ready.
MAX_WAIT_S = 30.0


#: The kernel's limit for a socket's path, minus the suffix used while the socket is created.
_MAX_PATH_BYTES = 104


def wait_ready(request: Request[AcceleratorAgent]) -> Response:
    text = request.query.first("wait_s") or "0"
    try:
        wait_s = min(max(float(text), 0.0), MAX_WAIT_S)
    except ValueError as error:
        raise Invalid(f"wait_s is {text!r}; give a number of seconds") from error
    return Response(body={"ready": request.service.wait_ready(wait_s), "host": request.service.host})


def plug_accelerators(request: Request[AcceleratorAgent]) -> Response:
    body = request.json
    devices = request.service.plug(body["instance_info"], body["selected_rp"], body["flavor_extra_specs"])
    return Response(body={"devices": devices})


def unplug_accelerators(request: Request[AcceleratorAgent]) -> Response:
    return Response(body={"released": request.service.unplug(request.json["instance_info"])})


def release_quarantined_handle(request: Request[AcceleratorAgent], pci_id: str) -> Response:
    request.service.release_quarantined(pci_id)
    return Response(204)


def _object_with(*names: str) -> Schema:
    return Schema({"type": "object", "required": list(names), "properties": {name: {} for name in names}})


API: ServiceApi[AcceleratorAgent] = unix_socket_api(
    "accelerator-agent",
    (
        Route("GET", "/v1/ready", wait_ready, rule=None),
        Route(
            "POST",
            "/v1/plug",
            plug_accelerators,
            rule=None,
            schema=_object_with("instance_info", "selected_rp", "flavor_extra_specs"),
        ),
        Route("POST", "/v1/unplug", unplug_accelerators, rule=None, schema=_object_with("instance_info")),
        Route("POST", "/v1/handles/{pci_id}/release", release_quarantined_handle, rule=None),
    ),
)


def wsgi_app(agent: AcceleratorAgent, ids: Ids, trail: Trail | None = None) -> WsgiApp:
    return build_unix_socket_app(API, agent, ids, trail)


log = logging.getLogger(__name__)


def is_socket_path_too_long(path: Path) -> bool:
    return len(bytes(path)) > _MAX_PATH_BYTES


class SocketServer:
    """Serves `app` on the socket `path` between `start` and `stop`, with one thread per request."""

    def __init__(self, app: WsgiApp, path: Path) -> None:
        self._app = app
        self.path = path
        self._server: _UnixServer | None = None

    def start(self) -> None:
        """Returns when the socket is listening. Replaces a socket that an earlier process left behind."""
        if is_socket_path_too_long(self.path):
            raise StartError(
                f"{self.path} is too long for a socket ({_MAX_PATH_BYTES} bytes); choose a shorter directory"
            )
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Bind under another name and rename, so that the socket at `path` never has a wider mode.
        part = self.path.with_name(self.path.name + ".n")
        part.unlink(missing_ok=True)
        # typeshed declares (host, port) only, but the address of an AF_UNIX server is a path.
        self._server = _UnixServer(str(part), _RequestHandler)  # type: ignore[arg-type]
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
        #: Otherwise the standard library would add the process's environment to the request's.
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

    def log_message(self, line: str, *args: object) -> None:
        log.debug("request", extra={"line": line % args})
