"""Use cases that move a server to another host: resize, migrate, live-migrate, evacuate, unshelve, confirm, revert.

Each use case checks the request and begins a move; `migration_engine` continues it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from moorage.compute.deps import ComputeDeps, ComputeSettings
from moorage.compute.hosts import HostService
from moorage.compute.model import lifecycle
from moorage.compute.model.interfaces import without_host
from moorage.compute.model.job_payloads import release_port_job, server_situation
from moorage.compute.model.lifecycle import Operation
from moorage.compute.model.migration_workflow import (
    Move,
    MoveKind,
    StepName,
    is_rebuilding_at_destination,
    is_undecided,
)
from moorage.compute.model.servers import BUILD_QUEUE, Flavor, Server, VmState
from moorage.compute.moves.migration_engine import MigrationEngine
from moorage.compute.requests.host_commands import HostCommands, check_capability
from moorage.compute.requests.quota_service import QuotaService
from moorage.compute.requests.server_request import (
    PlacementNames,
    flavor_fields,
    kept_port_groups,
    usable_flavor,
    with_device_profile,
    with_honoured_specs,
)
from moorage.compute.requests.server_service import visible
from moorage.compute.store import action_store, host_store, move_store, server_store
from moorage.core.caller import Caller
from moorage.core.errors import Conflict, Invalid, NotFound
from moorage.db.session import in_transaction, read
from moorage.scheduler.flavor_resources import request_for, scheduling_properties

_OPERATIONS: dict[MoveKind, Operation] = {
    MoveKind.RESIZE: lifecycle.RESIZE,
    MoveKind.MIGRATION: lifecycle.MIGRATE,
    MoveKind.LIVE: lifecycle.LIVE_MIGRATE,
    MoveKind.EVACUATION: lifecycle.EVACUATE,
    MoveKind.UNSHELVE: lifecycle.UNSHELVE_OFFLOADED,
}
#: Names in ``os-instance-actions`` that differ from the operation's name.
_ACTION_NAMES = {MoveKind.LIVE: "live-migration"}


@dataclass(frozen=True)
class Destination:
    host: str | None = None
    zone: str | None = None


@dataclass(frozen=True)
class MoveService:
    """`names`: see `CreateService`."""

    deps: ComputeDeps
    settings: ComputeSettings
    hosts: HostService
    quotas: QuotaService
    names: PlacementNames | None
    commands: HostCommands
    migrations: MigrationEngine

    def resize(
        self, caller: Caller, request_id: str, server_id: str, flavor_id: str, *, disk_config: str | None = None
    ) -> None:
        """Begins a resize to another flavor. `disk_config`: AUTO or MANUAL, which the server shows from now on.

        Raises `OverQuota` if the larger of the two flavors exceeds the project's limits, `Invalid` for the same flavor,
        a smaller disk or a flavor that cannot be placed, and `Conflict` if the host is down or another move is not
        over.
        """
        flavor = self._new_flavor(caller, server_id, flavor_id)
        others = self._other_usage(caller, server_id)

        def check(connection: Connection, server: Server) -> None:
            _check_not_moving(connection, server)
            if server.flavor.id == flavor.id:
                raise Invalid("When resizing, instances must change flavor!")
            if flavor.disk_gb < server.flavor.disk_gb:
                raise Invalid(
                    "Resize to a flavor with a smaller disk is not allowed: data at the end of the disk would be lost."
                )
            self._check_up(connection, server)
            self.quotas.admit_resize(connection, server.project_id, server.flavor, flavor, others)
            if disk_config is not None:
                server_store.update_server(connection, server_id, self.deps.clock.now(), disk_config=disk_config)

        self._begin_move(caller, request_id, server_id, MoveKind.RESIZE, check, flavor=flavor)

    def _new_flavor(self, caller: Caller, server_id: str, flavor_id: str) -> Flavor:
        """The server's own copy of the new flavor. Raises `Invalid` already here, before scheduling, if it cannot be
        placed.
        """
        with read(self.deps.engine) as connection:
            server = visible(server_store.server(connection, server_id), caller, server_id)
            flavor = usable_flavor(connection, caller, flavor_id)
        flavor, properties = with_honoured_specs(self.deps.spec_rules, flavor, server.image_properties or {})
        of_ports = kept_port_groups(server.flavor, server.interfaces)
        flavor = with_device_profile(flavor, self.deps.profiles, self.deps.spec_rules, of_ports)
        request = request_for(flavor_fields(flavor), scheduling_properties(properties))
        if self.names is not None:
            self.names.check(*request.names)
        return flavor

    def migrate(self, caller: Caller, request_id: str, server_id: str, destination: Destination) -> None:
        self._begin_move(
            caller, request_id, server_id, MoveKind.MIGRATION, self._check_movable, destination=destination
        )

    def migrate_live(self, caller: Caller, request_id: str, server_id: str, destination: Destination) -> None:
        self._begin_move(caller, request_id, server_id, MoveKind.LIVE, self._check_movable, destination=destination)

    def evacuate(
        self, caller: Caller, request_id: str, server_id: str, destination: Destination, *, ends_stopped: bool
    ) -> None:
        """Begins an evacuation from a host that is down, and revokes that host's open jobs for the server.

        As in Nova, it is allowed in any task state, so that a second request replaces an evacuation whose destination
        died. Raises `Invalid` if the host is up, and `Conflict` if another move must end first.
        """
        released: list[str] = []

        def check(connection: Connection, server: Server) -> Sequence[str]:
            if self._is_up(connection, server.host):
                raise Invalid(f"Compute service of {server.host} is still in use.")
            server_store.HOST_JOBS.revoke(connection, server.id, server.host or "", self.deps.clock.now())
            released[:] = self._settle_interfaces(connection, server)
            return [
                queue
                for move in move_store.open_moves(connection, server.id)
                if is_undecided(move)
                for queue in self._abort_for_evacuation(connection, move, server)
            ]

        self._begin_move(
            caller,
            request_id,
            server_id,
            MoveKind.EVACUATION,
            check,
            destination=destination,
            ends_stopped=ends_stopped,
        )
        if released:
            self.deps.hints.send(BUILD_QUEUE)

    def _settle_interfaces(self, connection: Connection, server: Server) -> Sequence[str]:
        """The server is built elsewhere with the interfaces that it was to have. Returns the ports to release, for
        which it enqueues jobs.
        """
        change = without_host(server.interfaces)
        if change.interfaces == server.interfaces:
            return ()
        now = self.deps.clock.now()
        server_store.update_server(connection, server.id, now, interfaces=change.interfaces)
        for port_id in change.released:
            job = release_port_job(self.deps.ids.uuid(), server.id, port_id, key=server.id)
            server_store.BUILD_JOBS.enqueue(connection, job, now)
        return change.released

    def _abort_for_evacuation(self, connection: Connection, move: Move, server: Server) -> Sequence[str]:
        """Rolls an earlier move back before an evacuation. Raises `Conflict` if that move must end first."""
        if not is_rebuilding_at_destination(move) or self._is_up(connection, move.dest_host):
            return self.migrations.abort_for_evacuation(connection, move, server)
        return self.migrations.continue_without_host(connection, move, server, None)

    def unshelve(self, caller: Caller, request_id: str, server_id: str, destination: Destination) -> None:
        """Starts a shelved server on its host, or builds an offloaded one on any host from the image of its disk.

        Raises `OverQuota` if an offloaded server no longer fits into the project's limits, and `Conflict` for a
        destination if the server is still on its host.
        """

        def unshelve_on_host(connection: Connection) -> str | None:
            server = visible(server_store.lock_server(connection, server_id), caller, server_id)
            if server.vm_state is VmState.SHELVED_OFFLOADED:
                return None
            lifecycle.check(lifecycle.UNSHELVE, server_situation(server), caller)
            if destination.host or destination.zone:
                raise Conflict(
                    f"Instance {server_id} is still on its host: only an offloaded instance can be unshelved on "
                    "another host."
                )
            return self.commands.command_host(connection, caller, request_id, server, lifecycle.UNSHELVE)

        queue = in_transaction(self.deps.engine, unshelve_on_host)
        if queue is not None:
            self.deps.hints.send(queue)
            return
        others = self._other_usage(caller, server_id)

        def check(connection: Connection, server: Server) -> None:
            _check_not_moving(connection, server)
            self.quotas.admit_return(connection, server.project_id, server.flavor, others)

        self._begin_move(caller, request_id, server_id, MoveKind.UNSHELVE, check, destination=destination)

    def confirm(self, caller: Caller, request_id: str, server_id: str) -> None:
        """Ends a resize or migration at once, on the new host; the old host deletes the remains of the server later."""

        def begin_confirm(connection: Connection) -> str:
            server, move = self._lock_finished_move(connection, caller, server_id, lifecycle.CONFIRM_RESIZE)
            move = self._with_action(connection, caller, request_id, server, move, lifecycle.CONFIRM_RESIZE)
            power = lifecycle.POWER_STATES[move.old_state]
            server_store.update_server(
                connection, server_id, self.deps.clock.now(), vm_state=move.old_state, power_state=power
            )
            return self.migrations.begin_step(connection, move, server, StepName.CONFIRM, apart=True)

        self.deps.hints.send(in_transaction(self.deps.engine, begin_confirm))

    def revert(self, caller: Caller, request_id: str, server_id: str) -> None:
        def begin_revert(connection: Connection) -> str:
            server, move = self._lock_finished_move(connection, caller, server_id, lifecycle.REVERT_RESIZE)
            move = self._with_action(connection, caller, request_id, server, move, lifecycle.REVERT_RESIZE)
            return self.migrations.begin_step(connection, move, server, StepName.REVERT)

        self.deps.hints.send(in_transaction(self.deps.engine, begin_revert))

    # ------------------------------------------------------------------------------------- in common

    def _begin_move(
        self,
        caller: Caller,
        request_id: str,
        server_id: str,
        kind: MoveKind,
        check: Callable[[Connection, Server], Sequence[str] | None],
        *,
        flavor: Flavor | None = None,
        destination: Destination = Destination(),
        ends_stopped: bool = False,
    ) -> None:
        """Records the move and begins its first step.

        `check` raises an error to refuse the move. It returns the queues to wake if other moves of the server must end
        first; then this move begins after them.
        """
        operation = _OPERATIONS[kind]

        def record_move(connection: Connection) -> Sequence[str]:
            server = visible(server_store.lock_server(connection, server_id), caller, server_id)
            lifecycle.check(operation, server_situation(server), caller)
            check_capability(connection, server, operation)
            self._check_destination(connection, server, destination)
            new_flavor, properties = with_honoured_specs(
                self.deps.spec_rules, flavor or server.flavor, server.image_properties or {}
            )
            first = check(connection, server)
            action = self.commands.begin_action(
                connection, caller, request_id, server_id, _ACTION_NAMES.get(kind, operation.name)
            )
            now = self.deps.clock.now()
            action_store.begin_event(connection, action.id, "conductor_migrate_server", None, now)
            details = {
                "action_id": action.id, "request_id": request_id,
                "image_properties": scheduling_properties(properties), "zone": destination.zone,
                "ends": VmState.STOPPED if ends_stopped or server.vm_state is VmState.STOPPED else VmState.ACTIVE,
                "parked_image_id": server.parked_image_id if kind is MoveKind.UNSHELVE else None,
                "may_stay": kind is MoveKind.RESIZE and self.settings.allow_resize_to_same_host,
            }  # fmt: skip
            move = Move(
                self.deps.ids.uuid(), 0, server_id, kind, "accepted", None, True, server.host or "", None,
                destination.host, server.vm_state, server.flavor, new_flavor, server.placed, None, details,
                caller.user_id, caller.project_id, now, now,
            )  # fmt: skip
            move_store.insert_move(connection, move)
            if first:
                server_store.update_server(connection, server_id, now, task_state=operation.task)
                return first
            return [self.migrations.begin_step(connection, move, server, StepName.PREP)]

        for queue in in_transaction(self.deps.engine, record_move):
            self.deps.hints.send(queue)

    def _lock_finished_move(
        self, connection: Connection, caller: Caller, server_id: str, operation: Operation
    ) -> tuple[Server, Move]:
        server = visible(server_store.lock_server(connection, server_id), caller, server_id)
        lifecycle.check(operation, server_situation(server), caller)
        for move in move_store.open_moves(connection, server_id):
            if move.status == "finished":
                return server, move
        raise NotFound(f"Instance {server_id} has no move that waits for confirmation.")

    def _with_action(
        self, connection: Connection, caller: Caller, request_id: str, server: Server, move: Move, operation: Operation
    ) -> Move:
        action = self.commands.begin_action(connection, caller, request_id, server.id, operation.name)
        return replace(move, details={**move.details, "action_id": action.id, "request_id": request_id})

    def _other_usage(self, caller: Caller, server_id: str) -> dict[str, int]:
        """Usage of other consumers in the server's project. Asks Placement, so call it outside any transaction."""
        with read(self.deps.engine) as connection:
            server = visible(server_store.server(connection, server_id), caller, server_id)
        return self.quotas.other_usage(server.project_id)

    def _check_movable(self, connection: Connection, server: Server) -> None:
        _check_not_moving(connection, server)
        self._check_up(connection, server)

    def _check_up(self, connection: Connection, server: Server) -> None:
        if not self._is_up(connection, server.host):
            raise Conflict(f"Service is unavailable at this time: the host of instance {server.id} is down.")

    def _is_up(self, connection: Connection, name: str | None) -> bool:
        host = None if name is None else host_store.host(connection, name)
        return host is not None and self.hosts.is_up(host)

    def _check_destination(self, connection: Connection, server: Server, destination: Destination) -> None:
        if destination.host is None:
            return
        if host_store.host(connection, destination.host) is None:
            raise Invalid(f"Compute host {destination.host} could not be found.")
        if destination.host == server.host:
            raise Invalid(f"Unable to migrate instance ({server.id}) to current host ({destination.host}).")


def _check_not_moving(connection: Connection, server: Server) -> None:
    """Raises `Conflict` if a move of the server has not ended: after a reset of the state, it may be rolling back."""
    for move in move_store.open_moves(connection, server.id):
        if is_undecided(move):
            raise Conflict(
                f"Instance {server.id} has a {move.kind} that is not over: it is being rolled back because the state "
                "was reset. Wait for its end (os-migrations)."
            )
