"""What host agents do: say that they live, fetch their jobs, report what became of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Engine

from moorage.compute import action_store, host_store, lifecycle, store
from moorage.compute.lifecycle import Operation, Outcome
from moorage.compute.messages import situation
from moorage.compute.model import BUILD_QUEUE, JOB_RELEASE, Fault, HostReport, Server, TaskState, VmState
from moorage.core.clock import Clock
from moorage.core.errors import Invalid, NotFound
from moorage.core.ids import Ids
from moorage.db.transactions import in_transaction
from moorage.jobs.hints import Hints
from moorage.jobs.model import Job, JobState, NewJob

#: Time that a host has for a job, or until it says that it is still at it.
JOB_LEASE_S = 60.0
MAX_JOBS_AT_ONCE = 100


@dataclass(frozen=True)
class Report:
    """`result` of a job that is done or failed; see contracts of the host's jobs in `messages`."""

    state: str  #: ``running``, ``done`` or ``failed``
    epoch: int
    result: Mapping[str, Any]

    @property
    def error(self) -> str | None:
        """Why it failed, in one sentence."""
        if self.state != "failed":
            return None
        return str(self.result.get("error") or "the host gave no reason")


class AgentService:
    """`job_lease_s`: see `JOB_LEASE_S`."""

    def __init__(
        self, engine: Engine, clock: Clock, ids: Ids, hints: Hints, *, job_lease_s: float = JOB_LEASE_S
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._ids = ids
        self._hints = hints
        self._lease_s = job_lease_s

    def register(self, report: HostReport) -> bool:
        """A heartbeat; True for a host that was not known. Raises `Conflict` for another host's provider."""
        if report.name == BUILD_QUEUE:
            raise Invalid(f"{BUILD_QUEUE} is the name of a queue; call the host something else")
        new_uuid = self._ids.uuid()
        return in_transaction(
            self._engine, lambda connection: host_store.register(connection, report, new_uuid, self._clock.now())
        )

    def claim(self, host: str, worker: str, limit: int) -> list[Job]:
        """At most `limit` jobs for `host`, until the lease is over or they are reported on."""
        told: list[str] = []

        def work(connection: Connection) -> list[Job]:
            told.clear()
            if host_store.host(connection, host) is None:
                raise NotFound(f"Compute host {host} could not be found; an agent registers it first.")

            def given_up(connection: Connection, job: Job) -> None:
                told.extend(self._follow(connection, job, Report("failed", job.epoch, job.result or {})))

            return store.HOST_JOBS.claim(
                connection,
                host,
                worker,
                self._clock.now(),
                self._lease_s,
                min(limit, MAX_JOBS_AT_ONCE),
                given_up=given_up,
            )

        jobs = in_transaction(self._engine, work)
        for queue in told:
            self._hints.send(queue)
        return jobs

    def report(self, job_id: str, report: Report) -> None:
        """Take note and lead the server to its next state, once however often it is reported.

        Raises `Conflict` ``jobs.fenced`` when somebody else has the job by now.
        """

        def work(connection: Connection) -> list[str]:
            job = store.HOST_JOBS.get(connection, job_id)
            if job is None or job.queue == BUILD_QUEUE:
                raise NotFound(f"there is no job {job_id} of a host")
            now = self._clock.now()
            if report.state == "running":
                until = now + timedelta(seconds=self._lease_s)
                store.HOST_JOBS.extend(connection, job_id, report.epoch, until)
                return []
            final = JobState.DONE if report.state == "done" else JobState.FAILED
            # The console is kept with the server; in the job it would only be carried around.
            result = {key: value for key, value in report.result.items() if key != "console"}
            if not store.HOST_JOBS.finish(connection, job_id, report.epoch, final, result, now):
                return []
            return self._follow(connection, job, report)

        for queue in in_transaction(self._engine, work):
            self._hints.send(queue)

    def _follow(self, connection: Connection, job: Job, report: Report) -> list[str]:
        """What follows from a report, in its transaction. Answers the queues to hint at after the commit."""
        operation = lifecycle.BY_TASK[TaskState(job.payload["task"])]
        server = store.lock_server(connection, job.key)
        now = self._clock.now()
        if server is None:
            return []
        action_store.finish_event(connection, job.payload["action_id"], operation.event, now, error=report.error)
        if isinstance(text := report.result.get("console"), str):
            store.save_console(connection, server.id, text, now)
        outcome = lifecycle.after_report(operation, situation(server), succeeded=report.error is None)
        if outcome is None:
            return []
        store.update_server(connection, server.id, now, **_changes(server, operation, outcome, report, job.queue, now))
        if not _frees(operation, report):
            return []
        payload = {
            "action_id": job.payload["action_id"],
            "request_id": job.payload["request_id"],
            "final": operation is lifecycle.DELETE,
        }
        release = NewJob(self._ids.uuid(), BUILD_QUEUE, JOB_RELEASE, server.id, payload)
        store.BUILD_JOBS.enqueue(connection, release, now)
        return [BUILD_QUEUE]


def _frees(operation: Operation, report: Report) -> bool:
    """Whether nothing of the server is left on its host, so that its allocation must go too."""
    if operation is lifecycle.CREATE:
        return report.error is not None
    return operation is lifecycle.DELETE and report.error is None


def _changes(
    server: Server, operation: Operation, outcome: Outcome, report: Report, host: str, now: datetime
) -> dict[str, Any]:
    changes: dict[str, Any] = {"vm_state": outcome.vm_state, "task_state": outcome.task_state}
    if outcome.power is not None:
        changes["power_state"] = outcome.power
    if operation is lifecycle.CREATE and outcome.vm_state is VmState.ACTIVE:
        devices = report.result.get("devices")
        changes |= {"launched_at": now, "devices": devices if isinstance(devices, list) else []}
    if operation is lifecycle.CREATE and report.error is not None:
        changes["placed"] = None
    if report.error is not None and outcome.vm_state is VmState.ERROR and operation.fails is not None:
        details = f"host {host}, {operation.kind}: {report.result.get('code', 'no code')}"
        changes["fault"] = Fault(500, report.error, details, now)
    return changes
