"""Checks whether the requested allocations of several consumers fit together.

The check subtracts their previous allocations. Then the inventory must allow each amount, and the sum must fit. If the
usage of a provider exceeds its capacity already (an operator shrank the inventory), a write must not increase it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from moorage.placement.forest.model import Holdings, Provider


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reason why the allocations do not fit."""

    message: str


@dataclass(frozen=True, slots=True)
class ClaimedUsage:
    """The allocations fit. Contains the new usage of each provider that changes."""

    used: Mapping[int, Mapping[str, int]]  # {provider id: {class: units}}, with all classes of the provider


class ProviderSnapshot(Protocol):
    """Lookup of providers by id: a forest or a write set."""

    def by_id(self, provider_id: int) -> Provider | None: ...


def decide_capacity(
    forest: ProviderSnapshot, before: Mapping[str, Holdings], after: Mapping[str, Holdings]
) -> ClaimedUsage | Refusal:
    """`before` and `after` are {consumer: its allocations}; all providers in them must exist."""
    released = _sums(before)
    taken = _sums(after)
    involved = {provider_id: _provider(forest, provider_id) for provider_id in sorted(released.keys() | taken.keys())}
    for holdings in after.values():
        for provider_id, amounts in holdings.items():
            provider, sums = involved[provider_id], taken[provider_id]
            released_here = released.get(provider_id, _NO_UNITS)
            for name, amount in amounts.items():
                if problem := _problem(provider, name, amount, released_here.get(name, 0), sums[name]):
                    return Refusal(_no_class_problem(forest, before, after) or problem)
    return ClaimedUsage(
        {
            provider_id: _used_after(provider, released.get(provider_id, _NO_UNITS), taken.get(provider_id, _NO_UNITS))
            for provider_id, provider in involved.items()
        }
    )


_NO_UNITS: Mapping[str, int] = {}


def _no_class_problem(
    forest: ProviderSnapshot, before: Mapping[str, Holdings], after: Mapping[str, Holdings]
) -> str | None:
    """The message of the peer's first check, for providers without any requested class; None if it passes."""
    emptied = {consumer: held for consumer, held in before.items() if not after[consumer]}
    classes = {name for holdings in (*after.values(), *emptied.values()) for one in holdings.values() for name in one}
    requested = {provider_id for holdings in after.values() for provider_id in holdings}
    without = [
        _provider(forest, provider_id)
        for provider_id in requested
        if classes.isdisjoint(_provider(forest, provider_id).inventories)
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


def _provider(forest: ProviderSnapshot, provider_id: int) -> Provider:
    provider = forest.by_id(provider_id)
    if provider is None:
        raise KeyError(provider_id)
    return provider
