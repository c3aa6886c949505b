"""Which workers count as dead, in virtual time, and what becomes of the jobs that they claimed."""

import os
import signal
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import event

from moorage.core.errors import Conflict, Unavailable
from moorage.db.session import read, write
from moorage.db.types import new_metadata
from moorage.jobs.background_tasks import Wakeups
from moorage.jobs.contract import JobKind
from moorage.jobs.model import JobState, NewJob
from moorage.jobs.store import JobStore
from moorage.jobs.tables import jobs_table, workers_table
from moorage.jobs.worker_watch import UNKNOWN, FirstWorker, ProcessIdentity, Worker, WorkerWatch, this_process
from tests.databases import Schema
from tests.migrated import engine_with
from tests.store.conftest import on_every_database

METADATA = new_metadata()
STORE = JobStore(jobs_table(METADATA))
WORKERS = workers_table(METADATA)
SCHEMA = Schema("workers", METADATA.create_all)

HERE = this_process()
THERE = ProcessIdentity("another machine", HERE.pid, HERE.started)
ENDED = ProcessIdentity(HERE.machine, HERE.pid, HERE.started - 1)

#: Issue 18, point 11.
WITHIN_S = 5


class Cloud:
    def __init__(self, engine, clock):
        self.engine, self.clock, self.wakeups = engine, clock, Wakeups()
        self.hint = self.wakeups.listen("work")

    def watch(self, number, process=HERE, *, name=None):
        worker = Worker(f"id-{number}", name or f"host-{number}:/state", process)
        made = WorkerWatch(
            "workers", self.engine, self.clock, self.wakeups, worker, WORKERS, STORE.end_leases_of, ["work"]
        )
        made.register()
        self.clock.sleep(1)
        return made

    def run(self, *watches, seconds):
        """Each looks once a second."""
        for _ in range(seconds):
            for watch in watches:
                watch.run_once()
            self.clock.sleep(1)

    def enqueue(self, key="server-1"):
        job = NewJob(id=f"build {key}", queue="work", kind=JobKind.BUILD, key=key, payload={})
        with write(self.engine) as connection:
            STORE.enqueue(connection, job, self.clock.now())

    def claim(self, watch):
        with write(self.engine) as connection:
            worker = f"{watch.worker.name}/builder"
            return STORE.claim(connection, "work", worker, self.clock.now(), lease_s=600)

    def registered(self):
        with read(self.engine) as connection:
            return {row.id for row in connection.execute(WORKERS.select())}


@pytest.fixture
def cloud(kind, clock):
    with engine_with(SCHEMA, kind) as engine:
        yield Cloud(engine, clock)


@on_every_database
def test_the_jobs_of_a_worker_whose_process_ended_are_free_at_the_next_look(cloud):
    cloud.enqueue()
    dead, other = cloud.watch(1, ENDED), cloud.watch(2)
    (claimed,) = cloud.claim(dead)
    assert cloud.claim(other) == []
    cloud.hint.clear()
    cloud.run(other, seconds=1)
    assert cloud.hint.is_set()
    (taken,) = cloud.claim(other)
    assert (taken.id, taken.epoch) == (claimed.id, claimed.epoch + 1)
    assert cloud.registered() == {"id-2"}


@pytest.mark.parametrize("process", [THERE, UNKNOWN], ids=["another machine", "unknown"])
def test_the_jobs_of_a_worker_without_heartbeats_are_free_within_5_seconds(cloud, process):
    cloud.enqueue()
    dead, other = cloud.watch(1, process), cloud.watch(2)
    cloud.run(dead, other, seconds=3)
    cloud.claim(dead)
    cloud.run(other, seconds=1)
    assert cloud.claim(other) == [], "it may be late"
    cloud.run(other, seconds=WITHIN_S - 1)
    assert len(cloud.claim(other)) == 1


def test_a_worker_whose_process_runs_is_never_dead(cloud):
    """It was not scheduled for a long time, for example."""
    cloud.enqueue()
    stuck, other = cloud.watch(1), cloud.watch(2)
    cloud.claim(stuck)
    cloud.run(other, seconds=100)
    assert cloud.claim(other) == []
    assert "id-1" in cloud.registered()


@pytest.fixture
def child():
    """A process that does nothing, and its identity."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        started = int(Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[19])
        yield process, ProcessIdentity(HERE.machine, process.pid, started)
        process.kill()


def stop(process):
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


def test_the_jobs_of_a_stopped_process_are_free_within_5_seconds(cloud, child):
    process, identity = child
    cloud.enqueue()
    stopped, other = cloud.watch(1, identity), cloud.watch(2)
    cloud.claim(stopped)
    cloud.run(other, seconds=20)
    stop(process)
    cloud.run(other, seconds=1)
    assert cloud.claim(other) == [], "it may go on at once"
    cloud.run(other, seconds=WITHIN_S - 1)
    assert len(cloud.claim(other)) == 1
    assert cloud.registered() == {"id-2"}


def test_a_process_that_was_stopped_for_a_short_time_now_and_then_keeps_its_jobs(cloud, child):
    process, identity = child
    cloud.enqueue()
    stopped, other = cloud.watch(1, identity), cloud.watch(2)
    cloud.claim(stopped)
    for _ in range(10):
        stop(process)
        cloud.run(other, seconds=2)
        process.send_signal(signal.SIGCONT)
        os.waitid(os.P_PID, process.pid, os.WCONTINUED | os.WNOWAIT)
        cloud.run(other, seconds=1)
    assert cloud.claim(other) == []


def test_one_worker_is_the_first_and_another_one_is_woken_when_it_dies(cloud):
    first, second, third = (cloud.watch(1, THERE), cloud.watch(2), cloud.watch(3))
    roles = {watch: FirstWorker(WORKERS, watch.worker) for watch in (first, second, third)}

    def firsts():
        with read(cloud.engine) as connection:
            return [watch for watch, is_first in roles.items() if is_first(connection)]

    assert firsts() == [first]
    cloud.hint.clear()
    cloud.run(second, third, seconds=WITHIN_S)
    assert cloud.hint.is_set()
    assert firsts() == [second]
    first.run_once()
    assert firsts() == [second], "a worker that comes back is the last"


def test_a_worker_that_sends_heartbeats_is_never_dead(cloud):
    cloud.enqueue()
    far, other = cloud.watch(1, THERE), cloud.watch(2)
    cloud.claim(far)
    cloud.run(far, other, seconds=100)
    assert cloud.claim(other) == []
    assert "id-1" in cloud.registered()


def test_a_slow_worker_keeps_its_jobs_while_heartbeats_come_every_other_second(cloud):
    cloud.enqueue()
    slow, other = cloud.watch(1, THERE), cloud.watch(2)
    cloud.claim(slow)
    for _ in range(20):
        cloud.run(slow, other, seconds=1)
        cloud.run(other, seconds=1)
    assert cloud.claim(other) == []


def test_a_worker_that_was_taken_for_dead_registers_again_and_its_late_report_is_refused(cloud):
    cloud.enqueue()
    paused, other = cloud.watch(1, THERE), cloud.watch(2)
    (late,) = cloud.claim(paused)
    cloud.run(other, seconds=WITHIN_S)
    cloud.claim(other)
    paused.run_once()
    assert cloud.registered() == {"id-1", "id-2"}
    with pytest.raises(Conflict, match="claimed again by host-2"), write(cloud.engine) as connection:
        STORE.finish(connection, late.id, late.epoch, JobState.DONE, None, cloud.clock.now())


def test_a_worker_that_was_taken_for_dead_may_still_report_until_another_claims_its_job(cloud):
    cloud.enqueue()
    paused, other = cloud.watch(1, THERE), cloud.watch(2)
    (job,) = cloud.claim(paused)
    cloud.run(other, seconds=WITHIN_S)
    with write(cloud.engine) as connection:
        assert STORE.finish(connection, job.id, job.epoch, JobState.DONE, None, cloud.clock.now())
    assert cloud.claim(other) == []


def test_what_a_process_claimed_before_its_restart_waits_for_the_process_of_the_same_name(cloud):
    """`JobStore.claim` gives the jobs back to it, so another process must not get them."""
    cloud.enqueue()
    before = cloud.watch(1, ENDED, name="host:/state")
    after, other = cloud.watch(2, name="host:/state"), cloud.watch(3)
    cloud.claim(before)
    cloud.run(other, after, seconds=2)
    assert cloud.registered() == {"id-2", "id-3"}
    assert cloud.claim(other) == []
    assert len(cloud.claim(after)) == 1


def test_names_of_which_one_begins_with_the_other_are_kept_apart(cloud):
    cloud.enqueue("server-1")
    dead, living, other = cloud.watch(1, ENDED, name="host:/a"), cloud.watch(2, name="host:/ab"), cloud.watch(3)
    cloud.claim(living)
    cloud.run(living, other, seconds=3)
    assert dead.worker.id not in cloud.registered()
    assert cloud.claim(other) == []


def test_no_heartbeats_are_sent_while_all_workers_are_on_one_machine(cloud):
    first, second = cloud.watch(1), cloud.watch(2)
    cloud.run(first, second, seconds=5)
    with read(cloud.engine) as connection:
        assert {row.heartbeats for row in connection.execute(WORKERS.select())} == {0}


def test_a_worker_that_could_not_look_itself_judges_nobody_by_the_time_before(cloud):
    """While the database does not answer, the others cannot send heartbeats either."""
    far, other = cloud.watch(1, THERE), cloud.watch(2)
    cloud.enqueue()
    cloud.claim(far)
    cloud.run(far, other, seconds=3)
    cloud.run(other, seconds=2)
    rows = other._rows

    def fail():
        raise Unavailable("the database does not answer")

    other._rows = fail
    with pytest.raises(Unavailable):
        other.run_once()
    other._rows = rows
    cloud.run(other, seconds=3)
    assert cloud.claim(other) == []
    cloud.run(other, seconds=1)
    assert len(cloud.claim(other)) == 1


def test_a_look_without_other_machines_is_one_select(cloud):
    watch = cloud.watch(1)
    cloud.watch(2)
    statements = []
    event.listen(cloud.engine, "before_cursor_execute", lambda *got: statements.append(got[2].split()[0]))
    due = watch.run_once()
    assert statements == ["BEGIN", "SELECT"]
    assert due - cloud.clock.now() == timedelta(seconds=1)
