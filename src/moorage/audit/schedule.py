"""Schedules background audits: one process at a time runs one, by a job in a service's table.

Time is divided into periods, the same in all processes. Each process that sees a period begin enqueues the period's
audit under the same id, so there is one job. The process that claims it runs it; its result is the job's result, which
every process can show.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, Engine, select

from moorage.core.clock import Clock
from moorage.core.json import Json
from moorage.db.session import in_transaction
from moorage.jobs.contract import JobKind
from moorage.jobs.model import Job, JobState, NewJob
from moorage.jobs.store import JobStore

QUEUE = KEY = "audit"

#: Minimum lease of an audit: after the lease, another process may run it. If the period is longer, the lease is as long
#: as the period.
_MIN_LEASE_S = 600.0
#: Pause before a failed audit is tried again.
_PAUSE = timedelta(seconds=60)


@dataclass(frozen=True)
class LastRound:
    """`findings`: {kind: number}."""

    ended_at: datetime
    duration_s: float
    findings: Mapping[str, int]


class AuditSchedule:
    """`jobs` are in the database of `engine`. `worker` must be unique, and the same after a restart."""

    def __init__(self, engine: Engine, jobs: JobStore, clock: Clock, worker: str, period_s: float) -> None:
        self._engine = engine
        self._jobs = jobs
        self._clock = clock
        self._worker = worker
        self._period_s = period_s
        self._begun = self._number(clock.now())

    def _number(self, moment: datetime) -> int:
        return int(moment.timestamp() // self._period_s)

    def claim(self) -> Job | None:
        """Claim the audit that is due; None if there is none for this process.

        A process does not enqueue the audit of the period in which it started: a cloud that has just started needs
        none.
        """
        now = self._clock.now()
        number = self._number(now)

        def enqueue_and_claim(connection: Connection) -> list[Job]:
            if number > self._begun:
                self._jobs.enqueue(connection, NewJob(f"audit:{number}", QUEUE, JobKind.AUDIT, KEY, {}), now)
            lease_s = max(_MIN_LEASE_S, self._period_s)
            return self._jobs.claim(connection, QUEUE, self._worker, now, lease_s)

        claimed = in_transaction(self._engine, enqueue_and_claim)
        self._begun = max(self._begun, number)
        return claimed[0] if claimed else None

    def finish(self, job: Job, result: Mapping[str, Json]) -> None:
        """Raises `Conflict` if another process has finished it."""
        in_transaction(
            self._engine,
            lambda connection: self._jobs.finish(
                connection, job.id, job.epoch, JobState.DONE, result, self._clock.now()
            ),
        )

    def postpone(self, job: Job) -> datetime:
        """Give the audit back, to be tried again by any process; returns when."""
        again = self._clock.now() + _PAUSE
        in_transaction(self._engine, lambda connection: self._jobs.release(connection, job.id, job.epoch, again))
        return again

    def next_due(self) -> datetime:
        return datetime.fromtimestamp((self._number(self._clock.now()) + 1) * self._period_s, UTC)


def last_round(connection: Connection, jobs: JobStore) -> LastRound | None:
    """The last finished audit of any process; None before the first."""
    job = jobs.table.c
    asked = (
        select(job.finished_at, job.result)
        .where(job.serial_key == KEY, job.state == JobState.DONE)
        .order_by(job.position.desc())
        .limit(1)
    )
    row = connection.execute(asked).one_or_none()
    return None if row is None else LastRound(row.finished_at, row.result["duration_s"], row.result["findings"])
