"""Use cases of host agents: register, send heartbeats, claim jobs, and report on them.

    report -> MigrationEngine.advance_move     for a step of a move
           -> OperationReports.apply           for an operation: new state of the server, then release, retry or offload

Heartbeats are written in batches (`Heartbeats`), so that a thousand hosts cost a few statements per interval.

`ProviderConfigService` gives an agent orders about the provider configuration of its host, and returns the answers. An
order is a host job like any other, so it is kept until it is done and reported once, but it concerns no server. The
files stay on the host: its agent validates them, and changes Placement or refuses (`moorage.agent.control`).
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection, Engine, select

from moorage.compute.agents.operation_reports import (
    OperationReport,
    OperationReports,
    has_leftovers,
    ids_of,
    is_left_off,
    reported_result,
)
from moorage.compute.deps import ComputeDeps, ComputeSettings
from moorage.compute.model import migration_workflow
from moorage.compute.model.migration_workflow import MoveKind
from moorage.compute.model.servers import (
    HostReport,
)
from moorage.compute.moves.migration_engine import MigrationEngine, cleanup_queue
from moorage.compute.store import host_store, move_store, server_store
from moorage.core.clock import Clock
from moorage.core.errors import Conflict, NotFound
from moorage.core.names import check_not_queue_name
from moorage.db.session import SingleReads, in_transaction, read
from moorage.jobs.contract import JobKind, ProviderConfigJob, ServerJob, payload_document, payload_of
from moorage.jobs.host_jobs import EndedJob, HostJobs
from moorage.jobs.job_api import JobReport
from moorage.jobs.model import Job, NewJob


class AgentService:
    def __init__(self, deps: ComputeDeps, settings: ComputeSettings, migrations: MigrationEngine) -> None:
        self._deps = deps
        self._settings = settings
        self._migrations = migrations
        self._operations = OperationReports(deps, settings, migrations)
        self._heartbeats = Heartbeats(deps.engine, deps.clock)
        self._jobs = HostJobs(
            deps.engine, deps.clock, server_store.HOST_JOBS, self, deps.hints.send, lease_s=settings.job_lease_s
        )
        reads = SingleReads(deps.engine)
        self._awaits_cleanup = reads.prepare(move_store.HAS_LEFTOVERS)
        #: (whether the host ``of_host`` awaits its cleanup, whether ``by`` can claim a job of ``of_queue`` ``now``)
        self._read_host = reads.prepare(
            select(move_store.HAS_LEFTOVERS.exists(), server_store.HOST_JOBS.any_claimable.exists())
        )

    def register_host(self, report: HostReport, *, by: str | None = None) -> bool:
        """Registers a host or records its heartbeat; returns True for a new host. `by`: the calling agent's host; None:
        a service.

        Raises `Conflict` for the provider of another host, `Invalid` for a host name that is the name of a queue.

        A host from which servers were evacuated stays down until it has deleted their remains.
        """
        check_not_queue_name(report.name)
        if self._awaits_cleanup(of_host=report.name):
            return False
        if self._heartbeats.is_current(report) and self._heartbeats.record_heartbeat(report.name):
            return False
        if by is not None:
            self._check_provider(report)
        new_uuid = self._deps.ids.uuid()
        is_new = in_transaction(
            self._deps.engine,
            lambda connection: host_store.register(connection, report, new_uuid, self._deps.clock.now()),
        )
        self._heartbeats.remember_report(report)
        return is_new

    def _check_provider(self, report: HostReport) -> None:
        """Placement lets an agent create only the provider named like its host.

        With the provider of another host, even of one not registered yet, a host would receive that host's servers.
        """
        if self._deps.placement is None:
            return
        provider = self._deps.placement.provider_by_name(report.name)
        if provider is None or provider.uuid != report.provider_uuid:
            raise Conflict(
                f"provider {report.provider_uuid} is not the provider of host {report.name} in Placement; the host's "
                "agent creates that provider when it starts"
            )

    def claim_jobs(self, host: str, worker: str, limit: int) -> list[Job]:
        """Claims at most `limit` jobs for `host`, until their lease ends or they are reported. Counts as a heartbeat,
        too.
        """
        check_not_queue_name(host)
        # A host first deletes the servers evacuated from it, before any other job and before it counts as up.
        now = self._deps.clock.now()
        ((is_left, is_claimable),) = self._read_host(of_host=host, of_queue=host, by=worker, now=now)
        if is_left:
            return self._jobs.claim_jobs(cleanup_queue(host), worker, limit)
        if not self._heartbeats.record_heartbeat(host):
            self._heartbeats.remember_report(
                in_transaction(self._deps.engine, lambda connection: self._first_heartbeat(connection, host))
            )
        return self._jobs.claim_jobs(host, worker, limit, is_claimable=is_claimable)

    def may_have_more(self, queue: str) -> bool:
        """See `HostJobs.may_have_more`."""
        return self._jobs.may_have_more(queue)

    def _first_heartbeat(self, connection: Connection, name: str) -> HostReport:
        """The first heartbeat that this process records for a host; returns the stored report."""
        host = host_store.host(connection, name)
        if host is None:
            raise NotFound(f"Compute host {name} could not be found; an agent registers it first.")
        host_store.record_heartbeats(connection, [name], self._deps.clock.now())
        return host.report

    def report_job(self, job_id: str, report: JobReport, *, host: str | None = None) -> bool:
        """Records a report and sets the next state of the server; see `HostJobs.report_job`."""
        return self._jobs.report_job(job_id, report, host=host)

    def retry_pause(self, connection: Connection, job: Job, report: JobReport) -> timedelta | None:
        """See `JobOwner`: a cleanup is repeated until it succeeds."""
        return timedelta(seconds=self._settings.job_lease_s) if job.kind in migration_workflow.REPEATED_STEPS else None

    def apply_reports(self, connection: Connection, ended: Sequence[EndedJob]) -> list[list[str]]:
        """See `JobOwner`; called in the transaction of the reports."""
        queues: list[list[str]] = [[] for _ in ended]
        operations: dict[int, OperationReport] = {}
        for index, one in enumerate(ended):
            if one.job.kind in (JobKind.PROVIDER_CONFIG, JobKind.CONSOLE):
                continue  # the client polls for the result; the proxy of consoles waits for the host itself
            order = payload_of(one.job.kind, one.job.payload, ServerJob)
            if order.move_id is not None:
                queues[index] = self._apply_step_report(connection, one.job, order, order.move_id, one.report)
            else:
                operations[index] = OperationReport(one.job, order, one.report)
        found = self._operations.apply(connection, list(operations.values()))
        for index, of_operation in zip(operations, found, strict=True):
            queues[index] = of_operation
        return queues

    def _apply_step_report(
        self, connection: Connection, job: Job, order: ServerJob, move_id: str, report: JobReport
    ) -> list[str]:
        move = move_store.move(connection, move_id)
        server = None if move is None else server_store.lock_server(connection, move.server_id)
        queues: list[str] = []
        if move is not None and server is not None and move.step == job.kind:
            if has_leftovers(job, report) and migration_workflow.failed_to_build(move, server.task_state):
                queues.append(
                    self._migrations.record_leftovers(
                        connection, server, job.queue, move.new_placed, ids_of(order), kind=MoveKind.FAILED_BUILD
                    )
                )
            apart = job.key != server.id
            queues += self._migrations.advance_move(
                connection, move, server, reported_result(job, report), report.error, apart=apart,
                is_left_off=is_left_off(job, order, report),
            )  # fmt: skip
        waiting = server_store.HOST_JOBS.next_queue(connection, job.key)
        return queues if waiting is None else [*queues, waiting]


#: Heartbeats of one host are written at most this often; with many hosts, those of all hosts together.
WRITE_INTERVAL = timedelta(seconds=3)

#: Up to this number of hosts, the heartbeats of each are written by themselves.
WRITE_ALONE_UP_TO = 30

#: An unchanged report is written again after this time, because another process may have written a different one.
REPORT_REFRESH = timedelta(minutes=10)


class Heartbeats:
    """Heartbeats of hosts, written in batches; one object per process, thread-safe.

    A heartbeat is not written if the host's previous one was written less than `WRITE_INTERVAL` before. With many hosts
    it is kept in memory, and the first one after `WRITE_INTERVAL` writes all pending ones with the time of the oldest.
    So the database lags by `WRITE_INTERVAL`, or by the pause until the next heartbeat; a killed process loses as much.
    A host counts as down only after a multiple of both. With few hosts each is written by itself, because another
    host's would not come soon enough.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._lock = threading.Lock()
        #: {host: its report, and when that was written}
        self._known: dict[str, tuple[HostReport, datetime]] = {}
        #: {host: time of its heartbeat}, not written yet
        self._unwritten: dict[str, datetime] = {}
        #: {host: time of its last heartbeat that was written, or is being written}
        self._written: dict[str, datetime] = {}
        self._written_at = clock.now()

    def remember_report(self, report: HostReport) -> None:
        """The report and its heartbeat were just written."""
        now = self._clock.now()
        with self._lock:
            self._known[report.name], self._written[report.name] = (report, now), now

    def is_current(self, report: HostReport) -> bool:
        """Whether only the heartbeat needs to be written."""
        known = self._known.get(report.name)
        return known is not None and known[0] == report and self._clock.now() - known[1] < REPORT_REFRESH

    def record_heartbeat(self, host: str) -> bool:
        """Records a heartbeat; returns False for a host unknown to this process, for which nothing was recorded."""
        now = self._clock.now()
        with self._lock:
            if host not in self._known:
                return False
            if now - self._written[host] < WRITE_INTERVAL:
                return True
            self._unwritten[host] = now
            if len(self._known) > WRITE_ALONE_UP_TO and now - self._written_at < WRITE_INTERVAL:
                return True
            unwritten, self._unwritten = self._unwritten, {}
            before = self._written_at, {name: self._written[name] for name in unwritten}
            self._written_at = now
            self._written.update(unwritten)
        try:
            self._write(unwritten)
        except BaseException:  # after any failure, the heartbeats are written by the next call
            with self._lock:
                self._unwritten, self._written_at = unwritten | self._unwritten, before[0]
                self._written.update(before[1])
            raise
        return host in self._known

    def _write(self, unwritten: Mapping[str, datetime]) -> None:
        def write_heartbeats(connection: Connection) -> int:
            return host_store.record_heartbeats(connection, sorted(unwritten), min(unwritten.values()))

        if in_transaction(self._engine, write_heartbeats) < len(unwritten):
            # The service of one of the hosts was deleted; its agent registers it again.
            with self._lock:
                for host in unwritten:
                    self._known.pop(host, None)


#: An order that no agent has claimed by then expires, because its author no longer expects it to happen.
ORDER_LIFETIME = timedelta(minutes=5)


@dataclass(frozen=True)
class ProviderConfigService:
    deps: ComputeDeps

    def order_provider_config(self, host: str, action: str, files: Mapping[str, str], request_id: str) -> Job:
        """`action`: show, plan or apply. Raises `NotFound`, and `Conflict` for a host that is forced down."""
        now = self.deps.clock.now()
        payload = ProviderConfigJob(
            do=action, files=files, expires_at=(now + ORDER_LIFETIME).isoformat(), request_id=request_id
        )
        kind = JobKind.PROVIDER_CONFIG
        new = NewJob(self.deps.ids.uuid(), host, kind, f"provider-config:{host}", payload_document(kind, payload))

        def enqueue_order(connection: Connection) -> Job:
            found = host_store.host(connection, host)
            if found is None:
                raise NotFound(f"Compute host {host} could not be found.")
            if found.forced_down:
                raise Conflict(f"Compute host {host} is forced down: its agent would not answer.")
            server_store.HOST_JOBS.enqueue(connection, new, now)
            return self._found(connection, host, new.id)

        job = in_transaction(self.deps.engine, enqueue_order)
        self.deps.hints.send(host)
        return job

    def find_order(self, host: str, order_id: str) -> Job:
        with read(self.deps.engine) as connection:
            return self._found(connection, host, order_id)

    def _found(self, connection: Connection, host: str, order_id: str) -> Job:
        job = server_store.HOST_JOBS.get(connection, order_id)
        if job is None or job.kind is not JobKind.PROVIDER_CONFIG or job.queue != host:
            raise NotFound(f"There is no order {order_id} for the provider configuration of {host}.")
        return job
