"""The job `build`: selects a host for each server of a request, for all of them or for none.

    jobs claimed together -> builds -> those that can be batched: one search (`HostSelector.claim_hosts`) and one
                                       transaction (`SelectionCommitter.commit`) for all
    every other job                 -> a search and a transaction of its own

A job that was tried before, or whose servers must be near to or apart from other servers, is never batched: the first
must release its claims before it selects again, and the second must see where the servers before it went.

The transaction checks the server groups again, because two members may have been placed at the same moment. If a group
rejects the host, the server is placed again. A job may crash at any line: its next run releases any claims of the
run before and starts from the beginning. No other component acts on the claims before the transaction commits.
"""

import logging
from collections.abc import Sequence

from sqlalchemy import Connection, Engine

from moorage.compute.model.servers import Fault, Server, VmState
from moorage.compute.requests.group_service import MAX_RECHECKS, PlacementRejected, rechecks_exhausted
from moorage.compute.requests.server_service import SCHEDULE_EVENT
from moorage.compute.scheduling import build_retries
from moorage.compute.scheduling.commit_selection import Build, SelectionCommitter, waits_for_host
from moorage.compute.scheduling.pipeline import Batch, HostSelector
from moorage.compute.scheduling.placement_request import HostRequest, depends_on_other_servers
from moorage.compute.scheduling.selection import Alternate, NoHost, Outcome, Selection
from moorage.compute.store import action_store, server_store
from moorage.compute.store.meters import ComputeMeters, Scheduled, outcome_of
from moorage.core.clock import Clock
from moorage.core.errors import Conflict, MoorageError
from moorage.core.ids import Ids
from moorage.db.session import in_transaction, read
from moorage.jobs.model import Job, JobState
from moorage.jobs.wakeups import Hints
from moorage.network.client.server_ports import PortsRefused, ServerPorts
from moorage.scheduler.reasons import NO_VALID_HOST

log = logging.getLogger(__name__)


class BuildScheduler:
    """Selects hosts for the servers of build jobs, and commits the selections."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        ids: Ids,
        selector: HostSelector,
        hints: Hints,
        meters: ComputeMeters,
        server_ports: ServerPorts | None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._selector = selector
        self._meters = meters
        self._committer = SelectionCommitter(engine, clock, ids, hints, server_ports)

    def read_builds(self, jobs: Sequence[Job]) -> list[Build]:
        builds = [Build(job) for job in jobs]
        with read(self._engine) as connection:
            found = server_store.servers_by_id(connection, [one for build in builds for one in build.actions])
        for build in builds:
            build.waiting = [found[one] for one in build.actions if one in found and waits_for_host(found[one])]
            build.may_hold_allocations = build.job.attempt > 1 or bool(build.payload.tried)
        return builds

    def schedule_together(self, builds: Sequence[Build], batch: Batch) -> frozenset[str]:
        """Selects hosts for the builds that can be batched, and commits them; returns the ids of the jobs that are
        done.

        `schedule` must then be called for each of the other builds. Does nothing for fewer than two servers.
        """
        together = [
            one
            for one in builds
            if not one.may_hold_allocations and one.waiting and not any(map(depends_on_other_servers, one.waiting))
        ]
        if sum(len(one.waiting) for one in together) < 2:
            return frozenset()
        try:
            outcomes = self._selector.claim_hosts([_host_requests(one, one.waiting) for one in together], batch)
        except Exception:  # a build that always fails must not block the others: each is scheduled by itself
            log.exception("batch failed", extra={"jobs": [one.job.id for one in together]})
            for one in together:
                one.may_hold_allocations = True
            return frozenset()
        for one, outcome in zip(together, outcomes, strict=True):
            one.outcome = outcome
        selected = [one for one in together if one.selections]
        if len(selected) < 2 or not self._commit_together(selected):
            return frozenset()
        self._meters.scheduled(Scheduled.PLACED, sum(len(one.waiting) for one in selected))
        return frozenset(one.job.id for one in selected)

    def _commit_together(self, selected: Sequence[Build]) -> bool:
        """False if the jobs must be scheduled one by one, now or, if they have an error as their outcome, later."""
        try:
            self._committer.commit(selected)
        except (Conflict, PlacementRejected) as error:
            log.info("batch not committed; each job is scheduled by itself", extra={"reason": str(error)})
            return False
        except MoorageError as error:
            # The commit may or may not have taken effect. The jobs that are still open are tried again later.
            for one in selected:
                one.outcome = error
            return False
        except Exception:  # one of them always fails, and must not block the others
            log.exception("batch not committed", extra={"jobs": [one.job.id for one in selected]})
            return False
        return True

    def schedule(self, build: Build, batch: Batch) -> None:
        """Selects and commits hosts for one job. If there is no host for one of its servers, all of them go to ERROR.

        Searches only if the build has no outcome, and again if a server group rejects a host at the commit. Raises
        `Unavailable` if Placement does not answer; the caller must then run the job again later.
        """
        if not build.waiting:
            self._abandon(build)
            return
        alternates = build_retries.alternates_from(build.payload.alternates)
        for _ in range(MAX_RECHECKS):
            outcome = build.outcome = build.outcome or self._claim_hosts(build, batch, alternates)
            if isinstance(outcome, MoorageError):
                raise outcome
            if isinstance(outcome, NoHost):
                result = Scheduled.EXHAUSTED if build.payload.tried else outcome_of(outcome.reasons)
                self.fail_servers(build.job, _failure_message(build, outcome), outcome.details, result)
                return
            try:
                self._committer.commit([build])
                self._meters.scheduled(Scheduled.PLACED, len(build.waiting))
                return
            except PortsRefused as refused:
                self.fail_servers(build.job, refused.message, "", Scheduled.REFUSED)
                return
            except PlacementRejected as late:
                log.info("host selected again: the commit rejected the host", extra={"server": late.server_id})
                batch.pools.clear()
                build.outcome, build.may_hold_allocations, alternates = None, True, ()
        raise rechecks_exhausted()

    def _claim_hosts(self, build: Build, batch: Batch, alternates: Sequence[Alternate]) -> Outcome:
        """Servers that depend on others get their hosts one by one, because each must see where the others are."""
        if not any(map(depends_on_other_servers, build.waiting)):
            return self._selector.claim_hosts([_host_requests(build, build.waiting, alternates)], batch)[0]
        selections: list[Selection] = []
        for server in build.waiting:
            beside = [one.root_uuid for one in selections]
            (outcome,) = self._selector.claim_hosts([_host_requests(build, [server], alternates, beside)], batch)
            if not isinstance(outcome, Sequence):
                return outcome
            selections += outcome
        return selections

    def fail_servers(self, job: Job, message: str, details: str, outcome: Scheduled) -> None:
        """Sets all servers of the job to ERROR with a reason, and enqueues jobs that release any claims."""
        build = Build(job)
        details = "\n".join([*(f"{host}: {why}" for host, why in build.payload.tried.items()), details]).strip()

        def mark_failed(connection: Connection) -> None:
            now = self._clock.now()
            server_store.BUILD_JOBS.finish(connection, job.id, job.epoch, JobState.FAILED, {"error": message}, now)
            for server_id, action_id in build.actions.items():
                server = server_store.lock_server(connection, server_id)
                if server is not None and waits_for_host(server):
                    fault = Fault(500, message.strip(), details, now)
                    values: dict[str, object] = {"vm_state": VmState.ERROR, "task_state": None, "fault": fault}
                    values |= {"interfaces": ()} if server.interfaces else {}
                    server_store.update_server(connection, server_id, now, **values)
                    action_store.finish_event(connection, action_id, SCHEDULE_EVENT, now, error=message)
                self._committer.enqueue_release(connection, build, server_id)

        in_transaction(self._engine, mark_failed)
        self._meters.scheduled(outcome, len(build.actions))
        log.info("no host for the server", extra={"server": job.key, "reason": message})

    def _abandon(self, build: Build) -> None:
        """Servers that were deleted or reset before they got a host must not keep allocations."""
        job = build.job

        def finish_abandoned_job(connection: Connection) -> None:
            server_store.BUILD_JOBS.finish(connection, job.id, job.epoch, JobState.DONE, None, self._clock.now())
            for server_id in build.actions:
                self._committer.enqueue_release(connection, build, server_id)

        in_transaction(self._engine, finish_abandoned_job)


def _host_requests(
    build: Build, servers: Sequence[Server], alternates: Sequence[Alternate] = (), beside: Sequence[str] = ()
) -> list[HostRequest]:
    excluded_hosts = dict.fromkeys(build.payload.tried, "a build failed there")
    return [
        HostRequest(
            one, build.payload.image_properties, build.job, excluded_hosts=excluded_hosts, beside=beside,
            alternates=alternates, may_hold_allocations=build.may_hold_allocations,
        )
        for one in servers
    ]  # fmt: skip


def _failure_message(build: Build, no_host: NoHost) -> str:
    if not build.payload.tried:
        return f"{NO_VALID_HOST} {no_host.reason}"
    return build_retries.exhausted_message(build.job.key, list(build.payload.tried.values())[-1])
