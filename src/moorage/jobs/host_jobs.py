"""The jobs of one service for its hosts: claimed, kept alive and reported by the hosts' agents.

    claim_jobs -> (agent works, and reports "running") -> report_job -> what follows, in the same transaction

`JobOwner` is the service, which enqueues the jobs (`JobStore.enqueue`) and decides what follows from a report. Not
here: HTTP (`job_api`).
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Protocol

from sqlalchemy import Connection, Engine

from moorage.core.clock import Clock
from moorage.core.errors import NotFound
from moorage.core.names import check_not_queue_name
from moorage.db.session import SingleReads, in_transaction
from moorage.jobs import contract
from moorage.jobs.job_api import JobReport, ReportState, is_of_host
from moorage.jobs.model import Job, JobState
from moorage.jobs.store import JobStore

#: Lease of a job claimed by a host, which extends it by reporting the state ``running``.
JOB_LEASE_S = 60.0
MAX_JOBS_PER_CLAIM = 100

#: Fields of results that are not stored with the job: `console` is stored with the server.
_NOT_STORED = frozenset({"console"})


class JobOwner(Protocol):
    """Both methods run in the transaction of the report."""

    def retry_pause(self, connection: Connection, job: Job, report: JobReport) -> timedelta | None:
        """The pause before the next attempt at a job that failed; None: the job has ended."""
        ...

    def apply_report(self, connection: Connection, job: Job, report: JobReport) -> Sequence[str]:
        """Apply the report on a job that has ended; returns the queues to wake after the commit."""
        ...


class HostJobs:
    """`wake`: sends a hint to the claimants of a queue."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        store: JobStore,
        owner: JobOwner,
        wake: Callable[[str], None],
        *,
        lease_s: float = JOB_LEASE_S,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._store = store
        self._owner = owner
        self._wake = wake
        self._lease = timedelta(seconds=lease_s)
        reads = SingleReads(engine)
        self._any_open = reads.prepare(store.any_open)
        self._ready_now = reads.prepare(store.ready_now)

    def claim_jobs(self, queue: str, worker: str, limit: int) -> list[Job]:
        """Claim at most `limit` jobs of a host's queue for `worker`, until their lease ends or they are reported on."""
        check_not_queue_name(queue)
        if not self._any_open(of_queue=queue):
            return []
        queues: list[str] = []

        def claim(connection: Connection) -> list[Job]:
            queues.clear()

            def given_up(connection: Connection, job: Job) -> None:
                # The worker died at each attempt, so the job may have had effects.
                report = JobReport(ReportState.FAILED, job.epoch, {**(job.result or {}), "is_left": True})
                queues.extend(self._owner.apply_report(connection, job, report))

            most = min(limit, MAX_JOBS_PER_CLAIM)
            now, lease_s = self._clock.now(), self._lease.total_seconds()
            return self._store.claim(connection, queue, worker, now, lease_s, most, given_up=given_up)

        jobs = in_transaction(self._engine, claim)
        for each in queues:
            self._wake(each)
        return jobs

    def report_job(self, job_id: str, report: JobReport, *, host: str | None = None) -> bool:
        """Record a report and apply it if the job has ended; repeated reports have no further effect. Returns whether
        the host may have another job for the reporting worker.

        `host`: the agent's host; None: a service reports. Raises `NotFound` for the job of another host, `Invalid` for
        a result that is not as the contract says, and `Conflict` ``jobs.fenced`` if another worker has the job now.
        """

        def apply(connection: Connection) -> tuple[str | None, Sequence[str]]:
            job = self._store.get(connection, job_id)
            if job is None or not is_of_host(job, host):
                raise NotFound(f"there is no job {job_id} of {f'host {host}' if host else 'a host'}")
            now = self._clock.now()
            if report.state is ReportState.RUNNING:
                self._store.extend(connection, job_id, report.epoch, now + self._lease)
                return None, ()
            _check_result(job, report)
            if report.error is not None and (pause := self._owner.retry_pause(connection, job, report)) is not None:
                self._store.release(connection, job_id, report.epoch, now + pause)
                return job.queue, ()
            final = JobState.DONE if report.error is None else JobState.FAILED
            result = {name: value for name, value in report.result.items() if name not in _NOT_STORED}
            if not self._store.finish(connection, job_id, report.epoch, final, result, now):
                return job.queue, ()
            return job.queue, self._owner.apply_report(connection, job, report)

        ended_in, queues = in_transaction(self._engine, apply)
        for queue in queues:
            self._wake(queue)
        if ended_in is None or "/" in ended_in:  # after the last job of a further queue, the host's own queue is next
            return True
        return bool(self._ready_now(of_queue=ended_in))


def _check_result(job: Job, report: JobReport) -> None:
    if report.error is None:
        contract.result_of(job.kind, report.result, contract.JobResult)
    else:
        contract.failure_of(job.kind, report.result)
