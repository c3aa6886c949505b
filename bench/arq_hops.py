"""Measures each hop of one accelerator request, in one thread and in process through WSGI.

Measures the thread's CPU time and the time that it waits for database and disk, without threads, sockets and other load
on the machine. Also counts statements, transactions and writes of the agent's checkpoint.
"""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import os_acc
from bench.databases import database_server
from bench.table import Figure
from moorage.accelerator.api.routes import API, RULES
from moorage.accelerator.client import AcceleratorClient
from moorage.accelerator.drivers.simulated import SimulatedAccelerators, default_simulated_host
from moorage.accelerator.host import agent_api
from moorage.accelerator.host.agent import AcceleratorAgent
from moorage.accelerator.host.checkpoint import Checkpoint
from moorage.accelerator.host.programming import BitstreamSource
from moorage.accelerator.host.signatures import SignatureVerifier
from moorage.accelerator.service.service import AcceleratorService
from moorage.agent.jobs.job_runner import AcceleratorRunner
from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from moorage.db.engine import open_engine
from moorage.db.migrations import upgrade
from moorage.identity.authentication.authenticators import NoAuth
from moorage.images.cache import DigestCache
from moorage.images.directory import ImageDirectory
from moorage.jobs.background_tasks import Wakeups
from moorage.jobs.wakeups import InProcessHints
from moorage.wire.app import AppContext, build_app, mount_apps
from moorage.wire.client import ServiceClient
from moorage.wire.transports import InProcessTransport

Say = Callable[[Figure], None]

HOST = "compute-1"
CLASS = "CUSTOM_ACCELERATOR_GPU"
ROUNDS = 200
PLUG_GOAL = "under 5 ms"


def figures(kind: str, say: Say) -> None:
    with database_server(kind) as database, tempfile.TemporaryDirectory() as directory:
        engine = open_engine(database.create("arq_hops"))
        upgrade(engine, "accelerator")
        place = _Place(engine, Path(directory))
        hops = place.rounds(ROUNDS)
        for name, spent in hops.items():
            say(Figure(f"hop: {name}", f"{_median(spent, 0):.2f} ms", f"of it CPU {_median(spent, 1):.2f} ms", ""))
        whole = [sum(one[0] for one in together) for together in zip(*hops.values(), strict=True)]
        say(Figure("all hops", f"{statistics.median(whole):.2f} ms", "one after the other, in one thread", ""))
        plugs = place.plugs(ROUNDS)
        note = (
            f"p99 {statistics.quantiles([one[0] for one in plugs], n=100)[98]:.2f} ms; CPU {_median(plugs, 1):.2f} ms"
        )
        say(
            Figure(
                "plug without programming: the agent's overhead, the driver's time not in it",
                f"{_median(plugs, 0):.2f} ms",
                note,
                PLUG_GOAL,
            )
        )
        engine.dispose()


Spent = tuple[float, float]


class _Place:
    """A service and the agent of a host."""

    def __init__(self, engine: Any, directory: Path) -> None:
        clock, ids = SystemClock(), RandomIds()
        self._ids = ids
        service = AcceleratorService(engine, clock, ids, InProcessHints(Wakeups()))
        app = mount_apps({"/accelerator": build_app(API, service, AppContext(NoAuth(), RULES, ids))})
        self._http = ServiceClient(InProcessTransport(app, "http://bench/accelerator"), service_type="accelerator",
                                   credentials=_Admin())  # fmt: skip
        self._client = AcceleratorClient(self._http)
        self.driver = _Apart(SimulatedAccelerators(default_simulated_host(), directory / "simulated", clock))
        images = ImageDirectory(directory / "images", clock=clock, ids=ids)
        cache = DigestCache(directory / "cache", max_bytes=1 << 20, clock=clock)
        checkpoint = Checkpoint(directory / "agent" / "checkpoint.json", HOST, clock)
        bitstreams = BitstreamSource(images, cache, SignatureVerifier(None, clock))
        self.agent = AcceleratorAgent(HOST, [self.driver], checkpoint, bitstreams, clock, reports=self._client)
        self.agent.published({node.name: ids.uuid() for node in self.agent.nodes()})
        self.agent.run_once()
        self._runner = AcceleratorRunner(self.agent, keep_alive_period_s=60)
        card = next(device for device in self.agent.attach_state.devices if device.type == "GPU")
        self._provider = self.agent.attach_state.rp_uuids[card.deployables[0].name]
        self._local = os_acc.Client(InProcessTransport(agent_api.wsgi_app(self.agent, ids)), clock=clock)
        self._http.request(
            "POST", "/v2/device_profiles", json=[{"name": "card", "groups": [{f"resources:{CLASS}": "1"}]}]
        )

    def rounds(self, number: int) -> dict[str, list[Spent]]:
        spent: dict[str, list[Spent]] = {}
        for done in range(number):
            self._round(lambda name: _timed(spent.setdefault(name, [])))
            if done % 10 == 0:
                self.agent.report_history()
        return spent

    def _round(self, hop: Callable[[str], Any]) -> None:
        with hop("1 POST: made"):
            made = self._http.request("POST", "/v2/accelerator_requests", json={"device_profile_name": "card"})
        uuid, instance = made["arqs"][0]["uuid"], self._ids.uuid()
        values = {"hostname": HOST, "device_rp_uuid": self._provider, "instance_uuid": instance}
        patch = {uuid: [{"op": "add", "path": f"/{name}", "value": value} for name, value in values.items()]}
        with hop("2 PATCH: state, job, hint"):
            self._http.request("PATCH", "/v2/accelerator_requests", json=patch)
        self._job(hop, 3, "bind")
        with hop("6 GET: bound"):
            if self._http.get(f"/v2/accelerator_requests/{uuid}")["state"] != "Bound":
                raise SystemExit(f"error: request {uuid} was not bound")
        with hop("7 DELETE: state, job, hint"):
            self._http.request("DELETE", f"/v2/accelerator_requests?arqs={uuid}")
        self._job(hop, 8, "unbind")

    def _job(self, hop: Callable[[str], Any], number: int, kind: str) -> None:
        with hop(f"{number} the host's agent claims the job"):
            (job,) = self._client.claim_jobs(HOST, "bench")
        with hop(f"{number + 1} it does it: {kind}"):
            result = self._runner.run_job(job.kind, job.payload, lambda: None)
        with hop(f"{number + 2} it reports it"):
            self._client.report_job(job.id, job.epoch, "done", result)

    def plugs(self, number: int) -> list[Spent]:
        spent: list[Spent] = []
        for _ in range(number):
            info = {"uuid": self._ids.uuid(), "name": "bench", "project_id": self._ids.uuid()}
            whole: list[Spent] = []
            self.driver.spent.clear()
            with _timed(whole):
                self._local.plug(info, {"": [self._provider]}, {f"resources:{CLASS}": "1"})
            (prepared,) = self.driver.spent
            spent.append((whole[0][0] - prepared[0], whole[0][1] - prepared[1]))
            self._local.unplug(info)
        return spent


class _Apart:
    """Wraps a driver. `spent`: the time that the driver takes to attach devices, which does not count as the
    agent's.
    """

    def __init__(self, driver: SimulatedAccelerators) -> None:
        self._driver = driver
        self.name = driver.name
        self.spent: list[Spent] = []

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._driver, verb)

    def prepare(self, handle: str, instance_uuid: str) -> None:
        with _timed(self.spent):
            self._driver.prepare(handle, instance_uuid)


@contextmanager
def _timed(spent: list[Spent]) -> Iterator[None]:
    began, cpu = time.perf_counter(), time.process_time()
    yield
    spent.append(((time.perf_counter() - began) * 1000, (time.process_time() - cpu) * 1000))


def _median(spent: list[Spent], which: int) -> float:
    return statistics.median(one[which] for one in spent)


class _Admin:
    def headers(self, *, renew: bool = False) -> dict[str, str]:
        return {"x-auth-token": "admin"}
