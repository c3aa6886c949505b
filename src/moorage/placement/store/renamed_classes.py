"""What the log tells of a resource class that got another name: whatever refers to it reads differently now."""

from collections.abc import Iterator

from sqlalchemy import Connection, bindparam, select

from moorage.placement.forest import change_documents
from moorage.placement.forest.model import Consumer
from moorage.placement.store import allocation_store, name_store, provider_store
from moorage.placement.store.tables import allocations, consumers, inventories, providers

_OFFERED_BY = select(inventories.c.provider_id).where(inventories.c.class_id == bindparam("wanted"))
_HELD_BY = select(consumers).where(
    consumers.c.id.in_(select(allocations.c.consumer_id).where(allocations.c.class_id == bindparam("wanted")))
)
_UUIDS = select(providers.c.id, providers.c.uuid)


def entries(connection: Connection, class_id: int) -> Iterator[change_documents.ChangeDocument]:
    """The states of all providers that offer the class and of all consumers that hold some of it."""
    yield change_documents.EVERYTHING
    uuids: dict[int | None, str] = {row.id: row.uuid for row in connection.execute(_UUIDS)}
    offered_by = connection.execute(_OFFERED_BY, {"wanted": class_id}).scalars().all()
    for provider in provider_store.some_providers(connection, name_store.known(connection), offered_by):
        yield change_documents.of_provider(provider, uuids.get(provider.parent_id), uuids[provider.root_id])
    holders = [Consumer(*row) for row in connection.execute(_HELD_BY, {"wanted": class_id})]
    held = allocation_store.held_by(connection, [consumer.id for consumer in holders])
    for consumer in holders:
        holdings = held.get(consumer.id, {})
        yield change_documents.of_consumer(
            consumer, {uuids[provider]: amounts for provider, amounts in holdings.items()}
        )
