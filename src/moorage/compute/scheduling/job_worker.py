"""A worker on one job queue of the compute service: claim, run, finish and postpone jobs.

Not here: the work of the jobs (`build_worker`, `migration_worker`).
"""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine

from moorage.compute.store import server_store
from moorage.core.backoff import Backoff
from moorage.core.clock import Clock
from moorage.core.errors import MoorageError, message_for_tenants
from moorage.db.session import SingleReads, in_transaction
from moorage.jobs.model import FENCED_CODE, Job, JobState
from moorage.telemetry import tracing
from moorage.telemetry.logs import job_context

log = logging.getLogger(__name__)

#: Lease of a claimed job; after it, another worker may claim the job.
LEASE_S = 60.0
#: Maximum number of claims of one job: after this many by workers that died or could not reach Placement, the task
#: gives the job up.
MAX_ATTEMPTS = 10
#: Pauses between the attempts at a job.
BACKOFF = Backoff(first_s=1.0, longest_s=60.0)


class JobWorker:
    """`worker`: a unique name. `poll_s`: see `next_due`."""

    def __init__(self, engine: Engine, clock: Clock, queue: str, worker: str, poll_s: float | None) -> None:
        self._engine = engine
        self._clock = clock
        self._queue = queue
        self._worker = worker
        self._poll = None if poll_s is None else timedelta(seconds=poll_s)
        reads = SingleReads(engine)
        self._ready_now = reads.prepare(server_store.BUILD_JOBS.ready_now)
        self._due_later = reads.prepare(server_store.BUILD_JOBS.due_later)

    def claim_jobs(self, limit: int = 1) -> list[Job]:
        def claim(connection: Connection) -> list[Job]:
            return server_store.BUILD_JOBS.claim(
                connection, self._queue, self._worker, self._clock.now(), LEASE_S, limit
            )

        return in_transaction(self._engine, claim)

    def run_job(
        self, job: Job, work: Callable[[], None], failed: Callable[[Job, str, str], None] | None = None
    ) -> None:
        """Runs `work`; if it raises, calls `failed` with the reason and the message for tenants (default: postpone the
        job).
        """
        failed = failed or (lambda job, reason, _message: self.postpone(job, reason))
        with job_context("compute", job.payload):
            try:
                with tracing.job_span(job.kind, job.payload):
                    work()
            except MoorageError as error:
                if error.error_code == FENCED_CODE:
                    log.warning("another worker holds this job now", extra={"job": job.id, "epoch": job.epoch})
                else:
                    failed(job, error.message, message_for_tenants(error))
            except Exception as error:  # the top of a job: one that always fails must not block the others
                log.exception("job failed", extra={"job": job.id, "kind": job.kind})
                reason = f"{type(error).__name__}, see the log of the compute service"
                failed(job, reason, reason)

    def postpone(self, job: Job, reason: str) -> None:
        """Releases the job for another attempt after a pause, for example because a service does not answer."""
        pause_s = BACKOFF.pause_s(job.attempt)
        not_before = self._clock.now() + timedelta(seconds=pause_s)
        log.warning("job postponed", extra={"job": job.id, "kind": job.kind, "reason": reason, "pause_s": pause_s})
        in_transaction(
            self._engine, lambda connection: server_store.BUILD_JOBS.release(connection, job.id, job.epoch, not_before)
        )

    def finish_job(self, job: Job) -> None:
        in_transaction(self._engine, lambda connection: self.finish_job_in(connection, job))

    def finish_job_in(self, connection: Connection, job: Job) -> None:
        """Finishes the job in the caller's transaction."""
        server_store.BUILD_JOBS.finish(connection, job.id, job.epoch, JobState.DONE, None, self._clock.now())

    def next_due(self) -> datetime | None:
        """The moment of the next run: when the next job is due, but no later than `poll_s` from now, because other
        processes enqueue jobs too. None: no job is waiting, and `poll_s` is None.
        """
        found = self._ready_now(of_queue=self._queue) or self._due_later(of_queue=self._queue)
        due: datetime | None = found[0][0] if found else None
        if self._poll is None:
            return due
        poll = self._clock.now() + self._poll
        return poll if due is None else min(due, poll)


def is_late(job: Job, now: datetime) -> bool:
    """Whether so much of the lease has passed that it must be extended before the job goes on."""
    return job.lease_until is not None and job.lease_until - now < timedelta(seconds=LEASE_S * 3 / 4)


def extend_lease(engine: Engine, clock: Clock, job: Job) -> None:
    """Extends the lease to `LEASE_S` from now.

    Raises `Conflict` ``jobs.fenced`` if another worker now holds the job.
    """
    until = clock.now() + timedelta(seconds=LEASE_S)
    in_transaction(engine, lambda connection: server_store.BUILD_JOBS.extend(connection, job.id, job.epoch, until))
