"""Flavors and their access lists in SQL."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime

from sqlalchemy import Connection, bindparam, delete, insert, or_, select, update

from moorage.compute.model.servers import Flavor
from moorage.compute.store.tables import flavor_access, flavors
from moorage.db.types import ResultRow

_INSERT = insert(flavors)
_ALL = select(flavors).order_by(flavors.c.id)
_BY_ID = select(flavors).where(flavors.c.id == bindparam("of_id"))
_LOCK = _BY_ID.with_for_update()
_BY_NAME = select(flavors).where(flavors.c.name == bindparam("of_name"))
_DELETE = delete(flavors).where(flavors.c.id == bindparam("of_id"))
_UPDATE = update(flavors).where(flavors.c.id == bindparam("of_id"))
_ACCESS = (
    select(flavor_access.c.project_id)
    .where(flavor_access.c.flavor_id == bindparam("of_id"))
    .order_by(flavor_access.c.project_id)
)
_ACCESS_INSERT = insert(flavor_access)
_ACCESS_DELETE = delete(flavor_access).where(
    flavor_access.c.flavor_id == bindparam("of_id"), flavor_access.c.project_id == bindparam("of_project")
)
_IS_SHARED = flavors.c.id.in_(
    select(flavor_access.c.flavor_id).where(flavor_access.c.project_id == bindparam("of_project"))
)
_VISIBLE = _ALL.where(or_(flavors.c.is_public, _IS_SHARED))
_VISIBLE_BY_ID = _VISIBLE.where(flavors.c.id == bindparam("of_id"))


def insert_flavor(connection: Connection, flavor: Flavor, now: datetime) -> None:
    connection.execute(_INSERT, asdict(flavor) | {"created_at": now})


def flavor(connection: Connection, flavor_id: str, *, visible_to: str | None = None) -> Flavor | None:
    """`visible_to`, a project: None unless the flavor is public or shared with that project."""
    if visible_to is None:
        row = connection.execute(_BY_ID, {"of_id": flavor_id}).one_or_none()
    else:
        row = connection.execute(_VISIBLE_BY_ID, {"of_id": flavor_id, "of_project": visible_to}).one_or_none()
    return None if row is None else _flavor(row)


def lock_flavor(connection: Connection, flavor_id: str) -> Flavor | None:
    row = connection.execute(_LOCK, {"of_id": flavor_id}).one_or_none()
    return None if row is None else _flavor(row)


def flavor_by_name(connection: Connection, name: str) -> Flavor | None:
    row = connection.execute(_BY_NAME, {"of_name": name}).one_or_none()
    return None if row is None else _flavor(row)


def all_flavors(connection: Connection, *, visible_to: str | None = None) -> list[Flavor]:
    """All flavors, sorted by id. `visible_to`: see `flavor`."""
    rows = connection.execute(_ALL) if visible_to is None else connection.execute(_VISIBLE, {"of_project": visible_to})
    return [_flavor(row) for row in rows]


def set_extra_specs(connection: Connection, flavor_id: str, extra_specs: Mapping[str, str]) -> None:
    connection.execute(_UPDATE, {"of_id": flavor_id, "extra_specs": dict(extra_specs)})


def set_description(connection: Connection, flavor_id: str, description: str | None) -> None:
    connection.execute(_UPDATE, {"of_id": flavor_id, "description": description})


def delete_flavor(connection: Connection, flavor_id: str) -> bool:
    return connection.execute(_DELETE, {"of_id": flavor_id}).rowcount > 0


def access(connection: Connection, flavor_id: str) -> list[str]:
    return [row.project_id for row in connection.execute(_ACCESS, {"of_id": flavor_id})]


def add_access(connection: Connection, flavor_id: str, project_id: str) -> None:
    connection.execute(_ACCESS_INSERT, {"flavor_id": flavor_id, "project_id": project_id})


def remove_access(connection: Connection, flavor_id: str, project_id: str) -> bool:
    return connection.execute(_ACCESS_DELETE, {"of_id": flavor_id, "of_project": project_id}).rowcount > 0


def _flavor(row: ResultRow) -> Flavor:
    values = row._asdict()
    del values["created_at"]
    return Flavor(**values)
