"""SQL that reads consumers and their allocations; what changes them is in `write_set_sql`."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import BindParameter, Connection, bindparam, select

from moorage.placement.store.provider_store import batches
from moorage.placement.store.tables import allocations, resource_classes

_ONLY: BindParameter[Any] = bindparam("only", expanding=True)

_HELD = (
    select(allocations.c.consumer_id, allocations.c.provider_id, resource_classes.c.name, allocations.c.used)
    .join(resource_classes, allocations.c.class_id == resource_classes.c.id)
    .where(allocations.c.consumer_id.in_(_ONLY))
)


def held_by(connection: Connection, consumer_ids: Collection[int]) -> dict[int, dict[int, dict[str, int]]]:
    """{consumer id: {provider id: {class: used}}}"""
    held: dict[int, dict[int, dict[str, int]]] = {}
    for part in batches(consumer_ids):
        for consumer_id, provider_id, name, used in connection.execute(_HELD, {"only": part}):
            held.setdefault(consumer_id, {}).setdefault(provider_id, {})[name] = used
    return held
