"""Measures servers from POST to ACTIVE over HTTP, as users see them, and whole lives of leases.

Runs one process with all services and 20 simulated hosts, as `moorage up` does; and beside it a real Nova with its fake
driver, above the real Placement, Keystone and Glance (`launches_nova`). A client creates a server and polls it until it
is ACTIVE. A burst creates servers as fast as they are accepted, and is over when none is in BUILD.
"""

import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench import launches_nova, lease_lives
from bench.compute_api import PATIENCE_S, Cloud, ask, create_flavor, create_server, wait_until, wait_until_active
from bench.databases import DatabaseServer, database_server, free_ports
from bench.planes import client, credentials_of, moorage
from bench.processes import cpu_seconds
from bench.servers import Server, running
from bench.table import Figure
from bench.wire import Connection

Say = Callable[[Figure], None]

HOSTS = 20
#: Simulated beside them; the reservation service gets it.
LEASE_HOST = f"compute-{HOSTS + 1}"
CLIENTS = 8
BURST = 800
#: A real Nova launches 2 to 3 servers a second.
BURST_OF_NOVA = 40
#: Servers a second of the row with a steady rate, and the clients that create them in turn.
RATE = 50
RATE_CLIENTS = 16
GOAL_BURST = "100 / 200 per s on SQLite, 300 on PostgreSQL"
GOAL_CLIENTS = "not slower than one client"
GOAL_RATE = "p99 under 250 ms"


def figures(kind: str, say: Say, *, seconds: float) -> None:
    with database_server(kind) as database, _plane(database) as plane:
        lease_lives.register(plane, LEASE_HOST)
        launches = Launches(_our_cloud(plane, database))
        launches.of_clients(1, 1.0)
        say(launches.of_clients(1, seconds).figure("1 client, one server after the other"))
        say(launches.of_clients(CLIENTS, seconds).figure(f"{CLIENTS} clients", GOAL_CLIENTS))
        say(launches.at_a_rate(seconds).figure(f"{RATE} a second, {RATE_CLIENTS} clients in turn", GOAL_RATE))
        for figure in launches.burst(BURST, GOAL_BURST):
            say(figure)
        say(lease_lives.figure(plane, launches.cloud, seconds))
    if kind == "postgresql":
        _nova(say, seconds)


def _nova(say: Say, seconds: float) -> None:
    """A real Nova has no SQLite, and its database and broker are the machine's, so their CPU is not counted."""
    if missing := launches_nova.missing():
        say(Figure("Nova with its fake driver", "not installed", f"make {' '.join(missing)}"))
        return
    with launches_nova.cloud() as nova:
        launches = Launches(nova)
        launches.of_clients(1, 1.0)
        say(launches.of_clients(1, seconds).figure("Nova, 1 client, one server after the other"))
        say(launches.of_clients(CLIENTS, seconds).figure(f"Nova, {CLIENTS} clients"))
        for figure in launches.burst(BURST_OF_NOVA):
            say(Figure(f"Nova, {figure.measure}", figure.value, figure.note))


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


def _our_cloud(plane: Server, database: DatabaseServer) -> Cloud:
    compute, image = client(plane, "compute"), client(plane, "image")
    image_id = image.request(
        "POST", "/v2/images", json={"name": "image", "disk_format": "raw", "container_format": "bare"}
    )["id"]
    size = {"x-openstack-image-size": "1"}
    image.upload("PUT", f"/v2/images/{image_id}/file", [b"x"], "application/octet-stream", size)
    create_flavor(lambda path, body: compute.request("POST", f"/v2.1{path}", json=body))
    token = credentials_of(plane).headers()["x-auth-token"]  # a login takes long by design
    return Cloud(
        f"{plane.url}/compute/v2.1", token, image_id, lambda: (cpu_seconds(plane.pids), cpu_seconds(database.pids))
    )


class Launches:
    def __init__(self, cloud: Cloud) -> None:
        self.cloud = cloud

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

    def burst(self, number: int, goal: str = "") -> Iterator[Figure]:
        def create(wire: Connection, outcome: _Outcome, _client: int) -> None:
            for _ in range(number // CLIENTS):
                began = time.perf_counter()
                create_server(wire, self.cloud.image)
                outcome.latencies.append(time.perf_counter() - began)

        before, began = self.cloud.cpu(), time.perf_counter()
        accepted = self._in_threads(CLIENTS, create)
        wire = self.cloud.wire()
        query = "/servers?status=BUILD&limit=1"
        wait_until("the end of the burst", lambda: not ask(wire, "GET", query)["servers"], pause_s=0.1)
        wall = time.perf_counter() - began
        what = f"{number} at once by {CLIENTS} clients"
        yield accepted.figure(f"{what}: accepted")
        yield Figure(f"{what}: ACTIVE", f"{number / wall:,.1f} per s", self.cloud.used(number, before), goal)

    def _in_threads(self, number: int, work: Callable[[Connection, _Outcome, int], None]) -> _Outcome:
        outcome, failed = _Outcome(), list[BaseException]()

        def run(of_client: int) -> None:
            try:
                work(self.cloud.wire(), outcome, of_client)
            except BaseException as error:  # noqa: BLE001 - the thread that joins this one raises it
                failed.append(error)

        threads = [threading.Thread(target=run, args=(of_client,)) for of_client in range(number)]
        before, began = self.cloud.cpu(), time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failed:
            raise failed[0]
        outcome.wall = time.perf_counter() - began
        outcome.cpu = self.cloud.used(len(outcome.latencies), before)
        return outcome

    def _launch(self, wire: Connection) -> float:
        """Seconds from the request until a poll shows the server ACTIVE."""
        began = time.perf_counter()
        wait_until_active(wire, create_server(wire, self.cloud.image))
        return time.perf_counter() - began


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
        agent={"simulated_hosts": HOSTS + 1},
    )
    with running(server):
        compute = client(server, "compute")
        deadline = time.monotonic() + PATIENCE_S
        while len(compute.get("/v2.1/os-services")["services"]) <= HOSTS:
            if time.monotonic() > deadline:
                raise SystemExit(f"error: not {HOSTS + 1} hosts after {PATIENCE_S:.0f} s")
            time.sleep(0.1)
        yield server
