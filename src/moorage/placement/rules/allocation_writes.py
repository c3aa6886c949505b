"""Claims and releases, decided on a write set: all writes of a request or none, checked in the peer's order.

`decide_capacity` checks whether the requested allocations of several consumers fit together. It subtracts their
previous allocations. Then the inventory must allow each amount, and the sum must fit. If the usage of a provider
exceeds its capacity already (an operator shrank the inventory), a write must not increase it.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from moorage.core.errors import ConcurrentUpdate, Conflict, Invalid, NotFound
from moorage.placement.forest.model import Consumer, Holdings, Provider
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
    decision = decide_capacity(write_set, before, after)
    if isinstance(decision, Refusal):
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


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why the allocations do not fit."""

    message: str


@dataclass(frozen=True, slots=True)
class ClaimedUsage:
    """The allocations fit. Contains the new usage of each provider that changes."""

    used: Mapping[int, Mapping[str, int]]  # {provider id: {class: units}}, with all classes of the provider


class ProviderLookup(Protocol):
    """Lookup of providers by id: a forest or a write set."""

    def by_id(self, provider_id: int) -> Provider | None: ...


def decide_capacity(
    providers: ProviderLookup, before: Mapping[str, Holdings], after: Mapping[str, Holdings]
) -> ClaimedUsage | Refusal:
    """`before` and `after` are {consumer: its allocations}; all providers in them must exist."""
    released = _sums(before)
    taken = _sums(after)
    involved = {
        provider_id: _provider(providers, provider_id) for provider_id in sorted(released.keys() | taken.keys())
    }
    for holdings in after.values():
        for provider_id, amounts in holdings.items():
            provider, sums = involved[provider_id], taken[provider_id]
            released_here = released.get(provider_id, _NO_UNITS)
            for name, amount in amounts.items():
                if problem := _problem(provider, name, amount, released_here.get(name, 0), sums[name]):
                    return Refusal(_no_class_problem(providers, before, after) or problem)
    return ClaimedUsage(
        {
            provider_id: _used_after(provider, released.get(provider_id, _NO_UNITS), taken.get(provider_id, _NO_UNITS))
            for provider_id, provider in involved.items()
        }
    )


_NO_UNITS: Mapping[str, int] = {}


def _no_class_problem(
    providers: ProviderLookup, before: Mapping[str, Holdings], after: Mapping[str, Holdings]
) -> str | None:
    """The message of the peer's first check, for providers without any requested class; None if it passes."""
    emptied = {consumer: held for consumer, held in before.items() if not after[consumer]}
    classes = {name for holdings in (*after.values(), *emptied.values()) for one in holdings.values() for name in one}
    requested = {provider_id for holdings in after.values() for provider_id in holdings}
    without = [
        _provider(providers, provider_id)
        for provider_id in requested
        if classes.isdisjoint(_provider(providers, provider_id).inventories)
    ]
    if not without:
        return None
    uuids = ", ".join(sorted(provider.uuid for provider in without))
    return f"Inventory for '{', '.join(sorted(classes))}' on resource provider '{uuids}' invalid."


def _problem(provider: Provider, name: str, amount: int, released: int, taken: int) -> str | None:
    """`amount` is one consumer's, `taken` the sum over all consumers of this write."""
    inventory = provider.inventories.get(name)
    if inventory is None:
        return f"Inventory for '{name}' on resource provider '{provider.uuid}' invalid."
    start = f"Unable to create allocation for '{name}' on resource provider '{provider.uuid}'. The requested amount"
    if not inventory.allows(amount):
        return f"{start} would violate inventory constraints."
    before = provider.used.get(name, 0)
    after = before - released + taken
    if after > inventory.capacity and after > before:
        return f"{start} would exceed the capacity."
    return None


def _used_after(provider: Provider, released: Mapping[str, int], taken: Mapping[str, int]) -> dict[str, int]:
    used = dict(provider.used)
    for name, units in released.items():
        used[name] = used.get(name, 0) - units
    for name, units in taken.items():
        used[name] = used.get(name, 0) + units
    return used if all(used.values()) else {name: units for name, units in used.items() if units}


def _sums(holdings_of: Mapping[str, Holdings]) -> dict[int, dict[str, int]]:
    sums: dict[int, dict[str, int]] = {}
    for holdings in holdings_of.values():
        for provider_id, amounts in holdings.items():
            total = sums.setdefault(provider_id, {})
            for name, amount in amounts.items():
                total[name] = total.get(name, 0) + amount
    return sums


def _provider(providers: ProviderLookup, provider_id: int) -> Provider:
    provider = providers.by_id(provider_id)
    if provider is None:
        raise KeyError(provider_id)
    return provider
