"""All providers in one immutable picture: objects per provider, columns per resource class.

Searches narrow tens of thousands of providers with array operations on the columns and look at objects only
where something survived. An update copies what changed and shares the rest: a claim copies the `used` column of
each class it touches and two small tuples.

Providers are addressed by *slot*, a dense small integer that stays theirs as long as they live.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from moorage.placement.model import Names, Provider

T = TypeVar("T")

Slots = NDArray[np.int32]
Units = NDArray[np.int64]

_CHUNK_BITS = 7
_CHUNK = 1 << _CHUNK_BITS


@dataclass(frozen=True, slots=True)
class Chunks(Generic[T]):
    """An immutable list whose changed copy costs two small tuples instead of one large one."""

    chunks: tuple[tuple[T, ...], ...] = ()

    def __getitem__(self, index: int) -> T:
        return self.chunks[index >> _CHUNK_BITS][index & (_CHUNK - 1)]

    def __len__(self) -> int:
        return 0 if not self.chunks else (len(self.chunks) - 1) * _CHUNK + len(self.chunks[-1])

    def __iter__(self) -> Iterator[T]:
        for chunk in self.chunks:
            yield from chunk

    @classmethod
    def of(cls, items: Sequence[T]) -> "Chunks[T]":
        return cls(tuple(tuple(items[start : start + _CHUNK]) for start in range(0, len(items), _CHUNK)))

    def with_items(self, changed: Mapping[int, T]) -> "Chunks[T]":
        """Indexes up to the present length may be set; those from there on must follow without a gap."""
        chunks = [*self.chunks]
        open_chunks: dict[int, list[T]] = {}
        for index in sorted(changed):
            number = index >> _CHUNK_BITS
            if number not in open_chunks:
                if number == len(chunks):
                    chunks.append(())
                open_chunks[number] = [*chunks[number]]
            chunk, place = open_chunks[number], index & (_CHUNK - 1)
            if place == len(chunk):
                chunk.append(changed[index])
            else:
                chunk[place] = changed[index]
        for number, chunk in open_chunks.items():
            chunks[number] = tuple(chunk)
        return Chunks(tuple(chunks))


@dataclass(frozen=True, slots=True)
class Column:
    """One resource class: a row for each provider that has inventory of it, by slot."""

    slots: Slots
    capacity: Units
    used: Units
    min_unit: Units
    max_unit: Units
    step_size: Units

    def fitting(self, amount: int) -> Slots:
        """Slots of the providers where a new consumer could take `amount`."""
        fits = self.used + amount <= self.capacity
        fits &= self.min_unit <= amount
        fits &= self.max_unit >= amount
        if amount > 1 and (self.step_size > 1).any():
            fits &= amount % self.step_size == 0
        elif amount == 1:
            fits &= self.step_size == 1
        return self.slots[fits]

    def with_used(self, used: Mapping[int, int]) -> "Column":
        """`used` is {slot: units}; slots without a row are ignored."""
        column = self.used.copy()
        slots = np.fromiter(used, dtype=np.int32, count=len(used))
        rows = np.searchsorted(self.slots, slots)
        for row, slot, units in zip(rows.tolist(), slots.tolist(), used.values(), strict=True):
            if row < len(self.slots) and self.slots[row] == slot:
                column[row] = units
        return replace(self, used=column)


@dataclass(frozen=True)
class Forest:
    """Built by `build`, changed by `with_changes`; never in place."""

    sequence: int = -1  #: every change up to this number of the change log is in
    names: Names = field(default_factory=Names)
    providers: Chunks[Provider | None] = field(default_factory=Chunks)
    slot_of_id: Mapping[int, int] = field(default_factory=dict)
    slot_of_uuid: Mapping[str, int] = field(default_factory=dict)
    #: Slot of each slot's root; -1 where the slot is free.
    roots: Slots = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    #: {slot of a root: slots of its tree, the root first, parents before children}
    trees: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    columns: Mapping[str, Column] = field(default_factory=dict)
    #: {aggregate: slots of its members}
    aggregates: Mapping[str, frozenset[int]] = field(default_factory=dict)
    #: Slots of providers that share their inventory.
    sharing: frozenset[int] = frozenset()

    def __len__(self) -> int:
        return len(self.slot_of_id)

    @property
    def is_nested(self) -> bool:
        return len(self.trees) < len(self.slot_of_id)

    def at(self, slot: int) -> Provider:
        provider = self.providers[slot]
        if provider is None:
            raise KeyError(slot)
        return provider

    def by_uuid(self, uuid: str) -> Provider | None:
        slot = self.slot_of_uuid.get(uuid)
        return None if slot is None else self.at(slot)

    def by_id(self, provider_id: int) -> Provider | None:
        slot = self.slot_of_id.get(provider_id)
        return None if slot is None else self.at(slot)

    def root_of(self, slot: int) -> int:
        return int(self.roots[slot])

    def parent_of(self, slot: int) -> int | None:
        parent_id = self.at(slot).parent_id
        return None if parent_id is None else self.slot_of_id[parent_id]

    def all(self) -> Iterator[Provider]:
        return (provider for provider in self.providers if provider is not None)

    def tree(self, slot: int) -> tuple[int, ...]:
        """The slots of the tree that `slot` is in."""
        return self.trees[self.root_of(slot)]

    def roots_near(self, slot: int) -> frozenset[int]:
        """Roots of all trees with a member in one of the provider's aggregates: what a sharing provider can serve."""
        near: set[int] = set()
        for aggregate in self.at(slot).aggregates:
            near.update(int(self.roots[member]) for member in self.aggregates[aggregate])
        return frozenset(near)

    def sharing_with(self, root: int) -> list[int]:
        """Slots of sharing providers of *other* trees that share with any member of this one, in order."""
        if not self.sharing:
            return []
        found: set[int] = set()
        own = self.trees[root]
        for member in own:
            for aggregate in self.at(member).aggregates:
                found |= self.aggregates[aggregate] & self.sharing
        return sorted(found.difference(own))

    # --- making one ---------------------------------------------------------------------------------------------

    @classmethod
    def build(cls, providers: Iterable[Provider], names: Names, sequence: int) -> "Forest":
        """From scratch."""
        listed = list(providers)
        slot_of_id = {provider.id: slot for slot, provider in enumerate(listed)}
        return cls(
            sequence=sequence,
            names=names,
            providers=Chunks.of(listed),
            slot_of_id=slot_of_id,
            slot_of_uuid={provider.uuid: slot for slot, provider in enumerate(listed)},
            roots=np.fromiter((slot_of_id[p.root_id] for p in listed), dtype=np.int32, count=len(listed)),
            trees=_trees(listed, slot_of_id),
            columns=_columns(enumerate(listed)),
            aggregates=_aggregates(enumerate(listed)),
            sharing=frozenset(slot for slot, provider in enumerate(listed) if provider.is_sharing),
        )

    def with_changes(
        self, changed: Mapping[int, Provider | None], *, sequence: int | None = None, names: Names | None = None
    ) -> "Forest":
        """`changed` is {provider id: its new state, None when it is gone}."""
        forest = replace(
            self,
            sequence=self.sequence if sequence is None else sequence,
            names=self.names if names is None else names,
        )
        shaped: dict[int, Provider | None] = {}
        used: dict[int, Provider] = {}
        for provider_id, provider in changed.items():
            slot = self.slot_of_id.get(provider_id)
            if slot is None and provider is None:
                continue
            if slot is not None and provider is not None and _same_shape(self.at(slot), provider):
                used[slot] = provider
            else:
                shaped[provider_id] = provider
        if used:
            forest = _with_used(forest, used)
        return _with_shapes(forest, shaped) if shaped else forest


def _same_shape(old: Provider, new: Provider) -> bool:
    """Does only the usage differ (and what no index knows)?"""
    return (
        old.uuid == new.uuid
        and old.inventories == new.inventories
        and old.traits == new.traits
        and old.aggregates == new.aggregates
        and old.root_id == new.root_id
        and old.parent_id == new.parent_id
    )


def _with_used(forest: Forest, changed: Mapping[int, Provider]) -> Forest:
    by_class: dict[str, dict[int, int]] = defaultdict(dict)
    for slot, new in changed.items():
        old = forest.at(slot)
        for name in old.used.keys() | new.used.keys():
            if old.used.get(name, 0) != new.used.get(name, 0):
                by_class[name][slot] = new.used.get(name, 0)
    columns = dict(forest.columns)
    for name, used in by_class.items():
        if name in columns:
            columns[name] = columns[name].with_used(used)
    return replace(forest, providers=forest.providers.with_items(changed), columns=columns)


def _with_shapes(forest: Forest, changed: Mapping[int, Provider | None]) -> Forest:
    """Providers that came, went, moved, or changed what they offer."""
    slot_of_id = dict(forest.slot_of_id)
    slot_of_uuid = dict(forest.slot_of_uuid)
    free = (
        [slot for slot in range(len(forest.providers)) if forest.roots[slot] < 0]
        if len(forest) < len(forest.providers)
        else []
    )
    length = len(forest.providers)
    before: dict[int, Provider | None] = {}
    after: dict[int, Provider | None] = {}
    for provider_id, new in sorted(changed.items()):
        slot = slot_of_id.get(provider_id)
        if slot is None:
            slot = free.pop() if free else length
            length = max(length, slot + 1)
        before[slot] = forest.providers[slot] if slot < len(forest.providers) else None
        after[slot] = new
        if new is None:
            del slot_of_id[provider_id]
        else:
            slot_of_id[provider_id] = slot
    for old in before.values():
        if old is not None:
            del slot_of_uuid[old.uuid]
    slot_of_uuid |= {new.uuid: slot for slot, new in after.items() if new is not None}
    providers = forest.providers.with_items(after)
    roots = np.full(length, -1, dtype=np.int32)
    roots[: len(forest.roots)] = forest.roots
    for slot, new in after.items():
        roots[slot] = -1 if new is None else slot_of_id[new.root_id]
    touched_trees = {int(forest.roots[slot]) for slot, old in before.items() if old is not None}
    touched_trees |= {int(roots[slot]) for slot, new in after.items() if new is not None}
    return replace(
        forest,
        providers=providers,
        slot_of_id=slot_of_id,
        slot_of_uuid=slot_of_uuid,
        roots=roots,
        trees=_regrown(forest, providers, slot_of_id, roots, touched_trees, after),
        columns=_replaced_columns(forest.columns, before, after),
        aggregates=_moved_members(forest.aggregates, before, after),
        sharing=_sharing(forest.sharing, after),
    )


def _regrown(
    forest: Forest,
    providers: Chunks[Provider | None],
    slot_of_id: Mapping[int, int],
    roots: Slots,
    touched: set[int],
    after: Mapping[int, Provider | None],
) -> dict[int, tuple[int, ...]]:
    """The trees, those that were touched grown anew from the members they had and those that came."""
    trees = dict(forest.trees)
    candidates = set(after)
    for root in touched:
        candidates.update(trees.pop(root, ()))
    present = [providers[slot] for slot in sorted(candidates)]
    members = [provider for provider in present if provider is not None]
    return trees | _trees(members, slot_of_id)


def _trees(members: Iterable[Provider], slot_of_id: Mapping[int, int]) -> dict[int, tuple[int, ...]]:
    children: dict[int, list[int]] = defaultdict(list)
    roots: list[int] = []
    for provider in members:
        slot = slot_of_id[provider.id]
        if provider.parent_id is None:
            roots.append(slot)
        else:
            children[slot_of_id[provider.parent_id]].append(slot)
    trees: dict[int, tuple[int, ...]] = {}
    for root in roots:
        tree = [root]
        for slot in tree:
            tree += children.get(slot, ())
        trees[root] = tuple(tree)
    return trees


def _columns(providers: Iterable[tuple[int, Provider]]) -> dict[str, Column]:
    rows: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    for slot, provider in providers:
        for name in provider.inventories:
            rows[name].append(_row(slot, provider, name))
    return {name: _column(listed) for name, listed in rows.items()}


def _row(slot: int, provider: Provider, name: str) -> tuple[int, ...]:
    inventory = provider.inventories[name]
    return (
        slot,
        inventory.capacity,
        provider.used.get(name, 0),
        inventory.min_unit,
        inventory.max_unit,
        inventory.step_size,
    )


def _column(rows: Sequence[tuple[int, ...]]) -> Column:
    table: NDArray[Any] = np.array(sorted(rows), dtype=np.int64).reshape(-1, 6)
    slots, capacity, used, min_unit, max_unit, step_size = (np.ascontiguousarray(table[:, n]) for n in range(6))
    return Column(slots.astype(np.int32), capacity, used, min_unit, max_unit, step_size)


def _replaced_columns(
    columns: Mapping[str, Column], before: Mapping[int, Provider | None], after: Mapping[int, Provider | None]
) -> dict[str, Column]:
    """Each class that one of these had or has: their rows taken out and put in."""
    result = dict(columns)
    states = [*before.values(), *after.values()]
    for name in {name for provider in states if provider is not None for name in provider.inventories}:
        new_rows = [
            _row(slot, provider, name)
            for slot, provider in after.items()
            if provider is not None and name in provider.inventories
        ]
        kept = result.get(name)
        if kept is not None:
            stays = ~np.isin(kept.slots, np.fromiter(after, dtype=np.int32, count=len(after)))
            units = (kept.capacity, kept.used, kept.min_unit, kept.max_unit, kept.step_size)
            kept = Column(kept.slots[stays], *(array[stays] for array in units))
        column = _merged(kept, _column(new_rows))
        if len(column.slots):
            result[name] = column
        else:
            result.pop(name, None)
    return result


def _merged(kept: Column | None, added: Column) -> Column:
    if kept is None or not len(kept.slots):
        return added
    if not len(added.slots):
        return kept
    slots = np.concatenate((kept.slots, added.slots))
    order = np.argsort(slots, kind="stable")
    pairs = (
        (kept.capacity, added.capacity),
        (kept.used, added.used),
        (kept.min_unit, added.min_unit),
        (kept.max_unit, added.max_unit),
        (kept.step_size, added.step_size),
    )
    return Column(slots[order], *(np.concatenate(pair)[order] for pair in pairs))


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
    result = dict(aggregates)
    for slot, new in after.items():
        old = before[slot]
        was = old.aggregates if old is not None else frozenset()
        now = new.aggregates if new is not None else frozenset()
        for aggregate in was - now:
            result[aggregate] -= {slot}
            if not result[aggregate]:
                del result[aggregate]
        for aggregate in now - was:
            result[aggregate] = result.get(aggregate, frozenset()) | {slot}
    return result


def _sharing(sharing: frozenset[int], after: Mapping[int, Provider | None]) -> frozenset[int]:
    share = {slot for slot, provider in after.items() if provider is not None and provider.is_sharing}
    return sharing if not share and sharing.isdisjoint(after) else (sharing - after.keys()) | share
