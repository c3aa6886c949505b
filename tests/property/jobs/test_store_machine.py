"""The job store compared with a simple model: a list of jobs in the order of arrival."""

import tempfile
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from moorage.core.errors import Conflict, NotFound
from moorage.db.engine import open_engine
from moorage.db.session import write
from moorage.db.types import new_metadata
from moorage.jobs.contract import JobKind
from moorage.jobs.model import OPEN, TRANSITIONS, JobState, NewJob
from moorage.jobs.store import JobStore
from moorage.jobs.tables import jobs_table
from tests.conftest import START

METADATA = new_metadata()
MAX_ATTEMPTS = 3
STORE = JobStore(jobs_table(METADATA), max_attempts=MAX_ATTEMPTS)

FINAL = (JobState.DONE, JobState.FAILED, JobState.CANCELLED)

names = st.integers(0, 9).map(lambda number: f"job-{number}")
queues = st.sampled_from(["compute-1", "compute-2"])
workers = st.sampled_from(["compute-1/1", "compute-1/2"])


@dataclass(frozen=True)
class Row:
    """A job in the model."""

    id: str
    queue: str
    key: str
    state: JobState = JobState.READY
    epoch: int = 0
    attempt: int = 0
    lease_until: datetime | None = None
    worker: str | None = None


class JobsMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.engine = open_engine(f"sqlite:///{self.directory.name}/jobs.sqlite")
        METADATA.create_all(self.engine)
        self.rows = []  # Row, in the order of arrival
        self.now = START

    def teardown(self):
        self.engine.dispose()
        self.directory.cleanup()

    # ---------------------------------------------------------------------------------------- the model

    def is_due(self, row):
        return row.lease_until is None or row.lease_until <= self.now

    def claimable(self, row, worker):
        others = [other for other in self.rows if other.key == row.key and other.state in OPEN and other != row]
        if row.state is JobState.CLAIMED:
            return row.lease_until <= self.now or row.worker == worker
        if row.state is not JobState.READY or not self.is_due(row):
            return False
        place = self.rows.index(row)
        return not any(other.state is JobState.CLAIMED or self.rows.index(other) < place for other in others)

    def change(self, row, **changes):
        TRANSITIONS.check_transition(row.state, changes.get("state", row.state))
        self.rows[self.rows.index(row)] = replace(row, **changes)

    def find(self, name):
        return next((row for row in self.rows if row.id == name), None)

    # ---------------------------------------------------------------------------------------- the rules

    @initialize()
    def three_of_one_key(self):
        for number in range(3):
            self.enqueue(f"job-{number}", "compute-1", 0)

    @rule(name=names, queue=queues, key=st.integers(0, 2))
    def enqueue(self, name, queue, key):
        with write(self.engine) as connection:
            STORE.enqueue(connection, NewJob(name, queue, JobKind.BUILD, f"key-{key}", {}), self.now)
        if self.find(name) is None:
            self.rows.append(Row(name, queue, f"key-{key}"))

    @rule(queue=queues, worker=workers, limit=st.integers(1, 3), lease_s=st.sampled_from([5, 20]))
    def claim(self, queue, worker, limit, lease_s):
        told = []
        with write(self.engine) as connection:
            claimed = STORE.claim(
                connection, queue, worker, self.now, lease_s, limit, given_up=lambda _, job: told.append(job.id)
            )
        due = [row for row in self.rows if row.queue == queue and self.claimable(row, worker)][:limit]
        worn_out = [row for row in due if row.attempt >= MAX_ATTEMPTS]
        taken = [row for row in due if row.attempt < MAX_ATTEMPTS]
        assert [job.id for job in claimed] == [row.id for row in taken]
        assert told == [row.id for row in worn_out]
        for row in worn_out:
            self.change(row, state=JobState.FAILED, lease_until=None)
        for row in taken:
            until = self.now + timedelta(seconds=lease_s)
            self.change(
                row,
                state=JobState.CLAIMED,
                epoch=row.epoch + 1,
                attempt=row.attempt + 1,
                lease_until=until,
                worker=worker,
            )

    @rule(name=names, late=st.integers(0, 1), state=st.sampled_from(FINAL))
    def finish(self, name, late, state):
        row = self.find(name)
        with write(self.engine) as connection:
            outcome = self.outcome(
                lambda: STORE.finish(connection, name, (row.epoch if row else 0) - late, state, None, self.now)
            )
        if row is None:
            assert outcome == "moorage.not_found"
        elif late:
            assert outcome == "jobs.fenced"
        elif row.state is JobState.CLAIMED:
            assert outcome is True
            self.change(row, state=state, lease_until=None)
        else:
            assert outcome == (False if row.state is state else "moorage.state")

    @rule(name=names, late=st.integers(0, 1), pause_s=st.sampled_from([None, 7]))
    def release(self, name, late, pause_s):
        row = self.find(name)
        not_before = None if pause_s is None else self.now + timedelta(seconds=pause_s)
        with write(self.engine) as connection:
            outcome = self.outcome(
                lambda: STORE.release(connection, name, (row.epoch if row else 0) - late, not_before)
            )
        if row is not None and not late and row.state is JobState.CLAIMED:
            assert outcome is None
            self.change(row, state=JobState.READY, lease_until=not_before)
        else:
            assert outcome in ("moorage.not_found", "jobs.fenced", "moorage.state")

    @rule(name=names, late=st.integers(0, 1))
    def extend(self, name, late):
        row = self.find(name)
        until = self.now + timedelta(seconds=30)
        with write(self.engine) as connection:
            outcome = self.outcome(lambda: STORE.extend(connection, name, (row.epoch if row else 0) - late, until))
        if row is not None and not late and row.state is JobState.CLAIMED:
            assert outcome is None
            self.change(row, lease_until=until)
        else:
            assert outcome in ("moorage.not_found", "jobs.fenced", "moorage.state")

    @rule(name=names)
    def cancel(self, name):
        row = self.find(name)
        with write(self.engine) as connection:
            cancelled = STORE.cancel(connection, name, self.now)
        assert cancelled == (row is not None and row.state is JobState.READY)
        if cancelled:
            self.change(row, state=JobState.CANCELLED, lease_until=None)

    @rule(seconds=st.integers(1, 30))
    def time_passes(self, seconds):
        self.now += timedelta(seconds=seconds)

    # ------------------------------------------------------------------------------------------ invariants

    @invariant()
    def the_table_equals_the_model(self):
        with write(self.engine) as connection:
            stored = connection.execute(STORE.table.select().order_by(STORE.table.c.position)).all()
        assert [(job.id, job.state, job.epoch, job.attempt, job.lease_until) for job in stored] == [
            (row.id, row.state, row.epoch, row.attempt, row.lease_until) for row in self.rows
        ]

    @invariant()
    def next_due_is_in_the_past_exactly_if_a_job_is_claimable(self):
        for queue in ("compute-1", "compute-2"):
            with write(self.engine) as connection:
                due = STORE.next_due(connection, queue)
            claimable = any(row.queue == queue and self.claimable(row, "another worker") for row in self.rows)
            assert claimable == (due is not None and due <= self.now)

    @invariant()
    def at_most_one_job_of_a_key_is_claimed(self):
        held = [row.key for row in self.rows if row.state is JobState.CLAIMED]
        assert len(held) == len(set(held))

    @staticmethod
    def outcome(report):
        """The result of `report`, or the code of the error that it raised."""
        try:
            return report()
        except (Conflict, NotFound) as refusal:
            return refusal.error_code


JobsMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestJobs = JobsMachine.TestCase
