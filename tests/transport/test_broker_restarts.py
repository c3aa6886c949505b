"""RabbitMQ is frozen, killed, stopped and restarted while jobs are enqueued and done."""

import threading
import time

import pytest

from moorage.core.clock import SystemClock
from moorage.jobs.background_tasks import TaskThreads, Wakeups
from moorage.jobs.wakeups import RabbitHints
from tests.transport.broker import Broker
from tests.transport.test_hints import METADATA, Worker, enqueue
from tests.transport.ways import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.rabbit]

POLL_S = 1.0
#: Allowance for a worker, because a starting broker uses much CPU.
SLACK_S = 5.0


@pytest.fixture
def broker():
    broker = Broker()
    broker.start()
    yield broker
    broker.close()


@pytest.fixture
def sides(broker):
    """(wake-ups of the agent, hints of the services), each connected as a process of its own."""
    ours, theirs = Wakeups(), Wakeups()
    sending, listening = RabbitHints(broker.url, ours), RabbitHints(broker.url, theirs)
    yield theirs, sending, listening
    sending.close()
    listening.close()


@pytest.fixture
def jobs(sqlite_engine):
    METADATA.create_all(sqlite_engine)
    return sqlite_engine


class PollingWorker(Worker):
    """After each job it polls again at once, as an agent's worker does."""

    def run_once(self):
        before = len(self.done)
        due = super().run_once()
        return due if len(self.done) == before else self.clock.now()

    def wait_for_more(self, count, began):
        """Waits until this many jobs that were enqueued after this call are done; `began` has the time of each job."""
        from_now = time.monotonic()

        def are_done():
            return sum(began[job_id] >= from_now for job_id in self.done) >= count

        with self.news:
            assert self.news.wait_for(are_done, PATIENCE_S)


class Load:
    """Enqueues a job every 20 ms and sends a hint for it, until `end`."""

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


def test_a_broker_outage_delays_jobs_by_at_most_a_poll_and_hints_work_again_afterwards(sides, broker, jobs):
    """One broker for all three cases, because each start takes 5 s of CPU."""
    theirs, sending, listening = sides
    worker, patient = PollingWorker(jobs, POLL_S), Worker(jobs, poll_s=600, queue="compute-2")
    threads = TaskThreads(SystemClock(), theirs)
    threads.start([worker, patient])
    load = None
    try:
        for how, go, come in (
            ("frozen", broker.freeze, broker.thaw),
            ("killed", broker.kill, broker.start),
            ("stopped", broker.stop, broker.start),
        ):
            assert listening.listening.wait(PATIENCE_S), how
            load = load or Load(jobs, sending)
            worker.wait_for_more(10, load.enqueued)
            go()
            worker.wait_for_more(50, load.enqueued)
            come()
            assert listening.listening.wait(PATIENCE_S), how
            for number in range(3):
                job_id = f"after it was {how}, {number}"
                enqueue(jobs, job_id, "compute-2")
                sending.send("compute-2")
                patient.wait_for(job_id)
        load.end()
        done = {job_id: worker.wait_for(job_id) for job_id in load.enqueued}
    finally:
        threads.stop()
    late = {job_id: done[job_id] - began for job_id, began in load.enqueued.items()}
    assert max(late.values()) < POLL_S + SLACK_S
    assert load.longest_send_s < 1, "whoever enqueues waits for no broker"
