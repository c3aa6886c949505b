"""Jobs and reports lost, repeated, reordered or an hour late, and agents that hang and come back: no harm is done.

The compute service's API for agents, its jobs and the agents' duties as they are; between them a line on which
everything happens that happens on networks. Over each kind of hint.
"""

import random
import threading
import time
from collections import Counter

import pytest

from moorage.agent.jobs_duty import JobsDuty
from moorage.compute import store
from moorage.compute.client import ComputeClient
from moorage.compute.model import HostReport
from moorage.compute.routes import API, RULES
from moorage.compute.service import ComputeService
from moorage.core.clock import AdjustableClock
from moorage.core.errors import Conflict, Unavailable
from moorage.core.ids import RandomIds
from moorage.db.engine import open_engine
from moorage.db.migrations import upgrade
from moorage.db.transactions import read, write
from moorage.identity.authenticators import NoAuth
from moorage.jobs.duties import DutyThreads
from moorage.jobs.hints import InProcessHints
from moorage.jobs.model import FENCED_CODE, JobState, NewJob
from moorage.jobs.turns import Turns
from moorage.wire.app import Surroundings, build, mount
from moorage.wire.client import ServiceClient
from moorage.wire.transports import InProcessTransport

pytestmark = pytest.mark.slow

HOST = "compute-1"
FACTS = HostReport(HOST, "11111111-1111-4111-8111-111111111111", "simulated", 1, "127.0.0.1", 16, 1024, 10, 0, {})
LEASE_S = 60.0
PATIENCE_S = 60
JOBS = 60
KEYS = 12


#: What happens to so many requests of one method, in an order that chance gives.
DECK = ("request lost", "answer lost", "sent twice", "a copy comes later", *[None] * 8)


class Line:
    """A transport on which requests get lost, answers get lost, requests come twice, and copies come later."""

    def __init__(self, inner, chance):
        self._inner = inner
        self._chance = chance
        self._lock = threading.Lock()
        self._decks = {}
        self.later = []
        self.mishaps = Counter()
        self.is_calm = False

    def send(self, method, path, headers, body=None):
        mishap = None if self.is_calm else self._draw(method)
        if mishap == "a copy comes later" and method != "PUT":
            mishap = None
        if mishap:
            self.mishaps[mishap] += 1
        if mishap == "request lost":
            raise Unavailable(mishap)
        answer = self._inner.send(method, path, headers, body)
        if mishap == "answer lost":
            raise Unavailable(mishap)
        if mishap == "sent twice":
            return self._inner.send(method, path, headers, body)
        if mishap == "a copy comes later":
            self.later.append((method, path, headers, body))
        return answer

    def stream(self, method, path, headers):
        return self._inner.stream(method, path, headers)

    def deliver_late(self):
        """Every copy, in another order; the statuses that they were answered with."""
        copies, self.later = self.later, []
        self._chance.shuffle(copies)
        return Counter(self._inner.send(*copy).status for copy in copies)

    def _draw(self, method):
        """Each thing that can happen does, however few requests there are of a method that has a dozen."""
        with self._lock:
            deck = self._decks.setdefault(method, [])
            if not deck:
                deck.extend(DECK)
                self._chance.shuffle(deck)
            return deck.pop()


class Runner:
    """Does nothing, and notes it. Those of `hangs` hang until they are let go, once each."""

    def __init__(self, hangs=()):
        self.ran = []
        self.hangs = dict.fromkeys(hangs, True)
        self.hanging = threading.Semaphore(0)
        self.let_go = threading.Event()

    def run(self, kind, payload, keep_alive):
        name = payload["name"]
        self.ran.append(name)
        if self.hangs.pop(name, False):
            self.hanging.release()
            assert self.let_go.wait(PATIENCE_S)
            keep_alive()
        return {}


class World:
    def __init__(self, way, tmp_path, seed):
        self.way = way
        self.clock = AdjustableClock()
        self.engine = open_engine(f"sqlite:///{tmp_path}/compute.db")
        upgrade(self.engine, "compute")
        self.service = ComputeService(
            self.engine, self.clock, RandomIds(), InProcessHints(way.ours), job_lease_s=LEASE_S
        )
        app = build(API, self.service, Surroundings(NoAuth(), RULES, RandomIds()))
        inner = InProcessTransport(mount({"/compute": app}), "http://127.0.0.1:8778/compute")
        self.line = Line(inner, random.Random(seed))
        self.compute = ComputeClient(ServiceClient(self.line, service_type="compute", clock=self.clock))
        self.service.agents.register(FACTS)
        self.threads = DutyThreads(self.clock, way.theirs)

    def agent(self, runner, *, first=1, workers=3):
        """Another agent has other numbers of workers: a zombie and its successor are two."""
        turns = Turns(lambda: self.way.theirs.wake(HOST))
        return [
            JobsDuty(
                host=HOST,
                number=number,
                service=self.compute,
                runner=runner,
                clock=self.clock,
                poll_period_s=0.5,
                turns=turns,
            )
            for number in range(first, first + workers)
        ]

    def enqueue(self, number):
        job = NewJob(f"job-{number}", HOST, "reboot", f"server-{number % KEYS}", {"name": f"job-{number}"})
        with write(self.engine) as connection:
            store.HOST_JOBS.enqueue(connection, job, self.clock.now())
        self.way.hints.send(HOST)

    def jobs(self):
        with read(self.engine) as connection:
            return [store.HOST_JOBS.get(connection, f"job-{number}") for number in range(JOBS)]

    def wait_until(self, probe):
        deadline = time.monotonic() + PATIENCE_S
        while not probe():
            assert time.monotonic() < deadline, Counter(str(job and job.state) for job in self.jobs())
            time.sleep(0.05)

    def wait_until_done(self):
        self.wait_until(lambda: all(job is not None and job.finished_at is not None for job in self.jobs()))

    def close(self):
        self.threads.stop()
        self.engine.dispose()


@pytest.fixture(params=[1, 2])
def world(request, way, tmp_path):
    world = World(way, tmp_path, request.param)
    yield world
    world.close()


def test_whatever_happens_on_the_line_each_job_ends_once_and_in_order_and_copies_change_nothing(world):
    runner = Runner()
    world.way.wait_until_listening()
    world.threads.start(world.agent(runner))
    for number in range(JOBS):
        world.enqueue(number)
        if number == JOBS // 2:
            world.way.cut()
        if number == JOBS * 3 // 4:
            world.way.mend()
    world.wait_until_done()
    assert len(world.line.mishaps) == 4, f"everything happened: {world.line.mishaps}"
    ended = world.jobs()
    assert {job.state for job in ended} == {JobState.DONE}
    for key in range(KEYS):
        moments = [ended[number].finished_at for number in range(key, JOBS, KEYS)]
        assert moments == sorted(moments), "jobs of one server one after the other"
    first = {name: runner.ran.index(name) for name in runner.ran}
    for key in range(KEYS):
        order = [first[f"job-{number}"] for number in range(key, JOBS, KEYS)]
        assert order == sorted(order)
    world.clock.advance(3600)
    world.line.is_calm = True
    assert set(world.line.deliver_late()) <= {204, 409}
    assert world.jobs() == ended, "an hour late and out of order: nothing changes"


def test_an_agent_that_hangs_for_an_hour_and_comes_back_changes_nothing(world):
    """The zombie reports with the epoch that it had; its successor's outcome stands."""
    world.line.is_calm = True
    zombie, successor = Runner(hangs=("job-0", "job-1")), Runner()
    world.way.wait_until_listening()
    world.threads.start(world.agent(zombie, workers=2))
    for number in (0, 1):
        world.enqueue(number)
    for _ in range(2):
        assert zombie.hanging.acquire(timeout=PATIENCE_S)
    world.clock.advance(3600)
    world.threads.start(world.agent(successor, first=11))
    for number in range(2, JOBS):
        world.enqueue(number)
    world.wait_until_done()
    ended = world.jobs()
    assert [job.epoch for job in ended[:2]] == [2, 2]
    assert {job.worker.partition("/")[0] for job in ended} == {HOST}
    zombie.let_go.set()
    for job in ended[:2]:
        with pytest.raises(Conflict) as refused:
            world.compute.report_job(job.id, 1, "failed", {"error": "I was away"})
        assert refused.value.error_code == FENCED_CODE
    assert world.jobs() == ended
    assert {job.state for job in ended} == {JobState.DONE}


def test_a_zombies_report_does_not_end_the_job_that_its_successor_works_on(world):
    world.line.is_calm = True
    zombie, successor = Runner(hangs=("job-0",)), Runner(hangs=("job-0",))
    world.way.wait_until_listening()
    world.threads.start(world.agent(zombie, workers=1))
    world.enqueue(0)
    assert zombie.hanging.acquire(timeout=PATIENCE_S)
    world.clock.advance(LEASE_S + 1)
    world.threads.start(world.agent(successor, first=11, workers=1))
    assert successor.hanging.acquire(timeout=PATIENCE_S)
    (claimed,) = [job for job in world.jobs() if job]
    for state in ("running", "done", "failed"):
        with pytest.raises(Conflict, match="was claimed again by compute-1/11 in epoch 2"):
            world.compute.report_job("job-0", 1, state, {"error": "late"})
    zombie.let_go.set()
    assert [job for job in world.jobs() if job] == [claimed]
    successor.let_go.set()
    world.wait_until(lambda: world.jobs()[0].state is JobState.DONE)
    assert world.jobs()[0].epoch == 2


def test_jobs_enqueued_while_no_hint_comes_through_are_found_by_the_poll(world):
    world.line.is_calm = True
    runner = Runner()
    world.way.wait_until_listening()
    world.threads.start(world.agent(runner))
    world.way.cut()
    began = time.monotonic()
    for number in range(JOBS):
        world.enqueue(number)
    world.wait_until_done()
    assert time.monotonic() - began < PATIENCE_S / 2
    assert sorted(runner.ran) == sorted(f"job-{number}" for number in range(JOBS)), "and each once"
