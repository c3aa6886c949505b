"""SQL that reads allocations for answers. Each answer is one statement, so it shows one state of the database."""

from dataclasses import dataclass

from sqlalchemy import ColumnElement, CompoundSelect, bindparam, distinct, func, null, select, union_all

from moorage.db.session import SingleReads
from moorage.db.types import RowSelect
from moorage.placement.forest.model import Allocation, Consumer
from moorage.placement.store.tables import allocations, consumers, providers, resource_classes

_OF_CONSUMER: RowSelect = (
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
_OF_PROVIDER: RowSelect = (
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
_OF_TREE: RowSelect = (
    select(
        consumers.c.uuid,
        consumers.c.project_id,
        consumers.c.user_id,
        consumers.c.consumer_type,
        providers.c.uuid,
        resource_classes.c.name,
        allocations.c.used,
    )
    .select_from(providers)
    .join(allocations, allocations.c.provider_id == providers.c.id)
    .join(consumers, consumers.c.id == allocations.c.consumer_id)
    .join(resource_classes, resource_classes.c.id == allocations.c.class_id)
    .where(providers.c.root_id == bindparam("root"))
    .order_by(consumers.c.id, providers.c.id, resource_classes.c.id)
    .limit(bindparam("most"))
)
_ALLOCATIONS_AND_CONSUMERS = allocations.join(consumers, allocations.c.consumer_id == consumers.c.id)


def _project_usages(*more: ColumnElement[bool]) -> CompoundSelect[*tuple[object, ...]]:
    """Rows (consumer type, class, units), and rows (consumer type, NULL, number of consumers with allocations)."""
    wanted = (consumers.c.project_id == bindparam("project"), *more)
    units = (
        select(consumers.c.consumer_type, resource_classes.c.name, func.sum(allocations.c.used))
        .select_from(_ALLOCATIONS_AND_CONSUMERS.join(resource_classes, allocations.c.class_id == resource_classes.c.id))
        .where(*wanted)
        .group_by(consumers.c.consumer_type, resource_classes.c.name)
    )
    counts = (
        select(consumers.c.consumer_type, null(), func.count(distinct(allocations.c.consumer_id)))
        .select_from(_ALLOCATIONS_AND_CONSUMERS)
        .where(*wanted)
        .group_by(consumers.c.consumer_type)
    )
    return union_all(units, counts)


@dataclass(frozen=True, slots=True)
class AllocationRow:
    """A consumer's units of one class on one provider, and the consumer's owner."""

    consumer_uuid: str
    project_id: str
    user_id: str
    consumer_type: str | None
    provider_uuid: str
    resource_class: str
    used: int


_OF_PROJECT = _project_usages()
_OF_PROJECT_AND_USER = _project_usages(consumers.c.user_id == bindparam("user"))


class AllocationReads:
    def __init__(self, reads: SingleReads) -> None:
        self._project_usages = reads.prepare(_OF_PROJECT)
        self._user_usages = reads.prepare(_OF_PROJECT_AND_USER)
        self._consumer_allocations = reads.prepare(_OF_CONSUMER)
        self._provider_allocations = reads.prepare(_OF_PROVIDER)
        self._tree_allocations = reads.prepare(_OF_TREE)

    def consumer_allocations(self, uuid: str) -> tuple[Consumer | None, list[Allocation]]:
        rows = self._consumer_allocations(wanted=uuid)
        if not rows:
            return None, []
        consumer = Consumer(*rows[0][:6])
        held = [
            Allocation(uuid, consumer.generation, provider_uuid, generation, name, used, created_at)
            for *_, provider_uuid, generation, name, used, created_at in rows
            if used is not None
        ]
        return consumer, held

    def provider_allocations(self, uuid: str) -> tuple[int, list[Allocation]] | None:
        """(generation, allocations) of a provider; None if it does not exist."""
        rows = self._provider_allocations(wanted=uuid)
        if not rows:
            return None
        generation: int = rows[0][0]
        return generation, [
            Allocation(consumer_uuid, consumer_generation, uuid, generation, name, used, created_at)
            for _, consumer_uuid, consumer_generation, name, used, created_at in rows
            if used is not None
        ]

    def tree_allocations(self, root_id: int, limit: int) -> list[AllocationRow]:
        """Allocations from all providers of a tree, by consumer; at most `limit`."""
        return [AllocationRow(*row) for row in self._tree_allocations(root=root_id, most=limit)]

    def project_usages(
        self, project_id: str, user_id: str | None
    ) -> tuple[list[tuple[str | None, str, int]], dict[str | None, int]]:
        """([(consumer type, class, units)], {consumer type: number of consumers}). `user_id` None: of all users."""
        if user_id is None:
            rows = self._project_usages(project=project_id)
        else:
            rows = self._user_usages(project=project_id, user=user_id)
        units = [(consumer_type, name, int(used)) for consumer_type, name, used in rows if name is not None]
        return units, {consumer_type: int(count) for consumer_type, name, count in rows if name is None}
