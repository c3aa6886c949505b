"""Use cases of deletion: at once, reversibly (soft deletion), and without the server's host; and the task that
reclaims.

Not here: a deletion that waits for a host which dies later (`agents.down_hosts`).
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from moorage.compute.deps import ComputeDeps, ComputeSettings
from moorage.compute.hosts import HostService
from moorage.compute.model import lifecycle
from moorage.compute.model.job_payloads import (
    forget_image_job,
    host_build_id,
    ports_job,
    scheduling_id,
    server_situation,
)
from moorage.compute.model.migration_workflow import (
    Move,
    StepName,
    is_rebuilding_at_destination,
    is_undecided,
    may_be_elsewhere,
)
from moorage.compute.model.servers import (
    BUILD_QUEUE,
    MOVE_QUEUE,
    PowerState,
    Server,
    TaskState,
    VmState,
)
from moorage.compute.moves.migration_engine import MigrationEngine
from moorage.compute.requests.host_commands import HostCommands
from moorage.compute.requests.server_service import visible
from moorage.compute.servers.operate_service import OperateService
from moorage.compute.store import action_store, host_store, move_store, server_store
from moorage.core.caller import Caller
from moorage.core.errors import MoorageError
from moorage.core.json import JsonObject
from moorage.db.session import in_transaction, read
from moorage.jobs.contract import JobKind
from moorage.jobs.model import NewJob

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DeleteService:
    """`reclaim_after_s`: how long a deleted server can be restored; 0: deletion is immediate."""

    deps: ComputeDeps
    settings: ComputeSettings
    hosts: HostService
    commands: HostCommands
    migrations: MigrationEngine

    def delete_server(self, caller: Caller, request_id: str, server_id: str, *, at_once: bool = False) -> None:
        """Works in any state, also during a build; repeated requests are one deletion.

        `at_once`: delete immediately even if deleted servers are kept for a while.
        """

        def begin_deletion(connection: Connection) -> Sequence[str]:
            server = visible(server_store.lock_server(connection, server_id), caller, server_id)
            lifecycle.check(lifecycle.DELETE, server_situation(server), caller)
            if self._is_out_of_reach(connection, server) and (at_once or not self._is_kept(connection, server)):
                return self._delete_without_host(connection, caller, request_id, server)
            if server.task_state is TaskState.DELETING:
                return ()
            if not at_once and self._is_kept(connection, server):
                return self._delete_softly(connection, caller, request_id, server)
            return self._destroy(connection, caller, request_id, server)

        for queue in in_transaction(self.deps.engine, begin_deletion):
            self.deps.hints.send(queue)

    def _is_kept(self, connection: Connection, server: Server) -> bool:
        if self.settings.reclaim_after_s <= 0 or server.launched_at is None or server.host is None:
            return False
        is_moving = any(is_undecided(move) for move in move_store.open_moves(connection, server.id))
        return server.vm_state in lifecycle.SOFT_DELETE.allowed and not is_moving

    def _delete_softly(self, connection: Connection, caller: Caller, request_id: str, server: Server) -> Sequence[str]:
        """If the host is down, the state changes at once; the host stops the server when it is back, before any later
        job.
        """
        is_down = self._is_out_of_reach(connection, server)
        is_asked = server.task_state is TaskState.SOFT_DELETING
        if server.vm_state is VmState.SOFT_DELETED or (is_asked and not is_down):
            return ()
        operation, now = lifecycle.SOFT_DELETE, self.deps.clock.now()
        queues = [] if is_asked else [self.commands.command_host(connection, caller, request_id, server, operation)]
        if is_down:
            after = lifecycle.SERVER_STATES.check_transition(server.vm_state, VmState.SOFT_DELETED)
            power = lifecycle.POWER_STATES.get(after)
            changes = {"vm_state": after, "task_state": None, "power_state": power, "parked_at": now}
            server_store.update_server(connection, server.id, now, **changes)
        return queues

    def _destroy(self, connection: Connection, caller: Caller, request_id: str, server: Server) -> Sequence[str]:
        """Leftovers on other hosts are deleted first; allocations that only a move holds are released last."""
        moving = [move for move in move_store.open_moves(connection, server.id) if is_undecided(move)]
        elsewhere = [move for move in moving if may_be_elsewhere(move, server.host)]
        queues = [self._begin_cleanup(connection, move, server) for move in elsewhere]
        queues.append(self._destroy_here(connection, caller, request_id, server))
        queues += [
            self.migrations.begin_step(connection, move, server, StepName.COMPLETE)
            for move in moving
            if move not in elsewhere
        ]
        return queues + self._delete_parked_image(connection, server)

    def _delete_parked_image(self, connection: Connection, server: Server) -> list[str]:
        if server.parked_image_id is None:
            return []
        job = forget_image_job(self.deps.ids.uuid(), server.id, server.parked_image_id, key=server.id)
        server_store.BUILD_JOBS.enqueue(connection, job, self.deps.clock.now())
        return [MOVE_QUEUE]

    def _is_out_of_reach(self, connection: Connection, server: Server) -> bool:
        """Whether the server's host is down and no move is in progress for which other hosts must be waited for."""
        if not self._is_down(connection, server.host):
            return False
        moving = [move for move in move_store.open_moves(connection, server.id) if is_undecided(move)]
        return all(move.status == "finished" or self._is_stranded(connection, move) for move in moving)

    def _is_down(self, connection: Connection, name: str | None) -> bool:
        host = None if name is None else host_store.host(connection, name)
        return host is not None and not self.hosts.is_up(host)

    def _is_stranded(self, connection: Connection, move: Move) -> bool:
        """Whether the move waits for a destination that is down, too."""
        return is_rebuilding_at_destination(move) and self._is_down(connection, move.dest_host)

    def _delete_without_host(
        self, connection: Connection, caller: Caller, request_id: str, server: Server
    ) -> Sequence[str]:
        """Deletes the server at once, although its host may still run it.

        Its allocations there stay until the host has cleaned up, as after an evacuation; so do those at the destination
        of an unfinished evacuation.
        """
        now, host, placed = self.deps.clock.now(), server.host or "", server.placed
        moving = move_store.open_moves(connection, server.id)
        queues = [self._begin_cleanup(connection, move, server) for move in moving if move.status == "finished"]
        server_store.HOST_JOBS.revoke(connection, server.id, host, now)
        for move in moving:
            if self._is_stranded(connection, move):
                # The evacuation holds the allocations of this host, the server those of the destination.
                queues.append(self.migrations.begin_step(connection, move, server, StepName.CONFIRM, apart=True))
                host, placed = move.dest_host or "", move.new_placed
                server_store.HOST_JOBS.revoke(connection, server.id, host, now)
        action = self.commands.begin_action(connection, caller, request_id, server.id, lifecycle.DELETE.name)
        action_store.finish_event(connection, action.id, lifecycle.DELETE.event, now)
        after = lifecycle.SERVER_STATES.check_transition(server.vm_state, VmState.DELETED)
        gone = {"vm_state": after, "task_state": None, "power_state": PowerState.NONE, "placed": None}
        server_store.update_server(connection, server.id, now, deleted_at=now, **gone)
        ids = {"action_id": action.id, "request_id": request_id}
        queues.append(self.migrations.record_leftovers(connection, server, host, placed, ids, apart=True))
        if server.interfaces:  # at once, as Nova does, although the guest may still run on an unreachable host
            ports = ports_job(self.deps.ids.uuid(), server.id, request_id, release=True)
            server_store.BUILD_JOBS.enqueue(connection, ports, now)
            queues.append(BUILD_QUEUE)
        return queues + self._delete_parked_image(connection, server)

    def _begin_cleanup(self, connection: Connection, move: Move, server: Server) -> str:
        if move.status == "finished":
            return self.migrations.begin_step(connection, move, server, StepName.CONFIRM, apart=True)
        return self.migrations.begin_step(connection, move, server, StepName.CLEAN_UP)

    def _destroy_here(self, connection: Connection, caller: Caller, request_id: str, server: Server) -> str:
        now = self.deps.clock.now()
        # Cancel jobs that have not begun; running ones end first, because jobs with one key run in order.
        server_store.BUILD_JOBS.cancel(connection, scheduling_id(server.id), now)
        server_store.HOST_JOBS.cancel(connection, host_build_id(server.id), now)
        if server.host is not None:
            return self.commands.command_host(connection, caller, request_id, server, lifecycle.DELETE)
        action = self.commands.begin_action(connection, caller, request_id, server.id, lifecycle.DELETE.name)
        action_store.begin_event(connection, action.id, lifecycle.DELETE.event, None, now)
        server_store.update_server(connection, server.id, now, task_state=TaskState.DELETING)
        if server.interfaces:
            ports = ports_job(self.deps.ids.uuid(), server.id, request_id, release=True)
            server_store.BUILD_JOBS.enqueue(connection, ports, now)
        payload: JsonObject = {"action_id": action.id, "request_id": request_id, "final": True}
        release = NewJob(self.deps.ids.uuid(), BUILD_QUEUE, JobKind.RELEASE, server.id, payload)
        server_store.BUILD_JOBS.enqueue(connection, release, now)
        return BUILD_QUEUE


#: The caller in whose name the task acts, as recorded in actions.
RECLAIMER = Caller("moorage", "", frozenset({"admin"}))
#: Seconds between runs.
PERIOD_S = 60.0


class ReclaimTask:
    """Deletes soft-deleted servers and offloads shelved ones when their time is over.

    With a `reclaim_after_s` of 0, only the servers of a former setting are reclaimed.
    """

    name = "compute.reclaim"

    def __init__(
        self, deps: ComputeDeps, settings: ComputeSettings, deletion: DeleteService, operations: OperateService
    ) -> None:
        self._deps = deps
        self._deletion = deletion
        self._operations = operations
        self._after = timedelta(seconds=settings.reclaim_after_s)
        self._offload_after = timedelta(seconds=settings.offload_after_s)

    def run_once(self) -> datetime | None:
        """`DeleteService.delete_server` ignores a deletion that is already in progress.

        If nothing is kept for a while, the task ends once the servers of a former setting are reclaimed.
        """
        due = self._end_due_servers(VmState.SOFT_DELETED, self._after, self._delete)
        if self._offload_after >= timedelta(0):
            due += self._end_due_servers(VmState.SHELVED, self._offload_after, self._offload)
        return (
            self._deps.clock.now() + timedelta(seconds=PERIOD_S)
            if self._after or self._offload_after > timedelta(0) or due
            else None
        )

    def _end_due_servers(self, state: VmState, after: timedelta, end: Callable[[str], object]) -> int:
        """Returns the number of servers that were due."""
        with read(self._deps.engine) as connection:
            due = server_store.parked_until(connection, state, self._deps.clock.now() - after)
        for server_id in due:
            try:
                end(server_id)
            except MoorageError as error:
                log.warning("a server was not reclaimed", extra={"server": server_id, "reason": error.message})
        return len(due)

    def _delete(self, server_id: str) -> None:
        self._deletion.delete_server(RECLAIMER, "", server_id, at_once=True)

    def _offload(self, server_id: str) -> None:
        self._operations.begin_operation(RECLAIMER, "", server_id, lifecycle.SHELVE_OFFLOAD)
