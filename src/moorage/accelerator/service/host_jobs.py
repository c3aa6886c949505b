"""Jobs for the accelerator agents of hosts: enqueued in the transaction that causes them; what follows from reports.

A kind of job may have a follow-up, which runs in the transaction of the report that ends the job.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta

from sqlalchemy import Connection, Engine

from moorage.accelerator.model.errors import CleanFailed
from moorage.accelerator.model.inventory import provider_name
from moorage.accelerator.store import accelerator_store, report_store
from moorage.accelerator.store import tables as t
from moorage.core.clock import Clock
from moorage.core.ids import Ids
from moorage.db.session import read
from moorage.jobs.contract import HandlesResult, JobKind, JobPayload, failure_of, payload_document, result_of
from moorage.jobs.host_jobs import EndedJob, HostJobs
from moorage.jobs.job_api import JobReport
from moorage.jobs.model import Job, NewJob
from moorage.jobs.store import JobStore
from moorage.jobs.wakeups import Hints

#: The queue of the events for compute; no host may have this name.
EVENTS_QUEUE = "compute-events"

#: A job is given up after this many attempts in which the agent died. The agent undoes partial work at its start.
MAX_ATTEMPTS = 10

#: Kinds of jobs that are repeated until they succeed, with a pause before each repetition.
_MUST_SUCCEED = frozenset({JobKind.UNBIND, JobKind.OPERATOR_OVERRIDES})
RETRY_PAUSE = timedelta(seconds=10)
#: The pause when the wanted handle is just being released by another instance.
SHORT_PAUSE = timedelta(seconds=2)

#: Returns the queues to wake after the commit.
FollowUp = Callable[[Connection, Job, JobReport], Sequence[str]]


def jobs_topic(host: str) -> str:
    """The wake-up topic for accelerator jobs of `host`; compute's topic for the host is its name."""
    return f"accelerators of {host}"


class AcceleratorJobs:
    """`of_hosts`: what the hosts' agents call."""

    def __init__(self, engine: Engine, clock: Clock, ids: Ids, hints: Hints) -> None:
        self._engine = engine
        self._clock = clock
        self._ids = ids
        self._hints = hints
        self._store = JobStore(t.jobs, max_attempts=MAX_ATTEMPTS)
        self.of_hosts = HostJobs(engine, clock, self._store, self, self._wake)
        self.follow_ups: dict[JobKind, FollowUp] = {}
        #: By kind of job: decides whether a failed job is worth another attempt soon.
        self.worth_retrying: dict[JobKind, Callable[[Connection, Job, JobReport], bool]] = {}

    def enqueue(self, connection: Connection, queue: str, kind: JobKind, key: str, payload: JobPayload) -> str:
        """Returns the job's id. Jobs with the same key run one after the other; the key must name the host, so that a
        host that is down does not block others.
        """
        job = NewJob(self._ids.uuid(), queue, kind, key, payload_document(kind, payload))
        self._store.enqueue(connection, job, self._clock.now())
        return job.id

    def wake_hosts(self, queues: Iterable[str]) -> None:
        for queue in queues:
            self._wake(queue)

    def _wake(self, queue: str) -> None:
        self._hints.send(queue if queue == EVENTS_QUEUE else jobs_topic(queue))

    def get_job(self, job_id: str) -> Job | None:
        with read(self._engine) as connection:
            return self._store.get(connection, job_id)

    def has_open_job_for(self, host: str, project_id: str) -> bool:
        """Whether the host has an unfinished job for the project."""
        with read(self._engine) as connection:
            jobs = self._store.open_in(connection, host)
        return any(job.payload.get("project_id") == project_id for job in jobs)

    def store_handle_states(self, connection: Connection, job: Job, report: JobReport) -> None:
        """Stores the `HandlesResult` of a job that succeeded, as far as it is about deployables of the job's host."""
        if report.error is not None:
            return
        for deployable, states in result_of(job.kind, report.result, HandlesResult).states.items():
            name = provider_name(job.queue, deployable)
            accelerator_store.set_handles(connection, job.queue, name, states, self._clock.now())

    def retry_pause(self, connection: Connection, job: Job, report: JobReport) -> timedelta | None:
        """See `JobOwner`."""
        if _must_be_repeated(job, report):
            return RETRY_PAUSE
        is_worth_retrying = self.worth_retrying.get(job.kind)
        if is_worth_retrying is not None and is_worth_retrying(connection, job, report):
            return SHORT_PAUSE
        return None

    def apply_reports(self, connection: Connection, ended: Sequence[EndedJob]) -> list[Sequence[str]]:
        """See `JobOwner`."""
        hosts = {one.job.queue for one in ended if one.job.kind in self.follow_ups}
        for host in sorted(hosts):  # all of them first, in one order: two of these transactions never wait in a circle
            report_store.advance(connection, host)
        return [self._apply_report(connection, one.job, one.report) for one in ended]

    def _apply_report(self, connection: Connection, job: Job, report: JobReport) -> Sequence[str]:
        if _must_be_repeated(job, report):  # given up: start again with a new job
            again = NewJob(self._ids.uuid(), job.queue, job.kind, job.key, job.payload)
            self._store.enqueue(connection, again, self._clock.now())
            return [job.queue]
        follower = self.follow_ups.get(job.kind)
        return follower(connection, job, report) if follower is not None else ()


def _must_be_repeated(job: Job, report: JobReport) -> bool:
    """A failed cleaning is not repeated: the agent has quarantined the handle, and the instance no longer holds it."""
    if report.error is None or job.kind not in _MUST_SUCCEED:
        return False
    return failure_of(job.kind, report.result).code != CleanFailed.code
