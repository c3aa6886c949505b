"""The background task that schedules servers, releases allocations and publishes host state to Placement.

It works on the jobs of `BUILD_QUEUE`; the jobs of one server run one at a time, in order:

    build                select a host for a server, see `build_job`
    release              release the allocation; with `final` the server then becomes DELETED
    ports                release a server's ports, or bind them to its host
    release-port         release one port, unless its server has it
    publish-status       set or remove the trait of a disabled host
    publish-aggregates   publish the aggregates of a host, so that Placement can select by them
    forget-host          delete the providers of a deleted host

Jobs are claimed in batches: servers that wait at the same time share one claim in Placement, and those with the same
request share the candidates. A build that succeeds needs at most two requests to Placement.

Not here: which host is better (`moorage.scheduler`), and the build on the host (`moorage.agent`).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby

from prometheus_client import CollectorRegistry
from sqlalchemy import Connection

from moorage.compute.deps import ComputeDeps
from moorage.compute.hosts import (
    forget_host,
    publish_aggregates,
    publish_all_aggregates,
    publish_status,
)
from moorage.compute.model import lifecycle
from moorage.compute.model.job_payloads import (
    HostUpdate,
    PortRelease,
    PortsUpdate,
    ReleaseAllocation,
    read_payload,
)
from moorage.compute.model.servers import (
    BUILD_QUEUE,
    NetworkInterface,
    PowerState,
    VmState,
)
from moorage.compute.scheduling.build_job import BuildScheduler
from moorage.compute.scheduling.commit_selection import Build
from moorage.compute.scheduling.interfaces import NO_NETWORK_SERVICE, release_port, update_ports, with_binding
from moorage.compute.scheduling.job_worker import BACKOFF, MAX_ATTEMPTS, JobWorker, extend_lease, is_late
from moorage.compute.scheduling.pipeline import Batch, HostSelector
from moorage.compute.store import action_store, host_store, move_store, server_store
from moorage.compute.store.meters import ComputeMeters, Scheduled
from moorage.core.errors import Unavailable
from moorage.db.session import in_transaction, read
from moorage.jobs.contract import JobKind
from moorage.jobs.model import Job
from moorage.placement.client.placement_client import PlacementClient

log = logging.getLogger(__name__)

#: Jobs claimed in one batch; other workers can claim the next batch meanwhile.
BATCH = 64
#: A process without the network service that has claimed a job about ports claims nothing for this time, so that a
#: process with the network service gets the job.
YIELD = timedelta(seconds=30)


class BuildTask:
    """`poll_s`: seconds between polls, because other processes enqueue jobs too; None: run only when woken.

    `worker` must be unique. A name that survives a restart lets the worker continue at once with the jobs that it had
    claimed; with a generated name (None) these jobs wait until the lease of the former process ends.
    """

    name = "compute.build"
    listens_to = (BUILD_QUEUE,)

    def __init__(
        self,
        deps: ComputeDeps,
        placement: PlacementClient,
        selector: HostSelector,
        *,
        worker: str | None = None,
        poll_s: float | None = 5.0,
        meters: ComputeMeters | None = None,
    ) -> None:
        self._engine = deps.engine
        self._clock = deps.clock
        self._ids = deps.ids
        self._hints = deps.hints
        self._server_ports = deps.server_ports
        self._placement = placement
        self._selector = selector
        self._scheduler = BuildScheduler(
            deps.engine,
            deps.clock,
            deps.ids,
            selector,
            deps.hints,
            meters or ComputeMeters(CollectorRegistry()),
            deps.server_ports,
        )
        self._jobs = JobWorker(deps.engine, deps.clock, BUILD_QUEUE, worker or f"builder/{deps.ids.uuid()}", poll_s)
        self._is_placement_prepared = False
        self._yields_until: datetime | None = None
        self._handlers: dict[JobKind, Callable[[Job], None]] = {
            JobKind.RELEASE: self._release,
            JobKind.PORTS: self._update_ports,
            JobKind.RELEASE_PORT: self._release_port,
            JobKind.PUBLISH_STATUS: self._publish_status,
            JobKind.PUBLISH_AGGREGATES: self._publish_aggregates,
            JobKind.FORGET_HOST: self._forget_host,
        }

    def run_once(self) -> datetime | None:
        try:
            self._prepare_placement()
        except Unavailable as error:
            log.warning("no builds until Placement answers", extra={"reason": error.message})
            return self._clock.now() + timedelta(seconds=BACKOFF.first_s)
        if self._yields_until is not None and self._clock.now() < self._yields_until:
            return self._yields_until
        while jobs := self._jobs.claim_jobs(BATCH):
            kept = self._leave_to_others(jobs)
            for is_build, some in groupby(kept, key=lambda job: job.kind is JobKind.BUILD):
                if is_build:
                    self._run_builds(list(some))
                    continue
                for job in some:
                    self._run_job(job, self._handlers[job.kind])
            if len(kept) < len(jobs):
                return self._yields_until
            due = self._jobs.next_due()
            if due is None or due > self._clock.now():  # a claim would find nothing
                return due
        return self._jobs.next_due()

    def _leave_to_others(self, jobs: Sequence[Job]) -> Sequence[Job]:
        """Gives jobs about ports back if this process has no network service; returns the others.

        A process that starts when servers have ports refuses to do so without the network service; this one started
        before.
        """
        if self._server_ports is not None:
            return jobs
        about_ports = (JobKind.PORTS, JobKind.RELEASE_PORT)
        left = [job for job in jobs if job.kind in about_ports or job.payload.get("has_interfaces")]
        for job in left:
            self._jobs.postpone(job, NO_NETWORK_SERVICE)
        if left:
            log.error("jobs about ports of servers are left to another process", extra={"reason": NO_NETWORK_SERVICE})
            self._yields_until = self._clock.now() + YIELD
        return [job for job in jobs if job not in left]

    def _prepare_placement(self) -> None:
        """Once per process: Placement may have missed changes of aggregates."""
        if not self._is_placement_prepared:
            self._selector.ensure_traits()
            publish_all_aggregates(self._engine, self._placement)
            self._is_placement_prepared = True

    def _run_builds(self, jobs: Sequence[Job]) -> None:
        """Jobs behind another job of the same server, such as a release, are claimed only after that job is done."""
        builds = self._scheduler.read_builds(jobs)
        batch = Batch(servers=max(1, sum(len(build.waiting) for build in builds)))
        done = self._scheduler.schedule_together(builds, batch)
        for build in builds:
            if build.job.id not in done:
                self._run_job(build.job, partial(self._build, build, batch))

    def _run_job(self, job: Job, work: Callable[[Job], None]) -> None:
        def run_with_lease() -> None:
            if is_late(job, self._clock.now()):
                extend_lease(self._engine, self._clock, job)
            work(job)

        self._jobs.run_job(job, run_with_lease, self._handle_failure)

    def _handle_failure(self, job: Job, reason: str, tenant_message: str) -> None:
        """Postpones the job, whose failure is not a lack of hosts. After `MAX_ATTEMPTS`, sets the server to ERROR."""
        if job.kind is JobKind.BUILD and job.attempt >= MAX_ATTEMPTS:
            self._scheduler.fail_servers(
                job, f"The server could not be scheduled: {tenant_message}", reason, Scheduled.GAVE_UP
            )
        else:
            self._jobs.postpone(job, reason)

    # ------------------------------------------------------------------------------------------- jobs

    def _build(self, build: Build, batch: Batch, job: Job) -> None:
        if job.attempt > MAX_ATTEMPTS:
            message = "The server could not be scheduled: the builder process died at each attempt."
            self._scheduler.fail_servers(job, message, "", Scheduled.GAVE_UP)
            return
        self._scheduler.schedule(build, batch)

    def _release(self, job: Job) -> None:
        """Releases first, then commits. If the commit is lost, the release is repeated, which is harmless."""
        self._placement.release(job.key)

        payload = read_payload(job, ReleaseAllocation)

        def record_release(connection: Connection) -> None:
            now = self._clock.now()
            server = server_store.lock_server(connection, job.key)
            if server is None or not payload.final or server.vm_state is VmState.DELETED:
                return
            action_store.finish_event(connection, payload.action_id, lifecycle.DELETE.event, now)
            after = lifecycle.SERVER_STATES.check_transition(server.vm_state, VmState.DELETED)
            gone = {"vm_state": after, "task_state": None, "power_state": PowerState.NONE, "placed": None}
            server_store.update_server(connection, server.id, now, deleted_at=now, **gone)

        self._finish_job(job, record_release)

    def _finish_job(self, job: Job, work: Callable[[Connection], None] = lambda _: None) -> None:
        """Finishes the job and applies `work` in one transaction; then wakes the queue of the next job of its key: the
        hint of that job may have come while this one still ran.
        """

        def end(connection: Connection) -> str | None:
            self._jobs.finish_job_in(connection, job)
            work(connection)
            return server_store.BUILD_JOBS.next_queue(connection, job.key)

        waiting = in_transaction(self._engine, end)
        if waiting is not None and waiting != BUILD_QUEUE:  # this task looks into its own queue anyway
            self._hints.send(waiting)

    def _update_ports(self, job: Job) -> None:
        with read(self._engine) as connection:
            server = server_store.server(connection, job.key)
        bound = update_ports(self._server_ports, server, job.key, release=read_payload(job, PortsUpdate).release)
        self._finish_job(job, lambda connection: self._store_bindings(connection, job.key, bound))

    def _store_bindings(self, connection: Connection, server_id: str, bound: Mapping[str, NetworkInterface]) -> None:
        """`bound`: {port id before: the interface as it is bound now}. Meanwhile others may have come and gone."""
        server = server_store.lock_server(connection, server_id) if bound else None
        if server is None:
            return
        after = tuple(
            with_binding(one, bound[one.port_id]) if one.port_id in bound else one for one in server.interfaces
        )
        if after != server.interfaces:
            server_store.update_server(connection, server_id, self._clock.now(), interfaces=after)

    def _release_port(self, job: Job) -> None:
        payload = read_payload(job, PortRelease)
        with read(self._engine) as connection:
            server = server_store.server(connection, payload.server_id)
        if server is None or all(one.port_id != payload.port_id for one in server.interfaces):
            release_port(self._server_ports, payload.server_id, payload.port_id)
        self._finish_job(job)

    def _publish_status(self, job: Job) -> None:
        with read(self._engine) as connection:
            host = host_store.host(connection, read_payload(job, HostUpdate).host)
        if host is not None:
            publish_status(self._placement, host)
        self._jobs.finish_job(job)

    def _publish_aggregates(self, job: Job) -> None:
        payload = read_payload(job, HostUpdate)
        publish_aggregates(self._engine, self._placement, payload.host, payload.left)
        self._jobs.finish_job(job)

    def _forget_host(self, job: Job) -> None:
        """Does nothing if an agent has registered the host again in the meantime."""
        payload = read_payload(job, HostUpdate)
        with read(self._engine) as connection:
            host = host_store.host(connection, payload.host)
            evacuated = move_store.open_moves_of_host(connection, payload.host)
        if host is None:
            for move in evacuated:
                if move.source_host == payload.host:
                    self._placement.release(move.id)
            forget_host(self._placement, payload.provider)
        self._jobs.finish_job(job)
