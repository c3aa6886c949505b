"""Hints in process, by PostgreSQL and by RabbitMQ: all three pass the same tests."""

import contextlib
import threading
import time
from datetime import timedelta
from urllib.parse import urlsplit

import pytest

from moorage.core.clock import SystemClock
from moorage.core.errors import StartError
from moorage.db.session import write
from moorage.db.types import new_metadata
from moorage.jobs.background_tasks import TaskThreads, Wakeups
from moorage.jobs.contract import JobKind
from moorage.jobs.model import JobState, NewJob
from moorage.jobs.store import JobStore
from moorage.jobs.tables import jobs_table
from moorage.jobs.wakeups import InProcessHints, PostgresHints, RabbitHints, open_hints
from tests.ports import free_port
from tests.servers import postgres_url, rabbit_url
from tests.transport.proxy import Line
from tests.transport.ways import PATIENCE_S, Far, Near

METADATA = new_metadata()
STORE = JobStore(jobs_table(METADATA))


def settle(way, event, topic="compute-1"):
    """Waits until `way` listens and the wake-ups of connecting are over, so that the next wake-up comes from a hint."""
    way.wait_until_listening()
    for _ in range(3):
        way.hints.send(topic)
        assert event.wait(PATIENCE_S)
        event.clear()


def test_a_hint_wakes_a_listener_of_the_other_process(way):
    woken = way.theirs.listen("compute-1")
    settle(way, woken)
    way.hints.send("compute-1")
    assert woken.wait(PATIENCE_S)


def test_a_hint_wakes_only_its_queue(way):
    mine, other = way.theirs.listen("compute-1"), way.theirs.listen("compute-2")
    settle(way, mine)
    settle(way, other, "compute-2")
    mine.clear()
    way.hints.send("compute-2")
    assert other.wait(PATIENCE_S)
    assert not mine.is_set()


def test_a_queue_added_after_the_connection_gets_hints_too(way):
    first = way.theirs.listen("compute-1")
    settle(way, first)
    late = way.theirs.listen("compute-3")
    assert heard_within_patience(way, late, "compute-3")


def test_a_hint_wakes_the_senders_own_process_without_the_broker(way):
    woken = way.ours.listen("compute-1")
    way.cut()
    way.hints.send("compute-1")
    assert woken.is_set(), "no detour: the broker may be down"


def test_sending_does_not_wait_while_the_connection_is_down(way):
    way.wait_until_listening()
    way.cut()
    started = time.monotonic()
    for number in range(2000):
        way.hints.send(f"compute-{number % 50}")
    assert time.monotonic() - started < 1


def test_a_listener_reconnects_by_itself(way):
    woken = way.theirs.listen("compute-1")
    settle(way, woken)
    for _ in range(2):
        way.cut()
        way.mend()
        assert heard_within_patience(way, woken, "compute-1")


def test_an_unsent_hint_is_sent_when_the_connection_is_back(way):
    woken = way.theirs.listen("compute-1")
    settle(way, woken)
    way.cut()
    way.hints.send("compute-1")
    woken.clear()
    way.mend()
    way.wait_until_listening()
    if isinstance(way, Far):
        assert woken.wait(PATIENCE_S)


class Worker:
    """A task that completes the jobs of `queue`, polling every `poll_s`."""

    def __init__(self, engine, poll_s, queue="compute-1"):
        self.name = f"worker of {queue}"
        self.listens_to = (queue,)
        self.engine = engine
        self.poll = timedelta(seconds=poll_s)
        self.clock = SystemClock()
        self.done = {}
        self.news = threading.Condition()

    def run_once(self):
        now = self.clock.now()
        with write(self.engine) as connection:
            for job in STORE.claim(connection, *self.listens_to, "w", now, 60, 9):
                STORE.finish(connection, job.id, job.epoch, JobState.DONE, None, now)
                with self.news:
                    self.done[job.id] = time.monotonic()
                    self.news.notify_all()
        return now + self.poll

    def wait_for(self, job_id):
        with self.news:
            assert self.news.wait_for(lambda: job_id in self.done, PATIENCE_S)
        return self.done[job_id]


def enqueue(engine, job_id, queue="compute-1"):
    with write(engine) as connection:
        STORE.enqueue(connection, NewJob(job_id, queue, JobKind.BUILD, job_id, {}), SystemClock().now())


@pytest.fixture
def jobs(sqlite_engine):
    METADATA.create_all(sqlite_engine)
    return sqlite_engine


def test_a_lost_hint_delays_a_job_by_at_most_one_poll_period(way, jobs):
    poll_s = 0.2
    worker = Worker(jobs, poll_s)
    threads = TaskThreads(SystemClock(), way.theirs)
    threads.start([worker])
    try:
        way.wait_until_listening()
        way.cut()
        for number in range(3):
            started = time.monotonic()
            enqueue(jobs, f"job-{number}")
            way.hints.send("compute-1")
            assert worker.wait_for(f"job-{number}") - started < poll_s + 0.5
    finally:
        threads.stop()


def test_a_hint_starts_a_job_without_waiting_for_the_poll(way, jobs):
    worker = Worker(jobs, poll_s=600)
    threads = TaskThreads(SystemClock(), way.theirs)
    threads.start([worker])
    try:
        way.wait_until_listening()
        for number in range(3):
            enqueue(jobs, f"job-{number}")
            way.hints.send("compute-1")
            worker.wait_for(f"job-{number}")
    finally:
        threads.stop()


def test_a_reconnected_listener_polls_once(way, jobs):
    """The hint was lost and the next poll is far away, so the listener polls once when it is connected again."""
    worker = Worker(jobs, poll_s=600)
    threads = TaskThreads(SystemClock(), way.theirs)
    threads.start([worker])
    try:
        way.wait_until_listening()
        way.cut()
        enqueue(jobs, "job")
        if isinstance(way, Near):
            way.hints.send("compute-1")
        way.mend()
        worker.wait_for("job")
    finally:
        threads.stop()


def test_close_ends_the_threads_while_the_connection_is_down(way):
    way.wait_until_listening()
    way.cut()
    way.hints.send("compute-1")
    started = time.monotonic()
    way.hints.close()
    assert time.monotonic() - started < 8
    assert not any(thread.is_alive() for thread in getattr(way.hints, "_threads", ()))


def test_a_process_that_only_listens_has_one_connection():
    line = Line(postgres_url())
    hints = open_hints(line.url, Wakeups())
    try:
        assert hints.listening.wait(PATIENCE_S)
        assert line.connections == 1
    finally:
        hints.close()
        line.close()


def test_a_listener_without_waiting_tasks_uses_no_cpu():
    line = Line(postgres_url())
    hints = open_hints(line.url, Wakeups())
    try:
        assert hints.listening.wait(PATIENCE_S)
        before = time.process_time()
        threading.Event().wait(0.3)
        assert time.process_time() - before < 0.15
    finally:
        hints.close()
        line.close()


def test_the_scheme_of_the_url_selects_the_kind_of_hints():
    for url, kind in (
        (None, InProcessHints),
        (postgres_url(), PostgresHints),
        (postgres_url().replace("postgresql:", "postgresql+psycopg:"), PostgresHints),
        (rabbit_url(), RabbitHints),
    ):
        hints = open_hints(url, Wakeups())
        assert type(hints) is kind
        hints.close()


@pytest.mark.parametrize("url_of", [postgres_url, rabbit_url])
def test_of_several_hosts_in_the_url_the_one_that_answers_is_used(url_of):
    url = urlsplit(url_of())
    user = url.netloc.rpartition("@")[0]
    several = f"host=127.0.0.1:{free_port()}&host={url.hostname}:{url.port}"
    ours, theirs = Wakeups(), Wakeups()
    with contextlib.ExitStack() as stack:
        channel = f"moorage_test_{free_port()}"
        sending, listening = (
            stack.enter_context(contextlib.closing(open_hints(to, wakeups, channel=channel)))
            for to, wakeups in (
                (url._replace(netloc=f"{user}@", query=several).geturl(), ours),
                (url_of(), theirs),
            )
        )
        assert listening.listening.wait(PATIENCE_S)
        assert sending.listening.wait(PATIENCE_S)
        woken = theirs.listen("compute-1")
        deadline = time.monotonic() + PATIENCE_S
        while not woken.wait(0.2):
            assert time.monotonic() < deadline
            sending.send("compute-1")


@pytest.mark.parametrize("host", ["mq1:port", "mq1:70000"])
def test_a_host_that_cannot_be_read_is_refused(host):
    with pytest.raises(StartError, match="host"):
        open_hints(f"amqp://guest@/%2F?host=mq1&host={host}", Wakeups())


def test_an_unknown_kind_is_refused():
    with pytest.raises(StartError, match="'redis' is neither"):
        open_hints("redis://127.0.0.1", Wakeups())


def heard_within_patience(way, event, topic):
    """Sends hints until one arrives, because a connection that was just restored loses some."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        way.hints.send(topic)
        if event.wait(0.2):
            event.clear()
            return True
    return False
