"""Measures select and claim with many hosts: the scheduler in this process, Placement in another, both on a database.

A server is placed when its claim is acknowledged: request candidates, filter and weigh hosts, claim. Latency starts when
the builder takes the server; servers of a batch are claimed together at its end. Also measures the whole path: the use
case of ``POST /servers`` without HTTP, and the builder from its job to the host's job.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from sqlalchemy import Engine, insert

from bench import scale
from bench.cloud import Cloud
from bench.databases import DatabaseServer
from bench.floors import SCHEDULER
from bench.processes import cpu_seconds
from bench.servers import Server as ServerProcess
from bench.table import Figure
from moorage.compute.deps import ComputeDeps, ComputeSettings
from moorage.compute.model.quota import DEFAULTS
from moorage.compute.model.servers import Flavor, PowerState, Server, TaskState, VmState
from moorage.compute.requests.server_request import NewServer
from moorage.compute.scheduling.build_worker import BATCH, BuildTask
from moorage.compute.scheduling.pipeline import Batch, HostSelector
from moorage.compute.scheduling.placement_request import HostRequest
from moorage.compute.scheduling.selection import Selection
from moorage.compute.service import ComputeService
from moorage.compute.store import tables
from moorage.core.caller import Caller
from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from moorage.db import migrations
from moorage.db.engine import open_engine
from moorage.jobs.background_tasks import Wakeups
from moorage.jobs.wakeups import InProcessHints
from moorage.placement.client.placement_client import PlacementClient
from moorage.wire.client import ServiceClient
from moorage.wire.transports import SocketTransport

Say = Callable[[Figure], None]

SMALL = Flavor("small", "small", 1, 512, 1)
WARM_S = 1.0
#: Servers created, and then built, at a time.
SERVERS = 1_000
_ADMIN = Caller("u", "p", frozenset({"admin"}))


def figures(kind: str, say: Say, *, hosts: int, seconds: float) -> None:
    with scale.filled_cloud(kind, Cloud("flat", hosts, 2)) as filled:
        filled.server.start()
        with _compute(filled.database, filled.server, hosts) as bench:
            bench.placed_one_by_one(say, seconds)
            bench.placed_in_batches(say, seconds)
            bench.made_and_built(say)


@contextmanager
def _compute(database: DatabaseServer, placement: ServerProcess, hosts: int) -> Iterator["_Bench"]:
    engine = open_engine(database.create("compute"))
    try:
        migrations.upgrade(engine, "compute")
        _fill(engine, hosts)
        gc.collect()
        gc.freeze()  # as a server does after its start
        yield _Bench(engine, database, placement, hosts)
    finally:
        engine.dispose()


def _fill(engine: Engine, hosts: int) -> None:
    """Registers the hosts of the cloud, as their agents do."""
    cloud, ids, now = Cloud("flat", hosts, 2), RandomIds(), datetime.now(UTC)
    usual = {
        "hypervisor_type": "QEMU", "hypervisor_version": 1, "host_ip": "127.0.0.1", "vcpus": 64, "memory_mb": 524288,
        "local_gb": 4000, "devices": 0, "cpu_info": {"arch": "x86_64"}, "is_enabled": True, "forced_down": False,
        "heartbeat_at": now,
    }  # fmt: skip
    rows = [
        usual | {"name": f"flat-{host:06}", "service_uuid": ids.uuid(), "provider_uuid": cloud.root(host)}
        for host in range(hosts)
    ]
    with engine.begin() as connection:
        connection.execute(insert(tables.hosts), rows)


class _Bench:
    def __init__(self, engine: Engine, database: DatabaseServer, placement: ServerProcess, hosts: int) -> None:
        self._engine = engine
        self._database = database
        self._process = placement
        self._hosts = hosts
        self._clock, self._ids = SystemClock(), RandomIds()
        self._client = PlacementClient(
            ServiceClient(SocketTransport(placement.url), service_type="placement", clock=self._clock)
        )
        hints = InProcessHints(Wakeups())
        unlimited = dict.fromkeys(DEFAULTS, -1)
        deps = ComputeDeps(engine, self._clock, self._ids, hints, placement=self._client)
        self._service = ComputeService(deps, ComputeSettings(quotas=unlimited, up_window_s=3600))
        self._placer = HostSelector(engine, self._clock, self._client, self._service.hosts)
        self._builder = BuildTask(deps, self._client, self._placer)
        self._placer.ensure_traits()

    def placed_one_by_one(self, say: Say, seconds: float) -> None:
        self._run("one at a time", say, seconds, 1)

    def placed_in_batches(self, say: Say, seconds: float) -> None:
        self._run(f"batches of {BATCH}", say, seconds, BATCH)

    def made_and_built(self, say: Say) -> None:
        """Servers of one project, which has few at first and many later."""
        self._service.flavors.create_flavor(SMALL)
        self._builder.run_once()
        self._make(SERVERS // 8)
        self._builder.run_once()
        for before in (SERVERS // 8, SERVERS // 8 + SERVERS):
            cpu, began = self._cpu(), time.perf_counter()
            self._make(SERVERS)
            note = self._note(SERVERS, time.perf_counter() - began, cpu)
            say(Figure(f"made, {before:,} servers in the project", *note))
            cpu, began = self._cpu(), time.perf_counter()
            self._builder.run_once()
            say(Figure(f"{self._hosts:,} hosts: built", *self._note(SERVERS, time.perf_counter() - began, cpu)))

    def _make(self, count: int) -> None:
        new = NewServer("vm", "small", "image")
        for _ in range(count):
            self._service.creation.create_servers(_ADMIN, "req", new, may_force_host=False)

    def _note(self, count: int, wall: float, before: tuple[float, float, float]) -> tuple[str, str]:
        return f"{count / wall:,.0f} per s", self._used(count, before)

    def _used(self, count: int, before: tuple[float, float, float]) -> str:
        used = [(after - then) / count * 1000 for after, then in zip(self._cpu(), before, strict=True)]
        return f"CPU per server: this process {used[0]:.2f} ms, Placement {used[1]:.2f} ms, database {used[2]:.2f} ms"

    def _run(self, what: str, say: Say, seconds: float, batch: int) -> None:
        self._place_for(WARM_S, batch)
        before, began = self._cpu(), time.perf_counter()
        latencies = self._place_for(seconds, batch)
        self._say(what, say, latencies, time.perf_counter() - began, before)

    def _place_for(self, seconds: float, batch: int) -> list[float]:
        latencies: list[float] = []
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            taken = time.perf_counter()
            places = self._placed([self._server() for _ in range(batch)])
            if any(not isinstance(place, Selection) for place in places):
                raise SystemExit(f"error: not all were placed: {places}")
            latencies += [time.perf_counter() - taken] * batch
        return latencies

    def _placed(self, servers: list[Server]) -> list[object]:
        outcomes = self._placer.claim_hosts([[HostRequest(server, {})] for server in servers], Batch(len(servers)))
        return [place for outcome in outcomes for place in (outcome if isinstance(outcome, list) else [outcome])]

    def _say(
        self, what: str, say: Say, latencies: list[float], wall: float, before: tuple[float, float, float]
    ) -> None:
        count = len(latencies)
        cuts = statistics.quantiles(latencies, n=100)
        note = f"p50 {cuts[49] * 1000:.1f} ms, p99 {cuts[98] * 1000:.1f} ms; {self._used(count, before)}"
        say(Figure(f"{self._hosts:,} hosts: {what}", f"{count / wall:,.0f} per s", note, SCHEDULER.floor))

    def _cpu(self) -> tuple[float, float, float]:
        return time.process_time(), cpu_seconds(self._process.pids), cpu_seconds(self._database.pids)

    def _server(self) -> Server:
        now = self._clock.now()
        return Server(
            id=self._ids.uuid(), number=0, name="vm", project_id="p", user_id="u", image_id=None, flavor=SMALL,
            vm_state=VmState.BUILDING, task_state=TaskState.SCHEDULING, power_state=PowerState.NONE, host=None,
            wanted_zone=None, wanted_host=None, metadata={}, tags=(), description=None, hostname="vm", key_name=None,
            user_data=None, config_drive=False, reservation_id="r", launch_index=0, scheduler_hints={}, locked_by=None,
            locked_reason=None, fault=None, placed=None, devices=(), parked_at=None, parked_image_id=None,
            created_at=now, updated_at=now, launched_at=None, deleted_at=None,
        )  # fmt: skip
