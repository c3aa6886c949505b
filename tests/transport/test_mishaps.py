"""Jobs and reports that are lost, repeated, reordered or late (by an hour), and agents that hang and return, do no
harm.

The compute service's API for agents, its jobs and the agents' tasks are real. A simulated network between them causes
every fault of real networks. Each kind of hint is used, also with lost hints.
"""

import random
import threading
import time
from collections import Counter

import pytest
from sqlalchemy import func, select

from moorage.agent.jobs import job_task
from moorage.agent.jobs.job_task import HostQueue, JobsTask, PollerElection, worker_name
from moorage.compute.client.compute_client import ComputeClient
from moorage.compute.model.servers import HostReport
from moorage.compute.store import server_store
from moorage.core.backoff import Backoff
from moorage.core.clock import AdjustableClock
from moorage.core.errors import Conflict, Unavailable
from moorage.core.ids import RandomIds
from moorage.db.session import read, write
from moorage.identity.authentication.authenticators import NoAuth
from moorage.jobs.background_tasks import TaskThreads
from moorage.jobs.contract import JobKind
from moorage.jobs.model import FENCED_CODE, JobState, NewJob
from moorage.jobs.wakeups import InProcessHints
from moorage.wire.client import ServiceClient
from tests.plane import InProcessPlane

pytestmark = pytest.mark.slow

HOST = "compute-1"
FACTS = HostReport(HOST, "11111111-1111-4111-8111-111111111111", "simulated", 1, "127.0.0.1", 16, 1024, 10, 0, {})
LEASE_S = 60.0
PATIENCE_S = 60
JOBS = 60
KEYS = 12


#: The faults of this number of requests of one method, in random order.
DECK = ("request lost", "answer lost", "sent twice", "a copy comes later", *[None] * 8)


class Line:
    """A transport that loses requests or answers, sends requests twice, and delivers copies later."""

    def __init__(self, inner, chance):
        self._inner = inner
        self._chance = chance
        self._lock = threading.Lock()
        self._decks = {}
        self.later = []
        self.mishaps = Counter()
        self.is_calm = False
        #: Called after each answer, because the state may have changed.
        self.news = threading.Condition()

    def send(self, method, path, headers, body=None):
        try:
            return self._send(method, path, headers, body)
        finally:
            with self.news:
                self.news.notify_all()

    def _send(self, method, path, headers, body):
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
        """Delivers every copy in a random order; returns the statuses of the answers."""
        copies, self.later = self.later, []
        self._chance.shuffle(copies)
        return Counter(self._inner.send(*copy).status for copy in copies)

    def _draw(self, method):
        """Chooses faults so that each kind occurs even with only a dozen requests of a method."""
        with self._lock:
            deck = self._decks.setdefault(method, [])
            if not deck:
                deck.extend(DECK)
                self._chance.shuffle(deck)
            return deck.pop()


class Runner:
    """Records jobs without doing anything. Each job in `hangs` hangs once until it is released."""

    def __init__(self, hangs=()):
        self.ran = []
        self.hangs = dict.fromkeys(hangs, True)
        self.hanging = threading.Semaphore(0)
        self.let_go = threading.Event()

    def run_job(self, kind, payload, keep_alive):
        name = payload["server"]["name"]
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
        self.plane = InProcessPlane(
            tmp_path,
            "compute",
            clock=self.clock,
            ids=RandomIds(),
            authenticator=NoAuth(),
            hints=lambda _wakeups: InProcessHints(way.ours),
            endpoints=dict.fromkeys(("placement", "image"), "http://nowhere"),
            agent={"job_lease_s": LEASE_S},
        )
        self.engine = self.plane.engine("compute")
        self.line = Line(self.plane.transport("/compute"), random.Random(seed))
        self.compute = ComputeClient(ServiceClient(self.line, service_type="compute", clock=self.clock))
        self.plane.service("compute").agents.register_host(FACTS)
        self.threads = TaskThreads(self.clock, way.theirs)

    def agent(self, runner, *, first=1, workers=3):
        """Each agent has its own worker numbers, so an old agent and its successor are two workers."""
        election = PollerElection(lambda number: self.way.theirs.wake(worker_name(HOST, number)))
        queue = HostQueue(HOST, self.compute, poll_period_s=0.1)
        numbers = range(first, first + workers)
        return [JobsTask(queue, number, runner, self.clock, election=election) for number in numbers]

    def enqueue(self, number):
        key, name = f"server-{number % KEYS}", f"job-{number}"
        flavor = {"name": "small", "vcpus": 1, "ram_mb": 1}
        server = {"id": key, "name": name, "project_id": "p", "flavor": flavor}
        job = NewJob(name, HOST, JobKind.REBOOT, key, {"server": server, "action_id": "a", "request_id": ""})
        with write(self.engine) as connection:
            server_store.HOST_JOBS.enqueue(connection, job, self.clock.now())
        self.way.hints.send(HOST)

    def jobs(self):
        with read(self.engine) as connection:
            return [server_store.HOST_JOBS.get(connection, f"job-{number}") for number in range(JOBS)]

    def unfinished(self):
        """The number of unfinished jobs."""
        table = server_store.HOST_JOBS.table
        with read(self.engine) as connection:
            open_jobs = select(func.count()).select_from(table).where(table.c.finished_at.is_(None))
            return connection.execute(open_jobs).scalar_one()

    def wait_until_done(self):
        with self.line.news:
            done = self.line.news.wait_for(lambda: self.unfinished() == 0, PATIENCE_S)
        assert done, Counter(str(job and job.state) for job in self.jobs())

    def close(self):
        self.threads.stop()
        self.plane.stop()


@pytest.fixture
def world(way, tmp_path, monkeypatch):
    # Shortens an agent's pause after a lost request.
    monkeypatch.setattr(job_task, "BACKOFF", Backoff(first_s=0.05, longest_s=30.0))
    world = World(way, tmp_path, seed=1)
    yield world
    world.close()


#: The jobs table refuses the old agent's reports, whatever kind of hints is used.
in_process = pytest.mark.parametrize("way", ["in process"], indirect=True)


def test_each_job_ends_once_and_in_order_despite_every_fault_of_the_network(world):
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
    assert set(world.line.deliver_late()) <= {200, 409}
    assert world.jobs() == ended, "an hour late and out of order: nothing changes"


@in_process
def test_a_worker_that_missed_an_answer_is_told_of_its_job_after_an_older_one(world):
    """Otherwise it would rest, and the job would wait until its lease ends."""
    world.line.is_calm = True
    for number in (0, KEYS, 1):
        world.enqueue(number)  # the second waits for the first, which is for the same server
    [first] = world.compute.claim_jobs(HOST, "another worker")
    [missed] = world.compute.claim_jobs(HOST, "worker")
    assert missed.id == "job-1"
    world.compute.report_job(first.id, first.epoch, "done", {})
    [older] = world.compute.claim_jobs(HOST, "worker")
    assert older.id == f"job-{KEYS}"
    assert world.compute.report_job(older.id, older.epoch, "done", {}), "the worker has another job"
    [again] = world.compute.claim_jobs(HOST, "worker")
    assert again.id == "job-1"
    assert not world.compute.report_job(again.id, again.epoch, "done", {})


@in_process
def test_reports_of_an_agent_that_hung_for_an_hour_are_refused(world):
    """The old agent reports with its old epoch; its successor's result counts."""
    world.line.is_calm = True
    hung, successor = Runner(hangs=("job-0", "job-1")), Runner()
    world.way.wait_until_listening()
    world.threads.start(world.agent(hung, workers=2))
    for number in (0, 1):
        world.enqueue(number)
    for _ in range(2):
        assert hung.hanging.acquire(timeout=PATIENCE_S)
    world.clock.advance(3600)
    world.threads.start(world.agent(successor, first=11))
    for number in range(2, JOBS):
        world.enqueue(number)
    world.wait_until_done()
    ended = world.jobs()
    assert [job.epoch for job in ended[:2]] == [2, 2]
    assert {job.worker.partition("/")[0] for job in ended} == {HOST}
    hung.let_go.set()
    for job in ended[:2]:
        with pytest.raises(Conflict) as refused:
            world.compute.report_job(job.id, 1, "failed", {"error": "I was away"})
        assert refused.value.error_code == FENCED_CODE
    assert world.jobs() == ended
    assert {job.state for job in ended} == {JobState.DONE}


@in_process
def test_an_old_report_does_not_end_the_job_of_the_successor(world):
    world.line.is_calm = True
    hung, successor = Runner(hangs=("job-0",)), Runner(hangs=("job-0",))
    world.way.wait_until_listening()
    world.threads.start(world.agent(hung, workers=1))
    world.enqueue(0)
    assert hung.hanging.acquire(timeout=PATIENCE_S)
    world.clock.advance(LEASE_S + 1)
    world.threads.start(world.agent(successor, first=11, workers=1))
    assert successor.hanging.acquire(timeout=PATIENCE_S)
    (claimed,) = [job for job in world.jobs() if job]
    for state in ("running", "done", "failed"):
        with pytest.raises(Conflict, match="was claimed again by compute-1/11 in epoch 2"):
            world.compute.report_job("job-0", 1, state, {"error": "late"})
    hung.let_go.set()
    assert [job for job in world.jobs() if job] == [claimed]
    successor.let_go.set()
    world.wait_until_done()
    assert (world.jobs()[0].state, world.jobs()[0].epoch) == (JobState.DONE, 2)


def test_jobs_without_a_hint_are_found_by_polling(world):
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
