"""Use cases of servers' tags."""

from collections.abc import Callable, Sequence

from sqlalchemy import Connection, Engine

from moorage.compute.model.servers import Server
from moorage.compute.requests.server_service import visible
from moorage.compute.store import server_store
from moorage.core.caller import Caller
from moorage.core.clock import Clock
from moorage.core.errors import Conflict, Invalid, NotFound
from moorage.db.transactions import in_transaction

MAX_TAGS = 50
_TAGGABLE = frozenset({"active", "paused", "suspended", "stopped"})


class TagService:
    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock

    def add(self, caller: Caller, server_id: str, tag: str) -> bool:
        """False where the server has it already."""

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

        def work(connection: Connection) -> tuple[tuple[str, ...], tuple[str, ...]]:
            server: Server = visible(server_store.lock_server(connection, server_id), caller, server_id)
            if server.vm_state not in _TAGGABLE:
                raise Conflict(f"Cannot '{name}' instance {server_id} while it is in vm_state {server.vm_state}")
            after = change(server.tags)
            server_store.update_server(connection, server_id, self._clock.now(), tags=list(after))
            return server.tags, after

        return in_transaction(self._engine, work)
