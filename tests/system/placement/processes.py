"""A process of placement as operators run it, alone with its client; whether it asks the database, and whether it is stopped."""

import contextlib
import os
import re
import signal
import socket
import time
import urllib.request
from urllib.parse import urlsplit

from tests.crash.wire import Client
from tests.ports import free_port
from tests.system.planes import PlaneProcess, write_config

HOST = "00000000-0000-4000-a000-000000000001"
URL = f"/resource_providers/{HOST}"
PATIENCE_S = 30.0
#: Others count as being there for two fifths of the usual time, and are looked for so much more often.
CONSTANTS = {
    "moorage.placement.store.writer_lease.SHARED_S": 4.0,
    "moorage.placement.sync.writer_lease_task.LOOK_S": 0.8,
}


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
        self.plane = PlaneProcess(directory / "moorage.conf", constants=CONSTANTS)
        self.client = None

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.plane.kill()

    @property
    def url(self):
        return f"{self.plane.url}/placement"

    def start(self):
        """Until it serves."""
        self.plane.start()
        self.client = Client(self.url)
        return self

    def stop(self):
        """By request: to the supervisor alone, as an init system does it."""
        assert self.plane.stop(signal.SIGTERM) == 0

    def kill(self):
        """Supervisor and worker at once."""
        self.plane.kill()

    def name(self):
        return self.client.get(URL)["name"]

    def rename(self, name):
        """The seconds it took."""
        began = time.monotonic()
        assert self.client.send("PUT", URL, {"name": name}).status == 200
        return time.monotonic() - began

    def counted(self, metric):
        """One of placement's counters in /metrics."""
        with urllib.request.urlopen(f"{self.plane.url}/metrics", timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
        return int(float(re.search(rf"^moorage_placement_{re.escape(metric)} (\S+)$", text, re.MULTILINE)[1]))

    def reads_without_asking(self):
        """Until it has the lease, and just has renewed it."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            before = self.counted('reads_total{exact_by="lease"}')
            self.name()
            if self.counted('reads_total{exact_by="lease"}') > before:
                return
            time.sleep(0.05)
        raise AssertionError(f"it asks, and asks:\n{self.plane.log[-3000:]}")

    @contextlib.contextmanager
    def stopped(self):
        """As a machine does that has no time for it."""
        os.killpg(self.plane.process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.killpg(self.plane.process.pid, signal.SIGCONT)

    def ask(self):
        """A connection on which a read was sent; `told` hears the answer."""
        place = urlsplit(self.url)
        connection = socket.create_connection((place.hostname, place.port), timeout=PATIENCE_S)
        head = "Connection: close\r\nX-Auth-Token: admin\r\nOpenStack-API-Version: placement 1.39"
        connection.sendall(f"GET {place.path}{URL} HTTP/1.1\r\nHost: {place.netloc}\r\n{head}\r\n\r\n".encode())
        return connection


def told(connection):
    with contextlib.closing(connection):
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    return re.search(rb'"name": ?"([^"]+)"', answer).group(1).decode()
