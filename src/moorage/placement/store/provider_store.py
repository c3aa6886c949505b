"""SQL that reads providers with their inventories, usages, traits and aggregates. `write_set_sql` writes them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from operator import itemgetter
from typing import Any, TypeVar, cast

from sqlalchemy import BindParameter, Connection, String, bindparam, func, select
from sqlalchemy import cast as cast_to

from moorage.core.errors import Unavailable
from moorage.db.types import RowSelect, UtcDateTime
from moorage.placement.forest.model import Inventory, NameTable, Provider
from moorage.placement.store.tables import allocations, inventories, provider_aggregates, provider_traits, providers

Id = TypeVar("Id", int, str)

#: Ids per IN list; below the limit on parameters of every database.
BATCH = 500

_PROVIDERS = select(
    providers.c.id,
    providers.c.uuid,
    providers.c.name,
    providers.c.generation,
    providers.c.revision,
    providers.c.parent_id,
    providers.c.root_id,
    providers.c.updated_at,
)
_INVENTORIES = select(
    inventories.c.provider_id,
    inventories.c.updated_at,
    inventories.c.class_id,
    inventories.c.total,
    inventories.c.reserved,
    inventories.c.min_unit,
    inventories.c.max_unit,
    inventories.c.step_size,
    inventories.c.allocation_ratio,
)
_USED = select(allocations.c.provider_id, allocations.c.class_id, func.sum(allocations.c.used)).group_by(
    allocations.c.provider_id, allocations.c.class_id
)
#: One row per provider: the ids of its traits, and their sum. With one row per trait, traits were half of all rows.
_TRAITS = select(
    provider_traits.c.provider_id,
    func.aggregate_strings(cast_to(provider_traits.c.trait_id, String(20)), ","),
    func.sum(provider_traits.c.trait_id),
).group_by(provider_traits.c.provider_id)
_AGGREGATES = select(provider_aggregates.c.provider_id, provider_aggregates.c.aggregate)
_ONLY: BindParameter[int] = bindparam("only", expanding=True)

#: In the order of the parameters of `_assemble`.
_ALL = (_PROVIDERS, _INVENTORIES, _USED, _TRAITS, _AGGREGATES)
_SOME = (
    _PROVIDERS.where(providers.c.id.in_(_ONLY)),
    _INVENTORIES.where(inventories.c.provider_id.in_(_ONLY)),
    _USED.where(allocations.c.provider_id.in_(_ONLY)),
    _TRAITS.where(provider_traits.c.provider_id.in_(_ONLY)),
    _AGGREGATES.where(provider_aggregates.c.provider_id.in_(_ONLY)),
)


def all_providers(connection: Connection, known: NameTable) -> list[Provider]:
    """Every provider with its inventories, usages, traits and aggregates, by id.

    The connection must read one state of the database, from which `known` was read, too.
    """
    process = UtcDateTime().dialect_impl(connection.dialect).result_processor(connection.dialect, None)
    return _assemble(known, cast(_ToUtc, process), *(_fetch(connection, statement) for statement in _ALL))


def _fetch(connection: Connection, statement: RowSelect) -> list[tuple[Any, ...]]:
    """Rows as the driver returns them.

    For a million rows, reading with SQLAlchemy's processing takes three times as long.
    """
    cursor = connection.connection.cursor()
    try:
        cursor.execute(str(statement.compile(dialect=connection.dialect, compile_kwargs={"literal_binds": True})))
        return cast(list[tuple[Any, ...]], cursor.fetchall())
    finally:
        cursor.close()


def some_providers(connection: Connection, known: NameTable, ids: Collection[int]) -> list[Provider]:
    """The providers of `ids` that exist."""
    found: list[Provider] = []
    for part in batches(ids):
        rows = ([tuple(row) for row in connection.execute(statement, {"only": part})] for statement in _SOME)
        found += _assemble(known, _unchanged, *rows)
    return found


#: Converts the database's time values to UTC.
_ToUtc = Callable[[Any], datetime]


def _unchanged(moment: datetime) -> datetime:
    return moment


def _assemble(
    known: NameTable,
    to_utc: _ToUtc,
    rows: Iterable[tuple[Any, ...]],
    inventory_rows: Iterable[tuple[Any, ...]],
    used_rows: Iterable[tuple[Any, ...]],
    trait_rows: Collection[tuple[Any, ...]],
    aggregate_rows: Iterable[tuple[Any, ...]],
) -> list[Provider]:
    """Builds the providers.

    Ten thousand hosts have few different inventories and trait sets: equal ones become one object.
    """
    classes = {one.id: one.name for one in known.classes.values()}
    inventories_of, inventories_changed_at = _inventories_by_provider(inventory_rows, classes)
    used: dict[int, dict[str, int]] = {}
    for provider_id, class_id, units in used_rows:
        if (here := used.get(provider_id)) is None:
            used[provider_id] = {classes[class_id]: int(units)}
        else:
            here[classes[class_id]] = int(units)
    trait_names = {one.id: one.name for one in known.traits.values()}
    traits_of = _traits_by_provider(trait_rows, trait_names)
    aggregates_of = _sets_by_provider(aggregate_rows)
    nothing: frozenset[str] = frozenset()
    return [
        Provider(
            number,
            uuid,
            name,
            generation,
            revision,
            parent_id,
            root_id,
            inventories_of.get(number, {}),
            used.get(number, {}),
            traits_of.get(number, nothing),
            aggregates_of.get(number, nothing),
            to_utc(updated_at),
            to_utc(inventories_changed_at[number]) if number in inventories_changed_at else None,
        )
        for number, uuid, name, generation, revision, parent_id, root_id, updated_at in sorted(rows, key=_first)
    ]


_first = itemgetter(0)


def _inventories_by_provider(
    rows: Iterable[tuple[Any, ...]], classes: Mapping[int, str]
) -> tuple[dict[int, dict[str, Inventory]], dict[int, Any]]:
    """({provider id: {class: inventory}}, {provider id: time of the last change, as the driver returns it})."""
    kinds: dict[tuple[Any, ...], int] = {}
    kinds_of: dict[int, list[int]] = {}
    changed_at: dict[int, Any] = {}
    for row in rows:
        provider_id, moment = row[0], row[1]
        kind = kinds.setdefault(row[2:], len(kinds))
        if (here := kinds_of.get(provider_id)) is None:
            kinds_of[provider_id], changed_at[provider_id] = [kind], moment
            continue
        here.append(kind)
        changed_at[provider_id] = max(changed_at[provider_id], moment)
    inventory_of_kind = [(classes[class_id], Inventory(*numbers)) for class_id, *numbers in kinds]
    shared_objects: dict[tuple[int, ...], dict[str, Inventory]] = {}
    inventories_of: dict[int, dict[str, Inventory]] = {}
    for provider_id, its_kinds in kinds_of.items():
        key = tuple(its_kinds)
        if (shared := shared_objects.get(key)) is None:
            shared = shared_objects[key] = dict(inventory_of_kind[kind] for kind in key)
        inventories_of[provider_id] = shared
    return inventories_of, changed_at


def _traits_by_provider(rows: Collection[tuple[Any, ...]], names: Mapping[int, str]) -> dict[int, frozenset[str]]:
    """{provider id: trait names} of rows (provider id, trait ids separated by commas, sum of the ids).

    Raises `Unavailable` if the database truncates long texts; the sum reveals it.
    """
    shared_objects: dict[str, frozenset[str]] = {}
    equal: dict[frozenset[str], frozenset[str]] = {}  # the database may list the same ids in different orders
    for _, ids_text, total in rows:
        if ids_text in shared_objects:
            continue
        numbers = [int(number) for number in ids_text.split(",") if number]
        if sum(numbers) != int(total):
            raise Unavailable(
                "the database returned only some of a provider's traits: increase group_concat_max_len (MariaDB; the "
                "default is 1048576) and try again"
            )
        shared_objects[ids_text] = equal.setdefault(found := frozenset(map(names.__getitem__, numbers)), found)
    return {number: shared_objects[ids_text] for number, ids_text, _ in rows}


def _sets_by_provider(rows: Iterable[tuple[int, str]]) -> dict[int, frozenset[str]]:
    """{provider id: names}"""
    groups: dict[int, list[str]] = {}
    for provider_id, name in rows:
        groups.setdefault(provider_id, []).append(name)
    shared_objects: dict[frozenset[str], frozenset[str]] = {}
    return {number: shared_objects.setdefault(names := frozenset(group), names) for number, group in groups.items()}


def batches(ids: Collection[Id]) -> Iterator[list[Id]]:
    """Sorted parts of at most `BATCH` ids for an IN list."""
    ordered = sorted(ids)
    for start in range(0, len(ordered), BATCH):
        yield ordered[start : start + BATCH]
