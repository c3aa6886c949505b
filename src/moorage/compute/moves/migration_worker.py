"""The background task that runs the steps of moves that need Placement: select and claim a host, swap allocations,
release them.

Its jobs are the `Where.HERE` steps of `migration_workflow`; they and the host jobs of a server run in order. Each step
may run again after a crash at any line: the move's allocations show how far it got.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial

from sqlalchemy import Connection

from moorage.compute.deps import ComputeDeps
from moorage.compute.model.job_payloads import ForgetImage, MoveStep, read_payload
from moorage.compute.model.migration_workflow import (
    EVENTS,
    STEPS,
    Move,
    MoveKind,
    StepName,
    host_with_leftovers,
    is_abandoned,
)
from moorage.compute.model.servers import MOVE_QUEUE, Server, VmState
from moorage.compute.moves.migration_engine import MigrationEngine
from moorage.compute.requests.group_service import (
    MAX_RECHECKS,
    PlacementRejected,
    recheck_placement,
    rechecks_exhausted,
)
from moorage.compute.scheduling.job_worker import MAX_ATTEMPTS, JobWorker
from moorage.compute.scheduling.pipeline import Batch, HostSelector
from moorage.compute.scheduling.placement_request import HostRequest
from moorage.compute.scheduling.selection import NoHost, Selection
from moorage.compute.store import action_store, move_store, server_store
from moorage.core.errors import MoorageError
from moorage.db.session import in_transaction, read
from moorage.images.base import OwnerView
from moorage.jobs.contract import JobKind, ServerResult
from moorage.jobs.model import Job
from moorage.placement.client.placement_client import MOVE_TYPE, SERVER_TYPE, PlacementClient

log = logging.getLogger(__name__)


class MigrationTask:
    """`worker`, `poll_s`: see `BuildTask`."""

    name = "compute.moving"
    listens_to = (MOVE_QUEUE,)

    def __init__(
        self,
        deps: ComputeDeps,
        placement: PlacementClient,
        selector: HostSelector,
        *,
        worker: str | None = None,
        poll_s: float | None = 5.0,
    ) -> None:
        self._deps = deps
        self._placement = placement
        self._selector = selector
        self._migrations = MigrationEngine(deps)
        self._jobs = JobWorker(deps.engine, deps.clock, MOVE_QUEUE, worker or f"mover/{deps.ids.uuid()}", poll_s)
        self._steps: dict[JobKind, Callable[[Job, Move, Server], list[str]]] = {
            StepName.PREP: self._prep,
            StepName.KEEP_ALLOCATIONS: self._keep_allocations,
            StepName.REVERT_ALLOCATIONS: self._swap_allocations,
            StepName.ROLLBACK_ALLOCATIONS: self._rollback_allocations,
            StepName.COMPLETE: self._complete,
        }

    def run_once(self) -> datetime | None:
        while jobs := self._jobs.claim_jobs():
            for job in jobs:
                self._jobs.run_job(job, partial(self._run_step, job))
        return self._jobs.next_due()

    def _run_step(self, job: Job) -> None:
        for queue in self._step_queues(job):
            self._deps.hints.send(queue)

    def _step_queues(self, job: Job) -> list[str]:
        if job.kind is JobKind.FORGET_IMAGE:
            return self._delete_server_image(job)
        with read(self._deps.engine) as connection:
            move = move_store.move(connection, read_payload(job, MoveStep).move_id)
            server = None if move is None else server_store.server(connection, move.server_id)
        if move is None or server is None:
            return self._finish_job(job, lambda connection, move, server: [])
        return self._steps[job.kind](job, move, server)

    # ----------------------------------------------------------------------------------------- prep

    def _prep(self, job: Job, move: Move, server: Server) -> list[str]:
        """The move takes over the server's allocations; then a destination is selected and claimed for the server."""
        if is_abandoned(move):

            def go_back(connection: Connection, move: Move, server: Server) -> list[str]:
                return self._migrations.advance_move(connection, move, server, ServerResult(), None)

            return self._finish_job(job, go_back)
        if server.task_state is not STEPS[move.kind][StepName.PREP].task:
            return self._finish_job(job, self._end_overtaken)
        if move.kind is not MoveKind.UNSHELVE and self._placement.holder(move.id) is None:
            self._placement.hand_over(server.id, move.id, MOVE_TYPE)
        for late in range(MAX_RECHECKS):
            try:
                return self._record_destination(job, self._select_destination(job, move, server, again=late > 0))
            except PlacementRejected:
                log.info("host selected again: the commit rejected the host", extra={"server": server.id})
        raise rechecks_exhausted()

    def _end_overtaken(self, connection: Connection, move: Move, server: Server) -> list[str]:
        """Ends a move that an administrator's reset let begin while its server was being deleted or offloaded."""
        now, error = self._deps.clock.now(), "The server left its host before the move began."
        action_store.finish_event(connection, move.details["action_id"], EVENTS[StepName.PREP], now, error=error)
        move_store.update_move(connection, move.id, now, status="error")
        return [self._migrations.begin_step(connection, replace(move, status="error"), server, StepName.COMPLETE)]

    def _record_destination(self, job: Job, place: Selection | NoHost) -> list[str]:
        """Raises `PlacementRejected`."""

        def record_destination(connection: Connection, move: Move, server: Server) -> list[str]:
            now = self._deps.clock.now()
            action_id = move.details["action_id"]
            if isinstance(place, NoHost):
                message = f"No valid host was found. {place.reason}".strip()
                action_store.finish_event(connection, action_id, EVENTS[StepName.PREP], now, error=message)
                return self._migrations.advance_move(connection, move, server, ServerResult(), message)
            recheck_placement(connection, [(server, place.root_uuid)])
            move_store.update_move(connection, move.id, now, dest_host=place.host, new_placed=place.placed)
            move = replace(move, dest_host=place.host, new_placed=place.placed)
            return self._migrations.advance_move(connection, move, server, ServerResult(), None)

        return self._finish_job(job, record_destination)

    def _select_destination(self, job: Job, move: Move, server: Server, *, again: bool) -> Selection | NoHost:
        if job.attempt > MAX_ATTEMPTS:
            return NoHost.because(
                "The search for a host failed repeatedly: its process died, or Placement did not answer."
            )
        self._selector.ensure_traits()
        zone = move.details.get("zone") or server.wanted_zone
        wanted = HostRequest(
            replace(server, flavor=move.new_flavor, wanted_host=move.wanted_host, wanted_zone=zone),
            move.details.get("image_properties", {}),
            job,
            excluded_hosts=self._excluded_hosts(move),
            may_hold_allocations=again or job.attempt > 1,
        )
        (outcome,) = self._selector.claim_hosts([[wanted]], Batch())
        if isinstance(outcome, MoorageError):
            raise outcome
        return outcome if isinstance(outcome, NoHost) else outcome[0]

    def _excluded_hosts(self, move: Move) -> dict[str, str]:
        """{host: reason}"""
        with read(self._deps.engine) as connection:
            others = move_store.open_moves(connection, move.server_id)
        left = [host for host in map(host_with_leftovers, others) if host is not None]
        refused = dict.fromkeys(left, "the host has not yet cleaned up what is left of the server")
        if move.source_host and not move.details.get("may_stay"):
            refused[move.source_host] = "the server is there now"
        return refused

    # ------------------------------------------------------------------------------ allocations and images

    def _keep_allocations(self, job: Job, move: Move, server: Server) -> list[str]:
        """The move keeps the allocations of a deleted server on a host that is down, until that host has cleaned up."""
        self._placement.hand_over(self._holder_at_source(move, server), move.id, MOVE_TYPE)

        def advance_after_keep(connection: Connection, move: Move, server: Server) -> list[str]:
            return self._migrations.advance_move(connection, move, server, ServerResult(), None, apart=True)

        return self._finish_job(job, advance_after_keep)

    def _holder_at_source(self, move: Move, server: Server) -> str:
        """The consumer of `old_placed`: the server itself, or another move of it that was to bring it back."""
        if move.old_placed is not None:
            with read(self._deps.engine) as connection:
                others = [other.id for other in move_store.open_moves(connection, server.id) if other.id != move.id]
            for consumer in (server.id, *others) if others else ():
                holder = self._placement.holder(consumer)
                if holder is not None and holder.allocations.keys() == move.old_placed.allocations.keys():
                    return consumer
        return server.id

    def _swap_allocations(self, job: Job, move: Move, server: Server) -> list[str]:
        """Releases the server's allocations at the destination and returns the old ones, in one request."""
        self._placement.hand_over(move.id, server.id, SERVER_TYPE)

        def advance_after_swap(connection: Connection, move: Move, server: Server) -> list[str]:
            return self._migrations.advance_move(connection, move, server, ServerResult(), None)

        return self._finish_job(job, advance_after_swap)

    def _rollback_allocations(self, job: Job, move: Move, server: Server) -> list[str]:
        if server.vm_state is VmState.DELETED or move.kind is MoveKind.UNSHELVE:
            self._placement.release(move.id)
            self._placement.release(server.id)
        else:
            self._placement.hand_over(move.id, server.id, SERVER_TYPE)
        self._delete_image(server, move.details.get("transit_image_id"))
        return self._finish_job(job, self._migrations.finish_rollback)

    def _complete(self, job: Job, move: Move, server: Server) -> list[str]:
        self._placement.release(move.id)
        self._delete_image(server, move.details.get("transit_image_id"))
        self._delete_image(server, move.details.get("parked_image_id"))

        def complete_move(connection: Connection, move: Move, server: Server) -> list[str]:
            self._migrations.complete_move(connection, move)
            return []

        return self._finish_job(job, complete_move)

    def _delete_server_image(self, job: Job) -> list[str]:
        order = read_payload(job, ForgetImage)
        with read(self._deps.engine) as connection:
            server = server_store.server(connection, order.server_id or job.key)
        if server is not None:
            self._delete_image(server, order.image_id)
        return self._finish_job(job, lambda connection, move, server: [])

    def _delete_image(self, server: Server, image_id: str | None) -> None:
        """Deletes an image of the server's disk if the server's project owns it."""
        if image_id is not None and self._deps.image_writer is not None:
            self._deps.image_writer.delete(OwnerView(server.project_id), image_id)

    def _finish_job(self, job: Job, work: Callable[[Connection, Move, Server], list[str]]) -> list[str]:
        """Finishes the job and applies `work` in one transaction; returns the queues to wake."""

        def end(connection: Connection) -> list[str]:
            self._jobs.finish_job_in(connection, job)
            move = move_store.move(connection, read_payload(job, MoveStep).move_id)
            server = None if move is None else server_store.lock_server(connection, move.server_id)
            queues: list[str] = []
            if move is not None and server is not None and move.step == job.kind:
                queues += work(connection, move, server)
            waiting = server_store.BUILD_JOBS.next_queue(connection, job.key)
            return queues if waiting is None else [*queues, waiting]

        return in_transaction(self._deps.engine, end)
