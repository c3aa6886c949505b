"""Only finished jobs that are older than the operator's limit are deleted, on all three databases.

The pauses of the task do not depend on the database, so SQLite suffices for their tests.
"""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from threading import Barrier

import pytest

from moorage.core.errors import Conflict, NotFound
from moorage.db.session import in_transaction, read, write
from moorage.jobs.model import JobState
from moorage.jobs.store import PRUNE_BATCH_ROWS, PRUNE_SHORT_PAUSE, PruningTask
from tests.migrated import engine_with
from tests.store.conftest import on_every_database
from tests.store.jobs.test_store import SCHEMA, STORE, claim, enqueue, finish, get, new

KEEP = timedelta(days=30)


def alone(_connection):
    return True


@pytest.fixture
def jobs(kind):
    with engine_with(SCHEMA, kind) as engine:
        yield engine


def task(engine, clock, *last_of):
    return PruningTask("jobs", engine, clock, partial(STORE.prune, last_of=last_of), keep=KEEP, is_first=alone)


def finished(engine, clock, *ids, key="server-1", queue="compute-1"):
    enqueue(engine, clock.now(), *(new(one, key=key, queue=queue) for one in ids))
    for _ in ids:
        [job] = claim(engine, clock.now(), queue=queue)
        finish(engine, job, clock.now())


def left(engine) -> list[str]:
    with read(engine) as connection:
        return [row.id for row in connection.execute(STORE.table.select().order_by(STORE.table.c.position))]


@on_every_database
def test_only_finished_jobs_older_than_the_limit_are_deleted(jobs, clock):
    finished(jobs, clock, "done")
    enqueue(jobs, clock.now(), new("cancelled", key="k1"), new("claimed", key="k2"), new("ready", key="k2"))
    with write(jobs) as connection:
        assert STORE.cancel(connection, "cancelled", clock.now())
    [held] = claim(jobs, clock.now())
    clock.sleep(KEEP.total_seconds())
    finished(jobs, clock, "young", key="k3", queue="compute-2")
    pruning = task(jobs, clock)
    assert pruning.run_once() == clock.now() + pruning.pause
    assert left(jobs) == ["done", "cancelled", "claimed", "ready", "young"], (
        "a job exactly as old as the limit is not older"
    )
    clock.sleep(1)
    task(jobs, clock).run_once()
    assert left(jobs) == ["claimed", "ready", "young"]
    finish(jobs, held, clock.now())  # a claimed job can be finished however old it is
    assert get(jobs, "claimed").state is JobState.DONE


@pytest.mark.parametrize(("days", "hours"), [(0.5, 1), (3, 2.4), (30, 24), (3650, 24)])
def test_the_longer_jobs_are_kept_the_longer_the_task_pauses(jobs, clock, days, hours):
    pruning = PruningTask("jobs", jobs, clock, STORE.prune, keep=timedelta(days=days), is_first=alone)
    assert pruning.pause == timedelta(hours=hours)


def test_finished_jobs_are_deleted_in_batches_with_short_pauses(jobs, clock):
    with write(jobs) as connection:
        STORE.enqueue_all(
            connection, [new(str(number), key=str(number)) for number in range(PRUNE_BATCH_ROWS + 2)], clock.now()
        )
        for number in range(PRUNE_BATCH_ROWS + 2):
            STORE.cancel(connection, str(number), clock.now())
    clock.sleep(KEEP.total_seconds() + 1)
    pruning = task(jobs, clock)
    assert (pruning.run_once(), len(left(jobs))) == (clock.now() + PRUNE_SHORT_PAUSE, 2)
    assert (pruning.run_once(), left(jobs)) == (clock.now() + pruning.pause, [])


def test_a_process_that_is_not_the_first_deletes_nothing(jobs, clock):
    finished(jobs, clock, "done")
    clock.sleep(KEEP.total_seconds() + 1)
    others = PruningTask("jobs", jobs, clock, STORE.prune, keep=KEEP, is_first=lambda _: False)
    assert others.run_once() == clock.now() + others.pause
    assert left(jobs) == ["done"]


@on_every_database
def test_the_last_job_of_a_key_is_kept_if_the_task_is_told_to_keep_it(jobs, clock):
    finished(jobs, clock, "audit:1", "audit:2", key="audit")
    finished(jobs, clock, "a")
    clock.sleep(KEEP.total_seconds() + 1)
    task(jobs, clock, "audit", "nothing").run_once()
    assert left(jobs) == ["audit:2"]


@on_every_database
def test_a_late_report_on_a_revoked_job_is_refused_before_and_after_pruning(jobs, clock):
    enqueue(jobs, clock.now(), new("a"))
    [lost] = claim(jobs, clock.now())
    with write(jobs) as connection:
        STORE.revoke(connection, "server-1", "compute-1", clock.now())
    with pytest.raises(Conflict):
        finish(jobs, lost, clock.now())
    clock.sleep(KEEP.total_seconds() + 1)
    task(jobs, clock).run_once()
    with pytest.raises(NotFound):
        finish(jobs, lost, clock.now())


@on_every_database
def test_jobs_enqueued_after_pruning_are_claimed_in_order(jobs, clock):
    """If all rows were deleted, the database may restart its counter; only the order of the existing rows matters."""
    finished(jobs, clock, "a", "b")
    clock.sleep(KEEP.total_seconds() + 1)
    task(jobs, clock).run_once()
    enqueue(jobs, clock.now(), new("c"), new("d"))
    assert [one.id for one in claim(jobs, clock.now())] == ["c"]
    finished(jobs, clock, "e", key="k2", queue="compute-2")
    assert left(jobs) == ["c", "d", "e"]


@on_every_database
def test_two_processes_can_prune_while_a_worker_claims_and_finishes_jobs(jobs, clock):
    with write(jobs) as connection:
        STORE.enqueue_all(
            connection, [new(str(number), key=str(number)) for number in range(PRUNE_BATCH_ROWS)], clock.now()
        )
        for number in range(PRUNE_BATCH_ROWS):
            STORE.cancel(connection, str(number), clock.now())
    clock.sleep(KEEP.total_seconds() + 1)
    enqueue(jobs, clock.now(), *(new(f"w{number}", key=f"w{number}") for number in range(9)))
    start = Barrier(3)

    def prune(_number: int) -> None:
        start.wait()
        task(jobs, clock).run_once()

    def work() -> list[str]:
        start.wait()
        done = []
        for number in range(9):
            [job] = in_transaction(
                jobs, lambda connection, n=number: STORE.claim(connection, "compute-1", f"w{n}", clock.now(), 60.0)
            )
            in_transaction(
                jobs,
                lambda connection, job=job: STORE.finish(
                    connection, job.id, job.epoch, JobState.DONE, None, clock.now()
                ),
            )
            done.append(job.id)
        return done

    with ThreadPoolExecutor(3) as pool:
        working = pool.submit(work)
        list(pool.map(prune, range(2)))
        assert working.result() == [f"w{number}" for number in range(9)]
    assert left(jobs) == [f"w{number}" for number in range(9)]
