"""Jobs for the accelerator agents of hosts: enqueued in the transaction that causes them, and claimed over HTTP.

A kind of job may have a follow-up, which runs in the transaction of the report that ends the job.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection, Engine

from moorage.accelerator.model.errors import CleanFailed
from moorage.accelerator.store import tables as t
from moorage.core.clock import Clock
from moorage.core.errors import NotFound
from moorage.core.ids import Ids
from moorage.core.names import check_not_queue_name
from moorage.db.session import in_transaction, read
from moorage.jobs.job_api import JobReport, is_of_host
from moorage.jobs.model import Job, JobState, NewJob
from moorage.jobs.store import JobStore
from moorage.jobs.wakeups import Hints

BIND = "bind"
UNBIND = "unbind"
PROGRAM = "program"
WISHES = "wishes"
#: The queue of the events for compute; no host may have this name.
EVENTS_QUEUE = "compute-events"

#: Longer than the interval at which a programming agent extends its lease.
JOB_LEASE_S = 60.0
MAX_JOBS_PER_CLAIM = 20
#: A job is given up after this many attempts in which the agent died. The agent undoes partial work at its start.
MAX_ATTEMPTS = 10

#: Kinds of jobs that are repeated until they succeed, with a pause before each repetition.
_MUST_SUCCEED = frozenset({UNBIND, WISHES})
RETRY_PAUSE = timedelta(seconds=10)
#: The pause when the wanted handle is just being released by another instance.
SHORT_PAUSE = timedelta(seconds=2)

#: Returns the queues to wake after the commit.
FollowUp = Callable[[Connection, Job, JobReport], Sequence[str]]


def jobs_topic(host: str) -> str:
    """The wake-up topic for accelerator jobs of `host`; compute's topic for the host is its name."""
    return f"accelerators of {host}"


class HostJobs:
    def __init__(self, engine: Engine, clock: Clock, ids: Ids, hints: Hints) -> None:
        self._engine = engine
        self._clock = clock
        self._ids = ids
        self._hints = hints
        self._store = JobStore(t.jobs, max_attempts=MAX_ATTEMPTS)
        self.follow_ups: dict[str, FollowUp] = {}
        #: By kind of job: decides whether a failed job is worth another attempt soon.
        self.worth_retrying: dict[str, Callable[[Connection, Job, JobReport], bool]] = {}

    def enqueue(self, connection: Connection, queue: str, kind: str, key: str, payload: Mapping[str, Any]) -> str:
        """Returns the job's id. Jobs with the same key run one after the other; the key must name the host, so that a
        host that is down does not block others.
        """
        job = NewJob(self._ids.uuid(), queue, kind, key, dict(payload))
        self._store.enqueue(connection, job, self._clock.now())
        return job.id

    def wake_hosts(self, queues: Iterable[str]) -> None:
        for queue in queues:
            self._hints.send(queue if queue == EVENTS_QUEUE else jobs_topic(queue))

    def get_job(self, job_id: str) -> Job | None:
        with read(self._engine) as connection:
            return self._store.get(connection, job_id)

    def has_open_job_for(self, host: str, project_id: str) -> bool:
        """Whether the host has an unfinished job for the project."""
        with read(self._engine) as connection:
            jobs = self._store.open_in(connection, host)
        return any(job.payload.get("project_id") == project_id for job in jobs)

    def claim_jobs(self, host: str, worker: str, limit: int) -> list[Job]:
        """Claim up to `limit` jobs for `host`, until their lease ends or they are reported on."""
        check_not_queue_name(host)
        queues_to_wake: list[str] = []

        def claim(connection: Connection) -> list[Job]:
            queues_to_wake.clear()

            def given_up(connection: Connection, job: Job) -> None:
                queues_to_wake.extend(
                    self._run_follow_up(connection, job, JobReport("failed", job.epoch, job.result or {}))
                )

            most = min(limit, MAX_JOBS_PER_CLAIM)
            return self._store.claim(connection, host, worker, self._clock.now(), JOB_LEASE_S, most, given_up=given_up)

        jobs = in_transaction(self._engine, claim)
        self.wake_hosts(queues_to_wake)
        return jobs

    def report_job(self, job_id: str, report: JobReport, *, host: str | None = None) -> bool:
        """Record a job's progress or result; returns whether the host may have more jobs. Repeated reports have no
        further effect. `host`: the host of the reporting agent; None: a service reports. Raises `Conflict`
        ``jobs.fenced`` if another worker has claimed the job, `NotFound` for another host's job.
        """

        def apply_report(connection: Connection) -> tuple[Sequence[str], bool]:
            job = self._store.get(connection, job_id)
            if job is None or not is_of_host(job, host):
                raise NotFound(f"there is no job {job_id} of {f'host {host}' if host else 'a host'}")
            now = self._clock.now()
            if report.state == "running":
                self._store.extend(connection, job_id, report.epoch, now + timedelta(seconds=JOB_LEASE_S))
                return (), True
            if pause := self._retry_pause(connection, job, report):
                self._store.release(connection, job_id, report.epoch, now + pause)
                return (), True
            final = JobState.FAILED if report.error else JobState.DONE
            if not self._store.finish(connection, job_id, report.epoch, final, dict(report.result), now):
                return (), True
            queues = self._run_follow_up(connection, job, report)
            return queues, bool(connection.execute(self._store.any_open, {"of_queue": job.queue}).all())

        queues, has_more = in_transaction(self._engine, apply_report)
        self.wake_hosts(queues)
        return has_more

    def _retry_pause(self, connection: Connection, job: Job, report: JobReport) -> timedelta | None:
        """The pause before the next attempt; None: the job has ended."""
        if _must_be_repeated(job, report):
            return RETRY_PAUSE
        is_worth_retrying = self.worth_retrying.get(job.kind)
        return (
            SHORT_PAUSE
            if report.error and is_worth_retrying is not None and is_worth_retrying(connection, job, report)
            else None
        )

    def _run_follow_up(self, connection: Connection, job: Job, report: JobReport) -> Sequence[str]:
        if _must_be_repeated(job, report):  # given up: start again with a new job
            self.enqueue(connection, job.queue, job.kind, job.key, job.payload)
            return [job.queue]
        follower = self.follow_ups.get(job.kind)
        return follower(connection, job, report) if follower is not None else ()


def _must_be_repeated(job: Job, report: JobReport) -> bool:
    """A failed cleaning is not repeated: the agent has quarantined the handle, and the instance no longer holds it."""
    return job.kind in _MUST_SUCCEED and report.error is not None and report.result.get("code") != CleanFailed.code
