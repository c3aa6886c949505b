"""SQL for consumers and their allocations."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import BindParameter, Connection, Row, Select, bindparam, delete, distinct, func, insert, select, update

from moorage.placement.model import Allocation, Consumer
from moorage.placement.store import batches
from moorage.placement.tables import allocations, consumers, providers, resource_classes

_ONLY: BindParameter[Any] = bindparam("only", expanding=True)

_LOCK = select(consumers).where(consumers.c.uuid.in_(_ONLY)).order_by(consumers.c.uuid).with_for_update()
_FIND = select(consumers).where(consumers.c.uuid == bindparam("wanted"))
_HELD = (
    select(allocations.c.consumer_id, allocations.c.provider_id, resource_classes.c.name, allocations.c.used)
    .join(resource_classes)
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
    .join(consumers)
    .join(providers)
    .join(resource_classes)
)
_OF_CONSUMER = _ROWS.where(consumers.c.uuid == bindparam("wanted"))
_OF_PROVIDER = _ROWS.where(allocations.c.provider_id == bindparam("wanted"))
_DELETE_OF = delete(allocations).where(allocations.c.consumer_id.in_(_ONLY))
_DELETE_CONSUMERS = delete(consumers).where(consumers.c.id.in_(_ONLY))
_INSERT = insert(allocations)
_INSERT_CONSUMER = insert(consumers)
_IDS = select(consumers.c.uuid, consumers.c.id).where(consumers.c.uuid.in_(_ONLY))
_UPDATE = (
    update(consumers)
    .where(consumers.c.id == bindparam("wanted"))
    .values(
        generation=bindparam("to_generation"),
        project_id=bindparam("to_project"),
        user_id=bindparam("to_user"),
        consumer_type=bindparam("to_type"),
    )
)


def lock_consumers(connection: Connection, uuids: Collection[str]) -> dict[str, Consumer]:
    """Those that exist, by uuid; nobody else can change what they hold until this transaction ends."""
    found: dict[str, Consumer] = {}
    for part in batches(uuids):
        found |= {row.uuid: _consumer(row) for row in connection.execute(_LOCK, {"only": part})}
    return found


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


@dataclass(frozen=True, slots=True)
class NewConsumer:
    uuid: str
    project_id: str
    user_id: str
    consumer_type: str | None


def insert_consumers(connection: Connection, new: Sequence[NewConsumer]) -> dict[str, int]:
    """{uuid: id} of new consumers, of generation 1: the peer creates them with 0 and counts the write that follows."""
    values = [
        {
            "uuid": one.uuid,
            "generation": 1,
            "project_id": one.project_id,
            "user_id": one.user_id,
            "consumer_type": one.consumer_type,
        }
        for one in new
    ]
    if len(values) == 1:
        (consumer_id,) = connection.execute(_INSERT_CONSUMER, values[0]).inserted_primary_key or (0,)
        return {new[0].uuid: int(consumer_id)}
    if values:
        connection.execute(_INSERT_CONSUMER, values)
    ids: dict[str, int] = {}
    for part in batches([one.uuid for one in new]):
        ids |= {row.uuid: row.id for row in connection.execute(_IDS, {"only": part})}
    return ids


def update_consumers(connection: Connection, changed: Sequence[Consumer]) -> None:
    """All their columns, as they are in `changed`."""
    if changed:
        connection.execute(
            _UPDATE,
            [
                {
                    "wanted": consumer.id,
                    "to_generation": consumer.generation,
                    "to_project": consumer.project_id,
                    "to_user": consumer.user_id,
                    "to_type": consumer.consumer_type,
                }
                for consumer in changed
            ],
        )


def delete_consumers(connection: Connection, consumer_ids: Collection[int]) -> None:
    """They hold nothing any more."""
    for part in batches(consumer_ids):
        connection.execute(_DELETE_CONSUMERS, {"only": part})


def delete_allocations(connection: Connection, consumer_ids: Collection[int]) -> None:
    for part in batches(consumer_ids):
        connection.execute(_DELETE_OF, {"only": part})


def insert_allocations(connection: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
    """Rows of {consumer_id, provider_id, class_id, used, created_at}."""
    listed = list(rows)
    if listed:
        connection.execute(_INSERT, listed)


def of_consumer(connection: Connection, uuid: str) -> list[Allocation]:
    return [Allocation(*row) for row in connection.execute(_OF_CONSUMER, {"wanted": uuid})]


def of_provider(connection: Connection, provider_id: int) -> list[Allocation]:
    return [Allocation(*row) for row in connection.execute(_OF_PROVIDER, {"wanted": provider_id})]


def usages(connection: Connection, project_id: str, user_id: str | None) -> list[tuple[str | None, str, int]]:
    """(consumer type, class, units held by the project's consumers of that type)."""
    statement = _of_project(
        select(consumers.c.consumer_type, resource_classes.c.name, func.sum(allocations.c.used))
        .select_from(allocations)
        .join(consumers)
        .join(resource_classes),
        project_id,
        user_id,
    ).group_by(consumers.c.consumer_type, resource_classes.c.name)
    return [(row[0], row[1], int(row[2])) for row in connection.execute(statement)]


def consumer_counts(connection: Connection, project_id: str, user_id: str | None) -> dict[str | None, int]:
    """{consumer type: consumers of the project that hold something}"""
    counted = func.count(distinct(allocations.c.consumer_id))
    statement = _of_project(
        select(consumers.c.consumer_type, counted).select_from(allocations).join(consumers), project_id, user_id
    ).group_by(consumers.c.consumer_type)
    return {row[0]: int(row[1]) for row in connection.execute(statement)}


def _of_project(statement: Select[Any], project_id: str, user_id: str | None) -> Select[Any]:
    statement = statement.where(consumers.c.project_id == project_id)
    return statement if user_id is None else statement.where(consumers.c.user_id == user_id)


def _consumer(row: Row[Any]) -> Consumer:
    return Consumer(row.id, row.uuid, row.generation, row.project_id, row.user_id, row.consumer_type)
