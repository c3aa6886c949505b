"""Who holds what, for those who only want to see it: each answer is one statement, so it is of one moment."""

from typing import Any

from sqlalchemy import Select, bindparam, select

from moorage.db.questions import Asker
from moorage.placement.model import Allocation, Consumer
from moorage.placement.tables import allocations, consumers, providers, resource_classes

_OF_CONSUMER: Select[Any] = (
    select(
        consumers.c.id,
        consumers.c.uuid,
        consumers.c.generation,
        consumers.c.project_id,
        consumers.c.user_id,
        consumers.c.consumer_type,
        providers.c.uuid,
        providers.c.generation,
        resource_classes.c.name,
        allocations.c.used,
        allocations.c.created_at,
    )
    .select_from(consumers)
    .outerjoin(allocations, allocations.c.consumer_id == consumers.c.id)
    .outerjoin(providers, providers.c.id == allocations.c.provider_id)
    .outerjoin(resource_classes, resource_classes.c.id == allocations.c.class_id)
    .where(consumers.c.uuid == bindparam("wanted"))
)
_OF_PROVIDER: Select[Any] = (
    select(
        providers.c.generation,
        consumers.c.uuid,
        consumers.c.generation,
        resource_classes.c.name,
        allocations.c.used,
        allocations.c.created_at,
    )
    .select_from(providers)
    .outerjoin(allocations, allocations.c.provider_id == providers.c.id)
    .outerjoin(consumers, consumers.c.id == allocations.c.consumer_id)
    .outerjoin(resource_classes, resource_classes.c.id == allocations.c.class_id)
    .where(providers.c.uuid == bindparam("wanted"))
)


class Holdings:
    def __init__(self, asker: Asker) -> None:
        self._of_consumer = asker.question(_OF_CONSUMER)
        self._of_provider = asker.question(_OF_PROVIDER)

    def of_consumer(self, uuid: str) -> tuple[Consumer | None, list[Allocation]]:
        rows = self._of_consumer(wanted=uuid)
        if not rows:
            return None, []
        consumer = Consumer(*rows[0][:6])
        held = [
            Allocation(uuid, consumer.generation, provider_uuid, generation, name, used, created_at)
            for *_, provider_uuid, generation, name, used, created_at in rows
            if used is not None
        ]
        return consumer, held

    def of_provider(self, uuid: str) -> tuple[int, list[Allocation]] | None:
        """Its generation, and what is held of it; None where there is no such provider."""
        rows = self._of_provider(wanted=uuid)
        if not rows:
            return None
        generation: int = rows[0][0]
        return generation, [
            Allocation(consumer_uuid, consumer_generation, uuid, generation, name, used, created_at)
            for _, consumer_uuid, consumer_generation, name, used, created_at in rows
            if used is not None
        ]
