"""Measures accelerator requests of one server after the other through HTTP, with a growing number of existing requests.

Runs one process with all services and a host with simulated cards, as `moorage up` does. A round creates, binds and
deletes a request: Nova's three HTTP requests, and the host's work until the request is seen as bound.
"""

import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import func, insert, select

from bench import arq_hops
from bench.databases import DatabaseServer, database_server, free_ports
from bench.floors import ARQS
from bench.planes import client, connection, moorage
from bench.processes import cpu_seconds
from bench.servers import Server, running
from bench.table import Figure
from bench.wire import Connection
from moorage.accelerator.store import tables
from moorage.core.ids import RandomIds
from moorage.db.engine import open_engine
from moorage.wire.client import ServiceClient

Say = Callable[[Figure], None]

PROFILE = "one-card"
CLASS = "CUSTOM_ACCELERATOR_GPU"
#: Microversion of the Placement API.
VERSION = "1.39"
#: Seconds between two polls of a request that is being bound.
LOOK_S = 0.002
PATIENCE_S = 60.0
ROWS_AT_ONCE = 5000


def figures(kind: str, say: Say, *, present: list[int], seconds: float) -> None:
    arq_hops.figures(kind, say)
    with database_server(kind) as database, _plane(database) as plane:
        wire = connection(plane, "accelerator", "2.0", user="moorage")  # only services bind requests
        rounds = _Rounds(client(plane, "accelerator"), client(plane, "placement"), wire)
        rounds.run(1.0)
        for number in sorted(present):
            _fill(database, number)
            before = cpu_seconds(plane.pids), cpu_seconds(database.pids)
            rounds.run(seconds)
            served, stored = (
                (after - then) / len(rounds.whole) * 1000
                for after, then in zip((cpu_seconds(plane.pids), cpu_seconds(database.pids)), before, strict=True)
            )
            note = (
                f"p99 {_cut(rounds.whole, 99):.1f} ms; CPU {served + stored:.1f} ms, of it the database {stored:.1f} ms"
            )
            what = f"{number:,} requests there: one made, bound, deleted"
            say(Figure(what, f"{_cut(rounds.whole, 50):.1f} ms", note, ARQS.floor))
            note = f"p99 {_cut(rounds.answered, 99):.1f} ms"
            say(Figure("... its three HTTP requests alone", f"{_cut(rounds.answered, 50):.1f} ms", note, ARQS.floor))


class _Rounds:
    """Latencies in ms of the last run: of whole rounds, and of their three requests without the host's work."""

    def __init__(self, service: ServiceClient, placement: ServiceClient, wire: Connection) -> None:
        self._service = service
        self._wire = wire
        self._ids = RandomIds()
        self._profile()
        self._host, self._provider = self._card(placement)
        self.whole: list[float] = []
        self.answered: list[float] = []

    def run(self, seconds: float) -> None:
        self.whole, self.answered = [], []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            self._round()

    def _round(self) -> None:
        began = time.perf_counter()
        made = self._ask("POST", "/v2/accelerator_requests", {"device_profile_name": PROFILE})
        uuid, instance = made["arqs"][0]["uuid"], self._ids.uuid()
        values = {"hostname": self._host, "device_rp_uuid": self._provider, "instance_uuid": instance}
        patch = {uuid: [{"op": "add", "path": f"/{name}", "value": value} for name, value in values.items()]}
        self._ask("PATCH", "/v2/accelerator_requests", patch)
        asked = time.perf_counter()
        self._wait(uuid)
        bound = time.perf_counter()
        self._ask("DELETE", f"/v2/accelerator_requests?arqs={uuid}")
        ended = time.perf_counter()
        self.whole.append((ended - began) * 1000)
        self.answered.append((asked - began + ended - bound) * 1000)

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        status, content = self._wire.request(method, path, body)
        if not 200 <= status < 300:
            raise SystemExit(f"error: {method} {path} was answered {status}: {content.decode()}")
        return json.loads(content) if content else None

    def _wait(self, uuid: str) -> None:
        deadline = time.perf_counter() + PATIENCE_S
        while (state := self._ask("GET", f"/v2/accelerator_requests/{uuid}")["state"]) != "Bound":
            if time.perf_counter() > deadline:
                raise SystemExit(f"error: request {uuid} is {state} after {PATIENCE_S:.0f} s")
            time.sleep(LOOK_S)

    def _profile(self) -> None:
        body = [{"name": PROFILE, "groups": [{f"resources:{CLASS}": "1"}]}]
        self._service.request("POST", "/v2/device_profiles", json=body)

    def _card(self, placement: ServiceClient) -> tuple[str, str]:
        """Host and resource provider of a free card, as a scheduler finds them, once its host has reported it."""
        deadline = time.perf_counter() + PATIENCE_S
        while time.perf_counter() < deadline:
            found = placement.get(f"/allocation_candidates?resources={CLASS}:1", version=VERSION)
            reported = {one["rp_uuid"] for one in self._service.get("/v2/deployables")["deployables"]}
            offered = {provider for one in found["allocation_requests"] for provider in one["allocations"]}
            for provider in reported & offered:
                root = placement.get(f"/resource_providers/{provider}", version=VERSION)["root_provider_uuid"]
                return placement.get(f"/resource_providers/{root}", version=VERSION)["name"], provider
            time.sleep(0.1)
        raise SystemExit(f"error: no host has reported a card after {PATIENCE_S:.0f} s")


@contextmanager
def _plane(database: DatabaseServer) -> Iterator[Server]:
    services = ("placement", "compute", "accelerator", "reservation")
    (port,) = free_ports(1)
    databases = {name: database.create(f"arqs_{name}") for name in services}
    server = moorage(database, "plane", port, plane={"hints": ""}, database=databases)
    with running(server):
        yield server


def _fill(database: DatabaseServer, number: int) -> None:
    """Creates bound requests for servers of other hosts until there are `number`."""
    ids, now = RandomIds(), datetime.now(UTC)
    engine = open_engine(database.url_of("arqs_accelerator"))
    with engine.begin() as connection:
        # Our own last request may not be deleted yet.
        of_others = tables.accelerator_requests.c.hostname.like("other-%")
        there = connection.execute(select(func.count()).where(of_others)).scalar_one()
        for first in range(there, number, ROWS_AT_ONCE):
            rows = [
                {
                    "uuid": ids.uuid(), "state": "Bound", "hostname": f"other-{which // 100}", "created_at": now,
                    "device_rp_uuid": ids.uuid(), "instance_uuid": ids.uuid(), "project_id": ids.uuid(),
                    "device_profile_name": PROFILE, "device_profile_group_id": 0,
                    "profile_group": {f"resources:{CLASS}": "1"}, "attach_handle_uuid": ids.uuid(),
                    "pci_id": f"0000:{which % 100:02x}:00.0",
                }
                for which in range(first, min(first + ROWS_AT_ONCE, number))
            ]  # fmt: skip
            connection.execute(insert(tables.accelerator_requests), rows)
    engine.dispose()


def _cut(latencies: list[float], percent: int) -> float:
    return statistics.quantiles(latencies, n=100)[percent - 1]
