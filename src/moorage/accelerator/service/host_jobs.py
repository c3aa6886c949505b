"""Work for the accelerator agents of hosts: enqueued with what causes it, claimed over HTTP, and what follows from it.

Each kind of job has a follower, called in the transaction of the report that ends it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import Connection

from moorage.accelerator.model.errors import CleanFailed
from moorage.accelerator.store import tables as t
from moorage.core.clock import Clock
from moorage.core.errors import NotFound
from moorage.core.ids import Ids
from moorage.core.names import check_not_queue_name
from moorage.db.prepared_transactions import PreparedDatabase
from moorage.jobs.job_api import JobReport, is_of_host
from moorage.jobs.model import Job, JobState, NewJob
from moorage.jobs.store import JobStore
from moorage.jobs.wakeups import Hints

BIND = "bind"
UNBIND = "unbind"
PROGRAM = "program"
WISHES = "wishes"
#: The queue of the events for compute; no host is called so.
EVENTS_QUEUE = "compute-events"

#: Longer than an agent goes without a sign of life while it programs.
JOB_LEASE_S = 60.0
MAX_JOBS_PER_CLAIM = 20
#: An agent that dies in the same job so often is not asked again; what is bound by halves is undone at its start.
MAX_ATTEMPTS = 10

#: What must be done in the end, however often a host could not. Before it is asked again, a pause.
_MUST_SUCCEED = frozenset({UNBIND, WISHES})
RETRY_PAUSE = timedelta(seconds=10)
#: The same where somebody is just giving back what is wanted.
SHORT_PAUSE = timedelta(seconds=2)

#: The queues to hint at after the commit.
FollowUp = Callable[[Connection, Job, JobReport], Sequence[str]]


def jobs_topic(host: str) -> str:
    """What hints of jobs of `host` go to: compute's for the same host go to its name."""
    return f"accelerators of {host}"


class HostJobs:
    def __init__(self, database: PreparedDatabase, clock: Clock, ids: Ids, hints: Hints) -> None:
        self._database = database
        self._clock = clock
        self._ids = ids
        self._hints = hints
        self._store = JobStore(t.jobs, max_attempts=MAX_ATTEMPTS)
        self.follow_ups: dict[str, FollowUp] = {}
        #: By kind of job: whether one that failed is worth another attempt soon.
        self.worth_retrying: dict[str, Callable[[Connection, Job, JobReport], bool]] = {}

    def enqueue(self, connection: Connection, queue: str, kind: str, key: str, payload: Mapping[str, Any]) -> str:
        """Its id. Jobs of one key go one after the other: name the host in it, so that one that is down holds up no
        other.
        """
        job = NewJob(self._ids.uuid(), queue, kind, key, dict(payload))
        self._store.enqueue(connection, job, self._clock.now())
        return job.id

    def wake_hosts(self, queues: Iterable[str]) -> None:
        for queue in queues:
            self._hints.send(queue if queue == EVENTS_QUEUE else jobs_topic(queue))

    def get_job(self, job_id: str) -> Job | None:
        with self._database.read() as connection:
            return self._store.get(connection, job_id)

    def has_open_job_for(self, host: str, project_id: str) -> bool:
        """Whether a job of the host that is not finished is for the project."""
        with self._database.read() as connection:
            jobs = self._store.open_in(connection, host)
        return any(job.payload.get("project_id") == project_id for job in jobs)

    def claim_jobs(self, host: str, worker: str, limit: int) -> list[Job]:
        """At most `limit` jobs for `host`, until the lease is over or they are reported on."""
        check_not_queue_name(host)
        told: list[str] = []

        def work(connection: Connection) -> list[Job]:
            told.clear()

            def given_up(connection: Connection, job: Job) -> None:
                told.extend(self._run_follow_up(connection, job, JobReport("failed", job.epoch, job.result or {})))

            most = min(limit, MAX_JOBS_PER_CLAIM)
            return self._store.claim(connection, host, worker, self._clock.now(), JOB_LEASE_S, most, given_up=given_up)

        jobs = self._database.in_transaction(work)
        self.wake_hosts(told)
        return jobs

    def report_job(self, job_id: str, report: JobReport, *, host: str | None = None) -> bool:
        """Whether the host may have more to do. Once however often it is reported. `host`: whose agent reports; None: a
        service does. Raises `Conflict` ``jobs.fenced`` when somebody else has the job, `NotFound` for another host's.
        """

        def work(connection: Connection) -> tuple[Sequence[str], bool]:
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

        queues, has_more = self._database.in_transaction(work)
        self.wake_hosts(queues)
        return has_more

    def _retry_pause(self, connection: Connection, job: Job, report: JobReport) -> timedelta | None:
        """Before the next attempt; None: the job has ended."""
        if _must_be_repeated(job, report):
            return RETRY_PAUSE
        hopeful = self.worth_retrying.get(job.kind)
        return SHORT_PAUSE if report.error and hopeful is not None and hopeful(connection, job, report) else None

    def _run_follow_up(self, connection: Connection, job: Job, report: JobReport) -> Sequence[str]:
        if _must_be_repeated(job, report):  # given up: begin anew
            self.enqueue(connection, job.queue, job.kind, job.key, job.payload)
            return [job.queue]
        follower = self.follow_ups.get(job.kind)
        return follower(connection, job, report) if follower is not None else ()


def _must_be_repeated(job: Job, report: JobReport) -> bool:
    """A handle that could not be cleaned is quarantined by its agent; the instance holds it no more."""
    return job.kind in _MUST_SUCCEED and report.error is not None and report.result.get("code") != CleanFailed.code
