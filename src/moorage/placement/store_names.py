"""SQL for resource classes and traits: the two tables have the same shape."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Table, delete, insert, select, update

from moorage.placement.model import Name, Names
from moorage.placement.tables import inventories, provider_traits, resource_classes, traits

CLASSES = resource_classes
TRAITS = traits

_MANY = 500


def every(connection: Connection, table: Table) -> list[Name]:
    """By id."""
    return [_name(row) for row in connection.execute(select(table).order_by(table.c.id))]


def known(connection: Connection) -> Names:
    classes, of_traits = every(connection, CLASSES), every(connection, TRAITS)
    return Names(
        {one.name: one.id for one in classes},
        {one.name: one.id for one in of_traits},
        {one.name: one for one in classes},
        {one.name: one for one in of_traits},
    )


def find(connection: Connection, table: Table, name: str, *, lock: bool = False) -> Name | None:
    statement = select(table).where(table.c.name == name)
    row = connection.execute(statement.with_for_update() if lock else statement).one_or_none()
    return None if row is None else _name(row)


def ids(connection: Connection, table: Table, names: Collection[str]) -> dict[str, int]:
    """{name: id} of those that exist. They are kept from being deleted until this transaction ends."""
    found: dict[str, int] = {}
    wanted = sorted(names)
    for start in range(0, len(wanted), _MANY):
        statement = select(table.c.name, table.c.id).where(table.c.name.in_(wanted[start : start + _MANY]))
        found |= {row.name: row.id for row in connection.execute(statement.with_for_update(read=True))}
    return found


def add(connection: Connection, table: Table, names: Sequence[str], now: datetime, *, standard: bool) -> None:
    rows: list[Mapping[str, Any]] = [{"name": name, "standard": standard, "created_at": now} for name in names]
    if rows:
        connection.execute(insert(table), rows)


def rename(connection: Connection, table: Table, name_id: int, name: str) -> None:
    connection.execute(update(table).where(table.c.id == name_id).values(name=name))


def remove(connection: Connection, table: Table, name_id: int) -> None:
    connection.execute(delete(table).where(table.c.id == name_id))


def class_in_use(connection: Connection, class_id: int) -> bool:
    return _any(connection, select(inventories.c.class_id).where(inventories.c.class_id == class_id))


def trait_in_use(connection: Connection, trait_id: int) -> bool:
    return _any(connection, select(provider_traits.c.trait_id).where(provider_traits.c.trait_id == trait_id))


def _any(connection: Connection, statement: Any) -> bool:
    return connection.execute(statement.limit(1)).first() is not None


def _name(row: Row[Any]) -> Name:
    return Name(row.id, row.name, bool(row.standard), row.created_at)
