"""The job `build`: selects a host for each server of a request, for all of them or for none.

    jobs claimed together -> drafts -> one claim for all that can be batched (`select_and_claim_together`)
                                    -> one transaction: hosts, and a job for each host (`SelectionCommitter`)
    every other job       -> selects hosts by itself, if it has none yet -> a transaction of its own

A job that was tried before, or whose servers must be near to or apart from other servers, is never batched: the first
must release its claims before it selects again, and the second must see where the servers before it went.

The transaction checks the server groups again, because two members may have been placed at the same moment. If a group
rejects the host, the server is placed again. A job may crash at any line: its next run releases any claims of the
run before and starts from the beginning. No other component acts on the claims before the transaction commits.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Connection, Engine

from moorage.compute.model.servers import Fault, Server, VmState
from moorage.compute.requests.group_service import MAX_RECHECKS, PlacementRejected, rechecks_exhausted
from moorage.compute.requests.server_service import SCHEDULE_EVENT
from moorage.compute.scheduling import build_retries
from moorage.compute.scheduling.candidate_search import SharedAnswers
from moorage.compute.scheduling.commit_selection import BuildOrder, SelectionCommitter, waits_for_host
from moorage.compute.scheduling.host_selection import HostSelector, SelectionOutcome, ServerToPlace
from moorage.compute.scheduling.placement_request import depends_on_other_servers
from moorage.compute.scheduling.selection import NoHost, Selection
from moorage.compute.store import action_store, server_store
from moorage.compute.store.meters import ComputeMeters, Scheduled, outcome_of
from moorage.core.clock import Clock
from moorage.core.errors import Conflict, Invalid, MoorageError, RemoteError, Unavailable
from moorage.core.ids import Ids
from moorage.db.session import in_transaction, read
from moorage.jobs.model import Job, JobState
from moorage.jobs.wakeups import Hints
from moorage.scheduler.reasons import NO_VALID_HOST

log = logging.getLogger(__name__)


#: A selection for each server of an order, or the reasons why one of them has no host.
Selections = list[tuple[Server, Selection]] | NoHost


@dataclass
class BuildDraft:
    """An order, its servers that wait for a host, and the outcome of the batched selection (None: not batched)."""

    order: BuildOrder
    waiting: Sequence[Server]
    outcome: SelectionOutcome | None = None

    @property
    def selections(self) -> list[tuple[Server, Selection]] | None:
        """A selection for each waiting server, if the batch selected hosts for all of them."""
        if self.outcome is None or isinstance(self.outcome, (NoHost, MoorageError)):
            return None
        return list(zip(self.waiting, self.outcome, strict=True))

    @property
    def can_be_batched(self) -> bool:
        is_first = self.order.job.attempt == 1 and not self.order.tried
        return is_first and bool(self.waiting) and not any(map(depends_on_other_servers, self.waiting))


class BuildScheduler:
    """Selects hosts for the servers of build jobs, and commits the selections."""

    def __init__(
        self, engine: Engine, clock: Clock, ids: Ids, selector: HostSelector, hints: Hints, meters: ComputeMeters
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._selector = selector
        self._meters = meters
        self._committer = SelectionCommitter(engine, clock, ids, hints)

    def draft_builds(
        self,
        jobs: Sequence[Job],
        shared: SharedAnswers,
        check_turn: Callable[[Job], None],
        may_claim: Callable[[], bool],
    ) -> list[BuildDraft]:
        """Returns one draft per job, in the order of `jobs`. If the batchable drafts have two or more servers in total,
        claims hosts for all of them in one request and sets each draft's `outcome`.

        `check_turn` raises if this worker must not continue with the job. `may_claim` is called just before the claim;
        False means that this worker may no longer hold the jobs, and no claim is made.
        """
        orders = [BuildOrder.of(job) for job in jobs]
        wanted = [server_id for order in orders for server_id in order.actions]
        with read(self._engine) as connection:
            found = server_store.servers_by_id(connection, wanted)
        drafts = [BuildDraft(order, _waiting_servers(order, found)) for order in orders]
        together = [draft for draft in drafts if draft.can_be_batched]
        shared.servers = max(1, sum(len(draft.waiting) for draft in drafts))
        if sum(len(draft.waiting) for draft in together) > 1:
            servers_to_place = [self._servers_to_place(draft, check_turn) for draft in together]
            for draft, outcome in zip(
                together, self._selector.select_and_claim_together(servers_to_place, shared, may_claim), strict=True
            ):
                draft.outcome = outcome
        return drafts

    def _servers_to_place(self, draft: BuildDraft, check_turn: Callable[[Job], None]) -> list[ServerToPlace]:
        order = draft.order
        return [ServerToPlace(one, order.image_properties, partial(check_turn, order.job)) for one in draft.waiting]

    def commit_together(self, drafts: Sequence[BuildDraft]) -> frozenset[str]:
        """Commits all batched selections in one transaction; returns the ids of the jobs that are done.

        Returns an empty set if a conflict in one of them prevents the commit: then each job is scheduled by itself.
        """
        placed = [draft for draft in drafts if draft.selections is not None]
        if len(placed) < 2:
            return frozenset()
        try:
            self._committer.commit([(draft.order, draft.selections or []) for draft in placed])
        except (Conflict, PlacementRejected) as error:
            log.info("batch not committed; each job is scheduled by itself", extra={"reason": str(error)})
            return frozenset()
        except MoorageError as error:
            # The commit may or may not have taken effect. The jobs that are still open are tried again later.
            for draft in placed:
                draft.outcome = error
            return frozenset()
        self._meters.scheduled(Scheduled.PLACED, sum(len(draft.waiting) for draft in placed))
        return frozenset(draft.order.job.id for draft in placed)

    def schedule(self, draft: BuildDraft, shared: SharedAnswers, check_turn: Callable[[], None]) -> None:
        """Selects and commits hosts for one job. If there is no host for one of its servers, all of them go to ERROR.

        Selects only if the draft has no outcome, and again if a server group rejects a host at the commit. Raises
        `Unavailable` if Placement does not answer; the caller must then run the job again later.
        """
        order, waiting = draft.order, draft.waiting
        if not waiting:
            self._abandon(order)
            return
        if isinstance(draft.outcome, MoorageError):
            selections: Selections = _no_host(draft.outcome)
        elif isinstance(draft.outcome, NoHost):
            selections = draft.outcome
        else:
            selections = draft.selections or self._select_for_all(order, waiting, shared, check_turn)
        for _ in range(MAX_RECHECKS):
            if isinstance(selections, NoHost):
                outcome = Scheduled.EXHAUSTED if order.tried else outcome_of(selections.reasons)
                self.fail_servers(order.job, self._failure_message(order, selections), selections.details, outcome)
                return
            try:
                self._committer.commit([(order, selections)])
                self._meters.scheduled(Scheduled.PLACED, len(selections))
                return
            except PlacementRejected as late:
                log.info("host selected again: the commit rejected the host", extra={"server": late.server_id})
                shared.pools.clear()
                selections = self._select_for_all(order, waiting, shared, check_turn, again=True)
        raise rechecks_exhausted()

    def _select_for_all(
        self,
        order: BuildOrder,
        servers: Sequence[Server],
        shared: SharedAnswers,
        check_turn: Callable[[], None],
        *,
        again: bool = False,
    ) -> Selections:
        placed: list[tuple[Server, Selection]] = []
        for server in servers:
            selection = self._select(order, server, shared, check_turn, placed, again=again)
            if isinstance(selection, NoHost):
                return selection
            placed.append((server, selection))
        return placed

    def _select(
        self,
        order: BuildOrder,
        server: Server,
        shared: SharedAnswers,
        check_turn: Callable[[], None],
        placed: Sequence[tuple[Server, Selection]],
        *,
        again: bool,
    ) -> Selection | NoHost:
        tried = order.tried
        try:
            return self._selector.select_and_claim(
                server,
                order.image_properties,
                excluded_hosts=dict.fromkeys(tried, "a build failed there"),
                alternates=() if again else build_retries.alternates_from(order.job.payload.get("alternates", ())),
                beside=[selection.root_uuid for _, selection in placed],
                may_hold_allocations=again or order.job.attempt > 1 or bool(tried),
                check_turn=check_turn,
                shared=shared,
            )
        except (Invalid, RemoteError) as error:
            return _no_host(error)

    def _failure_message(self, order: BuildOrder, no_host: NoHost) -> str:
        if not order.tried:
            return f"{NO_VALID_HOST} {no_host.reason}"
        return build_retries.exhausted_message(order.job.key, list(order.tried.values())[-1])

    def fail_servers(self, job: Job, message: str, details: str, outcome: Scheduled) -> None:
        """Sets all servers of the job to ERROR with a reason, and enqueues jobs that release any claims."""
        order = BuildOrder.of(job)
        details = "\n".join([*(f"{host}: {why}" for host, why in order.tried.items()), details]).strip()

        def mark_failed(connection: Connection) -> None:
            now = self._clock.now()
            server_store.BUILD_JOBS.finish(connection, job.id, job.epoch, JobState.FAILED, {"error": message}, now)
            for server_id, action_id in order.actions.items():
                server = server_store.lock_server(connection, server_id)
                if server is not None and waits_for_host(server):
                    fault = Fault(500, message.strip(), details, now)
                    values = {"vm_state": VmState.ERROR, "task_state": None, "fault": fault}
                    server_store.update_server(connection, server_id, now, **values)
                    action_store.finish_event(connection, action_id, SCHEDULE_EVENT, now, error=message)
                self._committer.enqueue_release(connection, order, server_id)

        in_transaction(self._engine, mark_failed)
        self._meters.scheduled(outcome, len(order.actions))
        log.info("no host for the server", extra={"server": job.key, "reason": message})

    def _abandon(self, order: BuildOrder) -> None:
        """Servers that were deleted or reset before they got a host must not keep allocations."""
        job = order.job

        def finish_abandoned_job(connection: Connection) -> None:
            server_store.BUILD_JOBS.finish(connection, job.id, job.epoch, JobState.DONE, None, self._clock.now())
            for server_id in order.actions:
                self._committer.enqueue_release(connection, order, server_id)

        in_transaction(self._engine, finish_abandoned_job)


def _waiting_servers(order: BuildOrder, found: Mapping[str, Server]) -> list[Server]:
    return [found[one] for one in order.actions if one in found and waits_for_host(found[one])]


def _no_host(error: MoorageError) -> NoHost:
    """Turns an error about the request into a result. Raises other errors, for which the job must be tried again."""
    if isinstance(error, Invalid):
        return NoHost.because(f"The flavor cannot be placed: {error.message}")
    if not isinstance(error, RemoteError):
        raise error
    if error.status >= 500:
        raise Unavailable(error.message) from error
    return NoHost.because(f"Placement refused the request: {last_paragraph(error)}", error.message)


def last_paragraph(error: RemoteError) -> str:
    """Placement's own sentence in the error, without the sentence that its web framework puts before it."""
    return str(error.fields.get("detail") or error.message).rpartition("\n\n")[2].strip()
