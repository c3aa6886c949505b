"""Claims and releases, decided on a write set: all writes of a request or none, checked in the peer's order."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from moorage.core.errors import ConcurrentUpdate, Conflict, Invalid, NotFound
from moorage.placement.forest.model import Consumer, Holdings
from moorage.placement.rules import capacity_check
from moorage.placement.rules.write_set import ConsumerAllocations, WriteSet

CONCURRENT_UPDATE = "placement.concurrent_update"


@dataclass(frozen=True, slots=True)
class AllocationWrite:
    """The complete new allocations of one consumer. Empty allocations delete the consumer."""

    consumer_uuid: str
    allocations: Mapping[str, Mapping[str, int]]  # {provider uuid: {class: amount}}
    project_id: str
    user_id: str
    consumer_type: str | None = None
    #: The expected generation, None for a new consumer; compared if `check_generation` is true (from 1.28 on).
    generation: int | None = None
    check_generation: bool = True
    #: The expected id of the consumer; None: any. Ids are never reused, while generations start again.
    incarnation: int | None = None

    @property
    def is_of_new_consumer(self) -> bool:
        """True if the client expects a new consumer. If it exists, its insertion fails."""
        return self.check_generation and self.generation is None and bool(self.allocations)


def claim(write_set: WriteSet, writes: Collection[AllocationWrite], *, single: bool = False) -> None:
    """All writes or none. `single`: PUT for one consumer, which has slightly different error messages."""
    check_writes(write_set, writes)
    after = {write.consumer_uuid: _wanted_holdings(write_set, write, single=single) for write in writes}
    before = {write.consumer_uuid: _holdings(write_set, write.consumer_uuid) for write in writes}
    _set_usages(write_set, before, after, _ids_with_new_generation(before, after))
    for write in writes:
        _set_consumer(write_set, write, after[write.consumer_uuid])


def check_writes(write_set: WriteSet, writes: Collection[AllocationWrite]) -> None:
    """The checks before those of resource classes, in the peer's order. The reshaper also runs them first."""
    for write in writes:
        _check_generation(write, write_set.consumer(write.consumer_uuid))
    for write in writes:
        _check_providers(write_set, write)


def release(write_set: WriteSet, consumer_uuid: str) -> None:
    """DELETE; raises `NotFound` without allocations.

    As with the peer, provider generations stay; revisions increase.
    """
    held = write_set.consumer(consumer_uuid)
    if held is None or not held.holdings:
        raise NotFound(f"No allocations for consumer '{consumer_uuid}'")
    _set_usages(write_set, {consumer_uuid: held.holdings}, {consumer_uuid: {}}, frozenset())
    write_set.consumers[consumer_uuid] = ConsumerAllocations(held.consumer, {})


def _check_generation(write: AllocationWrite, held: ConsumerAllocations | None) -> None:
    if write.incarnation is not None and (held is None or held.consumer.id != write.incarnation):
        raise ConcurrentUpdate(
            f"consumer {write.consumer_uuid} was deleted, and another consumer with its uuid may exist; read it again "
            "and retry",
            code=CONCURRENT_UPDATE,
        )
    if not write.check_generation:
        return
    actual = None if held is None else held.consumer.generation
    if actual != write.generation:
        expected, given = ("null" if number is None else number for number in (actual, write.generation))
        if write.generation is None:
            given = "None"
        raise ConcurrentUpdate(
            f"consumer generation conflict - expected {expected} but got {given}", code=CONCURRENT_UPDATE
        )


def _check_providers(write_set: WriteSet, write: AllocationWrite) -> None:
    for uuid in write.allocations:
        if write_set.by_uuid(uuid) is None:
            raise Invalid(f"Allocation for resource provider '{uuid}' that does not exist.")


def _wanted_holdings(write_set: WriteSet, write: AllocationWrite, *, single: bool) -> Holdings:
    """The requested allocations by provider id. Raises `Invalid` for an unknown resource class."""
    classes = write_set.forest.names.classes
    wanted: dict[int, Mapping[str, int]] = {}
    for uuid, amounts in write.allocations.items():
        for name in amounts:
            if name not in classes:
                prefix = f"for consumer {write.consumer_uuid}: " if single else ""
                raise Invalid(f"Unable to allocate inventory {prefix}No such resource class {name}.")
        provider = write_set.by_uuid(uuid)
        if provider is not None:
            wanted[provider.id] = amounts
    return wanted


def _holdings(write_set: WriteSet, consumer_uuid: str) -> Holdings:
    held = write_set.consumer(consumer_uuid)
    return {} if held is None else held.holdings


def _ids_with_new_generation(before: Mapping[str, Holdings], after: Mapping[str, Holdings]) -> frozenset[int]:
    """Ids of providers whose generation the peer increases: all in `after`, and those of emptied consumers."""
    requested = {provider_id for holdings in after.values() for provider_id in holdings}
    emptied = {provider_id for uuid, holdings in before.items() if not after[uuid] for provider_id in holdings}
    return frozenset(requested | emptied)


def _set_usages(
    write_set: WriteSet,
    before: Mapping[str, Holdings],
    after: Mapping[str, Holdings],
    with_new_generation: Collection[int],
) -> None:
    """Raises `Conflict` if it does not fit. `with_new_generation`: ids of providers whose generation increases."""
    decision = capacity_check.decide_capacity(write_set, before, after)
    if isinstance(decision, capacity_check.Refusal):
        raise Conflict(f"Unable to allocate inventory: {decision.message}")
    for provider_id, used in decision.used.items():
        write_set.use(write_set.at(provider_id), used, counts=provider_id in with_new_generation)


def _set_consumer(write_set: WriteSet, write: AllocationWrite, after: Holdings) -> None:
    """Set the consumer's new state. A new one has generation 1: the peer creates it with 0 and increases that."""
    held = write_set.consumer(write.consumer_uuid)
    if held is not None:
        consumer = _changed_consumer(write, held.consumer)
    elif after:
        consumer = Consumer(0, write.consumer_uuid, 1, write.project_id, write.user_id, write.consumer_type)
    else:
        return
    write_set.consumers[write.consumer_uuid] = ConsumerAllocations(consumer, after)


def _changed_consumer(write: AllocationWrite, consumer: Consumer) -> Consumer:
    """The consumer after the write. A write without a type (before 1.38) keeps the type."""
    return replace(
        consumer,
        generation=consumer.generation + 1,
        project_id=write.project_id,
        user_id=write.user_id,
        consumer_type=write.consumer_type or consumer.consumer_type,
    )
