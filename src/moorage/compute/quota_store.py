"""Limits of projects, and what their servers ask for, in SQL. All functions work inside the caller's transaction."""

from collections.abc import Iterator, Mapping

from sqlalchemy import Connection, Dialect, Executable, and_, bindparam, delete, func, insert, not_, select, update
from sqlalchemy.dialects import mysql, postgresql, sqlite

from moorage.compute.model import Flavor, VmState
from moorage.compute.tables import moves, quota_locks, quotas, servers

#: In place of a project: the limits of projects that have none of their own.
FOR_ALL = ""

_OF_PROJECT = select(quotas.c.name, quotas.c.units).where(quotas.c.project_id == bindparam("of_project"))
_IN_FORCE = select(quotas.c.project_id, quotas.c.name, quotas.c.units).where(
    quotas.c.project_id.in_((FOR_ALL, bindparam("of_project")))
)
_UPDATE = update(quotas).where(quotas.c.project_id == bindparam("of_project"), quotas.c.name == bindparam("of_name"))
_INSERT = insert(quotas)
_DELETE = delete(quotas).where(quotas.c.project_id == bindparam("of_project"))
_LOCK = select(quota_locks.c.project_id).where(quota_locks.c.project_id == bindparam("of_project")).with_for_update()

#: An offloaded server is an image: it holds nothing until it is on its way back to a host.
_IS_OFFLOADED = and_(servers.c.vm_state == VmState.SHELVED_OFFLOADED, servers.c.task_state.is_(None))
_IN_PROJECT = and_(servers.c.project_id == bindparam("of_project"), servers.c.vm_state != VmState.DELETED)
_HOLDING = (
    select(servers.c.flavor, func.count().label("servers"))
    .where(_IN_PROJECT, not_(_IS_OFFLOADED))
    .group_by(servers.c.flavor)
)
_OFFLOADED = select(func.count()).select_from(servers).where(_IN_PROJECT, _IS_OFFLOADED)
_MOVING = (
    select(servers.c.flavor, moves.c.old_flavor, moves.c.new_flavor)
    .join(moves, moves.c.server_id == servers.c.id)
    .where(_IN_PROJECT, moves.c.is_open)
)


def limits_of(connection: Connection, project_id: str) -> dict[str, int]:
    """Those that were set."""
    return {row.name: row.units for row in connection.execute(_OF_PROJECT, {"of_project": project_id})}


def in_force(connection: Connection, project_id: str) -> dict[str, int]:
    """Those of the project, and those of projects that have none of their own, where it has none."""
    rows = connection.execute(_IN_FORCE, {"of_project": project_id}).all()
    return {row.name: row.units for row in sorted(rows, key=lambda row: row.project_id != FOR_ALL)}


def set_limits(connection: Connection, project_id: str, limits: Mapping[str, int]) -> None:
    """The others stay. Under the project's lock: two that set the same limit would both insert it."""
    for name, units in limits.items():
        key = {"of_project": project_id, "of_name": name}
        if connection.execute(_UPDATE.values(units=units), key).rowcount == 0 and name not in limits_of(
            connection, project_id
        ):
            connection.execute(_INSERT, {"project_id": project_id, "name": name, "units": units})


def reset_limits(connection: Connection, project_id: str) -> None:
    connection.execute(_DELETE, {"of_project": project_id})


def lock_project(connection: Connection, project_id: str) -> None:
    """Until this transaction ends nobody else counts what the project uses in order to add to it."""
    connection.execute(_insert_lock(connection.dialect), {"project_id": project_id})
    connection.execute(_LOCK, {"of_project": project_id})


def holding(connection: Connection, project_id: str) -> Iterator[tuple[Flavor, int]]:
    """(flavor, how many servers have it), of servers that hold something or are about to."""
    for row in connection.execute(_HOLDING, {"of_project": project_id}):
        yield Flavor(**row.flavor), row.servers


def offloaded(connection: Connection, project_id: str) -> int:
    return int(connection.execute(_OFFLOADED, {"of_project": project_id}).scalar_one())


def moving(connection: Connection, project_id: str) -> Iterator[tuple[Flavor, Flavor, Flavor]]:
    """(flavor now, before the move, after the move), of servers that are moved or resized."""
    for row in connection.execute(_MOVING, {"of_project": project_id}):
        yield Flavor(**row.flavor), Flavor(**row.old_flavor), Flavor(**row.new_flavor)


def _insert_lock(dialect: Dialect) -> Executable:
    """Nothing happens where it is there."""
    if dialect.name == "sqlite":
        return sqlite.insert(quota_locks).on_conflict_do_nothing(index_elements=["project_id"])
    if dialect.name == "postgresql":
        return postgresql.insert(quota_locks).on_conflict_do_nothing(index_elements=["project_id"])
    return mysql.insert(quota_locks).on_duplicate_key_update(project_id=quota_locks.c.project_id)
