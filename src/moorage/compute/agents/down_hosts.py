"""The background task that ends the jobs of dead hosts, so that only the servers on a dead host wait for it.

    create                      goes to the next host, as after a failed build
    deletion, offload           completed without the host
    soft deletion, restore      the state changes; the host does its part when it is back
    a step of a move            continues without the host (`MigrationStep.without_host`), or back, or to another host
    anything else               concerns a server on that host: it waits with the server

The task records that remains of a server may be on the dead host (`MigrationEngine.record_leftovers`): it revokes the
host's jobs for the server, and the host deletes the remains when it returns, before it counts as up. So it is harmless
to take a host for dead that is only disconnected.

A host is dead if it was down at every check for a while, so a single late heartbeat does not suffice. An outage of
this service does not count (`moorage.compute.model.outages`). Any number of processes may run this task: the second one
finds the job ended.
"""

import logging
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import Connection

from moorage.compute.agents.agent_service import AgentService
from moorage.compute.deps import ComputeDeps, ComputeSettings
from moorage.compute.hosts import HostService
from moorage.compute.model import lifecycle, migration_workflow
from moorage.compute.model.lifecycle import HostDies
from moorage.compute.model.migration_workflow import STEPS, Move, MoveKind, StepName
from moorage.compute.model.servers import Server, VmState
from moorage.compute.moves.migration_engine import MigrationEngine
from moorage.compute.store import move_store, server_store
from moorage.db.session import in_transaction, read
from moorage.jobs.contract import JobFailure, JobResult, ServerJob, ServerResult, payload_of, result_document
from moorage.jobs.host_jobs import EndedJob
from moorage.jobs.job_api import JobReport, ReportState
from moorage.jobs.model import Job, JobState

log = logging.getLogger(__name__)

#: Number of checks during the grace period; a host that is down at each of them is dead.
CHECKS_BEFORE_DEAD = 3
HOST_DOWN_CODE = "compute.host_down"
_OPEN = frozenset({JobState.READY, JobState.CLAIMED})


class DeadHostsTask:
    """A host is dead if it was down at every check for `up_window_s` of the settings."""

    name = "compute.dead_hosts"

    def __init__(self, deps: ComputeDeps, settings: ComputeSettings, hosts: HostService, agents: AgentService) -> None:
        self._deps = deps
        self._hosts = hosts
        self._agents = agents
        self._grace = timedelta(seconds=settings.up_window_s)
        self._period = self._grace / CHECKS_BEFORE_DEAD
        self._migrations = MigrationEngine(deps)
        #: {host: when it was first found down}
        self._down: dict[str, datetime] = {}

    def run_once(self) -> datetime | None:
        now = self._deps.clock.now()
        self._down = {host: self._down.get(host, now) for host in self._hosts.down_hosts()}
        for host, since in self._down.items():
            if since <= self._deps.outages.heard_since(now, self._grace):
                self._end_open_jobs(host)
        return now + self._period

    def _end_open_jobs(self, host: str) -> None:
        with read(self._deps.engine) as connection:
            jobs = server_store.HOST_JOBS.open_in(connection, host)
        for job in jobs:
            queues = in_transaction(self._deps.engine, partial(self._end_job, job_id=job.id))
            for queue in queues:
                self._deps.hints.send(queue)
            if queues:
                log.warning(
                    "job ended without its dead host", extra={"host": host, "server": job.key, "kind": job.kind}
                )

    def _end_job(self, connection: Connection, job_id: str) -> list[str]:
        """Returns the queues to wake; none if the job waits for the host, or another process has ended it."""
        job = server_store.HOST_JOBS.get(connection, job_id)
        if job is None or job.key.startswith("move:"):
            return []  # only a cleanup
        server = server_store.lock_server(connection, job.key)
        job = server_store.HOST_JOBS.get(connection, job_id)
        if server is None or job is None or job.state not in _OPEN:
            return []
        order = payload_of(job.kind, job.payload, ServerJob)
        if order.move_id is not None:
            queues = self._end_step(connection, job, order.move_id, server)
        else:
            queues = self._end_operation(connection, job, order, server)
        waiting = server_store.HOST_JOBS.next_queue(connection, job.key) if queues else None
        return queues if waiting is None else [*queues, waiting]

    # ------------------------------------------------------------------------------- operations

    def _end_operation(self, connection: Connection, job: Job, order: ServerJob, server: Server) -> list[str]:
        operation = lifecycle.BY_KIND[job.kind]
        if operation.host_dies is HostDies.WAITS or server.task_state is not operation.task:
            return []
        if operation.host_dies is HostDies.RECORDED:
            return self._apply_report(connection, job, ServerResult())
        now = self._deps.clock.now()
        server_store.HOST_JOBS.revoke(connection, server.id, job.queue, now)
        ids = {"action_id": order.action_id, "request_id": order.request_id}
        queues = [self._migrations.record_leftovers(connection, server, job.queue, server.placed, ids)]
        if operation is not lifecycle.CREATE:
            return [*queues, *self._apply_report(connection, job, ServerResult())]
        error = f"Host {job.queue} went down while the server was being built there."
        return [*queues, *self._apply_report(connection, job, JobFailure(error=error, code=HOST_DOWN_CODE))]

    def _apply_report(self, connection: Connection, job: Job, result: JobResult) -> list[str]:
        state = ReportState.FAILED if isinstance(result, JobFailure) else ReportState.DONE
        report = JobReport(state, job.epoch, result_document(result))
        (queues,) = self._agents.apply_reports(connection, [EndedJob(job, report)])
        return [job.queue, *queues]

    # ------------------------------------------------------------------------------------ moves

    def _end_step(self, connection: Connection, job: Job, move_id: str, server: Server) -> list[str]:
        move = move_store.move(connection, move_id)
        if move is None or move.step != job.kind:
            return self._skip_outdated_job(connection, job)
        step = STEPS[move.kind][move.step]
        expected = step.task is None or migration_workflow.is_abandoned(move) or server.task_state is step.task
        if not expected:
            return []
        reason = f"Host {job.queue} went down during the {move.kind} (step {step.name})."
        if step.without_host is not None:
            return self._continue_move(connection, move, server, reason)
        if move.kind is MoveKind.LIVE and step.name == StepName.POST_LIVE:
            reason += " Evacuate the server, or reboot it hard when that host is back."
            return self._migrations.arrive_in_error(connection, move, server, reason)
        if step.name in migration_workflow.REVERT_STEPS and server.vm_state is VmState.RESIZED:
            reason += " Evacuate the server; if that host comes back first, the move continues."
            self._migrations.return_to_dead_host(connection, move, server, reason)
            return [job.queue]
        return []

    def _skip_outdated_job(self, connection: Connection, job: Job) -> list[str]:
        """Revokes a job whose move is already at another step, if a job of another host waits behind it; returns the
        queues to wake.
        """
        waiting = [
            other.queue
            for other in server_store.HOST_JOBS.story(connection, job.key)
            if other.queue != job.queue and other.state in _OPEN
        ]
        if waiting:
            server_store.HOST_JOBS.revoke_one(connection, job.id, self._deps.clock.now())
        return waiting[:1]

    def _continue_move(self, connection: Connection, move: Move, server: Server, reason: str) -> list[str]:
        other = migration_workflow.retried_elsewhere(move, self._deps.ids.uuid(), self._deps.clock.now())
        if other is None:
            return self._migrations.continue_without_host(connection, move, server, reason)
        move_store.insert_move(connection, other)
        return self._migrations.continue_without_host(connection, move, server, None)
