"""Applies hosts' reports on operations: the server's new state, then a release, a retry or an offload.

    reports -> locked servers -> `lifecycle.after_report` for each -> one statement per table for all servers

Not here: jobs and their claims (`moorage.jobs.host_jobs`), and the steps of moves (`compute.moves`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Connection

from moorage.compute.deps import ComputeDeps, ComputeSettings
from moorage.compute.model import lifecycle
from moorage.compute.model.interfaces import after_attachment, after_detachment
from moorage.compute.model.job_payloads import (
    forget_image_job,
    host_job,
    job_header,
    ports_job,
    release_port_job,
    server_situation,
)
from moorage.compute.model.lifecycle import Operation, OperationOutcome
from moorage.compute.model.migration_workflow import MoveKind
from moorage.compute.model.servers import BUILD_QUEUE, MOVE_QUEUE, Fault, PowerState, Server, TaskState, VmState
from moorage.compute.moves.migration_engine import MigrationEngine
from moorage.compute.scheduling import build_retries
from moorage.compute.store import action_store, scheduling_store, server_store
from moorage.compute.store.action_store import EndedEvent
from moorage.core.json import JsonObject
from moorage.jobs.contract import (
    DEVICE,
    InterfaceJob,
    JobKind,
    ServerJob,
    ServerResult,
    ShelveJob,
    failure_of,
    payload_of,
    result_of,
)
from moorage.jobs.job_api import JobReport
from moorage.jobs.model import ATTEMPTS_CODE, Job, JobState, NewJob

#: The host has no guest of the server: `moorage.agent.virt.driver.NoSuchDomain`.
_NO_GUEST_CODE = "virt.no_such_domain"

#: Applies one report: (connection, report, locked server, changes to add to, now) -> queues to wake.
_Applying = Callable[[Connection, "OperationReport", Server, "_Changes", datetime], list[str]]


@dataclass(frozen=True)
class OperationReport:
    """`order`: the payload of `job`, which has ended with `report`."""

    job: Job
    order: ServerJob
    report: JobReport


@dataclass
class _Changes:
    """Changes of several servers, written in one statement per table."""

    events: list[EndedEvent] = field(default_factory=list)
    consoles: dict[str, str] = field(default_factory=dict)  #: {server id: text}
    servers: dict[str, dict[str, object]] = field(default_factory=dict)  #: {server id: {column: value}}
    succeeded_builds: set[str] = field(default_factory=set)  #: hosts

    def write(self, connection: Connection, now: datetime) -> None:
        scheduling_store.note_successful_builds(connection, self.succeeded_builds)
        action_store.finish_events(connection, self.events, now)
        server_store.save_consoles(connection, self.consoles, now)
        server_store.update_servers(connection, self.servers, now)


class OperationReports:
    def __init__(self, deps: ComputeDeps, settings: ComputeSettings, migrations: MigrationEngine) -> None:
        self._deps = deps
        self._settings = settings
        self._migrations = migrations

    def apply(self, connection: Connection, reports: Sequence[OperationReport]) -> list[list[str]]:
        """Applies reports on different servers, in the caller's transaction; returns for each the queues to wake after
        the commit.
        """
        if not reports:
            return []
        now, changes = self._deps.clock.now(), _Changes()
        servers = server_store.lock_servers(connection, [one.job.key for one in reports])
        queues = [
            self._applying(one)(connection, one, servers[one.job.key], changes, now) if one.job.key in servers else []
            for one in reports
        ]
        changes.write(connection, now)
        return queues

    def _applying(self, reported: OperationReport) -> _Applying:
        return self._settle_interface if isinstance(reported.order, InterfaceJob) else self._apply_report

    def _apply_report(
        self, connection: Connection, reported: OperationReport, server: Server, changes: _Changes, now: datetime
    ) -> list[str]:
        job, order, report = reported.job, reported.order, reported.report
        operation, queues = lifecycle.BY_KIND[job.kind], list[str]()
        if operation is lifecycle.CREATE and report.error is None:
            changes.succeeded_builds.add(job.queue)
        elif operation is lifecycle.CREATE:
            is_there = server.host == job.queue and server.task_state in (operation.task, None)
            if is_there and has_leftovers(job, report):
                queues.append(
                    self._migrations.record_leftovers(
                        connection, server, job.queue, server.placed, ids_of(order), kind=MoveKind.FAILED_BUILD
                    )
                )
            if build_retries.retry_failed_build(connection, job, server, now, report.error, _failure_code(job, report)):
                return [*queues, BUILD_QUEUE]
            report = build_retries.worded_as_exhausted(job, report)
        changes.events.append(EndedEvent(order.action_id, operation.event, report.error))
        result = reported_result(job, report)
        if result.console is not None:
            changes.consoles[server.id] = result.console
        outcome = lifecycle.after_report(
            operation, server_situation(server), succeeded=report.error is None, left=_power_left(job, order, report)
        )
        if outcome is None:
            return queues
        values = changes.servers[server.id] = _report_changes(operation, outcome, job, report, now)
        if result.devices is not None:
            values.setdefault("devices", list(result.devices))
        if operation is lifecycle.SHELVE and report.error is None and self._settings.offload_after_s == 0:
            values["task_state"] = lifecycle.SHELVE_OFFLOAD.task
            return [self._offload(connection, server, job.queue, order, now)]
        if operation is lifecycle.UNSHELVE and report.error is None and server.parked_image_id is not None:
            image_id = server.parked_image_id
            forget = forget_image_job(self._deps.ids.uuid(), server.id, image_id, key=image_id)
            server_store.BUILD_JOBS.enqueue(connection, forget, now)
            queues.append(MOVE_QUEUE)
        if not _frees_allocation(operation, report):
            return queues
        if operation is not lifecycle.CREATE and server.task_state is not operation.task:
            self._cancel_later_operations(connection, server, job, changes, now)
        return [*queues, self._free_allocation(connection, reported, server, values, now)]

    def _cancel_later_operations(
        self, connection: Connection, server: Server, job: Job, changes: _Changes, now: datetime
    ) -> None:
        """What was tried on a server after an administrator had reset it during `job` would make a guest again.

        Interfaces that are being attached or detached settle themselves: the host refuses them.
        """
        for later in server_store.HOST_JOBS.story(connection, server.id):
            if later.queue != job.queue or later.state is not JobState.READY:
                continue
            order = payload_of(later.kind, later.payload, ServerJob)
            if isinstance(order, InterfaceJob):
                continue
            server_store.HOST_JOBS.revoke_one(connection, later.id, now)
            if (operation := lifecycle.BY_KIND.get(later.kind)) is not None:
                error = "The server left its host before this began."
                changes.events.append(EndedEvent(order.action_id, operation.event, error))

    def _free_allocation(
        self,
        connection: Connection,
        reported: OperationReport,
        server: Server,
        values: dict[str, object],
        now: datetime,
    ) -> str:
        """Nothing of the server is left on the host: has its allocation released. Returns the queue to wake."""
        order, operation = reported.order, lifecycle.BY_KIND[reported.job.kind]
        if server.interfaces:
            is_gone = operation is not lifecycle.SHELVE_OFFLOAD
            ports = ports_job(self._deps.ids.uuid(), server.id, order.request_id, release=is_gone)
            server_store.BUILD_JOBS.enqueue(connection, ports, now)
            if operation is lifecycle.CREATE:
                values["interfaces"] = ()
        payload: JsonObject = {**ids_of(order), "final": operation is lifecycle.DELETE}
        release = NewJob(self._deps.ids.uuid(), BUILD_QUEUE, JobKind.RELEASE, server.id, payload)
        server_store.BUILD_JOBS.enqueue(connection, release, now)
        # During a deletion a move may still have a job before the release; wake its queue, which would wait for a poll.
        return server_store.HOST_JOBS.next_queue(connection, server.id) or BUILD_QUEUE

    def _settle_interface(
        self, connection: Connection, reported: OperationReport, server: Server, changes: _Changes, now: datetime
    ) -> list[str]:
        """After an interface was attached or detached, or could not be. Its port is released once no guest has it."""
        job, order, report = reported.job, reported.order, reported.report
        if not isinstance(order, InterfaceJob):
            raise TypeError(f"a job of kind {job.kind} has a {type(order).__name__}")
        changes.events.append(EndedEvent(order.action_id, lifecycle.BY_KIND[job.kind].event, report.error))
        port_id, succeeded = order.interface.port_id, report.error is None
        if job.kind is JobKind.ATTACH_INTERFACE:
            may_be_left = _failure_code(job, report) == ATTEMPTS_CODE or has_leftovers(job, report)
            change = after_attachment(server.interfaces, port_id, succeeded=succeeded, is_left=may_be_left)
        else:
            change = after_detachment(server.interfaces, port_id, succeeded=succeeded)
        values: dict[str, object] = {}
        if server.task_state is TaskState.NETWORKING and change.is_settled:
            values["task_state"] = None
        if succeeded and order.interface.kind == DEVICE and server.vm_state is VmState.PAUSED:  # it was turned off
            values |= {"vm_state": VmState.STOPPED, "power_state": PowerState.SHUTDOWN}
        if change.interfaces != server.interfaces:  # else settled already, as when the server was evacuated
            values["interfaces"] = change.interfaces
        if values:
            changes.servers[server.id] = values
        for released in change.released:
            release = release_port_job(self._deps.ids.uuid(), server.id, released, key=server.id)
            server_store.BUILD_JOBS.enqueue(connection, release, now)
        return [BUILD_QUEUE] if change.released else []

    def _offload(self, connection: Connection, server: Server, host: str, order: ServerJob, now: datetime) -> str:
        """A shelved server leaves its host at once, as part of the same action."""
        operation = lifecycle.SHELVE_OFFLOAD
        action_store.begin_event(connection, order.action_id, operation.event, host, now)
        payload = ServerJob(**job_header(server, ids_of(order)))
        server_store.HOST_JOBS.enqueue(
            connection, host_job(self._deps.ids.uuid(), host, operation.job_kind, payload), now
        )
        return host


def ids_of(order: ServerJob) -> dict[str, str]:
    return {"action_id": order.action_id, "request_id": order.request_id}


def reported_result(job: Job, report: JobReport) -> ServerResult:
    """The result of the job; without content if it failed."""
    return ServerResult() if report.error is not None else result_of(job.kind, report.result, ServerResult)


def has_leftovers(job: Job, report: JobReport) -> bool:
    """Whether the host reports that it could not undo all parts of its failed job.

    The server then continues or is built elsewhere. The host keeps the allocations until it has cleaned up.
    """
    return report.error is not None and bool(failure_of(job.kind, report.result).is_left)


def is_left_off(job: Job, order: ServerJob, report: JobReport) -> bool:
    """Whether the job, which stops the server, has failed and could not start it again."""
    return isinstance(order, ShelveJob) and order.start and has_leftovers(job, report)


def _power_left(job: Job, order: ServerJob, report: JobReport) -> int | None:
    """See `lifecycle.after_report`."""
    if _failure_code(job, report) == _NO_GUEST_CODE:
        return PowerState.NONE
    return PowerState.SHUTDOWN if is_left_off(job, order, report) else None


def _failure_code(job: Job, report: JobReport) -> str | None:
    return None if report.error is None else failure_of(job.kind, report.result).code


def _frees_allocation(operation: Operation, report: JobReport) -> bool:
    """Whether nothing of the server is left on its host, so that its allocation must be released."""
    if operation is lifecycle.CREATE:
        return report.error is not None
    return operation in (lifecycle.DELETE, lifecycle.SHELVE_OFFLOAD) and report.error is None


def _report_changes(
    operation: Operation, outcome: OperationOutcome, job: Job, report: JobReport, now: datetime
) -> dict[str, object]:
    changes: dict[str, object] = {"vm_state": outcome.vm_state, "task_state": outcome.task_state}
    if outcome.power is not None:
        changes["power_state"] = outcome.power
    if operation is lifecycle.CREATE and report.error is None:
        changes["launched_at"] = now
    if report.error is not None:
        return changes | _failure_changes(operation, outcome, job, report, now)
    if operation in (lifecycle.SOFT_DELETE, lifecycle.SHELVE):
        changes["parked_at"] = now
    elif operation in (lifecycle.RESTORE, lifecycle.UNSHELVE):
        changes |= {"parked_at": None, "parked_image_id": None}
    elif operation is lifecycle.SHELVE_OFFLOAD:
        changes |= {"host": None, "placed": None, "devices": []}
    return changes


def _failure_changes(
    operation: Operation, outcome: OperationOutcome, job: Job, report: JobReport, now: datetime
) -> dict[str, object]:
    changes: dict[str, object] = {}
    if operation is lifecycle.SHELVE:
        changes["parked_image_id"] = None
    if operation is lifecycle.CREATE:
        changes["placed"] = None
    if outcome.vm_state is VmState.ERROR and (operation.fails is not None or outcome.power is not None):
        details = f"host {job.queue}, {operation.kind}: {_failure_code(job, report) or 'no code'}"
        changes["fault"] = Fault(500, report.error or "", details, now)
    return changes
