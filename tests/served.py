"""Serves a WSGI application over a socket, with Moorage's own server.

usage: python -m tests.served MODULE:FUNCTION PORT     FUNCTION() returns the application
"""

import importlib
import sys
from socket import create_server

from moorage.wire.app import WsgiApp
from moorage.wire.server.http_server import HttpServer
from moorage.wire.server.process_setup import Signals


def serve(app: WsgiApp, port: int, *, threads: int = 4) -> None:
    """Serves on loopback until SIGTERM."""
    signals = Signals()
    server = HttpServer(app, create_server(("127.0.0.1", port)), threads=threads)
    server.start()
    signals.wait_for_sigterm(lambda: None)
    server.stop(5.0)


if __name__ == "__main__":
    module, _, function = sys.argv[1].partition(":")
    serve(getattr(importlib.import_module(module), function)(), int(sys.argv[2]))
