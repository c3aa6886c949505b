"""Columns per resource class, members per aggregate, slots per trait: built from the providers on first read.

Most writes are followed by other writes. So a write only records the changed slots, and the index is updated for many
writes at once.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from moorage.placement.forest.columns import Column, Slots, columns_of, concatenated, replaced_columns
from moorage.placement.forest.model import Provider
from moorage.placement.forest.persistent_list import PersistentList

#: Pending slots, at most: the next reader must not wait long, and recording one more copies them all.
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
        """`listed` by slot."""
        return cls(
            columns_of(listed),
            _aggregates(enumerate(listed)),
            _with_trait(listed),
            frozenset(slot for slot, provider in enumerate(listed) if provider.is_sharing),
        )

    def changed(self, before: Mapping[int, Provider | None], after: Mapping[int, Provider | None]) -> "InvertedIndex":
        """Both mappings are by slot and have the same slots."""
        return InvertedIndex(
            replaced_columns(self.columns, before, after),
            _moved_members(self.aggregates, before, after),
            _changed_traits(self.with_trait, before, after),
            _sharing(self.sharing, after),
        )


@dataclass(frozen=True, slots=True)
class _PendingChanges:
    """`slots` have changed from `before`, whose index is known, to `after`."""

    index: InvertedIndex
    before: ProvidersBySlot
    after: ProvidersBySlot
    slots: frozenset[int]

    def gathered(self) -> InvertedIndex:
        length = len(self.before)
        before = {slot: self.before[slot] if slot < length else None for slot in self.slots}
        return self.index.changed(before, {slot: self.after[slot] for slot in self.slots})


class LazyIndex:
    """The index of one forest. Thread-safe: at worst two threads build the same, and all get the first result."""

    __slots__ = ("_gathered", "_noted")

    def __init__(self, known: InvertedIndex | _PendingChanges | None = None) -> None:
        self._noted = known if isinstance(known, _PendingChanges) else None
        self._gathered = [] if isinstance(known, _PendingChanges) else [known or InvertedIndex()]

    def get(self) -> InvertedIndex:
        if (noted := self._noted) is not None:
            self._gathered.append(noted.gathered())
            self._noted = None  # frees the state before
        return self._gathered[0]

    def changed(self, before: ProvidersBySlot, after: ProvidersBySlot, slots: Collection[int]) -> "LazyIndex":
        """The index after these slots have changed; `before` is the list that this index is about."""
        if not slots:
            return self
        noted = self._noted
        if noted is None or len(noted.slots) + len(slots) > MAX_PENDING_SLOTS:
            return LazyIndex(_PendingChanges(self.get(), before, after, frozenset(slots)))
        return LazyIndex(_PendingChanges(noted.index, noted.before, after, noted.slots.union(slots)))


def _aggregates(providers: Iterable[tuple[int, Provider]]) -> dict[str, frozenset[int]]:
    members: dict[str, set[int]] = defaultdict(set)
    for slot, provider in providers:
        for aggregate in provider.aggregates:
            members[aggregate].add(slot)
    return {aggregate: frozenset(slots) for aggregate, slots in members.items()}


def _moved_members(
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
    """{trait: slots, ascending}. Most providers share a few trait sets as objects, so each set is examined once."""
    sets: dict[int, tuple[frozenset[str], list[int]]] = {}
    for slot, provider in enumerate(providers):
        sets.setdefault(id(provider.traits), (provider.traits, []))[1].append(slot)
    slots: dict[str, list[list[int]]] = defaultdict(list)
    for traits, having in sets.values():
        for trait in traits:
            slots[trait].append(having)
    return {trait: np.sort(concatenated(lists)) for trait, lists in slots.items()}


def _changed_traits(
    with_trait: Mapping[str, Slots], before: Mapping[int, Provider | None], after: Mapping[int, Provider | None]
) -> Mapping[str, Slots]:
    gone: dict[str, list[int]] = defaultdict(list)
    come: dict[str, list[int]] = defaultdict(list)
    for slot, new in after.items():
        old = before[slot]
        was = old.traits if old is not None else frozenset()
        now = new.traits if new is not None else frozenset()
        for trait in was - now:
            gone[trait].append(slot)
        for trait in now - was:
            come[trait].append(slot)
    if not gone and not come:
        return with_trait
    result = dict(with_trait)
    for trait in gone.keys() | come.keys():
        slots = result.get(trait, np.empty(0, dtype=np.int32))
        if trait in gone:
            slots = np.delete(slots, np.searchsorted(slots, gone[trait]))
        if trait in come:
            coming = sorted(come[trait])
            slots = np.insert(slots, np.searchsorted(slots, coming), coming)
        if len(slots):
            result[trait] = slots
        else:
            del result[trait]
    return result


def _sharing(sharing: frozenset[int], after: Mapping[int, Provider | None]) -> frozenset[int]:
    share = {slot for slot, provider in after.items() if provider is not None and provider.is_sharing}
    found = (sharing - after.keys()) | share
    return sharing if found == sharing else found
