"""A minimal service behind Moorage's HTTP server: answers 204 to everything but GET.

usage: python -m bench.empty PORT
"""

import sys
from collections.abc import Callable, Iterable
from socket import create_server
from typing import Any

from moorage.options.plane import ServerOptions
from moorage.wire.server.http_server import HttpServer
from moorage.wire.server.process_setup import Signals


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    environ["wsgi.input"].read()
    start_response("200 OK" if environ["REQUEST_METHOD"] == "GET" else "204 No Content", [])
    return [b""]


def main() -> None:
    signals = Signals()
    server = HttpServer(application, create_server(("127.0.0.1", int(sys.argv[1]))), threads=ServerOptions().threads)
    server.start()
    signals.wait_for_sigterm(lambda: None)
    server.stop(1.0)


if __name__ == "__main__":
    main()
