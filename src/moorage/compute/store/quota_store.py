"""Limits of projects, and the recorded usage of their servers, in SQL.

`quota_locks.used` of a project is always the sum of `servers.counted` of its servers, because both are written in one
transaction under the project's lock. A server whose `is_counted` is false may count something else by now: every change
of a server (`server_store.update_server`) or of a move (`move_store`) that may alter its count clears the mark in the
same statement or transaction, without the project's lock. The next request that holds the lock updates these few
servers, so no request has to count all of them.

All functions run in the caller's transaction. Not here: what a flavor counts (`quota_service`).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, delete, false, insert, select, update

from moorage.compute.model.servers import Flavor, VmState
from moorage.compute.store.tables import moves, quota_locks, quotas, servers
from moorage.db.types import ResultRow
from moorage.db.upserts import insert_unless_exists, take_on_all_nodes

#: Maximum number of servers updated in one transaction; the others are counted now and updated by later ones.
MOST = 500

_USED = select(quota_locks.c.used).where(quota_locks.c.project_id == bindparam("of_project"))
_LOCK = _USED.with_for_update()
_SET_USED = (
    update(quota_locks)
    .where(quota_locks.c.project_id == bindparam("of_project"))
    .values(used=bindparam("sum", type_=quota_locks.c.used.type))
)
_UNCOUNTED = select(servers.c.id, servers.c.flavor, servers.c.vm_state, servers.c.task_state, servers.c.counted).where(
    servers.c.project_id == bindparam("of_project"), servers.c.is_counted == false()
)
#: Skips rows that other transactions change now: those clear the mark again, and the next request updates them.
_TO_COUNT = _UNCOUNTED.order_by(servers.c.number).limit(MOST).with_for_update(skip_locked=True)
_MOVING = select(moves.c.server_id, moves.c.old_flavor, moves.c.new_flavor).where(
    moves.c.server_id.in_(bindparam("ids", expanding=True)), moves.c.is_open
)
_COUNTED = (
    update(servers)
    .where(servers.c.id == bindparam("of_id"))
    .values(counted=bindparam("what", type_=servers.c.counted.type), is_counted=True)
)
_UNCOUNT = update(servers).where(servers.c.id == bindparam("of_id")).values(is_counted=False)
_UNCOUNT_MOVED = (
    update(servers)
    .where(servers.c.id == select(moves.c.server_id).where(moves.c.id == bindparam("of_move")).scalar_subquery())
    .values(is_counted=False)
)


@dataclass(frozen=True)
class Uncounted:
    """A server that may count something other than `counted`. `moves`: (old flavor, new flavor) of its open moves."""

    id: str
    flavor: Flavor
    is_deleted: bool
    is_offloaded: bool  #: only an image: it holds nothing until it is unshelved
    counted: Mapping[str, int]
    moves: Sequence[tuple[Flavor, Flavor]]


def lock_project(connection: Connection, project_id: str) -> dict[str, int]:
    """The sum of `counted` of its servers. Locks the project until the transaction ends."""
    take_on_all_nodes(connection, quota_locks, "project_id", project_id)
    found = connection.execute(_LOCK, {"of_project": project_id}).one_or_none()
    if found is None:
        connection.execute(
            insert_unless_exists(quota_locks, "project_id", connection.dialect), {"project_id": project_id}
        )
        found = connection.execute(_LOCK, {"of_project": project_id}).one()
    return dict(found.used or {})


def used(connection: Connection, project_id: str) -> dict[str, int]:
    """Same as `lock_project`, without the lock."""
    return dict(connection.execute(_USED, {"of_project": project_id}).scalar_one_or_none() or {})


def set_used(connection: Connection, project_id: str, used: Mapping[str, int]) -> None:
    connection.execute(_SET_USED, {"of_project": project_id, "sum": dict(used)})


def uncounted(connection: Connection, project_id: str) -> list[Uncounted]:
    return list(_found(connection, connection.execute(_UNCOUNTED, {"of_project": project_id}).all()))


def lock_uncounted(connection: Connection, project_id: str) -> list[Uncounted]:
    """At most `MOST` uncounted servers that no other transaction changes now; locked until the transaction ends."""
    return list(_found(connection, connection.execute(_TO_COUNT, {"of_project": project_id}).all()))


def set_counted(connection: Connection, counted: Mapping[str, Mapping[str, int]]) -> None:
    """Stores the counted amounts of locked servers. `counted`: {server id: {name of the limit: amount}}."""
    connection.execute(_COUNTED, [{"of_id": one, "what": dict(counts)} for one, counts in counted.items()])


def uncount(connection: Connection, server_id: str) -> None:
    """Clears the server's mark `is_counted`, because a move begins."""
    connection.execute(_UNCOUNT, {"of_id": server_id})


def uncount_moved(connection: Connection, move_id: str) -> None:
    """Clears the mark `is_counted` of the move's server, because the move ends."""
    connection.execute(_UNCOUNT_MOVED, {"of_move": move_id})


def _found(connection: Connection, rows: Sequence[ResultRow]) -> Iterator[Uncounted]:
    moving = _moves_of(connection, [row.id for row in rows]) if rows else {}
    for row in rows:
        yield Uncounted(
            row.id,
            Flavor(**row.flavor),
            row.vm_state == VmState.DELETED,
            row.vm_state == VmState.SHELVED_OFFLOADED and row.task_state is None,
            row.counted or {},
            moving.get(row.id, ()),
        )


def _moves_of(connection: Connection, ids: Collection[str]) -> dict[str, list[tuple[Flavor, Flavor]]]:
    found: dict[str, list[tuple[Flavor, Flavor]]] = {}
    every = list(ids)
    for start in range(0, len(every), MOST):
        for row in connection.execute(_MOVING, {"ids": every[start : start + MOST]}):
            found.setdefault(row.server_id, []).append((Flavor(**row.old_flavor), Flavor(**row.new_flavor)))
    return found


#: Stands for a project: the limits of all projects without limits of their own.
ALL_PROJECTS = ""

_LIMITS_OF_PROJECT = select(quotas.c.name, quotas.c.units).where(quotas.c.project_id == bindparam("of_project"))
#: Limits of the project ``of_project`` and of `ALL_PROJECTS`, for `limits_of_values`.
LIMITS_IN_FORCE = select(quotas.c.project_id, quotas.c.name, quotas.c.units).where(
    quotas.c.project_id.in_((ALL_PROJECTS, bindparam("of_project")))
)
_UPDATE_LIMIT = update(quotas).where(
    quotas.c.project_id == bindparam("of_project"), quotas.c.name == bindparam("of_name")
)
_INSERT_LIMIT = insert(quotas)
_DELETE_LIMITS = delete(quotas).where(quotas.c.project_id == bindparam("of_project"))


def limits_of(connection: Connection, project_id: str) -> dict[str, int]:
    """The limits that were set for the project."""
    return {row.name: row.units for row in connection.execute(_LIMITS_OF_PROJECT, {"of_project": project_id})}


def limits_in_force(connection: Connection, project_id: str) -> dict[str, int]:
    """The project's limits, and those of `ALL_PROJECTS` where it has none."""
    return limits_of_values(connection.execute(LIMITS_IN_FORCE, {"of_project": project_id}).all())


def limits_of_values(rows: Iterable[Sequence[Any]]) -> dict[str, int]:
    """The limits in rows of `LIMITS_IN_FORCE`; the project's own replace those of `ALL_PROJECTS`."""
    return {name: units for _, name, units in sorted(rows, key=lambda row: bool(row[0] != ALL_PROJECTS))}


def set_limits(connection: Connection, project_id: str, limits: Mapping[str, int]) -> None:
    """Other limits stay. Requires the project's lock: two concurrent calls would both insert a limit."""
    for name, units in limits.items():
        key = {"of_project": project_id, "of_name": name}
        if connection.execute(_UPDATE_LIMIT.values(units=units), key).rowcount == 0 and name not in limits_of(
            connection, project_id
        ):
            connection.execute(_INSERT_LIMIT, {"project_id": project_id, "name": name, "units": units})


def reset_limits(connection: Connection, project_id: str) -> None:
    connection.execute(_DELETE_LIMITS, {"of_project": project_id})
