"""RabbitMQ stopped, killed, frozen and started again while jobs are enqueued and worked on."""

import threading
import time

import pytest

from moorage.core.clock import SystemClock
from moorage.jobs.duties import DutyThreads, Wakeups
from moorage.jobs.hints import RabbitHints
from tests.transport.broker import Broker
from tests.transport.test_hints import METADATA, Worker, enqueue
from tests.transport.ways import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.rabbit]

POLL_S = 1.0
#: A machine that starts a broker beside has little left for a worker.
SLACK_S = 5.0


@pytest.fixture
def broker():
    broker = Broker()
    broker.start()
    yield broker
    broker.close()


@pytest.fixture
def sides(broker):
    """(wake-ups of the agent, hints of the services): two processes, as far as hints know."""
    ours, theirs = Wakeups(), Wakeups()
    sending, listening = RabbitHints(broker.url, ours), RabbitHints(broker.url, theirs)
    yield theirs, sending, listening
    sending.close()
    listening.close()


@pytest.fixture
def jobs(sqlite_engine):
    METADATA.create_all(sqlite_engine)
    return sqlite_engine


class Diligent(Worker):
    """As an agent's worker: who found work asks again at once."""

    def tick(self):
        before = len(self.done)
        due = super().tick()
        return due if len(self.done) == before else self.clock.now()


class Load:
    """A job each 20 ms, and a hint for it, until it is ended."""

    def __init__(self, engine, hints):
        self.enqueued = {}
        self.longest_send_s = 0.0
        self._engine, self._hints = engine, hints
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        number = 0
        while not self._ending.wait(0.02):
            job_id = f"job-{number}"
            self.enqueued[job_id] = time.monotonic()
            enqueue(self._engine, job_id)
            began = time.monotonic()
            self._hints.send("compute-1")
            self.longest_send_s = max(self.longest_send_s, time.monotonic() - began)
            number += 1

    def end(self):
        self._ending.set()
        self._thread.join()


def disturb(broker, how):
    if how == "freeze":
        broker.freeze()
        time.sleep(4)
        broker.thaw()
        return
    {"stop": broker.stop, "kill": broker.kill}[how]()
    time.sleep(1)
    broker.start()


@pytest.mark.parametrize("how", ["stop", "kill", "freeze"])
def test_a_broker_that_goes_and_comes_under_load_loses_no_job_and_delays_none_beyond_a_poll(sides, broker, jobs, how):
    theirs, sending, listening = sides
    worker = Diligent(jobs, POLL_S)
    threads = DutyThreads(SystemClock(), theirs)
    threads.start([worker])
    try:
        assert listening.listening.wait(PATIENCE_S)
        load = Load(jobs, sending)
        time.sleep(0.5)
        disturb(broker, how)
        assert listening.listening.wait(PATIENCE_S)
        time.sleep(0.5)
        load.end()
        done = {job_id: worker.wait_for(job_id) for job_id in load.enqueued}
    finally:
        threads.stop()
    assert len(done) > 50
    late = {job_id: done[job_id] - began for job_id, began in load.enqueued.items()}
    assert max(late.values()) < POLL_S + SLACK_S
    assert load.longest_send_s < 1, "whoever enqueues waits for no broker"


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_after_the_broker_is_back_hints_come_again_by_themselves(sides, broker, jobs, how):
    theirs, sending, listening = sides
    worker = Worker(jobs, poll_s=600)
    threads = DutyThreads(SystemClock(), theirs)
    threads.start([worker])
    try:
        assert listening.listening.wait(PATIENCE_S)
        disturb(broker, how)
        assert listening.listening.wait(PATIENCE_S)
        for number in range(3):
            enqueue(jobs, f"job-{number}")
            sending.send("compute-1")
            worker.wait_for(f"job-{number}")
    finally:
        threads.stop()
