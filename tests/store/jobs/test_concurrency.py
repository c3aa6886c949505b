"""Many workers on one jobs table, on each database, because the result depends on locks."""

import threading
from collections import defaultdict
from datetime import timedelta

import pytest
from sqlalchemy import select

from moorage.core.errors import Conflict, RetryableConflict
from moorage.db.engine import dialect_name, open_engine
from moorage.db.session import in_transaction, read, write
from moorage.jobs.contract import JobKind
from moorage.jobs.model import JobState, NewJob
from tests.conftest import START
from tests.migrated import engine_with
from tests.store.conftest import on_every_database, on_servers
from tests.store.jobs.test_store import SCHEMA, STORE

LEASE_S = 60.0


@pytest.fixture
def jobs(kind):
    with engine_with(SCHEMA, kind) as engine:
        yield engine


class Workers:
    """Workers in threads on one jobs table; `effects` lists what they did, in order."""

    def __init__(self, engine, clock_of):
        self.engine = engine
        self.now = clock_of
        self.lock = threading.Lock()
        self.effects = []  # (key, job id, epoch, "begin" | "end" | the code of an error)
        self.failures = []

    def note(self, job, what):
        with self.lock:
            self.effects.append((job.key, job.id, job.epoch, what))

    def work(self, worker, total, *, limit=1, loses=lambda job: False):
        """Claims and finishes jobs until `total` jobs are done. Never finishes a job for which `loses` returns true."""
        try:
            while not self.all_done(total):
                for job in in_transaction(
                    self.engine,
                    lambda connection: STORE.claim(connection, "compute-1", worker, self.now(), LEASE_S, limit),
                ):
                    self.note(job, "begin")
                    if loses(job):
                        continue
                    self.finish(job)
        except Exception as error:  # noqa: BLE001 - the end of a thread: the test compares its error
            self.failures.append(error)

    def finish(self, job):
        # Recorded before the commit, because after it another worker can begin the next job of the key.
        def report(connection):
            STORE.finish(connection, job.id, job.epoch, JobState.DONE, {"epoch": job.epoch}, self.now())

        try:
            self.note(job, "end")
            in_transaction(self.engine, report)
        except Conflict as conflict:
            self.note(job, conflict.error_code)

    def all_done(self, total):
        with self.lock:
            ended = {job_id for _, job_id, _, what in self.effects if what == "end"}
        return len(ended) == total or self.failures


def run(*targets):
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)


@on_every_database
@pytest.mark.parametrize("limit", [1, 4])
def test_many_workers_run_each_job_once_and_the_jobs_of_a_key_in_order(jobs, limit):
    keys, each, workers = 5, 8, 6
    pool = Workers(jobs, lambda: START)
    with write(jobs) as connection:
        for number in range(each):
            for key in range(keys):
                STORE.enqueue(
                    connection, NewJob(f"{key}-{number}", "compute-1", JobKind.BUILD, f"key-{key}", {}), START
                )
    run(*(
        lambda worker=worker: pool.work(f"w{worker}", keys * each, limit=limit)
        for worker in range(workers)
    ))  # fmt: skip
    assert pool.failures == []
    by_key = defaultdict(list)
    for key, job_id, epoch, what in pool.effects:
        by_key[key].append((job_id, epoch, what))
    for key in range(keys):
        expected = [(f"{key}-{number}", 1, what) for number in range(each) for what in ("begin", "end")]
        assert by_key[f"key-{key}"] == expected


@on_every_database
def test_jobs_that_a_worker_lost_are_done_in_a_later_epoch_and_begun_once_per_epoch(jobs):
    """The worker that first claims every second job never reports it."""
    total, workers = 12, 4
    pool = Workers(jobs, lambda: START + timedelta(seconds=LEASE_S * len(pool.effects)))
    with write(jobs) as connection:
        for number in range(total):
            STORE.enqueue(connection, NewJob(f"{number}", "compute-1", JobKind.BUILD, f"key-{number % 3}", {}), START)

    def loses(job):
        return int(job.id) % 2 == 0 and job.epoch == 1

    run(*(lambda worker=worker: pool.work(f"w{worker}", total, loses=loses) for worker in range(workers)))
    assert pool.failures == []
    begun = [(job_id, epoch) for _, job_id, epoch, what in pool.effects if what == "begin"]
    assert len(begun) == len(set(begun)), "a job was begun twice in one epoch"
    with read(jobs) as connection:
        for number in range(total):
            job = STORE.get(connection, f"{number}")
            assert job.state is JobState.DONE
            assert job.result == {"epoch": job.epoch}
            assert job.epoch == job.attempt >= (2 if number % 2 == 0 else 1)


@on_every_database
def test_only_the_first_of_several_concurrent_reports_of_a_claim_counts(jobs):
    with write(jobs) as connection:
        STORE.enqueue(connection, NewJob("a", "compute-1", JobKind.BUILD, "key", {}), START)
        [job] = STORE.claim(connection, "compute-1", "w", START, LEASE_S)
    counted = []

    def report():
        counted.append(
            in_transaction(
                jobs,
                lambda connection: STORE.finish(connection, "a", job.epoch, JobState.DONE, {}, START),
            )
        )

    run(*([report] * 6))
    assert sorted(counted) == [False] * 5 + [True]


@on_every_database
def test_a_job_that_is_enqueued_concurrently_is_stored_once(jobs):
    def enqueue():
        in_transaction(
            jobs,
            lambda connection: STORE.enqueue(connection, NewJob("a", "compute-1", JobKind.BUILD, "key", {}), START),
        )

    run(*([enqueue] * 6))
    with read(jobs) as connection:
        assert [job.id for job in STORE.story(connection, "key")] == ["a"]


@pytest.fixture
def other(jobs):
    """Another process's engine."""
    other = open_engine(jobs.url.render_as_string(hide_password=False))
    yield other
    other.dispose()


@on_servers
def test_a_job_is_not_claimed_beside_an_older_job_of_its_key_whose_insert_committed_later(jobs, other, request):
    """A transaction may take an early position in the table and commit late. Still, only one job of a key is claimed.

    Here a worker selects the younger job before the late commit, so the selected job is no longer the first of its key.
    """
    late = other.connect()
    request.addfinalizer(late.close)
    late_transaction = late.begin()
    STORE.enqueue(late, NewJob("older", "compute-1", JobKind.BUILD, "key", {}), START)
    with write(jobs) as connection:
        STORE.enqueue(connection, NewJob("younger", "compute-1", JobKind.BUILD, "key", {}), START)

    def select_then_claim(connection):
        values = {"of_queue": "compute-1", "now": START, "limit": 1, "by": "nobody"}
        [row] = connection.execute(STORE._claiming.claimable, values).all()
        assert row.id == "younger"
        late_transaction.commit()
        with write(other) as its:
            [older] = STORE.claim(its, "compute-1", "quick", START, LEASE_S)
        assert older.id == "older"
        STORE._take(connection, [(row, "slow")], START + timedelta(seconds=LEASE_S))

    with write(jobs) as connection, pytest.raises(RetryableConflict, match="of 'key'"):
        select_then_claim(connection)
    with write(jobs) as connection:
        assert STORE.get(connection, "older").worker == "quick"
        assert STORE.get(connection, "younger").state is JobState.READY
    with write(jobs) as connection:
        assert STORE.claim(connection, "compute-1", "slow", START, LEASE_S) == []


@on_servers
def test_a_claim_does_not_wait_for_rows_that_another_worker_has_locked(jobs):
    """While one claim is uncommitted, the next worker gets the next job."""
    with write(jobs) as connection:
        for name in ("a", "b"):
            STORE.enqueue(connection, NewJob(name, "compute-1", JobKind.BUILD, name, {}), START)
    impatient = {"postgresql": "SET LOCAL lock_timeout = '1s'", "mariadb": "SET SESSION innodb_lock_wait_timeout = 1"}
    with write(jobs) as first, write(jobs) as second:
        second.exec_driver_sql(impatient[dialect_name(jobs)])
        assert [job.id for job in STORE.claim(first, "compute-1", "w1", START, LEASE_S)] == ["a"]
        assert [job.id for job in STORE.claim(second, "compute-1", "w2", START, LEASE_S)] == ["b"]


@on_servers
def test_a_restarted_worker_whose_job_is_locked_is_told_to_retry_and_then_gets_its_job(jobs):
    """If its claim skipped the locked row, the job would wait for the end of its lease."""
    with write(jobs) as connection:
        STORE.enqueue(connection, NewJob("a", "compute-1", JobKind.BUILD, "a", {}), START)
        STORE.claim(connection, "compute-1", "w1", START, LEASE_S)
    with write(jobs) as locking:
        locking.execute(select(STORE.table).with_for_update()).all()
        with write(jobs) as connection, pytest.raises(RetryableConflict, match="the jobs that w1 has claimed"):
            STORE.claim(connection, "compute-1", "w1", START, LEASE_S)
        with write(jobs) as connection:
            assert STORE.claim(connection, "compute-1", "w2", START, LEASE_S) == []
    with write(jobs) as connection:
        assert [job.id for job in STORE.claim(connection, "compute-1", "w1", START, LEASE_S)] == ["a"]


@on_every_database
def test_a_poll_without_open_jobs_uses_the_index_of_open_jobs(jobs):
    """A poll costs no more if a queue has many finished jobs."""
    with write(jobs) as connection:
        for number in range(300):
            STORE.enqueue(connection, NewJob(f"{number}", "compute-1", JobKind.BUILD, f"k{number}", {}), START)
        for job in STORE.claim(connection, "compute-1", "w", START, LEASE_S, 300):
            STORE.finish(connection, job.id, job.epoch, JobState.DONE, None, START)
    table = STORE.table.name
    with write(jobs) as connection:
        if jobs.dialect.name == "postgresql":
            connection.exec_driver_sql(f"ANALYZE {table}")
        if jobs.dialect.name in ("mysql", "mariadb"):
            connection.exec_driver_sql(f"ANALYZE TABLE {table}")
    statement = STORE._claiming.claimable.compile(dialect=jobs.dialect, compile_kwargs={"render_postcompile": True})
    values = statement.construct_params(
        {"of_queue": "compute-1", "now": START.replace(tzinfo=None), "limit": 1, "by": "nobody"}
    )
    explain = "EXPLAIN QUERY PLAN " if jobs.dialect.name == "sqlite" else "EXPLAIN "
    with write(jobs) as connection:
        positional = statement.positiontup
        given = tuple(values[name] for name in positional) if positional else values
        plan = "\n".join(str(row) for row in connection.exec_driver_sql(explain + str(statement), given))
    assert "ix_jobs_open_queue_position" in plan, plan
