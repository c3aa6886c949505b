"""Drives a move from step to step: a step begins with a job, and the job's result determines the next step.

All methods run in the caller's transaction, with the server's row locked. They return the queues to wake; the caller
sends the wake-ups after the commit.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from sqlalchemy import Connection

from moorage.compute.deps import ComputeDeps
from moorage.compute.model import lifecycle, migration_workflow
from moorage.compute.model.job_payloads import host_job, job_header, ports_job
from moorage.compute.model.migration_workflow import EVENTS, STEPS, MigrationStep, Move, MoveKind, StepName, Where
from moorage.compute.model.servers import BUILD_QUEUE, MOVE_QUEUE, Fault, Placed, PowerState, Server, VmState
from moorage.compute.store import action_store, move_store, server_store
from moorage.core.errors import Conflict
from moorage.jobs.contract import (
    DEVICE,
    HandOverJob,
    ImagePayload,
    JobKind,
    RebuildJob,
    ReceiveResult,
    ServerResult,
    ShelveJob,
    StartJob,
)
from moorage.jobs.model import JobState, NewJob

#: Follows the host's name in the name of its clean-up queue.
_CLEANUP = "/clean"


def cleanup_queue(host: str) -> str:
    """The queue of the jobs that delete servers evacuated from `host`; the host runs them before all its other jobs."""
    return f"{host}{_CLEANUP}"


@dataclass(frozen=True)
class MigrationEngine:
    """Begins, advances, aborts and completes moves."""

    deps: ComputeDeps

    def begin_step(
        self, connection: Connection, move: Move, server: Server, name: JobKind, *, apart: bool = False
    ) -> str:
        """Enqueues the job of a step; returns the queue to wake.

        `apart`: the job does not wait for the server's other jobs. Set it only if those jobs do not touch the same
        host's copy of the server or the same allocations.
        """
        now = self.deps.clock.now()
        step = migration_workflow.step_of(move, name)
        details = dict(move.details)
        if step.name == StepName.MIGRATE:
            details.setdefault("transit_image_id", self.deps.ids.uuid())
        move_store.update_move(
            connection, move.id, now, step=step.name, status=step.status or move.status, details=details
        )
        if step.task is not None and not migration_workflow.is_abandoned(move):
            server_store.update_server(connection, server.id, now, task_state=step.task)
        key = f"move:{move.id}" if apart else server.id
        host = migration_workflow.host_of_step(move, step, server.host)
        if host is None:
            job = NewJob(self.deps.ids.uuid(), MOVE_QUEUE, step.name, key, {"move_id": move.id, **_ids(move)})
            server_store.BUILD_JOBS.enqueue(connection, job, now)
            return MOVE_QUEUE
        action_store.begin_event(connection, details["action_id"], EVENTS[step.name], host, now)
        job = self._host_job(replace(move, details=details), server, step, host)
        queue = (
            cleanup_queue(host)
            if move.kind in migration_workflow.KINDS_WITH_LEFTOVERS and step.name == StepName.CONFIRM
            else host
        )
        server_store.HOST_JOBS.enqueue(connection, replace(job, key=key, queue=queue), now)
        return host

    def advance_move(
        self,
        connection: Connection,
        move: Move,
        server: Server,
        result: ServerResult,
        error: str | None,
        *,
        apart: bool = False,
        is_left_off: bool = False,
    ) -> list[str]:
        """Records the end of the move's current step and begins the next one; returns the queues to wake.

        `result`: of the step's job; without content if it failed. `error`: why the step failed; None: it succeeded.
        `apart`: see `begin_step`. `is_left_off`: the failed step has stopped the server and could not start it again.
        """
        now = self.deps.clock.now()
        step = migration_workflow.current_step(move)
        if step.name in EVENTS:
            action_store.finish_event(connection, move.details["action_id"], EVENTS[step.name], now, error=error)
        if step.task is not None and server.task_state is not step.task and not migration_workflow.is_abandoned(move):
            # The server is being deleted, and the deletion cleans up.
            move_store.update_move(connection, move.id, now, status="error")
            return []
        goes_back = migration_workflow.is_abandoned(move) and step.name in migration_workflow.AFTER_ABANDONING
        if error is None and not goes_back and (state := migration_workflow.arrival_state(move)) is not None:
            return self._finish_at_destination(connection, move, server, state, result)
        if error is None and step.where is Where.SOURCE and result.devices is not None:
            server_store.update_server(connection, server.id, now, devices=list(result.devices))
        if error is None and step.name in (StepName.FINISH_REVERT, StepName.FINISH_REVERT_IN_PLACE):
            self._restore_at_source(connection, move, server, result)
            move_store.update_move(connection, move.id, now, status="reverted")
            move = replace(move, status="reverted")
        if step.name == StepName.PRE_LIVE and isinstance(result, ReceiveResult):
            details = {**move.details, "target": dict(result.target)}
            move_store.update_move(connection, move.id, now, details=details)
            move = replace(move, details=details)
        following = migration_workflow.next_step(move, succeeded=error is None)
        if following is not None:
            if error is not None:
                details = {**move.details, "error": move.details.get("error") or error}
                move = replace(move, details=details | {"is_left_off": True} if is_left_off else details)
            return [self.begin_step(connection, move, server, following.name, apart=apart)]
        return [] if error is None else self._stop_in_error(connection, move, server, step, error)

    def _stop_in_error(
        self, connection: Connection, move: Move, server: Server, step: MigrationStep, error: str
    ) -> list[str]:
        """Ends a move that has no step for this failure: the server goes to ERROR on its present host. Returns the
        queues to wake.

        A server that is on its old host gets its allocations there back, because it can be started again there.
        Leftovers elsewhere remain until the server is deleted, except those that can no longer be used to go back.
        """
        if step.name == StepName.POST_LIVE:
            return self.arrive_in_error(connection, move, server, error)
        now, move = self.deps.clock.now(), replace(move, status="error")
        move_store.update_move(connection, move.id, now, status=move.status, step=None)
        queues = []
        if step.name in (StepName.FINISH_REVERT, StepName.FINISH_REVERT_IN_PLACE):
            self._restore_at_source(connection, move, server)
        if step.name == StepName.FINISH_REVERT:
            queues.append(self.begin_step(connection, move, server, StepName.COMPLETE, apart=True))
        if step.name == StepName.REVERT and move.kind is MoveKind.LIVE:
            queues.append(
                self.record_leftovers(
                    connection, server, move.dest_host or "", move.new_placed, _ids(move), kind=MoveKind.FAILED_BUILD
                )
            )
            queues.append(self.begin_step(connection, move, server, StepName.ROLLBACK_ALLOCATIONS))
        if step.name in (StepName.ROLLBACK, StepName.ROLLBACK_IN_PLACE):
            if step.name == StepName.ROLLBACK_IN_PLACE:
                move = _without_transit_image(move)
            queues.append(self.begin_step(connection, move, server, StepName.ROLLBACK_ALLOCATIONS))
        fault = Fault(500, error, f"move {move.id}, {step.name}", now)
        server_store.update_server(connection, server.id, now, vm_state=VmState.ERROR, task_state=None, fault=fault)
        return queues

    def abandon_move(self, connection: Connection, move: Move, server: Server) -> list[str]:
        """Ends the move after an administrator has reset the server's state, which it does not change. Returns the
        queues to wake.

        A move that waits for confirmation is confirmed, because the state no longer allows a revert. A move in progress
        goes back where possible (`AFTER_ABANDONING`). A move that stopped in error is rolled back if the server is on
        its old host, and confirmed if it is not.
        """
        if move.status == "finished":
            return [self.begin_step(connection, move, server, StepName.CONFIRM, apart=True)]
        if not migration_workflow.is_undecided(move):
            return []
        move = replace(move, details={**move.details, "abandoned": True})
        if migration_workflow.has_stopped_in_error(move) and migration_workflow.is_in_place(move):
            move = _without_transit_image(move)
        move_store.update_move(connection, move.id, self.deps.clock.now(), details=move.details)
        if not migration_workflow.has_stopped_in_error(move):
            return []
        if server.placed != move.old_placed:
            return [self.begin_step(connection, move, server, StepName.CONFIRM, apart=True)]
        return [
            self.begin_step(
                connection,
                move,
                server,
                StepName.REVERT if move.kind is MoveKind.LIVE else StepName.ROLLBACK_ALLOCATIONS,
            )
        ]

    def abort_for_evacuation(self, connection: Connection, move: Move, server: Server) -> list[str]:
        """Rolls the move back without the old host, which is down, so that an evacuation can begin after it.

        Returns the queues to wake. Raises `Conflict` if the move must end before an evacuation can begin.
        """
        step = None if move.step is None else STEPS[move.kind][move.step]
        if (
            step is None
            or step.name in (StepName.REVERT_ALLOCATIONS, StepName.KEEP_ALLOCATIONS)
            or not (step.where is not Where.DESTINATION or _rolls_back_itself(move))
        ):
            raise Conflict(
                f"Instance {server.id} has a {move.kind} to {move.dest_host or 'another host'} that is not over and no "
                "longer needs the old host: wait for its end (os-migrations)."
            )
        move = replace(move, details={**move.details, "abandoned": True})
        move_store.update_move(connection, move.id, self.deps.clock.now(), details=move.details)
        if step.where is not Where.SOURCE:
            return [MOVE_QUEUE]  # the current step ends by itself
        return [
            self.begin_step(
                connection,
                move,
                server,
                StepName.REVERT if move.kind is MoveKind.LIVE else StepName.ROLLBACK_ALLOCATIONS,
            )
        ]

    def record_leftovers(
        self,
        connection: Connection,
        server: Server,
        host: str,
        placed: Placed | None,
        ids: Mapping[str, str],
        *,
        kind: MoveKind = MoveKind.DELETION,
        apart: bool = False,
    ) -> str:
        """Records that remains of the server may be on `host`; returns the queue to wake.

        By default the host is down. It deletes the remains when it returns, before it counts as up; until then the
        record holds `placed`, the server's allocations there, so that no other consumer gets them. `ids`: as for
        `host_job`. With `kind` FAILED_BUILD the host is up, and deletes the remains alongside its other jobs.
        """
        now = self.deps.clock.now()
        leftovers = Move(
            self.deps.ids.uuid(), 0, server.id, kind, "accepted", None, True, host, None, None,
            server.vm_state, server.flavor, server.flavor, placed, None, dict(ids), server.user_id, server.project_id,
            now, now,
        )  # fmt: skip
        move_store.insert_move(connection, leftovers)
        queue = self.begin_step(connection, leftovers, server, StepName.KEEP_ALLOCATIONS, apart=apart)
        for job in server_store.BUILD_JOBS.story(connection, server.id):
            if job.kind is JobKind.RELEASE and job.state is JobState.READY:
                # The deletion's release job must come after `KEEP_ALLOCATIONS`, so as not to release the kept
                # allocations.
                server_store.BUILD_JOBS.revoke_one(connection, job.id, now)
                release = NewJob(self.deps.ids.uuid(), job.queue, job.kind, job.key, job.payload)
                server_store.BUILD_JOBS.enqueue(connection, release, now)
        return queue

    def continue_without_host(
        self, connection: Connection, move: Move, server: Server, reason: str | None
    ) -> list[str]:
        """Ends the current step, whose host is dead, and begins the step `MigrationStep.without_host`; returns the
        queues to wake.

        `reason`: why the step fails; None: another move replaces this one. A first job transfers the allocations on the
        dead host to the record of leftovers; a second job continues the move. Both have the server's key, so they run
        in this order.
        """
        now = self.deps.clock.now()
        step = migration_workflow.current_step(move)
        host = migration_workflow.host_of_step(move, step, server.host) or ""
        server_store.HOST_JOBS.revoke(connection, server.id, host, now)
        placed = move.new_placed if host == move.dest_host else move.old_placed
        kept = self.record_leftovers(connection, server, host, placed, _ids(move))
        if reason is not None:
            action_store.finish_event(connection, move.details["action_id"], EVENTS[step.name], now, error=reason)
            details = {**move.details, "error": move.details.get("error") or reason}
        else:
            details = {**move.details, "abandoned": True}
        return [
            kept,
            self.begin_step(
                connection, replace(move, details=details), server, step.without_host or StepName.ROLLBACK_ALLOCATIONS
            ),
        ]

    def arrive_in_error(self, connection: Connection, move: Move, server: Server, reason: str) -> list[str]:
        """Sets the server to ERROR on the destination, which died or failed after the handover. Returns the queues to
        wake.

        If the server still exists at all, it is on the destination.
        """
        queues = self._finish_at_destination(connection, move, server, VmState.ERROR, ServerResult())
        fault = Fault(500, reason, f"move {move.id}, {move.step}", self.deps.clock.now())
        server_store.update_server(connection, server.id, self.deps.clock.now(), fault=fault)
        return queues

    def return_to_dead_host(self, connection: Connection, move: Move, server: Server, reason: str) -> None:
        """Sets the server to ERROR on its old host, which died while the server was returning to it. It can then be
        evacuated.

        If the host comes back before an evacuation, it finishes the step.
        """
        now = self.deps.clock.now()
        self._restore_at_source(connection, move, server)
        fault = Fault(500, reason, f"move {move.id}, {move.step}", now)
        task = migration_workflow.current_step(move).task
        server_store.update_server(connection, server.id, now, vm_state=VmState.ERROR, task_state=task, fault=fault)

    def finish_rollback(self, connection: Connection, move: Move, server: Server) -> list[str]:
        """Closes a rolled-back move: the server has its old allocations on its old host. Returns the queues to wake.

        If the move was abandoned, begins the moves of the server that wait for it, such as an evacuation. After a
        failed evacuation, and if the server could not be started again, it is in ERROR; after any other move it has its
        former state. The state of a server that is being deleted does not change.
        """
        now = self.deps.clock.now()
        status = STEPS[move.kind][StepName.ROLLBACK_ALLOCATIONS].status
        has_devices = any(one.kind == DEVICE for one in server.interfaces)
        # The destination may have had such ports bound.
        bound = self._bind_ports(connection, server) if has_devices else []
        move_store.update_move(connection, move.id, now, step=None, status=status, is_open=False)
        is_left_off = bool(move.details.get("is_left_off"))
        fault = Fault(500, str(move.details.get("error") or "the evacuation failed"), f"move {move.id}", now)
        in_error: dict[str, object] = {"vm_state": VmState.ERROR, "task_state": None, "fault": fault}
        if is_left_off:
            in_error["power_state"] = PowerState.SHUTDOWN
        if migration_workflow.is_abandoned(move):
            if is_left_off and server.task_state is None and server.vm_state is not VmState.DELETED:
                server_store.update_server(connection, server.id, now, **in_error)
            waiting = [other for other in move_store.open_moves(connection, server.id) if other.step is None]
            begun = [
                self.begin_step(connection, other, server, StepName.PREP)
                for other in waiting
                if other.status == "accepted"
            ]
            return [*bound, *begun]
        if server.task_state not in {step.task for step in STEPS[move.kind].values() if step.task is not None}:
            return bound  # deleted
        if move.kind is MoveKind.EVACUATION or is_left_off:
            server_store.update_server(connection, server.id, now, **in_error)
        else:
            server_store.update_server(connection, server.id, now, vm_state=move.old_state, task_state=None)
        return bound

    def complete_move(self, connection: Connection, move: Move) -> None:
        """Closes a move that has nothing left to clean up, on any host or in Placement."""
        kept = move.status in ("reverted", "error", "failed")
        status = move.status if kept else migration_workflow.FINAL_STATUSES[move.kind]
        move_store.update_move(connection, move.id, self.deps.clock.now(), step=None, status=status, is_open=False)

    def _finish_at_destination(
        self, connection: Connection, move: Move, server: Server, state: VmState, result: ServerResult
    ) -> list[str]:
        now = self.deps.clock.now()
        as_before = state in (VmState.RESIZED, VmState.ERROR)
        power = lifecycle.POWER_STATES.get(move.old_state if as_before else state)
        changes: dict[str, object] = {
            "host": move.dest_host, "placed": move.new_placed, "devices": list(result.devices or ()),
            "flavor": asdict(move.new_flavor), "flavor_id": move.new_flavor.id,
        }  # fmt: skip
        if not migration_workflow.is_abandoned(move):
            changes |= {"vm_state": state, "task_state": None, "power_state": power}
        if move.kind is MoveKind.UNSHELVE:
            changes |= {"parked_at": None, "parked_image_id": None}
        if result.console is not None:
            server_store.save_console(connection, server.id, result.console, now)
        server_store.update_server(connection, server.id, now, **changes)
        moved = self._bind_ports(connection, server)
        arrived = replace(server, host=move.dest_host, flavor=move.new_flavor, placed=move.new_placed)
        if move.kind in (MoveKind.RESIZE, MoveKind.MIGRATION):
            move_store.update_move(connection, move.id, now, step=None, status="finished")
            return moved
        if move.kind is MoveKind.EVACUATION:
            return [*moved, self.begin_step(connection, move, arrived, StepName.CONFIRM, apart=True)]
        return [*moved, self.begin_step(connection, move, arrived, StepName.COMPLETE, apart=True)]

    def _bind_ports(self, connection: Connection, server: Server) -> list[str]:
        """The ports follow the server to the host that its row now names. Returns the queues to wake."""
        if not server.interfaces:
            return []
        ports = ports_job(self.deps.ids.uuid(), server.id, "", release=False)
        server_store.BUILD_JOBS.enqueue(connection, ports, self.deps.clock.now())
        return [BUILD_QUEUE]

    def _restore_at_source(
        self, connection: Connection, move: Move, server: Server, result: ServerResult | None = None
    ) -> None:
        """`result`: of the step that brought the server back; None: its devices there are not known."""
        state = move.old_state
        back: dict[str, object] = {
            "host": move.source_host, "placed": move.old_placed,
            "devices": list((result.devices if result else None) or ()),
            "flavor": asdict(move.old_flavor), "flavor_id": move.old_flavor.id,
        }  # fmt: skip
        if not migration_workflow.is_abandoned(move):
            back |= {"vm_state": state, "task_state": None, "power_state": lifecycle.POWER_STATES.get(state)}
        server_store.update_server(connection, server.id, self.deps.clock.now(), **back)
        self._bind_ports(connection, server)

    def _host_job(self, move: Move, server: Server, step: MigrationStep, host: str) -> NewJob:
        """The job of a step.

        Its payload has the flavor, allocations and image that the server shall have on that host.
        """
        details = move.details
        start = move.old_state is VmState.ACTIVE
        there = replace(server, flavor=move.old_flavor, placed=move.old_placed)
        if step.where is Where.DESTINATION or step.name == StepName.FINISH_IN_PLACE:
            there = replace(server, flavor=move.new_flavor, placed=move.new_placed)
        if step.name in _FROM_TRANSIT_IMAGE:
            there = replace(there, image_id=details["transit_image_id"])
        if step.name == StepName.REBUILD:
            if move.kind is MoveKind.UNSHELVE:
                there = replace(there, image_id=server.parked_image_id or server.image_id)
                start = True
            else:
                start = details["ends"] == VmState.ACTIVE
        header = job_header(there, _ids(move))
        match step.name:
            case StepName.MIGRATE:
                properties = {"image_type": "snapshot", "instance_uuid": server.id, "moorage:move": move.id}
                image = ImagePayload(details["transit_image_id"], f"{server.name}-moving", properties)
                payload: StartJob = ShelveJob(**header, move_id=move.id, start=start, image=image)
            case StepName.FINISH_IN_PLACE:
                payload = RebuildJob(**header, move_id=move.id, start=start, key=f"{move.id}:there")
            case StepName.ROLLBACK_IN_PLACE | StepName.FINISH_REVERT_IN_PLACE:
                payload = RebuildJob(**header, move_id=move.id, start=start, key=f"{move.id}:back")
            case StepName.LIVE:
                payload = HandOverJob(**header, move_id=move.id, start=start, target=details["target"])
            case _:
                payload = StartJob(**header, move_id=move.id, start=start)
        return host_job(self.deps.ids.uuid(), host, step.name, payload)


#: Steps that build the guest from the image of its disk that `StepName.MIGRATE` made.
_FROM_TRANSIT_IMAGE = frozenset(
    {
        StepName.FINISH,
        StepName.FINISH_IN_PLACE,
        StepName.ROLLBACK_IN_PLACE,
        StepName.FINISH_REVERT_IN_PLACE,
    }
)


def _without_transit_image(move: Move) -> Move:
    """The move without its image, which is then kept: it may be the only copy of the server's disk."""
    return replace(move, details={key: value for key, value in move.details.items() if key != "transit_image_id"})


def _rolls_back_itself(move: Move) -> bool:
    """Whether the current step, which runs on the destination, itself rolls an abandoned move back."""
    return move.kind is MoveKind.LIVE and move.step in (StepName.PRE_LIVE, StepName.REVERT)


def _ids(move: Move) -> dict[str, str]:
    return {"action_id": move.details["action_id"], "request_id": move.details["request_id"]}
