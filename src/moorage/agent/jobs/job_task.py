"""Workers for this host's jobs: each claims a job from its service, runs it, and reports its result with the epoch.

`PollerElection` elects one poller among the workers that share a queue. It polls by the clock and by hints; the others
rest. If each of a host's four workers polled and followed every hint, that would cost four times as much and find no
more work. A poller that finds a job calls one resting worker, which polls next: it finds another job and calls the next
worker, or finds none and stays the poller. So a lost hint costs one poll period at most, never the length of a job.

If the answer to the poller says that the queue has no other job, and no hint has come since it asked, the called worker
does not ask: it is the poller, and waits for a hint or the end of the poll period.

Not here: the work of each kind of job (`job_runner`).
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from moorage.agent.jobs.server_build import JobLost, WorkFailed, failure_report
from moorage.core.backoff import Backoff
from moorage.core.clock import Clock
from moorage.core.errors import Conflict, MoorageError, NotFound, Unavailable
from moorage.core.json import JsonObject
from moorage.jobs.contract import JobFailure, result_document
from moorage.jobs.job_api import AgentJob, HostJobsClient, ReportState
from moorage.telemetry import tracing
from moorage.telemetry.logs import job_context

log = logging.getLogger(__name__)


class PollerElection:
    """Elects the one worker of a queue that polls for jobs.

    `wake` wakes the worker of a number, which calls `may_poll`.
    """

    def __init__(self, wake: Callable[[int], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._resting: set[int] = set()
        self._poller: int | None = None  #: number of the worker that polls; None: nobody does at this moment
        self._called: int | None = None
        self._hints = 0  #: heard so far
        self._hints_before_poll: dict[int, int] = {}  #: {worker: hints heard before it asked}
        #: The poller that has not asked because the queue was empty, and the hints heard before. None: it has asked.
        self._successor: tuple[int, int] | None = None
        #: When the service last answered one of the workers.
        self.answered_at: datetime | None = None

    def hear_hint(self) -> None:
        """The queue has a new job, perhaps. Call it before the hint wakes any worker."""
        with self._lock:
            self._hints += 1

    def need_not_poll(self, worker: int) -> bool:
        """Whether `worker`, which was woken, is the poller of a queue that was empty, and no hint has come since: it
        asks after a poll period.
        """
        with self._lock:
            if self._successor is None or self._successor[0] != worker:
                return False
            (_, hints), self._successor = self._successor, None
            return self._poller == worker and self._hints == hints

    def may_poll(self, worker: int) -> bool:
        """Whether `worker`, which was woken or is due, asks the service for a job."""
        with self._lock:
            self._hints_before_poll[worker] = self._hints
            if worker not in self._resting or self._poller == worker:
                return True
            if self._called == worker:
                self._called = None
                self._resting.discard(worker)  # until it has an answer; without one it asks again
                return True
            return False

    def found_no_job(self, worker: int) -> bool:
        """`worker` rests from now on. Returns whether it is the poller, which asks again after a poll period."""
        with self._lock:
            self._resting.add(worker)
            if self._poller is None:
                self._poller = worker
            return self._poller == worker

    def began_job(self, worker: int, *, may_have_more: bool = True) -> None:
        """`worker` is busy from now on: another worker becomes the poller.

        `may_have_more`: whether the queue may have had another job when the service answered.
        """
        with self._lock:
            self._resting.discard(worker)
            if self._poller == worker:
                self._poller = None
            if self._poller is not None:
                return
            called = min(self._resting, default=None)
            if may_have_more or called is None or self._hints != self._hints_before_poll.get(worker):
                self._called = called
            else:
                self._poller, self._called = called, None
                self._successor = (called, self._hints)
        if called is not None:
            self._wake(called)


#: Pauses between attempts while the service does not answer.
BACKOFF = Backoff(first_s=1.0, longest_s=30.0)


#: Called after each job with its kind, its outcome (``done``, ``failed`` or ``lost``), and its duration in seconds.
JobEnded = Callable[[str, str, float], object]


class JobRunnerApi(Protocol):
    def run_job(self, kind: str, payload: Mapping[str, object], keep_alive: Callable[[], None]) -> JsonObject:
        """Returns the job's result.

        Raises `MoorageError`, whose message goes into the report; `JobLost` if another worker has the job now.
        """
        ...


@dataclass(frozen=True)
class HostQueue:
    """The jobs of a service for a host. `what` is the part of the tasks' names that distinguishes the services."""

    host: str
    service: HostJobsClient
    poll_period_s: float
    what: str = "jobs"
    topic: str | None = None  #: of hints about new jobs; None: the name of the host


class JobsTask:
    """One worker of a queue; `number` identifies it among the others, also after a restart.

    The workers of a queue share `election`, so that only one of them polls.
    """

    def __init__(
        self,
        queue: HostQueue,
        number: int,
        runner: JobRunnerApi,
        clock: Clock,
        *,
        election: PollerElection | None = None,
        ended: JobEnded = lambda _kind, _outcome, _seconds: None,
    ) -> None:
        self.name = worker_name(queue.host, number, queue.what)
        self.listens_to = (queue.topic or queue.host,)
        self._host = queue.host
        self._number = number
        self._election = election or PollerElection(lambda _: None)
        self._worker = f"{queue.host}/{number}"
        self._service = queue.service
        self._runner = runner
        self._clock = clock
        self._poll_period = timedelta(seconds=queue.poll_period_s)
        self._failures = 0
        self._ended = ended

    def run_once(self) -> datetime | None:
        if self._election.need_not_poll(self._number):
            return self._clock.now() + self._poll_period
        if not self._election.may_poll(self._number):
            return None
        try:
            jobs = self._service.claim_jobs(self._host, self._worker, limit=1)
            self._election.answered_at = self._clock.now()
            if jobs:
                self._election.began_job(self._number, may_have_more=jobs[0].may_have_more)
            has_more = [self._run_and_report(job) for job in jobs]
        except MoorageError as error:
            self._failures += 1
            # At most a poll period (or the first pause), because a hint that arrives during the pause is not noticed.
            longest_s = max(self._poll_period.total_seconds(), BACKOFF.first_s)
            pause_s = min(BACKOFF.pause_s(self._failures), longest_s)
            log.warning("could not request a job; trying again", extra={"why": str(error), "pause_s": pause_s})
            return self._clock.now() + timedelta(seconds=pause_s)
        self._failures = 0
        if any(has_more):
            return self._clock.now()
        return self._clock.now() + self._poll_period if self._election.found_no_job(self._number) else None

    def _run_and_report(self, job: AgentJob) -> bool:
        """Runs `job` and reports it. Returns True if another job may be waiting."""
        with job_context(f"agent {self._host}", job.payload):
            log.info("job claimed", extra={"job": job.id, "kind": job.kind, "key": job.key, "attempt": job.attempt})
            began, outcome = time.perf_counter(), "lost"
            try:
                with tracing.job_span(job.kind, job.payload, host=self._host):
                    outcome, result = self._outcome(job)
                    return self._report(job, outcome, result)
            except JobLost as lost:
                outcome = "lost"
                log.warning("another worker has the job; this one stops working on it", extra={"why": str(lost)})
                return True
            finally:
                self._ended(job.kind, outcome, time.perf_counter() - began)

    def _outcome(self, job: AgentJob) -> tuple[ReportState, JsonObject]:
        try:
            return ReportState.DONE, self._runner.run_job(job.kind, job.payload, lambda: self._keep_alive(job))
        except JobLost:
            raise
        except Unavailable as error:
            if "url" in error.fields and error.fields.get("peer") == "compute":
                # A report would not arrive either. The job stays claimed; this worker gets it again and starts it from
                # its beginning, as after a crash of the agent.
                raise
            return self._failed(job, error)
        except WorkFailed as failed:
            log.warning("job failed", extra={"kind": job.kind, "why": failed.message})
            failure = JobFailure(error=failed.message, code=failed.error_code, is_left=failed.is_left)
            return ReportState.FAILED, result_document(failure)
        # Every failure is reported, or the server would stay in its task state. `failure_report` logs the traceback.
        except Exception as error:  # noqa: BLE001 - every failure is reported: see above
            return self._failed(job, error)

    def _failed(self, job: AgentJob, error: Exception) -> tuple[ReportState, JsonObject]:
        message, code = failure_report(error)
        log.warning("job failed", extra={"kind": job.kind, "why": message})
        return ReportState.FAILED, result_document(JobFailure(error=message, code=code))

    def _keep_alive(self, job: AgentJob) -> None:
        """Extends the claim. Raises `JobLost`. If the service does not answer, only logs that; the work continues."""
        try:
            self._report(job, ReportState.RUNNING, {})
        except Unavailable as error:
            log.warning("a job could not be kept alive", extra={"job": job.id, "why": error.message})

    def _report(self, job: AgentJob, state: ReportState, result: JsonObject) -> bool:
        try:
            return self._service.report_job(job.id, job.epoch, state, result)
        except (Conflict, NotFound) as error:
            raise JobLost(f"another worker has job {job.id} now: {error}") from error


def worker_name(host: str, number: int, what: str = "jobs") -> str:
    """The name of a worker's task, which is also a topic that wakes this worker alone."""
    return f"{what} of {host}, worker {number}"


class JobsWhileReady(HostJobsClient):
    """Claims no jobs while the host cannot do them, so that they wait: its hypervisor does not answer, or another
    accelerator agent of the host started later.

    `ready` raises `MoorageError` meanwhile; `claim_jobs` raises the same error.
    """

    def __init__(self, jobs: HostJobsClient, ready: Callable[[], object]) -> None:  # no link of its own
        self._jobs = jobs
        self._ready = ready

    def claim_jobs(self, host: str, worker: str, limit: int = 1) -> list[AgentJob]:
        self._ready()
        return self._jobs.claim_jobs(host, worker, limit)

    def report_job(self, job_id: str, epoch: int, state: str, result: Mapping[str, object] | None = None) -> bool:
        return self._jobs.report_job(job_id, epoch, state, result)
