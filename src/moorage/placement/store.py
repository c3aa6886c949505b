"""SQL that reads providers and what hangs on them. Names are in `store_names`, who holds what in `store_allocations`;
what changes them is in `store_drafts`.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import BindParameter, Connection, Row, bindparam, func, select

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
    .join(resource_classes, allocations.c.class_id == resource_classes.c.id)
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
