"""A small load balancer: forwards each TCP connection to the next process whose health check succeeds."""

import contextlib
import itertools
import selectors
import socket
import threading
from collections.abc import Sequence
from typing import Self

import httpx


class Balancer:
    """Before each new connection it checks a process's health; if the check fails it tries the next process."""

    def __init__(self, backends: Sequence[str]) -> None:
        """`backends`: ``http://host:port/prefix`` with ``/healthcheck`` below."""
        self._backends = [httpx.URL(backend) for backend in backends]
        self._turns = itertools.count()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        #: {URL: number of connections that this process got}.
        self.given = [0] * len(backends)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._checks = httpx.Client(trust_env=False, timeout=30)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_error: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            first = next(self._turns)
            for number in range(first, first + 20 * len(self._backends)):
                which = number % len(self._backends)
                if (backend := self._connected(self._backends[which])) is not None:
                    self.given[which] += 1
                    with backend:
                        _copy_both(client, backend)
                    return

    def _connected(self, backend: httpx.URL) -> socket.socket | None:
        try:
            answer = httpx.get(f"{backend}/healthcheck", trust_env=False, timeout=30)
            if answer.status_code == 200:
                return socket.create_connection((backend.host, backend.port), 30)
        except (OSError, httpx.HTTPError):
            pass
        threading.Event().wait(0.05)
        return None


def _copy_both(one: socket.socket, other: socket.socket) -> None:
    """Copies bytes in both directions until one side ends, then ends the other."""
    with selectors.DefaultSelector() as ready:
        ready.register(one, selectors.EVENT_READ, other)
        ready.register(other, selectors.EVENT_READ, one)
        while True:
            for key, _ in ready.select():
                piece = key.fileobj.recv(65536)
                if not piece:
                    return
                key.data.sendall(piece)
