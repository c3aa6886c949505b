"""Limits of projects in SQL. All functions work inside the caller's transaction."""

from collections.abc import Mapping

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from moorage.compute.store.tables import quotas

#: In place of a project: the limits of projects that have none of their own.
FOR_ALL = ""

_OF_PROJECT = select(quotas.c.name, quotas.c.units).where(quotas.c.project_id == bindparam("of_project"))
_IN_FORCE = select(quotas.c.project_id, quotas.c.name, quotas.c.units).where(
    quotas.c.project_id.in_((FOR_ALL, bindparam("of_project")))
)
_UPDATE = update(quotas).where(quotas.c.project_id == bindparam("of_project"), quotas.c.name == bindparam("of_name"))
_INSERT = insert(quotas)
_DELETE = delete(quotas).where(quotas.c.project_id == bindparam("of_project"))


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
