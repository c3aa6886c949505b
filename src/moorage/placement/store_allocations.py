"""SQL that reads consumers and their allocations; what changes them is in `store_drafts`."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import BindParameter, Connection, Row, Select, bindparam, distinct, func, select

from moorage.placement.model import Allocation, Consumer
from moorage.placement.store import batches
from moorage.placement.tables import allocations, consumers, providers, resource_classes

_ONLY: BindParameter[Any] = bindparam("only", expanding=True)

_FIND = select(consumers).where(consumers.c.uuid == bindparam("wanted"))
_HELD = (
    select(allocations.c.consumer_id, allocations.c.provider_id, resource_classes.c.name, allocations.c.used)
    .join(resource_classes, allocations.c.class_id == resource_classes.c.id)
    .where(allocations.c.consumer_id.in_(_ONLY))
)
_ROWS = (
    select(
        consumers.c.uuid.label("consumer_uuid"),
        consumers.c.generation.label("consumer_generation"),
        providers.c.uuid.label("provider_uuid"),
        providers.c.generation.label("provider_generation"),
        resource_classes.c.name,
        allocations.c.used,
        allocations.c.created_at,
    )
    .select_from(allocations)
    .join(consumers, allocations.c.consumer_id == consumers.c.id)
    .join(providers, allocations.c.provider_id == providers.c.id)
    .join(resource_classes, allocations.c.class_id == resource_classes.c.id)
)
_OF_CONSUMER = _ROWS.where(consumers.c.uuid == bindparam("wanted"))
_OF_PROVIDER = _ROWS.where(allocations.c.provider_id == bindparam("wanted"))


def find_consumer(connection: Connection, uuid: str) -> Consumer | None:
    row = connection.execute(_FIND, {"wanted": uuid}).one_or_none()
    return None if row is None else _consumer(row)


def held_by(connection: Connection, consumer_ids: Collection[int]) -> dict[int, dict[int, dict[str, int]]]:
    """{consumer id: {provider id: {class: used}}}"""
    held: dict[int, dict[int, dict[str, int]]] = {}
    for part in batches(consumer_ids):
        for consumer_id, provider_id, name, used in connection.execute(_HELD, {"only": part}):
            held.setdefault(consumer_id, {}).setdefault(provider_id, {})[name] = used
    return held


def of_consumer(connection: Connection, uuid: str) -> list[Allocation]:
    return [Allocation(*row) for row in connection.execute(_OF_CONSUMER, {"wanted": uuid})]


def of_provider(connection: Connection, provider_id: int) -> list[Allocation]:
    return [Allocation(*row) for row in connection.execute(_OF_PROVIDER, {"wanted": provider_id})]


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
