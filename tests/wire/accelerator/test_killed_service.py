"""The service dies before and after each of its commits. Callers repeat their requests; nothing is lost, doubled or
stuck.

The scenario: a profile, a request with it, which the host binds and the service reports to compute, a device that an
operator programs and disables, and the deletion of everything. Hosts report meanwhile. Callers repeat unanswered
requests; no cleanup by hand is necessary.
"""

import contextlib
import functools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from moorage.accelerator.store import tables
from moorage.core.clock import SystemClock
from moorage.core.errors import Unavailable
from moorage.core.ids import RandomIds
from moorage.db.engine import open_engine
from moorage.wire.transports import InProcessTransport, SocketTransport
from tests.plane import URL
from tests.ports import free_port
from tests.processes import inherited
from tests.programs import ForkServer
from tests.unit.accelerator.rig import AES, GPU, R2, TYPE_R2, Killed, Watch, new_instance, rp
from tests.wire.accelerator.commits import watched
from tests.wire.accelerator.conftest import RecordedHints, Wire, process_in
from tests.wire.accelerator.test_binding import CARD, Plane

EXPLORE = bool(os.environ.get("EXPLORE"))
ROOT = Path(__file__).parents[3]

#: The commits of the scenario, by the function that runs in the transaction.
COMMITS = {
    "AcceleratorService.create_profile", "AcceleratorService.delete_profiles", "AcceleratorService._store_in_order",
    "RequestService.create_requests", "RequestService.bind_or_unbind", "RequestService.delete_requests",
    "RequestService.delete_requests_of_instance", "HostJobs._claim_all", "HostJobs._apply_all", "DeviceHistoryService._write_once", "EventsTask._claim",
    "EventsTask.run_once", "OperatorService.program_deployable", "OperatorService.set_device_enabled",
}  # fmt: skip


def until_answered(call):
    """`call` repeated until it is answered."""
    for _ in range(3):
        with contextlib.suppress(Unavailable):
            answer = call()
            if getattr(answer, "status", 200) != 503:
                return answer
    raise AssertionError("nobody answers")


def scenario(plane, name):
    wire, instance = plane.wire, new_instance()
    body = [{"name": name, "groups": [CARD]}]
    assert until_answered(lambda: wire("POST", "/v2/device_profiles", body=body)).status in (201, 409)
    (arq,), (spare,) = (until_answered(lambda: plane.requests(name)) for _ in range(2))
    path = f"/v2/accelerator_requests/{spare['uuid']}"
    assert until_answered(lambda: wire("DELETE", path)).status in (204, 404)
    assert until_answered(lambda: plane.bind({arq["uuid"]: rp(GPU)}, instance)).status in (202, 409)
    plane.everybody_works()
    (bound,) = until_answered(lambda: plane.of(instance)).body["arqs"]
    (held,) = plane.rig.held.attachments[instance].handles
    assert (bound["state"], bound["attach_handle_info"]["bus"]) == ("Bound", held.pci_id[5:7])
    assert (arq["uuid"], "completed") in plane.heard()
    plane.operator_works()
    assert (
        until_answered(lambda: wire("DELETE", f"/v2/accelerator_requests?instance={instance}", role="service")).status
        == 204
    )
    # A request whose answer was lost has no owner; an operator finds it.
    for left in until_answered(lambda: wire("GET", "/v2/accelerator_requests")).body["arqs"]:
        path = f"/v2/accelerator_requests/{left['uuid']}"
        assert until_answered(lambda path=path: wire("DELETE", path, role="service")).status in (204, 404)
    plane.everybody_works()
    assert until_answered(lambda: wire("DELETE", f"/v2/device_profiles/{name}")).status in (204, 404)
    plane.check()


class Scenario:
    """Additional requests for the scenario `scenario`."""

    def check(self):
        self.everybody_works()
        self.rig.check()
        assert self.rig.held.attachments == self.rig.held.handles == {}
        assert self.rig.held.journal.pending == ()
        with self.engine.connect() as connection:
            rows = [connection.execute(table.select()).mappings().all() for table in KEPT]
        assert rows[:2] == [[], []], "a request or a profile is left"
        assert {job["state"] for job in rows[2]} <= {"done"}, "a job is stuck, or failed"
        told = [(row["event"], row["done"]) for row in rows[3] if row["handle"] == GPU]
        assert told == [("attach", True), ("detach", True), ("clean", True)] * (len(told) // 3)
        assert told

    def host_reports(self):
        with contextlib.suppress(Unavailable):
            self.rig.agent.run_once()


KEPT = (tables.accelerator_requests, tables.device_profiles, tables.jobs, tables.history)


# ------------------------------------------------------------------------------------ in this process


class RestartingService:
    """The service. After its death it answers no request, and the next request reaches a new process."""

    def __init__(self, process):
        self._process = process

    def __call__(self, environ, start_response):
        try:
            return self._process.plane.app(environ, start_response)
        except Killed as death:
            self._process.restart()
            raise Unavailable("the connection was closed") from death


class VirtualPlane(Scenario, Plane):
    def __init__(self, tmp_path, database_url, engine, clock):
        self.engine, self.hints = engine, RecordedHints()
        self.process = process_in(
            tmp_path / "service", self.hints, clock=clock, ids=RandomIds(), database={"accelerator": database_url}
        )
        transport = InProcessTransport(RestartingService(self.process), f"{URL}/accelerator")
        super().__init__(tmp_path, Wire(transport), engine, clock)
        self.image = self.rig.image(region_uuid=TYPE_R2, function_uuid=AES)

    def everybody_works(self):
        """Runs all tasks until jobs that a dead process had claimed are available again."""
        for _ in range(3):
            self.run_host()
            self.host_reports()
            with contextlib.suppress(Killed):
                self.send_events()
            self.clock.sleep(130)

    def heard(self):
        return [(event["tag"], event["status"]) for event in self.compute.events]

    def operator_works(self):
        device, *_ = until_answered(lambda: self.wire("GET", "/v2/devices?type=GPU")).body["devices"]
        for what in ("disable", "enable"):
            assert (
                until_answered(lambda what=what: self.wire("POST", f"/v2/devices/{device['uuid']}/{what}")).status
                == 204
            )
        found = until_answered(lambda: self.wire("GET", "/v2/deployables")).body["deployables"]
        (part,) = (one for one in found if one["rp_uuid"] == rp(R2))
        body = [{"path": "/program", "op": "replace", "value": [{"image_uuid": self.image}]}]
        self.hints.heard = self.run_host
        seen = until_answered(lambda: self.wire("PATCH", f"/v2/deployables/{part['uuid']}/program", body=body))
        self.hints.heard = lambda: None
        assert (seen.status, seen.body["bitstream_id"]) == (200, self.image)


@pytest.fixture
def watch(monkeypatch):
    watch = Watch()
    watched(watch, monkeypatch.setattr)
    return watch


@pytest.fixture
def plane(tmp_path, database_url, engine, clock, watch):
    plane = VirtualPlane(tmp_path, database_url, engine, clock)
    with plane.process:
        yield plane


def test_a_service_killed_before_or_after_any_commit_loses_nothing(plane, watch):
    """On SQLite each kind of commit once, on the other databases a sample; with `EXPLORE=1` every commit on every
    database.
    """
    watch.arm(None)
    scenario(plane, "no-death")
    points = list(watch.points)
    assert {point.split()[2] for point in points} == COMMITS
    if not EXPLORE:
        points = one_of_each(points)
        points = points if plane.engine.dialect.name == "sqlite" else Random(1).sample(points, 4)
    for number, point in enumerate(points):
        watch.arm(point)
        scenario(plane, f"death-{number}")
        assert point in watch.points
        watch.arm(None)
        plane.check()


def one_of_each(points):
    """One point of each group of points that differ only in their number."""
    random = Random(1)
    kinds = {point.rpartition(" ")[0] for point in points}
    return [random.choice([point for point in points if point.rpartition(" ")[0] == kind]) for kind in sorted(kinds)]


# -------------------------------------------------------------------------------- in a process of its own


PROGRAM = "tests.wire.accelerator.service_process"


@functools.cache
def programs():
    return ForkServer(Path(sys.executable), PROGRAM, environment={"PYTHONPATH": f"{ROOT}/src{os.pathsep}{ROOT}"})


class Process:
    """The service in a process; if it is dead, it is restarted when a caller gets no answer."""

    def __init__(self, url, directory):
        self._port = free_port()
        self.base = f"http://127.0.0.1:{self._port}"
        self._words = [url, directory, self._port]
        self._log = directory / "service.log"
        self._transport = SocketTransport(self.base)
        self._process = None
        self.deaths = 0

    def start(self, *point):
        with self._log.open("a") as log:
            self._process = programs().start(
                f"{PROGRAM}:main", [*self._words, *point], environment=inherited(), stdout=log, stderr=log
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._answers() and self._process.poll() is None:
            assert time.monotonic() < deadline, self._log.read_text()[-3000:]
            time.sleep(0.02)

    def _answers(self):
        with contextlib.suppress(Unavailable):
            return self._transport.send("GET", "/accelerator/", {}).status == 200
        return False

    def revive(self):
        """Restarts it if it was killed, which may still be in progress. Otherwise the failed connection was one to the
        previous process.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            assert self._process.wait(0.3) == -signal.SIGKILL
            self.deaths += 1
            self.start()

    def stop(self):
        self._process.kill()
        self._process.wait()


class RetryingTransport:
    """A transport to a process that may die."""

    def __init__(self, transport, process):
        self._transport, self._process = transport, process

    def send(self, *request):
        try:
            return self._transport.send(*request)
        except Unavailable:
            self._process.revive()
            raise


class SocketWire(Wire):
    def __init__(self, process):
        super().__init__(RetryingTransport(SocketTransport(f"{process.base}/accelerator"), process))


class RealPlane(Scenario, Plane):
    def __init__(self, directory, url, process):
        self.engine, self.directory = open_engine(url), directory
        super().__init__(directory, SocketWire(process), self.engine, SystemClock())

    def everybody_works(self):
        deadline = time.monotonic() + PATIENCE_S
        while True:
            self.run_host()
            self.host_reports()
            with self.engine.connect() as connection:
                unfinished = connection.execute(OPEN_JOBS).all()
            if not unfinished:
                return
            assert time.monotonic() < deadline, unfinished
            time.sleep(0.02)

    def heard(self):
        told = self.directory / "told"
        events = map(json.loads, told.read_text().splitlines() if told.exists() else ())
        return [(event["tag"], event["status"]) for event in events]

    def operator_works(self):
        """Does nothing: it would wait for a host that works at the same time, which works only in virtual time."""


OPEN_JOBS = tables.jobs.select().where(tables.jobs.c.finished_at.is_(None))
START_TIMEOUT_S = PATIENCE_S = 60


@pytest.mark.slow
@pytest.mark.parametrize(
    "database_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)], indirect=True
)
def test_a_real_process_killed_before_or_after_a_commit_loses_nothing(tmp_path, database_url):
    """Two kinds of commit on each database; with `EXPLORE=1` all of them."""
    (tmp_path / "host").mkdir()
    kinds = sorted(kind for kind in COMMITS if not kind.startswith("OperatorService"))
    points = [f"{when} commit {kind} 1" for when in ("before", "after") for kind in kinds]
    process = Process(database_url, tmp_path)
    process.start()
    try:
        plane = RealPlane(tmp_path, database_url, process)
        for number, point in enumerate(points if EXPLORE else Random(database_url[:6]).sample(points, 2)):
            process.stop()
            process.start(point)
            scenario(plane, f"death-{number}")
            plane.check()
            assert process.deaths == number + 1, f"it passed {point}"
    finally:
        process.stop()
