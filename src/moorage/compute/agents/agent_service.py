"""What host agents do: say that they live, fetch their jobs, report what became of them."""

from datetime import datetime, timedelta
from typing import Any, Protocol

from sqlalchemy import Connection, Engine

from moorage.compute.agents.heartbeats import Heartbeats
from moorage.compute.model import lifecycle, migration_workflow
from moorage.compute.model.job_payloads import host_job, situation
from moorage.compute.model.lifecycle import Operation, OperationOutcome
from moorage.compute.model.migration_workflow import MoveKind
from moorage.compute.model.servers import (
    BUILD_QUEUE,
    JOB_RELEASE,
    PROVIDER_CONFIG,
    Fault,
    HostReport,
    Placed,
    Server,
    VmState,
)
from moorage.compute.moves.migration_engine import MoveProgress, clean_queue
from moorage.compute.scheduling import build_retries
from moorage.compute.store import action_store, host_store, move_store, server_store
from moorage.core.clock import Clock
from moorage.core.errors import Conflict, NotFound
from moorage.core.ids import Ids
from moorage.core.names import check_not_queue_name
from moorage.db.single_reads import SingleReads
from moorage.db.transactions import in_transaction
from moorage.jobs.job_api import JobReport, is_of_host
from moorage.jobs.model import Job, JobState, NewJob
from moorage.jobs.wakeups import Hints
from moorage.placement.client.placement_client import Provider

#: Time that a host has for a job, or until it says that it is still at it.
JOB_LEASE_S = 60.0
MAX_JOBS_AT_ONCE = 100


class ProviderLookup(Protocol):
    def provider_by_name(self, name: str) -> Provider | None: ...


class AgentService:
    """`job_lease_s`: see `JOB_LEASE_S`. `offload_after_s`: see `OperateService`; 0: a shelved server is offloaded at once.
    `placement` None: what hosts say of their providers is believed.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        ids: Ids,
        hints: Hints,
        *,
        job_lease_s: float = JOB_LEASE_S,
        offload_after_s: float = 0,
        placement: ProviderLookup | None = None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._ids = ids
        self._hints = hints
        self._lease_s = job_lease_s
        self._beats = Heartbeats(engine, clock)
        self._open_jobs = SingleReads(engine).prepare(server_store.HOST_JOBS.any_open)
        self._is_left = SingleReads(engine).prepare(move_store.LEAVING)
        self._offload_after_s = offload_after_s
        self._placement = placement
        self._moves = MoveProgress(clock, ids)

    def register(self, report: HostReport, *, by: str | None = None) -> bool:
        """A heartbeat; True for a host that was not known. `by`: the host whose agent calls; None: a service.

        Raises `Conflict` for another host's provider, `Invalid` for a host that is called as a queue.

        A host that servers are evacuated from stays down until it has cleaned up what is left of them.
        """
        check_not_queue_name(report.name)
        if self._is_left(of_host=report.name):
            return False
        if self._beats.knows(report) and self._beats.heard(report.name):
            return False
        if by is not None:
            self._check_provider(report)
        new_uuid = self._ids.uuid()
        is_new = in_transaction(
            self._engine, lambda connection: host_store.register(connection, report, new_uuid, self._clock.now())
        )
        self._beats.remember(report)
        return is_new

    def _check_provider(self, report: HostReport) -> None:
        """Placement lets the agent of a host make the provider of its name alone; the provider of another host, even of one
        that is not registered yet, would bring it that host's servers.
        """
        if self._placement is None:
            return
        provider = self._placement.provider_by_name(report.name)
        if provider is None or provider.uuid != report.provider_uuid:
            raise Conflict(
                f"provider {report.provider_uuid} is not that of host {report.name} in Placement; its agent makes that one "
                "when it starts"
            )

    def claim(self, host: str, worker: str, limit: int) -> list[Job]:
        """At most `limit` jobs for `host`, until the lease is over or they are reported on. Also a sign of life."""
        check_not_queue_name(host)
        # What was evacuated from this host goes before anything else is done on it, and before it counts as up.
        is_left = self._is_left(of_host=host)
        if not is_left and not self._beats.heard(host):
            self._beats.remember(in_transaction(self._engine, lambda connection: self._beat(connection, host)))
        queue = clean_queue(host) if is_left else host
        if not self._open_jobs(of_queue=queue):
            return []
        told: list[str] = []

        def work(connection: Connection) -> list[Job]:
            told.clear()

            def given_up(connection: Connection, job: Job) -> None:
                # Its worker died each time; nobody knows how far it came.
                result = {**(job.result or {}), "is_left": True}
                told.extend(self.follow(connection, job, JobReport("failed", job.epoch, result)))

            return server_store.HOST_JOBS.claim(
                connection,
                queue,
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

    def _beat(self, connection: Connection, name: str) -> HostReport:
        """The first sign of life that this process has of a host, and what it is."""
        host = host_store.host(connection, name)
        if host is None:
            raise NotFound(f"Compute host {name} could not be found; an agent registers it first.")
        host_store.beat(connection, [name], self._clock.now())
        return host.report

    def report(self, job_id: str, report: JobReport, *, host: str | None = None) -> None:
        """Take note and lead the server to its next state, once however often it is reported.

        `host`: whose agent reports; None: a service does. Raises `NotFound` for the job of another one, and `Conflict` ``jobs.fenced`` when somebody else has the job by now.
        """

        def work(connection: Connection) -> list[str]:
            job = server_store.HOST_JOBS.get(connection, job_id)
            if job is None or not is_of_host(job, host):
                raise NotFound(f"there is no job {job_id} of {f'host {host}' if host else 'a host'}")
            now = self._clock.now()
            if report.state == "running":
                until = now + timedelta(seconds=self._lease_s)
                server_store.HOST_JOBS.extend(connection, job_id, report.epoch, until)
                return []
            if report.error is not None and job.kind in migration_workflow.UNTIL_DONE:
                not_before = now + timedelta(seconds=self._lease_s)
                server_store.HOST_JOBS.release(connection, job_id, report.epoch, not_before)
                return []
            final = JobState.DONE if report.state == "done" else JobState.FAILED
            # The console is kept with the server; in the job it would only be carried around.
            result = {key: value for key, value in report.result.items() if key != "console"}
            if not server_store.HOST_JOBS.finish(connection, job_id, report.epoch, final, result, now):
                return []
            return self.follow(connection, job, report)

        for queue in in_transaction(self._engine, work):
            self._hints.send(queue)

    def follow(self, connection: Connection, job: Job, report: JobReport) -> list[str]:
        """What follows from a report on a job that is ended, in its transaction. Answers the queues to hint at after the
        commit.
        """
        if job.kind == PROVIDER_CONFIG:
            return []  # who ordered it asks
        if "move_id" in job.payload:
            return self._follow_move(connection, job, report)
        return self._follow_operation(connection, job, report)

    def _follow_operation(self, connection: Connection, job: Job, report: JobReport) -> list[str]:
        operation = lifecycle.BY_KIND[job.kind]
        server = server_store.lock_server(connection, job.key)
        now = self._clock.now()
        if server is None:
            return []
        told = []
        if operation is lifecycle.CREATE:
            if _leaves_something(report) and (server.task_state, server.host) == (operation.task, job.queue):
                told.append(self._left(connection, server, job, server.placed))
            code = report.result.get("code")
            if build_retries.after_build(connection, job, server, now, error=report.error, code=code):
                return [*told, BUILD_QUEUE]
            report = build_retries.with_exhaustion(job, report)
        action_store.finish_event(connection, job.payload["action_id"], operation.event, now, error=report.error)
        if isinstance(text := report.result.get("console"), str):
            server_store.save_console(connection, server.id, text, now)
        outcome = lifecycle.after_report(operation, situation(server), succeeded=report.error is None)
        if outcome is None:
            return told
        server_store.update_server(
            connection, server.id, now, **_changes(server, operation, outcome, report, job.queue, now)
        )
        if operation is lifecycle.SHELVE and report.error is None and self._offload_after_s == 0:
            return [self._offload(connection, server, job)]
        if not _frees(operation, report):
            return told
        payload = {
            "action_id": job.payload["action_id"],
            "request_id": job.payload["request_id"],
            "final": operation is lifecycle.DELETE,
        }
        release = NewJob(self._ids.uuid(), BUILD_QUEUE, JOB_RELEASE, server.id, payload)
        server_store.BUILD_JOBS.enqueue(connection, release, now)
        # A deletion may come while a move settles: the mover's job is then before ours, and would wait for its next poll.
        return [*told, server_store.HOST_JOBS.next_queue(connection, server.id) or BUILD_QUEUE]

    def _offload(self, connection: Connection, server: Server, job: Job) -> str:
        """A server that is shelved leaves its host at once: part of the same action."""
        operation, now = lifecycle.SHELVE_OFFLOAD, self._clock.now()
        action_store.begin_event(connection, job.payload["action_id"], operation.event, job.queue, now)
        server_store.update_server(connection, server.id, now, task_state=operation.task)
        ids = {"action_id": job.payload["action_id"], "request_id": job.payload["request_id"]}
        offload = host_job(self._ids.uuid(), operation.kind, server, job.queue, ids)
        server_store.HOST_JOBS.enqueue(connection, offload, now)
        return job.queue

    def _follow_move(self, connection: Connection, job: Job, report: JobReport) -> list[str]:
        move = move_store.move(connection, job.payload["move_id"])
        server = None if move is None else server_store.lock_server(connection, move.server_id)
        told: list[str] = []
        if move is not None and server is not None and move.step == job.kind:
            if _leaves_something(report) and migration_workflow.is_built_in_vain(move, server.task_state):
                told.append(self._left(connection, server, job, move.new_placed))
            apart = job.key != server.id
            told += self._moves.advance(connection, move, server, report.result, report.error, apart=apart)
        waiting = server_store.HOST_JOBS.next_queue(connection, job.key)
        return told if waiting is None else [*told, waiting]

    def _left(self, connection: Connection, server: Server, job: Job, placed: Placed | None) -> str:
        """The server goes on, or elsewhere; its host cleans up, and `placed` nobody is offered before. First what is held
        there is taken over, then follows what follows: both are the server's own jobs, one after the other.
        """
        ids = {"action_id": job.payload["action_id"], "request_id": job.payload["request_id"]}
        return self._moves.leave_behind(connection, server, job.queue, placed, ids, kind=MoveKind.FAILED_BUILD)


def _leaves_something(report: JobReport) -> bool:
    """Whether the host says that it could not undo what it had begun."""
    return report.error is not None and bool(report.result.get("is_left"))


def _frees(operation: Operation, report: JobReport) -> bool:
    """Whether nothing of the server is left on its host, so that its allocation must go too."""
    if operation is lifecycle.CREATE:
        return report.error is not None
    return operation in (lifecycle.DELETE, lifecycle.SHELVE_OFFLOAD) and report.error is None


def _changes(
    server: Server, operation: Operation, outcome: OperationOutcome, report: JobReport, host: str, now: datetime
) -> dict[str, Any]:
    changes: dict[str, Any] = {"vm_state": outcome.vm_state, "task_state": outcome.task_state}
    if outcome.power is not None:
        changes["power_state"] = outcome.power
    if isinstance(devices := report.result.get("devices"), list):
        changes["devices"] = devices
    if operation is lifecycle.CREATE and outcome.vm_state is VmState.ACTIVE:
        changes["launched_at"] = now
    if report.error is not None:
        return changes | _failed(server, operation, outcome, report, host, now)
    if operation in (lifecycle.SOFT_DELETE, lifecycle.SHELVE):
        changes["parked_at"] = now
    elif operation in (lifecycle.RESTORE, lifecycle.UNSHELVE):
        changes |= {"parked_at": None, "parked_image_id": None}
    elif operation is lifecycle.SHELVE_OFFLOAD:
        changes |= {"host": None, "placed": None, "devices": []}
    return changes


def _failed(
    server: Server, operation: Operation, outcome: OperationOutcome, report: JobReport, host: str, now: datetime
) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if operation is lifecycle.SHELVE:
        changes["parked_image_id"] = None
    if operation is lifecycle.CREATE:
        changes["placed"] = None
    if outcome.vm_state is VmState.ERROR and operation.fails is not None:
        details = f"host {host}, {operation.kind}: {report.result.get('code', 'no code')}"
        changes["fault"] = Fault(500, report.error or "", details, now)
    return changes
