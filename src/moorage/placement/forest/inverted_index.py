"""Columns per resource class, members per aggregate, slots per trait: built from the providers on first read.

Most writes are followed by other writes before the next search. So a write only records the changed slots, and the next
read updates the index for all of them at once.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from moorage.placement.forest.columns import Column, Slots, columns_of, concatenated, replaced_columns
from moorage.placement.forest.model import Provider
from moorage.placement.forest.persistent_list import PersistentList

#: Maximum number of pending slots: the next reader must not wait long, and recording one more copies them all.
MAX_PENDING_SLOTS = 256

ProvidersBySlot = PersistentList[Provider | None]


@dataclass(frozen=True, slots=True)
class InvertedIndex:
    """Slots by resource class, aggregate and trait. Parts that a change does not touch stay the same objects."""

    columns: Mapping[str, Column] = field(default_factory=dict)
    #: {aggregate: slots of its members}
    aggregates: Mapping[str, frozenset[int]] = field(default_factory=dict)
    #: {trait: slots of the providers that have it, in order}
    with_trait: Mapping[str, Slots] = field(default_factory=dict)
    #: Slots of providers that share their inventory.
    sharing: frozenset[int] = frozenset()

    @classmethod
    def of(cls, listed: Sequence[Provider]) -> "InvertedIndex":
        """`listed`: the providers, by slot."""
        return cls(
            columns_of(listed),
            _aggregates(enumerate(listed)),
            _with_trait(listed),
            frozenset(slot for slot, provider in enumerate(listed) if provider.is_sharing),
        )

    def changed(self, before: Mapping[int, Provider | None], after: Mapping[int, Provider | None]) -> "InvertedIndex":
        """The index after these changes. Both mappings are by slot, with the same slots."""
        return InvertedIndex(
            replaced_columns(self.columns, before, after),
            _changed_aggregates(self.aggregates, before, after),
            _changed_traits(self.with_trait, before, after),
            _sharing(self.sharing, after),
        )


@dataclass(frozen=True, slots=True)
class _PendingChanges:
    """`slots` have changed since `before`, whose index is `index`, to `after`."""

    index: InvertedIndex
    before: ProvidersBySlot
    after: ProvidersBySlot
    slots: frozenset[int]

    def compute(self) -> InvertedIndex:
        length = len(self.before)
        before = {slot: self.before[slot] if slot < length else None for slot in self.slots}
        return self.index.changed(before, {slot: self.after[slot] for slot in self.slots})


class LazyIndex:
    """The index of one forest. Thread-safe: at worst two threads build the same, and all get the first result."""

    __slots__ = ("_indexes", "_pending")

    def __init__(self, known: InvertedIndex | _PendingChanges | None = None) -> None:
        self._pending = known if isinstance(known, _PendingChanges) else None
        self._indexes = [] if isinstance(known, _PendingChanges) else [known or InvertedIndex()]

    def get(self) -> InvertedIndex:
        if (pending := self._pending) is not None:
            self._indexes.append(pending.compute())
            self._pending = None  # frees the state before
        return self._indexes[0]

    def changed(self, before: ProvidersBySlot, after: ProvidersBySlot, slots: Collection[int]) -> "LazyIndex":
        """The index after these slots have changed. `before`: the providers of this index."""
        if not slots:
            return self
        pending = self._pending
        if pending is None or len(pending.slots) + len(slots) > MAX_PENDING_SLOTS:
            return LazyIndex(_PendingChanges(self.get(), before, after, frozenset(slots)))
        return LazyIndex(_PendingChanges(pending.index, pending.before, after, pending.slots.union(slots)))


def _aggregates(providers: Iterable[tuple[int, Provider]]) -> dict[str, frozenset[int]]:
    members: dict[str, set[int]] = defaultdict(set)
    for slot, provider in providers:
        for aggregate in provider.aggregates:
            members[aggregate].add(slot)
    return {aggregate: frozenset(slots) for aggregate, slots in members.items()}


def _changed_aggregates(
    aggregates: Mapping[str, frozenset[int]],
    before: Mapping[int, Provider | None],
    after: Mapping[int, Provider | None],
) -> Mapping[str, frozenset[int]]:
    if all(_aggregates_of(before[slot]) == _aggregates_of(new) for slot, new in after.items()):
        return aggregates
    result = dict(aggregates)
    for slot, new in after.items():
        was, now = _aggregates_of(before[slot]), _aggregates_of(new)
        for aggregate in was - now:
            result[aggregate] -= {slot}
            if not result[aggregate]:
                del result[aggregate]
        for aggregate in now - was:
            result[aggregate] = result.get(aggregate, frozenset()) | {slot}
    return result


def _aggregates_of(provider: Provider | None) -> frozenset[str]:
    return frozenset() if provider is None else provider.aggregates


def _with_trait(providers: Sequence[Provider]) -> dict[str, Slots]:
    """{trait: slots, ascending}. Most providers share a few set objects, so each set is examined once."""
    sets: dict[int, tuple[frozenset[str], list[int]]] = {}
    for slot, provider in enumerate(providers):
        sets.setdefault(id(provider.traits), (provider.traits, []))[1].append(slot)
    slots: dict[str, list[list[int]]] = defaultdict(list)
    for traits, members in sets.values():
        for trait in traits:
            slots[trait].append(members)
    return {trait: np.sort(concatenated(lists)) for trait, lists in slots.items()}


def _changed_traits(
    with_trait: Mapping[str, Slots], before: Mapping[int, Provider | None], after: Mapping[int, Provider | None]
) -> Mapping[str, Slots]:
    removed: dict[str, list[int]] = defaultdict(list)
    added: dict[str, list[int]] = defaultdict(list)
    for slot, new in after.items():
        old = before[slot]
        was = old.traits if old is not None else frozenset()
        now = new.traits if new is not None else frozenset()
        for trait in was - now:
            removed[trait].append(slot)
        for trait in now - was:
            added[trait].append(slot)
    if not removed and not added:
        return with_trait
    result = dict(with_trait)
    for trait in removed.keys() | added.keys():
        slots = result.get(trait, np.empty(0, dtype=np.int32))
        if trait in removed:
            slots = np.delete(slots, np.searchsorted(slots, removed[trait]))
        if trait in added:
            new_slots = sorted(added[trait])
            slots = np.insert(slots, np.searchsorted(slots, new_slots), new_slots)
        if len(slots):
            result[trait] = slots
        else:
            del result[trait]
    return result


def _sharing(sharing: frozenset[int], after: Mapping[int, Provider | None]) -> frozenset[int]:
    share = {slot for slot, provider in after.items() if provider is not None and provider.is_sharing}
    found = (sharing - after.keys()) | share
    return sharing if found == sharing else found
