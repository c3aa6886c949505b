"""A process of placement as operators run it, alone with its client; whether it asks the database, and whether it is stopped."""

import contextlib
import os
import re
import signal
import socket
import time
from urllib.parse import urlsplit

from tests.crash.processes import Server
from tests.crash.wire import Client

HOST = "00000000-0000-4000-a000-000000000001"
URL = f"/resource_providers/{HOST}"
PATIENCE_S = 30.0


class Process:
    def __init__(self, directory, database_url, **options):
        self.server = Server(directory, database_url, zygote=False, **options)
        self.client = None

    def start(self):
        """Until it serves."""
        self.server.start()
        self.server.wait()
        self.client = Client(self.server.url)
        return self

    def stop(self):
        self.server.stop()
        assert self.server.died() is not None

    def kill(self):
        self.server.kill()
        self.server.died()

    def name(self):
        return self.client.get(URL)["name"]

    def rename(self, name):
        """The seconds it took."""
        began = time.monotonic()
        assert self.client.send("PUT", URL, {"name": name}).status == 200
        return time.monotonic() - began

    def counted(self, metric):
        return self.server.counted(metric)

    def reads_without_asking(self):
        """Until it has the lease, and just has renewed it."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            before = self.counted('reads_total{exact_by="lease"}')
            self.name()
            if self.counted('reads_total{exact_by="lease"}') > before:
                return
            time.sleep(0.05)
        raise AssertionError(f"it asks, and asks:\n{self.server.last_log}")

    @contextlib.contextmanager
    def stopped(self):
        """As a machine does that has no time for it."""
        os.killpg(self.server.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.server.pid, signal.SIGCONT)

    def ask(self):
        """A connection on which a read was sent; `told` hears the answer."""
        place = urlsplit(self.server.url)
        connection = socket.create_connection((place.hostname, place.port), timeout=PATIENCE_S)
        head = "Connection: close\r\nX-Auth-Token: admin\r\nOpenStack-API-Version: placement 1.39"
        connection.sendall(f"GET {place.path}{URL} HTTP/1.1\r\nHost: {place.netloc}\r\n{head}\r\n\r\n".encode())
        return connection


def told(connection):
    with contextlib.closing(connection):
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    return re.search(rb'"name": ?"([^"]+)"', answer).group(1).decode()
