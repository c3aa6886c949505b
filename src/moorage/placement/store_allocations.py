"""SQL that reads consumers and their allocations; what changes them is in `store_drafts`."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import BindParameter, Connection, Row, Select, bindparam, distinct, func, select

from moorage.placement.model import Consumer
from moorage.placement.store import batches
from moorage.placement.tables import allocations, consumers, resource_classes

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


def usages(connection: Connection, project_id: str, user_id: str | None) -> list[tuple[str | None, str, int]]:
    """(consumer type, class, units held by the project's consumers of that type)."""
    statement = _of_project(
        select(consumers.c.consumer_type, resource_classes.c.name, func.sum(allocations.c.used))
        .select_from(allocations)
        .join(consumers, allocations.c.consumer_id == consumers.c.id)
        .join(resource_classes, allocations.c.class_id == resource_classes.c.id),
        project_id,
        user_id,
    ).group_by(consumers.c.consumer_type, resource_classes.c.name)
    return [(row[0], row[1], int(row[2])) for row in connection.execute(statement)]


def consumer_counts(connection: Connection, project_id: str, user_id: str | None) -> dict[str | None, int]:
    """{consumer type: consumers of the project that hold something}"""
    counted = func.count(distinct(allocations.c.consumer_id))
    statement = _of_project(
        select(consumers.c.consumer_type, counted)
        .select_from(allocations)
        .join(consumers, allocations.c.consumer_id == consumers.c.id),
        project_id,
        user_id,
    ).group_by(consumers.c.consumer_type)
    return {row[0]: int(row[1]) for row in connection.execute(statement)}


def _of_project(statement: Select[Any], project_id: str, user_id: str | None) -> Select[Any]:
    statement = statement.where(consumers.c.project_id == project_id)
    return statement if user_id is None else statement.where(consumers.c.user_id == user_id)


def _consumer(row: Row[Any]) -> Consumer:
    return Consumer(row.id, row.uuid, row.generation, row.project_id, row.user_id, row.consumer_type)
