"""The jobs of one service for its hosts: claimed, kept alive and reported by the hosts' agents.

    claim_jobs -> (agent works, and reports "running") -> report_job -> what follows, in the same transaction

`JobOwner` is the service, which enqueues the jobs (`JobStore.enqueue`) and decides what follows from a report. Not
here: HTTP (`job_api`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from sqlalchemy import Connection, Engine

from moorage.core.clock import Clock
from moorage.core.errors import MoorageError, NotFound
from moorage.core.names import check_not_queue_name
from moorage.db.session import GroupedWrites, SingleReads, in_transaction
from moorage.jobs import contract
from moorage.jobs.job_api import JobReport, ReportState, is_of_host
from moorage.jobs.model import Job, JobState
from moorage.jobs.store import ClaimRequest, Ending, JobStore, refusal

#: Lease of a job claimed by a host, which extends it by reporting the state ``running``.
JOB_LEASE_S = 60.0
MAX_JOBS_PER_CLAIM = 100

#: Fields of results that are not stored with the job: `console` is stored with the server.
_NOT_STORED = frozenset({"console"})


@dataclass(frozen=True)
class EndedJob:
    """A job and the report that has ended it."""

    job: Job
    report: JobReport


class JobOwner(Protocol):
    """Both methods run in the transaction of the reports."""

    def retry_pause(self, connection: Connection, job: Job, report: JobReport) -> timedelta | None:
        """The pause before the next attempt at a job that failed; None: the job has ended."""
        ...

    def apply_reports(self, connection: Connection, ended: Sequence[EndedJob]) -> Sequence[Sequence[str]]:
        """Apply the reports on jobs of different keys; returns for each the queues to wake after the commit."""
        ...


class _ReportOfHost(NamedTuple):
    job_id: str
    report: JobReport
    host: str | None


@dataclass
class _Applied:
    """The effect of a report. `ended_in`: the queue of the job; None if the job is still running."""

    ended_in: str | None
    worker: str | None  #: that had the job
    queues: Sequence[str] = ()  #: to wake after the commit


class _Claimed(NamedTuple):
    jobs: list[Job]
    queues: Sequence[str]  #: to wake after the commit


class HostJobs:
    """`wake`: sends a hint to the claimants of a queue.

    The claims of all hosts that arrive during a transaction share the next one, and so do reports (`group_commit`).
    """

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
        self._any_claimable = reads.prepare(store.any_claimable)
        self._ready_now = reads.prepare(store.ready_now)
        self._claims: GroupedWrites[ClaimRequest, _Claimed] = GroupedWrites(self._claim_all, lambda one: (one.queue,))
        self._reports: GroupedWrites[_ReportOfHost, _Applied] = GroupedWrites(
            self._apply_all, lambda one: (one.job_id,)
        )

    def claim_jobs(self, queue: str, worker: str, limit: int, *, is_claimable: bool | None = None) -> list[Job]:
        """Claim at most `limit` jobs of a host's queue for `worker`, until their lease ends or they are reported on.

        `is_claimable`: `JobStore.any_claimable` for this worker, if the caller has just read it.
        """
        check_not_queue_name(queue)
        if is_claimable is None:
            is_claimable = bool(self._any_claimable(of_queue=queue, by=worker, now=self._clock.now()))
        if not is_claimable:
            return []
        claimed = self._claims.submit(ClaimRequest(queue, worker, min(limit, MAX_JOBS_PER_CLAIM)))
        for each in claimed.queues:
            self._wake(each)
        return claimed.jobs

    def _claim_all(self, requests: Sequence[ClaimRequest]) -> list[_Claimed]:
        def claim(connection: Connection) -> list[_Claimed]:
            queues: list[str] = []

            def given_up(connection: Connection, job: Job) -> None:
                # The worker died at each attempt, so the job may have had effects.
                report = JobReport(ReportState.FAILED, job.epoch, {**(job.result or {}), "is_left": True})
                (of_job,) = self._owner.apply_reports(connection, [EndedJob(job, report)])
                queues.extend(of_job)

            now, lease_s = self._clock.now(), self._lease.total_seconds()
            claimed = self._store.claim_all(connection, requests, now, lease_s, given_up=given_up)
            return [_Claimed(jobs, queues if index == 0 else ()) for index, jobs in enumerate(claimed)]

        return in_transaction(self._engine, claim)

    def report_job(self, job_id: str, report: JobReport, *, host: str | None = None) -> bool:
        """Record a report and apply it if the job has ended; repeated reports have no further effect. Returns whether
        the host may have another job for the reporting worker.

        `host`: the agent's host; None: a service reports. Raises `NotFound` for the job of another host, `Invalid` for
        a result that is not as the contract says, and `Conflict` ``jobs.fenced`` if another worker has the job now.
        """
        applied = self._reports.submit(_ReportOfHost(job_id, report, host))
        for queue in applied.queues:
            self._wake(queue)
        ended_in = applied.ended_in
        if ended_in is None or _is_further(ended_in):
            return True
        # Also what this worker has claimed already: it did not see an answer, and then got an older job.
        return bool(self._any_claimable(of_queue=ended_in, by=applied.worker, now=self._clock.now()))

    def may_have_more(self, queue: str) -> bool:
        """Whether the host with this queue may have a job now that is not claimed."""
        return _is_further(queue) or bool(self._ready_now(of_queue=queue))

    def _apply_all(self, reports: Sequence[_ReportOfHost]) -> list[_Applied | Exception]:
        return in_transaction(self._engine, lambda connection: self._apply_in(connection, reports))

    def _apply_in(self, connection: Connection, reports: Sequence[_ReportOfHost]) -> list[_Applied | Exception]:
        """The effect of each report, or why it was refused."""
        now = self._clock.now()
        jobs = self._store.lock_all(connection, [one.job_id for one in reports])
        outcomes: list[_Applied | Exception] = []
        endings: list[tuple[EndedJob, _Applied]] = []
        for one in reports:
            try:
                job = _reported_job(jobs.get(one.job_id), one)
            except MoorageError as error:
                outcomes.append(error)
                continue
            applied = _Applied(None if one.report.state is ReportState.RUNNING else job.queue, job.worker)
            outcomes.append(applied)
            if job.state is JobState.CLAIMED and not self._goes_on(connection, job, one.report, now):
                endings.append((EndedJob(job, one.report), applied))
        self._store.finish_all(connection, [_ending(one) for one, _ in endings], now)
        follow_ups = self._owner.apply_reports(connection, [one for one, _ in endings]) if endings else ()
        for (_, applied), queues in zip(endings, follow_ups, strict=True):
            applied.queues = queues
        return outcomes

    def _goes_on(self, connection: Connection, job: Job, report: JobReport, now: datetime) -> bool:
        """Whether the job does not end with this report; extends its claim, or releases it for the next attempt."""
        if report.state is ReportState.RUNNING:
            self._store.extend(connection, job.id, job.epoch, now + self._lease)
            return True
        pause = None if report.error is None else self._owner.retry_pause(connection, job, report)
        if pause is None:
            return False
        self._store.release(connection, job.id, job.epoch, now + pause)
        return True


def _is_further(queue: str) -> bool:
    """Whether the host has a queue of its own beside this one, which is next after the last job of this one."""
    return "/" in queue


def _reported_job(job: Job | None, reported: _ReportOfHost) -> Job:
    """The job, if the report is correct and of its present claim; or has been applied before, and the job has ended.

    Raises as `HostJobs.report_job` does.
    """
    report = reported.report
    if job is None or not is_of_host(job, reported.host):
        host = f"host {reported.host}" if reported.host else "a host"
        raise NotFound(f"there is no job {reported.job_id} of {host}")
    if report.state is not ReportState.RUNNING:
        if report.error is None:
            contract.result_of(job.kind, report.result, contract.JobResult)
        else:
            contract.failure_of(job.kind, report.result)
    wanted = _STATES[report.state]
    if job.epoch != report.epoch or job.state not in (JobState.CLAIMED, wanted):
        raise refusal(job, job.id, report.epoch, wanted)
    return job


#: The state of a job after each kind of report.
_STATES = {
    ReportState.RUNNING: JobState.CLAIMED,
    ReportState.DONE: JobState.DONE,
    ReportState.FAILED: JobState.FAILED,
}


def _ending(ended: EndedJob) -> Ending:
    result = {name: value for name, value in ended.report.result.items() if name not in _NOT_STORED}
    return Ending(ended.job, _STATES[ended.report.state], result)
