"""Measures servers from POST to ACTIVE over HTTP, as users see them.

Runs one process with all services and 20 simulated hosts, as `moorage up` does. A client creates a server and polls it until
it is ACTIVE. A burst creates servers as fast as they are accepted, and is over when none is in BUILD.
"""

import json
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from bench.databases import DatabaseServer, database_server, free_ports
from bench.planes import client, credentials_of, moorage
from bench.processes import cpu_seconds
from bench.servers import Server, running
from bench.table import Figure
from bench.wire import Connection

Say = Callable[[Figure], None]

HOSTS = 20
CLIENTS = 8
BURST = 800
VERSION = "2.96"
#: Seconds between two polls of a server.
POLL_S = 0.01
PATIENCE_S = 120.0
#: Servers a second of the row with a steady rate, and the clients that create them in turn.
RATE = 50
RATE_CLIENTS = 16
GOAL_BURST = "100 / 200 per s on SQLite, 300 on PostgreSQL"
GOAL_CLIENTS = "not slower than one client"
GOAL_RATE = "p99 under 250 ms"


def figures(kind: str, say: Say, *, seconds: float) -> None:
    with database_server(kind) as database, _plane(database) as plane:
        launches = _Launches(plane, database)
        launches.of_clients(1, 1.0)
        say(launches.of_clients(1, seconds).figure("1 client, one server after the other"))
        say(launches.of_clients(CLIENTS, seconds).figure(f"{CLIENTS} clients", GOAL_CLIENTS))
        say(launches.at_a_rate(seconds).figure(f"{RATE} a second, {RATE_CLIENTS} clients in turn", GOAL_RATE))
        for figure in launches.burst():
            say(figure)


@dataclass
class _Outcome:
    """Latencies in seconds, wall time in seconds, CPU in ms per server."""

    latencies: list[float] = field(default_factory=list)
    wall: float = 0.0
    cpu: str = ""

    def figure(self, what: str, goal: str = "") -> Figure:
        cuts = statistics.quantiles(self.latencies, n=100)
        note = f"p50 {cuts[49] * 1000:.0f} ms, p99 {cuts[98] * 1000:.0f} ms; {self.cpu}"
        return Figure(what, f"{len(self.latencies) / self.wall:,.1f} per s", note, goal)


class _Launches:
    def __init__(self, plane: Server, database: DatabaseServer) -> None:
        self._plane = plane
        self._database = database
        self._token = credentials_of(plane).headers()["x-auth-token"]  # a login takes long by design
        compute, image = client(plane, "compute"), client(plane, "image")
        self._image = image.request(
            "POST", "/v2/images", json={"name": "image", "disk_format": "raw", "container_format": "bare"}
        )["id"]
        size = {"x-openstack-image-size": "1"}
        image.upload("PUT", f"/v2/images/{self._image}/file", [b"x"], "application/octet-stream", size)
        flavor = {"id": "small", "name": "small", "vcpus": 1, "ram": 1, "disk": 0}
        compute.request("POST", "/v2.1/flavors", json={"flavor": flavor})
        # The limit of hosts is never reached, because processors are not counted.
        compute.request("POST", "/v2.1/flavors/small/os-extra_specs", json={"extra_specs": {"resources:VCPU": "0"}})

    def of_clients(self, number: int, seconds: float) -> _Outcome:
        """Clients that each launch one server after the other."""
        end = time.perf_counter() + seconds

        def launch_until_end(wire: Connection, outcome: _Outcome, _client: int) -> None:
            while time.perf_counter() < end:
                outcome.latencies.append(self._launch(wire))

        return self._in_threads(number, launch_until_end)

    def at_a_rate(self, seconds: float) -> _Outcome:
        """`RATE` servers a second. A client that is late launches its next server at once."""
        count, began = int(RATE * seconds), time.perf_counter()

        def launch_in_turn(wire: Connection, outcome: _Outcome, number: int) -> None:
            for turn in range(number, count, RATE_CLIENTS):
                time.sleep(max(0.0, began + turn / RATE - time.perf_counter()))
                outcome.latencies.append(self._launch(wire))

        return self._in_threads(RATE_CLIENTS, launch_in_turn)

    def burst(self) -> Iterator[Figure]:
        def create(wire: Connection, outcome: _Outcome, _client: int) -> None:
            for _ in range(BURST // CLIENTS):
                began = time.perf_counter()
                self._create(wire)
                outcome.latencies.append(time.perf_counter() - began)

        before, began = self._cpu(), time.perf_counter()
        accepted = self._in_threads(CLIENTS, create)
        wire = self._wire()
        while _ask(wire, "GET", "/v2.1/servers?status=BUILD&limit=1")["servers"]:
            time.sleep(0.1)
        wall = time.perf_counter() - began
        what = f"{BURST} at once by {CLIENTS} clients"
        yield accepted.figure(f"{what}: accepted")
        yield Figure(f"{what}: ACTIVE", f"{BURST / wall:,.1f} per s", self._used(BURST, before), GOAL_BURST)

    def _in_threads(self, number: int, work: Callable[[Connection, _Outcome, int], None]) -> _Outcome:
        outcome, failed = _Outcome(), list[BaseException]()

        def run(of_client: int) -> None:
            try:
                work(self._wire(), outcome, of_client)
            except BaseException as error:  # noqa: BLE001 - the thread that joins this one raises it
                failed.append(error)

        threads = [threading.Thread(target=run, args=(of_client,)) for of_client in range(number)]
        before, began = self._cpu(), time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
        outcome.wall = time.perf_counter() - began
        outcome.cpu = self._used(len(outcome.latencies), before)
        return outcome

    def _launch(self, wire: Connection) -> float:
        """Seconds from the request until a poll shows the server ACTIVE."""
        began = time.perf_counter()
        server = self._create(wire)
        while (status := _ask(wire, "GET", f"/v2.1/servers/{server}")["server"]["status"]) != "ACTIVE":
            if status != "BUILD" or time.perf_counter() - began > PATIENCE_S:
                raise SystemExit(f"error: server {server} is {status} after {time.perf_counter() - began:.1f} s")
            time.sleep(POLL_S)
        return time.perf_counter() - began

    def _create(self, wire: Connection) -> str:
        wanted = {"name": "server", "flavorRef": "small", "imageRef": self._image, "networks": "none"}
        made: str = _ask(wire, "POST", "/v2.1/servers", {"server": wanted})["server"]["id"]
        return made

    def _wire(self) -> Connection:
        return Connection(f"{self._plane.url}/compute", token=self._token, version=f"compute {VERSION}")

    def _cpu(self) -> tuple[float, float]:
        return cpu_seconds(self._plane.pids), cpu_seconds(self._database.pids)

    def _used(self, count: int, before: tuple[float, float]) -> str:
        served, stored = ((after - then) / count * 1000 for after, then in zip(self._cpu(), before, strict=True))
        return f"CPU per server {served + stored:.1f} ms, of it the database {stored:.1f} ms"


def _ask(wire: Connection, method: str, path: str, body: object = None) -> Any:
    status, content = wire.request(method, path, body)
    if not 200 <= status < 300:
        raise SystemExit(f"error: {method} {path} was answered {status}: {content.decode()}")
    return json.loads(content) if content else None


@contextmanager
def _plane(database: DatabaseServer) -> Iterator[Server]:
    services = ("placement", "compute", "accelerator", "reservation")
    (port,) = free_ports(1)
    databases = {name: database.create(f"launches_{name}") for name in services}
    unlimited = dict.fromkeys(("quota_instances", "quota_cores", "quota_ram_mb"), -1)
    server = moorage(
        database,
        "plane",
        port,
        plane={"hints": ""},
        compute=unlimited,
        database=databases,
        agent={"simulated_hosts": HOSTS},
    )
    with running(server):
        compute = client(server, "compute")
        deadline = time.monotonic() + PATIENCE_S
        while len(compute.get("/v2.1/os-services")["services"]) < HOSTS:
            if time.monotonic() > deadline:
                raise SystemExit(f"error: not {HOSTS} hosts after {PATIENCE_S:.0f} s")
            time.sleep(0.1)
        yield server
