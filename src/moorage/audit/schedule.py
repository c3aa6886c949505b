"""Whose turn it is to audit: one process at a time, by a job in a service's table.

Time is cut into periods, the same in all processes. Each process that sees one begin enqueues its round under the same
id, so there is one; whoever claims it does it, and what came of it is the job's result, which all can show.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine, select

from moorage.core.clock import Clock
from moorage.db.transactions import in_transaction
from moorage.jobs.model import Job, JobState, NewJob
from moorage.jobs.store import JobStore

QUEUE = KEY = KIND = "audit"

#: How long a round may take before another process does it, where the period is shorter.
_LEAST_LEASE_S = 600.0
#: Before a round that failed is tried again.
_PAUSE = timedelta(seconds=60)


@dataclass(frozen=True)
class LastRound:
    """`findings`: {kind: number}."""

    ended_at: datetime
    duration_s: float
    findings: Mapping[str, int]


class AuditSchedule:
    """`jobs` in the database behind `engine`. `worker` must be nobody else's name; the same one after a restart."""

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
        """The round that is due, if it is for us to do. Not the one of the period in which this process started:
        whatever starts just now need not be looked at.
        """
        now = self._clock.now()
        number = self._number(now)

        def work(connection: Connection) -> list[Job]:
            if number > self._begun:
                self._jobs.enqueue(connection, NewJob(f"audit:{number}", QUEUE, KIND, KEY, {}), now)
            lease_s = max(_LEAST_LEASE_S, self._period_s)
            return self._jobs.claim(connection, QUEUE, self._worker, now, lease_s)

        claimed = in_transaction(self._engine, work)
        self._begun = max(self._begun, number)
        return claimed[0] if claimed else None

    def finish(self, job: Job, result: Mapping[str, Any]) -> None:
        """Raises `Conflict` where another process has done it by now."""

        def work(connection: Connection) -> None:
            self._jobs.finish(connection, job.id, job.epoch, JobState.DONE, result, self._clock.now())

        in_transaction(self._engine, work)

    def put_off(self, job: Job) -> datetime:
        """When it is tried again, by whoever is first."""
        again = self._clock.now() + _PAUSE
        in_transaction(self._engine, lambda connection: self._jobs.release(connection, job.id, job.epoch, again))
        return again

    def next_due(self) -> datetime:
        return datetime.fromtimestamp((self._number(self._clock.now()) + 1) * self._period_s, UTC)


def last_round(connection: Connection, jobs: JobStore) -> LastRound | None:
    """Whoever did it; None before the first."""
    job = jobs.table.c
    asked = (
        select(job.finished_at, job.result)
        .where(job.serial_key == KEY, job.state == JobState.DONE)
        .order_by(job.position.desc())
        .limit(1)
    )
    row = connection.execute(asked).one_or_none()
    return None if row is None else LastRound(row.finished_at, row.result["duration_s"], row.result["findings"])
