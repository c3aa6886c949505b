"""SQL for providers and what hangs on them. Names are in `store_names`, who holds what in `store_allocations`.

Statements are built once; nothing here decides. A provider that is going to change is locked first
(`lock_provider`), and `bump` is called once for each provider that a transaction changed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import BindParameter, Connection, Row, bindparam, delete, func, insert, select, update

from moorage.placement.model import Inventory, Names, Provider
from moorage.placement.tables import (
    allocations,
    inventories,
    provider_aggregates,
    provider_traits,
    providers,
    resource_classes,
    traits,
)

Id = TypeVar("Id", int, str)

#: Ids per IN list: below every database's bound on parameters.
BATCH = 500

_PROVIDERS = select(providers)
_INVENTORIES = select(inventories, resource_classes.c.name.label("class_name")).join(resource_classes)
_USED = (
    select(allocations.c.provider_id, resource_classes.c.name, func.sum(allocations.c.used))
    .join(resource_classes)
    .group_by(allocations.c.provider_id, resource_classes.c.name)
)
_TRAITS = select(provider_traits.c.provider_id, traits.c.name).join(traits)
_AGGREGATES = select(provider_aggregates.c.provider_id, provider_aggregates.c.aggregate)
_ONLY: BindParameter[Any] = bindparam("only", expanding=True)

_SOME_PROVIDERS = _PROVIDERS.where(providers.c.id.in_(_ONLY))
_SOME_INVENTORIES = _INVENTORIES.where(inventories.c.provider_id.in_(_ONLY))
_SOME_USED = _USED.where(allocations.c.provider_id.in_(_ONLY))
_SOME_TRAITS = _TRAITS.where(provider_traits.c.provider_id.in_(_ONLY))
_SOME_AGGREGATES = _AGGREGATES.where(provider_aggregates.c.provider_id.in_(_ONLY))


def names(connection: Connection) -> Names:
    classes = connection.execute(select(resource_classes.c.name, resource_classes.c.id))
    of_traits = connection.execute(select(traits.c.name, traits.c.id))
    return Names({row[0]: row[1] for row in classes}, {row[0]: row[1] for row in of_traits})


def all_providers(connection: Connection) -> list[Provider]:
    """Every provider with all that hangs on it, by id. To be read in one state of the database."""
    return _assemble(
        connection.execute(_PROVIDERS),
        connection.execute(_INVENTORIES),
        connection.execute(_USED),
        connection.execute(_TRAITS),
        connection.execute(_AGGREGATES),
    )


def some_providers(connection: Connection, ids: Collection[int]) -> list[Provider]:
    """Those of `ids` that exist."""
    found: list[Provider] = []
    for part in batches(ids):
        only = {"only": part}
        found += _assemble(
            connection.execute(_SOME_PROVIDERS, only),
            connection.execute(_SOME_INVENTORIES, only),
            connection.execute(_SOME_USED, only),
            connection.execute(_SOME_TRAITS, only),
            connection.execute(_SOME_AGGREGATES, only),
        )
    return found


def _assemble(
    rows: Iterable[Row[Any]],
    inventory_rows: Iterable[Row[Any]],
    used_rows: Iterable[Sequence[Any]],
    trait_rows: Iterable[Sequence[Any]],
    aggregate_rows: Iterable[Sequence[Any]],
) -> list[Provider]:
    offered: dict[int, dict[str, Inventory]] = {}
    offered_at: dict[int, datetime] = {}
    for row in inventory_rows:
        offered.setdefault(row.provider_id, {})[row.class_name] = Inventory(
            row.total, row.reserved, row.min_unit, row.max_unit, row.step_size, row.allocation_ratio
        )
        offered_at[row.provider_id] = max(row.updated_at, offered_at.get(row.provider_id, row.updated_at))
    used: dict[int, dict[str, int]] = {}
    for provider_id, name, units in used_rows:
        used.setdefault(provider_id, {})[name] = int(units)
    traits_of = _grouped(trait_rows)
    aggregates_of = _grouped(aggregate_rows)
    return [
        Provider(
            id=row.id,
            uuid=row.uuid,
            name=row.name,
            generation=row.generation,
            revision=row.revision,
            parent_id=row.parent_id,
            root_id=row.root_id,
            inventories=offered.get(row.id, {}),
            used=used.get(row.id, {}),
            traits=frozenset(traits_of.get(row.id, ())),
            aggregates=frozenset(aggregates_of.get(row.id, ())),
            updated_at=row.updated_at,
            inventories_updated_at=offered_at.get(row.id),
        )
        for row in sorted(rows, key=lambda row: int(row.id))
    ]


def _grouped(rows: Iterable[Sequence[Any]]) -> dict[int, list[str]]:
    groups: dict[int, list[str]] = {}
    for row in rows:
        groups.setdefault(row[0], []).append(row[1])
    return groups


def batches(ids: Collection[Id]) -> Iterator[list[Id]]:
    """Parts of an IN list, in order."""
    ordered = sorted(ids)
    for start in range(0, len(ordered), BATCH):
        yield ordered[start : start + BATCH]


# --- one provider -----------------------------------------------------------------------------------------------

_BY_UUID = select(providers).where(providers.c.uuid == bindparam("wanted"))
_LOCK_BY_UUID = _BY_UUID.with_for_update()
_LOCK_BY_ID = select(providers).where(providers.c.id == bindparam("wanted")).with_for_update()
_BY_NAME = select(providers.c.id).where(providers.c.name == bindparam("wanted"))
_CHILD = select(providers.c.id).where(providers.c.parent_id == bindparam("wanted")).limit(1)
_TREE = select(providers.c.id, providers.c.parent_id).where(providers.c.root_id == bindparam("wanted"))
_REVISIONS = select(providers.c.id, providers.c.revision).where(providers.c.id.in_(_ONLY))
_BUMP = (
    update(providers)
    .where(providers.c.id == bindparam("wanted"))
    .values(
        generation=providers.c.generation + bindparam("by"),
        revision=providers.c.revision + 1,
        updated_at=bindparam("now"),
    )
)
#: A claim that was decided in memory: it stands only if the picture it was decided on was exact.
_BUMP_IF = _BUMP.where(providers.c.revision == bindparam("seen"))


def find_provider(connection: Connection, uuid: str) -> Row[Any] | None:
    return connection.execute(_BY_UUID, {"wanted": uuid}).one_or_none()


def lock_provider(connection: Connection, uuid: str) -> Row[Any] | None:
    """The row, which nobody else can change until this transaction ends."""
    return connection.execute(_LOCK_BY_UUID, {"wanted": uuid}).one_or_none()


def lock_provider_id(connection: Connection, provider_id: int) -> Row[Any] | None:
    return connection.execute(_LOCK_BY_ID, {"wanted": provider_id}).one_or_none()


def name_taken(connection: Connection, name: str, *, but: int = 0) -> bool:
    found = connection.execute(_BY_NAME, {"wanted": name}).scalar_one_or_none()
    return found is not None and found != but


def has_children(connection: Connection, provider_id: int) -> bool:
    return connection.execute(_CHILD, {"wanted": provider_id}).first() is not None


def parents_in_tree(connection: Connection, root_id: int) -> dict[int, int | None]:
    """{provider id: parent id} of one tree."""
    return {row.id: row.parent_id for row in connection.execute(_TREE, {"wanted": root_id})}


def insert_provider(
    connection: Connection, uuid: str, name: str, parent_id: int | None, root_id: int | None, now: datetime
) -> int:
    result = connection.execute(
        insert(providers).values(
            uuid=uuid,
            name=name,
            parent_id=parent_id,
            root_id=root_id or 0,
            generation=0,
            revision=0,
            created_at=now,
            updated_at=now,
        )
    )
    (provider_id,) = result.inserted_primary_key or (0,)
    if root_id is None:
        connection.execute(update(providers).where(providers.c.id == provider_id).values(root_id=provider_id))
    return int(provider_id)


def update_provider(connection: Connection, provider_id: int, name: str, parent_id: int | None, root_id: int) -> None:
    statement = update(providers).where(providers.c.id == provider_id)
    connection.execute(statement.values(name=name, parent_id=parent_id, root_id=root_id))


def set_root(connection: Connection, ids: Collection[int], root_id: int) -> None:
    """A subtree moves to another tree. The generation is left alone, as the peer does."""
    for part in batches(ids):
        statement = update(providers).where(providers.c.id.in_(part))
        connection.execute(statement.values(root_id=root_id, revision=providers.c.revision + 1))


def delete_provider(connection: Connection, provider_id: int) -> None:
    for table in (inventories, provider_traits, provider_aggregates):
        connection.execute(delete(table).where(table.c.provider_id == provider_id))
    connection.execute(delete(providers).where(providers.c.id == provider_id))


def bump(connection: Connection, provider_id: int, now: datetime, *, generations: int) -> None:
    connection.execute(_BUMP, {"wanted": provider_id, "by": generations, "now": now})


@dataclass(frozen=True, slots=True)
class Bump:
    """A provider whose revision must still be `seen`, and by how much its generation is to move."""

    provider_id: int
    seen: int
    generations: int


def bump_all_if(connection: Connection, bumps: Collection[Bump], now: datetime) -> bool:
    """False when the revision of any of them is no longer the one seen: the transaction must be given up then."""
    if not bumps:
        return True
    rows = [{"wanted": bump.provider_id, "seen": bump.seen, "by": bump.generations, "now": now} for bump in bumps]
    return connection.execute(_BUMP_IF, rows).rowcount == len(rows)


def revisions(connection: Connection, ids: Collection[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for part in batches(ids):
        found |= {row.id: row.revision for row in connection.execute(_REVISIONS, {"only": part})}
    return found


# --- what it offers ---------------------------------------------------------------------------------------------

_USED_CLASSES = (
    select(resource_classes.c.name, resource_classes.c.id)
    .distinct()
    .join(allocations, allocations.c.class_id == resource_classes.c.id)
    .where(allocations.c.provider_id == bindparam("wanted"), allocations.c.class_id.in_(_ONLY))
)
_CLASS_IDS = select(inventories.c.class_id).where(inventories.c.provider_id == bindparam("wanted"))
_HOLDS = select(allocations.c.provider_id).where(allocations.c.provider_id == bindparam("wanted")).limit(1)
_DELETE_INVENTORIES = delete(inventories).where(
    inventories.c.provider_id == bindparam("wanted"), inventories.c.class_id.in_(_ONLY)
)


def inventory_class_ids(connection: Connection, provider_id: int) -> set[int]:
    return set(connection.execute(_CLASS_IDS, {"wanted": provider_id}).scalars())


def classes_in_use(connection: Connection, provider_id: int, class_ids: Collection[int]) -> list[str]:
    """Names of those classes of which somebody holds something here, by id."""
    if not class_ids:
        return []
    rows = connection.execute(_USED_CLASSES, {"wanted": provider_id, "only": list(class_ids)})
    return [row.name for row in sorted(rows, key=lambda row: int(row.id))]


def holds_allocations(connection: Connection, provider_id: int) -> bool:
    return connection.execute(_HOLDS, {"wanted": provider_id}).first() is not None


def put_inventories(
    connection: Connection, provider_id: int, wanted: Mapping[int, Inventory], existing: Collection[int], now: datetime
) -> None:
    """Insert or update these; other classes are left alone."""
    for class_id, inventory in wanted.items():
        row = {
            "total": inventory.total,
            "reserved": inventory.reserved,
            "min_unit": inventory.min_unit,
            "max_unit": inventory.max_unit,
            "step_size": inventory.step_size,
            "allocation_ratio": inventory.allocation_ratio,
            "updated_at": now,
        }
        if class_id in existing:
            here = inventories.c.provider_id == provider_id, inventories.c.class_id == class_id
            connection.execute(update(inventories).where(*here).values(row))
        else:
            connection.execute(insert(inventories).values(provider_id=provider_id, class_id=class_id, **row))


def delete_inventories(connection: Connection, provider_id: int, class_ids: Collection[int]) -> None:
    if class_ids:
        connection.execute(_DELETE_INVENTORIES, {"wanted": provider_id, "only": list(class_ids)})


def trait_ids_of(connection: Connection, provider_id: int) -> set[int]:
    statement = select(provider_traits.c.trait_id).where(provider_traits.c.provider_id == provider_id)
    return set(connection.execute(statement).scalars())


def add_traits(connection: Connection, provider_id: int, trait_ids: Collection[int]) -> None:
    rows = [{"provider_id": provider_id, "trait_id": trait_id} for trait_id in sorted(trait_ids)]
    if rows:
        connection.execute(insert(provider_traits), rows)


def remove_traits(connection: Connection, provider_id: int, trait_ids: Collection[int]) -> None:
    here = provider_traits.c.provider_id == provider_id
    for part in batches(trait_ids):
        connection.execute(delete(provider_traits).where(here, provider_traits.c.trait_id.in_(part)))


def set_aggregates(connection: Connection, provider_id: int, aggregates: Collection[str]) -> None:
    connection.execute(delete(provider_aggregates).where(provider_aggregates.c.provider_id == provider_id))
    rows = [{"provider_id": provider_id, "aggregate": aggregate} for aggregate in sorted(aggregates)]
    if rows:
        connection.execute(insert(provider_aggregates), rows)
