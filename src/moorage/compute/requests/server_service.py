"""Use cases of servers that involve no host: find, update, lock, tag.

Not here: creation (`create_service`), operations on hosts (`operate_service`) and moves (`move_service`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from sqlalchemy import Connection

from moorage.compute.deps import ComputeDeps
from moorage.compute.model import lifecycle
from moorage.compute.model.job_payloads import server_situation
from moorage.compute.model.servers import Action, Locker, Server, VmState
from moorage.compute.requests.host_commands import HostCommands
from moorage.compute.requests.quota_service import QuotaService
from moorage.compute.store import action_store, move_store, server_store
from moorage.compute.store.move_store import Migration
from moorage.core.caller import Caller
from moorage.core.errors import Conflict, Invalid, NotFound
from moorage.db.session import PreparedRead, SingleReads, in_transaction, read

MAX_METADATA_ITEMS = 128
#: Event of the create action while a host is selected.
SCHEDULE_EVENT = "schedule_instances"


@dataclass(frozen=True)
class ServerService:
    deps: ComputeDeps
    quotas: QuotaService
    commands: HostCommands

    @cached_property
    def _by_id(self) -> PreparedRead:
        return SingleReads(self.deps.engine).prepare(server_store.BY_ID)

    # ---------------------------------------------------------------------------------------- read

    def get_server(self, caller: Caller, server_id: str) -> Server:
        """Clients poll this, so it is one statement without a transaction around it."""
        rows = self._by_id(of_id=server_id)
        return visible(server_store.server_of_values(rows[0]) if rows else None, caller, server_id)

    def list_servers(
        self,
        query: server_store.ServerQuery,
        passes: Callable[[Server], bool],
        *,
        limit: int,
        marker: str | None = None,
    ) -> tuple[list[Server], bool]:
        """(at most `limit` servers after `marker`, whether there are more)."""
        with read(self.deps.engine) as connection:
            found: Iterator[Server] = filter(passes, server_store.find_servers(connection, query))
            if marker is not None:
                found = _after(marker, found)
            page = [server for server, _ in zip(found, range(limit + 1), strict=False)]
        return page[:limit], len(page) > limit

    def console(self, caller: Caller, server_id: str) -> str:
        """The latest console text that the host reported; empty before its first report."""
        with read(self.deps.engine) as connection:
            server = visible(server_store.server(connection, server_id), caller, server_id)
            if server.host is None:
                raise Conflict(f"Instance {server_id} is not ready")
            return server_store.console(connection, server_id)

    def actions(self, caller: Caller, server_id: str) -> list[Action]:
        with read(self.deps.engine) as connection:
            visible(server_store.server(connection, server_id), caller, server_id, deleted=True)
            return action_store.actions_of(connection, server_id)

    def action(self, caller: Caller, server_id: str, request_id: str) -> Action:
        with read(self.deps.engine) as connection:
            visible(server_store.server(connection, server_id), caller, server_id, deleted=True)
            action = action_store.action(connection, server_id, request_id)
        if action is None:
            raise NotFound(f"Action for request_id {request_id} on instance {server_id} not found")
        return action

    def migrations(self, wanted: Mapping[str, str]) -> list[Migration]:
        """Moves of all projects, newest first; keys of `wanted`: `move_store.MIGRATION_FILTERS`."""
        with read(self.deps.engine) as connection:
            return move_store.migrations(connection, wanted)

    def running_in(self, since: datetime, until: datetime) -> list[Server]:
        with read(self.deps.engine) as connection:
            return list(server_store.servers_running_in(connection, since, until))

    # -------------------------------------------------------------------------------------- change

    def lock(self, caller: Caller, request_id: str, server_id: str, reason: str | None) -> None:
        def set_lock(connection: Connection, server: Server) -> None:
            # An owner's lock does not replace an administrator's.
            if server.locked_by is Locker.ADMIN and not caller.is_admin:
                return
            locker = Locker.OWNER if caller.project_id == server.project_id else Locker.ADMIN
            server_store.update_server(
                connection, server_id, self.deps.clock.now(), locked_by=locker, locked_reason=reason
            )

        self._change(caller, server_id, set_lock, action=(request_id, "lock"))

    def unlock(self, caller: Caller, request_id: str, server_id: str, *, may_override: bool) -> None:
        def clear_lock(connection: Connection, server: Server) -> None:
            lifecycle.check_unlock(server_situation(server), caller, may_override=may_override)
            server_store.update_server(connection, server_id, self.deps.clock.now(), locked_by=None, locked_reason=None)

        self._change(caller, server_id, clear_lock, action=(request_id, "unlock"))

    def update_server(self, caller: Caller, server_id: str, **values: str | None) -> Server:
        """Changes the given columns, such as `name`, `description` or `hostname`."""

        def set_columns(connection: Connection, server: Server) -> None:
            if values:
                server_store.update_server(connection, server_id, self.deps.clock.now(), **values)

        self._change(caller, server_id, set_columns)
        return self.get_server(caller, server_id)

    def set_metadata(
        self, caller: Caller, server_id: str, items: Mapping[str, str], *, instead: bool = False
    ) -> dict[str, str]:
        """Adds `items` to the metadata, or replaces all of it (`instead`); returns the result."""
        after: dict[str, str] = {}

        def write_metadata(connection: Connection, server: Server) -> None:
            _check_lock(server, caller)
            after.clear()
            after.update({} if instead else server.metadata, **items)
            self.quotas.check_metadata(connection, server.project_id, after)
            server_store.update_server(connection, server_id, self.deps.clock.now(), metadata=after)

        self._change(caller, server_id, write_metadata)
        return after

    def remove_metadata(self, caller: Caller, server_id: str, key: str) -> None:
        def remove_key(connection: Connection, server: Server) -> None:
            _check_lock(server, caller)
            left = dict(server.metadata)
            if left.pop(key, None) is None:
                raise NotFound("Metadata item was not found")
            server_store.update_server(connection, server_id, self.deps.clock.now(), metadata=left)

        self._change(caller, server_id, remove_key)

    # ------------------------------------------------------------------------------------- in common

    def _change(
        self,
        caller: Caller,
        server_id: str,
        work: Callable[[Connection, Server], None],
        *,
        action: tuple[str, str] | None = None,
    ) -> None:
        """Runs `work` on the locked server; records `action` (request id, name) in the same transaction."""

        def change(connection: Connection) -> None:
            server = visible(server_store.lock_server(connection, server_id), caller, server_id)
            work(connection, server)
            if action is not None:
                self.commands.begin_action(connection, caller, action[0], server_id, action[1])

        in_transaction(self.deps.engine, change)


def visible(server: Server | None, caller: Caller, server_id: str, *, deleted: bool = False) -> Server:
    """The server, if it exists (or existed, with `deleted`) and the caller may see it. Raises `NotFound`."""
    is_gone = server is not None and server.vm_state is VmState.DELETED and not deleted
    if server is None or is_gone or not caller.may_see(server.project_id):
        raise NotFound(f"Instance {server_id} could not be found.")
    return server


def _check_lock(server: Server, caller: Caller) -> None:
    if server.locked_by is not None and not caller.is_admin:
        raise Conflict(f"Instance {server.id} is locked")


def _after(marker: str, servers: Iterator[Server]) -> Iterator[Server]:
    for server in servers:
        if server.id == marker:
            return servers
    raise Invalid(f"marker [{marker}] not found")


MAX_TAGS = 50
_TAGGABLE = frozenset({"active", "paused", "suspended", "stopped"})


@dataclass(frozen=True)
class TagService:
    deps: ComputeDeps

    def add(self, caller: Caller, server_id: str, tag: str) -> bool:
        """False if the server has the tag already."""

        def more(tags: tuple[str, ...]) -> tuple[str, ...]:
            if len(tags) >= MAX_TAGS:
                raise Invalid(f"The number of tags exceeded the per-server limit {MAX_TAGS}")
            return tags if tag in tags else (*tags, tag)

        before, after = self._change(caller, server_id, "update tag", more)
        return before != after

    def replace(self, caller: Caller, server_id: str, tags: Sequence[str]) -> tuple[str, ...]:
        return self._change(caller, server_id, "update tags", lambda _: tuple(tags))[1]

    def remove(self, caller: Caller, server_id: str, tag: str) -> None:
        def fewer(tags: tuple[str, ...]) -> tuple[str, ...]:
            if tag not in tags:
                raise NotFound(f"Instance {server_id} has no tag '{tag}'")
            return tuple(one for one in tags if one != tag)

        self._change(caller, server_id, "delete tag", fewer)

    def clear(self, caller: Caller, server_id: str) -> None:
        self._change(caller, server_id, "delete tags", lambda _: ())

    def _change(
        self, caller: Caller, server_id: str, name: str, change: Callable[[tuple[str, ...]], tuple[str, ...]]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(tags before, tags after)"""

        def change_tags(connection: Connection) -> tuple[tuple[str, ...], tuple[str, ...]]:
            server: Server = visible(server_store.lock_server(connection, server_id), caller, server_id)
            if server.vm_state not in _TAGGABLE:
                raise Conflict(f"Cannot '{name}' instance {server_id} while it is in vm_state {server.vm_state}")
            after = change(server.tags)
            server_store.update_server(connection, server_id, self.deps.clock.now(), tags=list(after))
            return server.tags, after

        return in_transaction(self.deps.engine, change_tags)
