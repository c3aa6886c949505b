"""SQL for resource classes and traits (two tables of the same shape), and the log entries of a renamed class."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import (
    BindParameter,
    Connection,
    Select,
    Table,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from moorage.db.engine import inserted_id
from moorage.db.types import ResultRow
from moorage.placement.forest import change_entries
from moorage.placement.forest.model import Consumer, Name, NameTable, changed_copy
from moorage.placement.store import provider_store
from moorage.placement.store.provider_store import batches
from moorage.placement.store.tables import (
    allocations,
    consumers,
    inventories,
    provider_traits,
    providers,
    resource_classes,
    traits,
)

CLASSES = resource_classes
TRAITS = traits

_MAX_IDS = 500


def all_names(connection: Connection, table: Table) -> list[Name]:
    """All rows of the table, by id."""
    return [_name(row) for row in connection.execute(select(table).order_by(table.c.id))]


def name_table(connection: Connection) -> NameTable:
    classes, of_traits = all_names(connection, CLASSES), all_names(connection, TRAITS)
    return NameTable({one.name: one for one in classes}, {one.name: one for one in of_traits})


def refreshed_name_table(connection: Connection, before: NameTable) -> NameTable:
    """`name_table`, computed from an earlier one; reads only new and deleted names. No name may have been renamed."""
    names = _changed(before, CLASSES, *_changes_since(connection, CLASSES, before.classes))
    return _changed(names, TRAITS, *_changes_since(connection, TRAITS, before.traits))


def with_name(names: NameTable, table: Table, name: Name) -> NameTable:
    """The table with a new name."""
    return _changed(names, table, [name], set())


def without_name(names: NameTable, table: Table, name: Name) -> NameTable:
    return _changed(names, table, [], {name.name})


def _changed(names: NameTable, table: Table, added: Sequence[Name], removed: set[str]) -> NameTable:
    """The table with the names `added` and without the names `removed`; a name in both stays."""
    if not added and not removed:
        return names
    new = {one.name: one for one in added}
    if table is CLASSES:
        return replace(names, classes=changed_copy(names.classes, new, removed))
    return replace(names, traits=changed_copy(names.traits, new, removed))


def _changes_since(connection: Connection, table: Table, before: Mapping[str, Name]) -> tuple[list[Name], set[str]]:
    """(new names, deleted names).

    Writers are serialised, so ids increase in the order of commits: new ids are higher.
    """
    ids = sorted(one.id for one in before.values())
    newest = ids[-1] if ids else 0
    removed = _missing_ids(connection, table, ids)
    new = connection.execute(select(table).where(table.c.id > newest).order_by(table.c.id))
    return [_name(row) for row in new], {one.name for one in before.values() if one.id in removed} if removed else set()


def _missing_ids(connection: Connection, table: Table, ids: Sequence[int]) -> set[int]:
    """The ids in `ids` (ascending) that no longer exist.

    Bisects ranges with missing rows, so that it reads few rows.
    """
    found: set[int] = set()
    parts = [ids] if ids else []
    while parts:
        part = parts.pop()
        within = table.c.id.between(part[0], part[-1])
        if len(part) <= _MAX_IDS:
            found |= set(part) - set(connection.execute(select(table.c.id).where(within)).scalars())
        elif connection.execute(select(func.count()).select_from(table).where(within)).scalar_one() < len(part):
            parts += [part[: len(part) // 2], part[len(part) // 2 :]]
    return found


def find_name(connection: Connection, table: Table, name: str, *, lock: bool = False) -> Name | None:
    statement = select(table).where(table.c.name == name)
    row = connection.execute(statement.with_for_update() if lock else statement).one_or_none()
    return None if row is None else _name(row)


def ids_of_names(connection: Connection, table: Table, names: Collection[str]) -> dict[str, int]:
    """{name: id} of the names that exist. They cannot be deleted until this transaction ends."""
    found: dict[str, int] = {}
    wanted = sorted(names)
    for start in range(0, len(wanted), _MAX_IDS):
        statement = select(table.c.name, table.c.id).where(table.c.name.in_(wanted[start : start + _MAX_IDS]))
        found |= {row.name: row.id for row in connection.execute(statement.with_for_update(read=True))}
    return found


def add_names(connection: Connection, table: Table, names: Sequence[str], now: datetime, *, standard: bool) -> None:
    rows: list[Mapping[str, object]] = [{"name": name, "standard": standard, "created_at": now} for name in names]
    if rows:
        connection.execute(insert(table), rows)


def add_custom_name(connection: Connection, table: Table, name: str, now: datetime) -> Name:
    values = {"name": name, "standard": False, "created_at": now}
    return Name(inserted_id(connection.execute(insert(table), values)), name, False, now)


def rename_name(connection: Connection, table: Table, name_id: int, name: str) -> None:
    connection.execute(update(table).where(table.c.id == name_id).values(name=name))


def remove_name(connection: Connection, table: Table, name_id: int) -> None:
    connection.execute(delete(table).where(table.c.id == name_id))


def class_in_use(connection: Connection, class_id: int) -> bool:
    return _has_rows(connection, select(inventories.c.class_id).where(inventories.c.class_id == class_id))


def trait_in_use(connection: Connection, trait_id: int) -> bool:
    return _has_rows(connection, select(provider_traits.c.trait_id).where(provider_traits.c.trait_id == trait_id))


def _has_rows(connection: Connection, statement: Select[int]) -> bool:
    return connection.execute(statement.limit(1)).first() is not None


def _name(row: ResultRow) -> Name:
    return Name(row.id, row.name, bool(row.standard), row.created_at)


_ONLY: BindParameter[str] = bindparam("only", expanding=True)

_ALLOCATIONS_OF = (
    select(allocations.c.consumer_id, allocations.c.provider_id, resource_classes.c.name, allocations.c.used)
    .join(resource_classes, allocations.c.class_id == resource_classes.c.id)
    .where(allocations.c.consumer_id.in_(_ONLY))
)


def allocations_of(connection: Connection, consumer_ids: Collection[int]) -> dict[int, dict[int, dict[str, int]]]:
    """{consumer id: {provider id: {class: used}}}"""
    held: dict[int, dict[int, dict[str, int]]] = {}
    for part in batches(consumer_ids):
        for consumer_id, provider_id, name, used in connection.execute(_ALLOCATIONS_OF, {"only": part}):
            held.setdefault(consumer_id, {}).setdefault(provider_id, {})[name] = used
    return held


_PROVIDERS_WITH_CLASS = select(inventories.c.provider_id).where(inventories.c.class_id == bindparam("wanted"))
_CONSUMERS_WITH_CLASS = select(consumers).where(
    consumers.c.id.in_(select(allocations.c.consumer_id).where(allocations.c.class_id == bindparam("wanted")))
)
_PROVIDER_UUIDS = select(providers.c.id, providers.c.uuid)


def rename_entries(connection: Connection, class_id: int) -> Iterator[change_entries.ChangeDocument]:
    """The states of all providers with inventory of a renamed class, and of all consumers with allocations of it."""
    yield change_entries.EVERYTHING
    uuids: dict[int | None, str] = {row.id: row.uuid for row in connection.execute(_PROVIDER_UUIDS)}
    provider_ids = connection.execute(_PROVIDERS_WITH_CLASS, {"wanted": class_id}).scalars().all()
    for provider in provider_store.some_providers(connection, name_table(connection), provider_ids):
        yield change_entries.provider_document(provider, uuids.get(provider.parent_id), uuids[provider.root_id])
    holders = [Consumer(*row) for row in connection.execute(_CONSUMERS_WITH_CLASS, {"wanted": class_id})]
    held = allocations_of(connection, [consumer.id for consumer in holders])
    for consumer in holders:
        holdings = held.get(consumer.id, {})
        yield change_entries.consumer_document(
            consumer, {uuids[provider]: amounts for provider, amounts in holdings.items()}
        )
