"""Hostile clients, and one normal client whose requests are timed at the same time.

usage: python -m tests.wire.kernel.hostile [--connections 2000] [--seconds 20] [--kinds KIND,...]
                                           [--certificates DIRECTORY]

Starts the service of `harbour` with the limits of a plane. For each kind in turn, it opens this many connections, lets
each send (or read) one byte a second, and prints the times of the normal client's requests. With a directory of
`tests.certificates`, all of them speak TLS.
"""

import argparse
import http.client
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

from moorage.core.ids import RandomIds
from moorage.wire.admission import Admissions
from moorage.wire.app import AppContext, build_app, mount_apps
from moorage.wire.http import Headers, Request, Response, Route
from moorage.wire.server.http_server import HttpServer
from moorage.wire.server.limits import ServerLimits
from moorage.wire.server.process_setup import Signals, raise_file_limit
from tests.ports import free_port
from tests.wire.kernel import harbour
from tests.wire.kernel.security import NAME, PLAIN, Security, with_tls

#: More bytes than the buffers of both kernels can hold.
LARGE = b"x" * (8 << 20)
TOKEN = "ada/member"
MAX_JSON_BYTES = 1 << 20


def large(_request: Request) -> Response:
    return Response(body=LARGE, content_type="application/octet-stream")


_MADE = Counter[str]()


def made_bytes() -> int:
    """The number of bytes of all endless answers that this process has generated."""
    return _MADE["endless"]


def endless(_request: Request) -> Response:
    def pieces() -> Iterator[bytes]:
        for _ in range(100_000):
            _MADE["endless"] += 65536
            yield LARGE[:65536]

    return Response(stream=pieces(), content_type="application/octet-stream")


#: Called by GET /waits, if a test sets it.
WAITS: list[Callable[[Request], Response]] = []


def waits(request: Request) -> Response:
    return WAITS[0](request)


API = replace(
    harbour.API,
    max_json_bytes=MAX_JSON_BYTES,
    routes=(
        *harbour.API.routes,
        Route("POST", "/sign-in", harbour.echo, None),
        Route("GET", "/large", large, "boat:show"),
        Route("GET", "/endless", endless, "boat:show"),
        Route("GET", "/waits", waits, "boat:show"),
        Route("GET", "/poster", large, None),
    ),
)


def server(
    listener: socket.socket, *, threads: int, limits: ServerLimits | None = None, security: Security = PLAIN
) -> HttpServer:
    """The service of `harbour` with the limits for bodies that a plane has."""
    around = AppContext(harbour.Tokens(), harbour.RULES, RandomIds())
    admissions = Admissions()
    admissions.add_service(
        "/harbour", API, lambda environ: around.authenticator.authenticate(Headers(environ), environ)
    )
    app = mount_apps({"/harbour": build_app(API, None, around)})
    return HttpServer(app, listener, threads=threads, limits=limits, admission=admissions, tls=security.tls)


def head(method: str, path: str, *lines: str, token: str | None = TOKEN) -> bytes:
    known = [f"X-Auth-Token: {token}"] if token else []
    return "\r\n".join([f"{method} /harbour{path} HTTP/1.1", "Host: here", *known, *lines, "", ""]).encode()


JSON = "Content-Type: application/json"

#: {kind: (what is sent at once, whether more is sent byte by byte; otherwise the answer is read byte by byte)}
KINDS: Mapping[str, tuple[bytes, bool]] = {
    "slow head": (b"GET /harbour/boats/ada HTTP/1.1\r\nHost: ", True),
    "slow body, small, without credentials": (head("POST", "/boats", JSON, "Content-Length: 60000", token=None), True),
    "slow body, large, without credentials": (head("POST", "/boats", JSON, "Content-Length: 900000", token=None), True),
    "slow body in chunks, to a public route": (
        head("POST", "/sign-in", JSON, "Transfer-Encoding: chunked", token=None) + b"fff0\r\n", True,
    ),
    "slow body, with credentials": (head("POST", "/boats", JSON, "Content-Length: 900000"), True),
    "slow body in chunks, with credentials": (head("POST", "/boats", JSON, "Transfer-Encoding: chunked") + b"fff0\r\n", True),
    "slow upload, with credentials": (head("PUT", "/cargo", "Content-Length: 100000000"), True),
    "slow reader, without credentials": (head("GET", "/poster", token=None), False),
    "slow reader, with credentials": (head("GET", "/large"), False),
    "slow reader of a stream": (head("GET", "/endless"), False),
}  # fmt: skip


class Hostile:
    """`count` connections of one kind. Connections that the server closes are not opened again."""

    def __init__(
        self, address: tuple[str, int], kind: str, count: int, *, period_s: float = 1.0, security: Security = PLAIN
    ) -> None:
        self._sent, self._writes = KINDS[kind]
        self._security = security
        self._address, self._count, self._period_s = address, count, period_s
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._trickle, daemon=True)
        self.open: list[socket.socket] = []
        #: For each ended connection the first line of the answer, or nothing.
        self.told: list[bytes] = []

    def __enter__(self) -> Self:
        for _ in range(self._count):
            sock = self._security.connect(self._address, 60, receive_bytes=4096)
            sock.sendall(self._sent)
            sock.setblocking(False)
            self.open.append(sock)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stops.set()
        self._thread.join()
        for sock in self.open:
            sock.close()

    def _trickle(self) -> None:
        while not self._stops.wait(self._period_s):
            self.open = [sock for sock in self.open if self._lives(sock)]

    def _lives(self, sock: socket.socket) -> bool:
        try:
            if self._writes:
                sock.send(b"a")
            came = sock.recv(1 if not self._writes else 4096)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return True
        except OSError:
            came = b""
        if came and not self._writes:
            return True
        self.told.append(came.partition(b"\r\n")[0])
        sock.close()
        return False

    def wait_until_ended(self, timeout_s: float) -> bool:
        give_up = time.monotonic() + timeout_s
        while self.open and time.monotonic() < give_up:
            time.sleep(0.05)
        return not self.open


def timed(
    address: tuple[str, int], seconds: float, requests: int | None = None, security: Security = PLAIN
) -> list[float]:
    """The sorted times in seconds of a normal client's requests, sent one after the other on one keep-alive
    connection.
    """
    connection = http.client.HTTPConnection(NAME, timeout=60)
    connection.sock = security.connect(address, 60)
    took: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end and (requests is None or len(took) < requests):
        began = time.perf_counter()
        connection.request("GET", "/harbour/boats/ada", headers={"X-Auth-Token": TOKEN})
        answer = connection.getresponse()
        answer.read()
        took.append(time.perf_counter() - began)
        if answer.status != 200:
            raise AssertionError(f"a good client was answered {answer.status}")
        time.sleep(0.001)
    connection.close()
    return sorted(took)


@contextmanager
def serving(certificates: Path | None = None) -> Iterator[tuple[str, int]]:
    """The address of the service in a separate process with the limits and threads of a plane."""
    port = free_port()
    secured = [] if certificates is None else ["--certificates", str(certificates)]
    module = __spec__.name if __spec__ else __name__
    process = subprocess.Popen([sys.executable, "-m", module, "--serve", str(port), *secured])
    address = ("127.0.0.1", port)
    try:
        give_up = time.monotonic() + 60
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(address) == 0:
                    break
            if process.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError("the server does not start")
            time.sleep(0.05)
        yield address
    finally:
        process.terminate()
        process.wait(60)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time a good client beside hostile ones.")
    parser.add_argument("--connections", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--certificates", type=Path, help="directory of the certificates with which all speak TLS")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    security = PLAIN if asked.certificates is None else with_tls(asked.certificates)
    raise_file_limit()
    if asked.serve:
        signals = Signals()
        one = server(socket.create_server(("127.0.0.1", asked.serve)), threads=32, security=security)
        one.start()
        signals.wait_for_sigterm(lambda: None)
        one.stop(1.0)
        return
    print(f"{'':42}{'requests':>9}{'p50 ms':>8}{'p99 ms':>8}{'max ms':>8}{'left':>6}")
    for kind in ("nobody", *(name for name in KINDS if any(part.strip() in name for part in asked.kinds.split(",")))):
        with serving(asked.certificates) as address:
            if kind == "nobody":
                show(kind, timed(address, asked.seconds, security=security), 0)
                continue
            with Hostile(address, kind, asked.connections, security=security) as hostile:
                show(kind, timed(address, asked.seconds, security=security), len(hostile.open))


def show(kind: str, took: list[float], left: int) -> None:
    p50, p99, most = (took[min(len(took) - 1, int(len(took) * part))] * 1e3 for part in (0.5, 0.99, 1.0))
    print(f"{kind:42}{len(took):9}{p50:8.2f}{p99:8.2f}{most:8.2f}{left:6}", flush=True)


if __name__ == "__main__":
    main()
