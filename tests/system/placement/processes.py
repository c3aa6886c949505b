"""A process of placement as operators run it, with its own client; a test can suspend it."""

import contextlib
import os
import re
import signal
import socket
import time
from urllib.parse import urlsplit

from tests.crash.wire import Client
from tests.ports import free_port
from tests.system.planes import PlaneProcess, write_config

HOST = "00000000-0000-4000-a000-000000000001"
URL = f"/resource_providers/{HOST}"
PATIENCE_S = 30.0


class Process:
    """`options` are those of [placement]."""

    def __init__(self, directory, database_url, **options):
        write_config(
            directory,
            plane={"services": "placement", "log_file": "moorage.log", "log_level": "warning"},
            server={"port": free_port()},
            identity={"mode": "none"},
            database={"placement": database_url},
            placement={"policy": "open", **options},
        )
        self.plane = PlaneProcess(directory / "moorage.conf")
        self.client = None

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.plane.kill()

    @property
    def url(self):
        return f"{self.plane.url}/placement"

    def start(self):
        """Waits until it serves."""
        self.plane.start()
        self.client = Client(self.url)
        return self

    def stop(self):
        """Sends SIGTERM to the supervisor alone, as an init system does."""
        assert self.plane.stop(signal.SIGTERM) == 0

    def kill(self):
        """Kills supervisor and worker at once."""
        self.plane.kill()

    def name(self):
        return self.client.get(URL)["name"]

    def rename(self, name):
        """Returns the seconds that it took."""
        began = time.monotonic()
        assert self.client.send("PUT", URL, {"name": name}).status == 200
        return time.monotonic() - began

    @contextlib.contextmanager
    def stopped(self):
        """Suspends it for a while, as a machine without free CPU would."""
        os.killpg(self.plane.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.plane.process.pid, signal.SIGCONT)

    def ask(self):
        """Sends a read, and returns the connection; `told` receives the answer."""
        place = urlsplit(self.url)
        connection = socket.create_connection((place.hostname, place.port), timeout=PATIENCE_S)
        head = "Connection: close\r\nX-Auth-Token: admin\r\nOpenStack-API-Version: placement 1.39"
        connection.sendall(f"GET {place.path}{URL} HTTP/1.1\r\nHost: {place.netloc}\r\n{head}\r\n\r\n".encode())
        return connection


def told(connection):
    with contextlib.closing(connection):
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    return re.search(rb'"name": ?"([^"]+)"', answer).group(1).decode()
