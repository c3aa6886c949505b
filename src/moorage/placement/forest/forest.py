"""All providers as one immutable value: an object per provider, a column per resource class.

Searches filter tens of thousands of providers with array operations on the columns, and read objects only of the
remaining ones. An update copies the changed parts and shares the rest: a claim copies two small tuples. The inverted
index is updated when it is read (`moorage.placement.forest.inverted_index`).

Providers are addressed by *slot*, a dense small integer that a provider keeps as long as it exists.

`ForestMemo` keeps results computed from parts of a forest, while those parts are the same objects. A forest is
immutable and its successor shares all unchanged parts, so a result is valid if its sources are still the same objects:
after a claim, everything computed from uuids, trees, traits and aggregates is still valid.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from operator import is_
from typing import TypeVar, cast

import numpy as np

from moorage.placement.forest.columns import Column, Slots
from moorage.placement.forest.inverted_index import InvertedIndex, LazyIndex
from moorage.placement.forest.model import NameTable, Provider, changed_copy
from moorage.placement.forest.persistent_list import PersistentList

T = TypeVar("T")

#: Limits on the number of entries and on the bytes of their arrays; the least recently used entry is evicted first. An
#: entry has a few bytes per provider, so with a hundred thousand providers the limit on bytes is reached first.
MAX_ENTRIES = 512
MAX_BYTES = 32 * 2**20
#: Entries kept regardless of size: one or two queries need that many, and computing one for a million providers takes
#: seconds.
MIN_ENTRIES = 16


class ForestMemo:
    """Shared by successive forests. Thread-safe: at worst, two threads compute the same result."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[Hashable, _Entry] = {}

    def get(self, key: Hashable, sources: tuple[object, ...], make: Callable[[], T]) -> T:
        """The result of `make`, which must depend only on `key` and `sources`; sources are never changed in place."""
        entry = self._entries.pop(key, None)
        if entry is None or not _are_same_objects(entry[0], sources):
            entry = self._new_entry(sources, make(), entry)
        self._entries[key] = entry  # at the end: most recently used
        return cast(T, entry[1])

    def revised(self, key: Hashable, sources: tuple[object, ...], revise: Callable[[T | None], T]) -> T:
        """The result of `revise`, called with its last result; with None if there is none for these sources.

        It may depend on more than `key` and `sources` if it detects such changes itself.
        """
        entry = self._entries.get(key)
        last = entry[1] if entry is not None and _are_same_objects(entry[0], sources) else None
        made = revise(cast(T | None, last))
        if entry is None or made is not last:
            entry = self._new_entry(sources, made, entry)
        self._entries.pop(key, None)
        self._entries[key] = entry
        return made

    def _new_entry(self, sources: tuple[object, ...], made: object, replaced: "_Entry | None") -> "_Entry":
        size = _size(made)
        if replaced is None or size > replaced[2]:
            self._evict_for(size)
        return sources, made, size

    def _evict_for(self, size: int) -> None:
        entries = list(self._entries.copy().items())  # a copy, because other threads continue to change it
        size += sum(entry[2] for _, entry in entries)
        for place, (key, entry) in enumerate(entries):
            remaining = len(entries) - place
            if remaining < MIN_ENTRIES or (remaining < MAX_ENTRIES and size <= MAX_BYTES):
                return
            self._entries.pop(key, None)
            size -= entry[2]


#: (sources, result, bytes)
_Entry = tuple[tuple[object, ...], object, int]


def _are_same_objects(before: tuple[object, ...], now: tuple[object, ...]) -> bool:
    return len(before) == len(now) and all(map(is_, before, now))


def _size(value: object) -> int:
    """Bytes in an array, or in the array attributes of a dataclass."""
    parts = [getattr(value, field.name) for field in fields(value)] if is_dataclass(value) else [value]
    return sum(part.nbytes for part in parts if isinstance(part, np.ndarray))


@dataclass(frozen=True)
class Forest:
    """Immutable: `build` creates it, `with_changes` returns a changed copy."""

    sequence: int = -1  #: every change up to this number of the change log is included
    names: NameTable = field(default_factory=NameTable)
    providers: PersistentList[Provider | None] = field(default_factory=PersistentList)
    slot_of_id: Mapping[int, int] = field(default_factory=dict)
    slot_of_uuid: Mapping[str, int] = field(default_factory=dict)
    slot_of_name: Mapping[str, int] = field(default_factory=dict)
    #: By slot: slot of the root; -1 for free slots.
    roots: Slots = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    #: By slot: slot of the parent; -1 for roots and free slots.
    parents: Slots = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    #: {slot of a root: slots of its tree, the root first, parents before children}
    trees: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    index: LazyIndex = field(default_factory=LazyIndex)
    #: Results computed by searches; shared with the forests before and after.
    memo: ForestMemo = field(default_factory=ForestMemo, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.slot_of_id)

    @property
    def is_nested(self) -> bool:
        return len(self.trees) < len(self.slot_of_id)

    @property
    def columns(self) -> Mapping[str, Column]:
        return self.index.get().columns

    @property
    def aggregates(self) -> Mapping[str, frozenset[int]]:
        """{aggregate: slots of its members}"""
        return self.index.get().aggregates

    @property
    def with_trait(self) -> Mapping[str, Slots]:
        """{trait: slots of the providers that have it, in order}"""
        return self.index.get().with_trait

    @property
    def sharing(self) -> frozenset[int]:
        """Slots of the sharing providers."""
        return self.index.get().sharing

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

    def all_providers(self) -> Iterator[Provider]:
        return (provider for provider in self.providers if provider is not None)

    def tree(self, slot: int) -> tuple[int, ...]:
        """The slots of the tree that contains `slot`."""
        return self.trees[self.root_of(slot)]

    def roots_near(self, slot: int) -> frozenset[int]:
        """Roots of all trees with a member in one of the provider's aggregates: the trees that it can share with."""
        near: set[int] = set()
        for aggregate in self.at(slot).aggregates:
            near.update(int(self.roots[member]) for member in self.aggregates[aggregate])
        return frozenset(near)

    def sharing_with(self, root: int) -> list[int]:
        """Slots of sharing providers of *other* trees that share with any member of this tree, ascending."""
        if not self.sharing:
            return []
        found: set[int] = set()
        own = self.trees[root]
        for member in own:
            for aggregate in self.at(member).aggregates:
                found |= self.aggregates[aggregate] & self.sharing
        return sorted(found.difference(own))

    # --- creating and changing ----------------------------------------------------------------------------------

    @classmethod
    def build(cls, providers: Iterable[Provider], names: NameTable, sequence: int) -> "Forest":
        """The forest of `providers`. `sequence`: number of the last change that they include."""
        listed = list(providers)
        slot_of_id = {provider.id: slot for slot, provider in enumerate(listed)}
        return cls(
            sequence=sequence,
            names=names,
            providers=PersistentList.of(listed),
            slot_of_id=slot_of_id,
            slot_of_uuid={provider.uuid: slot for slot, provider in enumerate(listed)},
            slot_of_name={provider.name: slot for slot, provider in enumerate(listed)},
            roots=np.fromiter((slot_of_id[p.root_id] for p in listed), dtype=np.int32, count=len(listed)),
            parents=np.fromiter(
                (-1 if p.parent_id is None else slot_of_id[p.parent_id] for p in listed),
                dtype=np.int32,
                count=len(listed),
            ),
            trees=_trees(listed, slot_of_id),
            index=LazyIndex(InvertedIndex.of(listed)),
        )

    def with_changes(
        self, changed: Mapping[int, Provider | None], *, sequence: int | None = None, names: NameTable | None = None
    ) -> "Forest":
        """A copy with changes. `changed`: {provider id: its new state, None if it was deleted}."""
        moved: dict[int, Provider | None] = {}
        in_place: dict[int, Provider | None] = {}
        for provider_id, provider in changed.items():
            slot = self.slot_of_id.get(provider_id)
            if slot is not None and provider is not None and _is_in_place(self.at(slot), provider):
                in_place[slot] = provider
            elif slot is not None or provider is not None:
                moved[provider_id] = provider
        providers = self.providers.with_items(in_place) if in_place else self.providers
        forest = replace(
            self,
            sequence=self.sequence if sequence is None else sequence,
            names=self.names if names is None else names,
            providers=providers,
            index=self.index.changed(self.providers, providers, in_place),
        )
        return _with_moved(forest, moved) if moved else forest


def _is_in_place(old: Provider, new: Provider) -> bool:
    """Same identity, name and place in the tree; inventories and usage may differ."""
    return (
        old.uuid == new.uuid and old.name == new.name and old.parent_id == new.parent_id and old.root_id == new.root_id
    )


def _with_moved(forest: Forest, changed: Mapping[int, Provider | None]) -> Forest:
    """Applies changes that create, delete, move or rename providers."""
    before, after = _with_slots(forest, changed)
    was = [(slot, old) for slot, old in before.items() if old is not None]
    now = [(slot, new) for slot, new in after.items() if new is not None]
    slot_of_id = changed_copy(forest.slot_of_id, {new.id: slot for slot, new in now}, {old.id for _, old in was})
    roots, parents = _padded(forest.roots, max(after) + 1), _padded(forest.parents, max(after) + 1)
    for slot, new in after.items():
        roots[slot] = -1 if new is None else slot_of_id[new.root_id]
        parents[slot] = -1 if new is None or new.parent_id is None else slot_of_id[new.parent_id]
    providers = forest.providers.with_items(after)
    touched_trees = {int(forest.roots[slot]) for slot, _ in was} | {int(roots[slot]) for slot, _ in now}
    return replace(
        forest,
        providers=providers,
        slot_of_id=slot_of_id,
        slot_of_uuid=changed_copy(
            forest.slot_of_uuid, {new.uuid: slot for slot, new in now}, {old.uuid for _, old in was}
        ),
        slot_of_name=changed_copy(
            forest.slot_of_name, {new.name: slot for slot, new in now}, {old.name for _, old in was}
        ),
        roots=roots,
        parents=parents,
        trees=_rebuilt_trees(forest, providers, slot_of_id, touched_trees, after),
        index=forest.index.changed(forest.providers, providers, after),
    )


def _padded(slots: Slots, length: int) -> Slots:
    """A copy with at least `length` elements, padded with -1."""
    longer = np.full(max(len(slots), length), -1, dtype=np.int32)
    longer[: len(slots)] = slots
    return longer


def _with_slots(
    forest: Forest, changed: Mapping[int, Provider | None]
) -> tuple[dict[int, Provider | None], dict[int, Provider | None]]:
    """The states before and after, by slot. New providers get free slots first, then new slots at the end."""
    free_slots = np.flatnonzero(forest.roots < 0).tolist() if len(forest) < len(forest.providers) else []
    length = len(forest.providers)
    before: dict[int, Provider | None] = {}
    after: dict[int, Provider | None] = {}
    for provider_id, new in sorted(changed.items()):
        slot = forest.slot_of_id.get(provider_id)
        if slot is None:
            slot = free_slots.pop() if free_slots else length
            length = max(length, slot + 1)
        before[slot] = forest.providers[slot] if slot < len(forest.providers) else None
        after[slot] = new
    return before, after


def _rebuilt_trees(
    forest: Forest,
    providers: PersistentList[Provider | None],
    slot_of_id: Mapping[int, int],
    touched: set[int],
    after: Mapping[int, Provider | None],
) -> dict[int, tuple[int, ...]]:
    """The trees, with the touched ones rebuilt from their old members and the new ones."""
    candidates = set(after)
    for root in touched:
        candidates.update(forest.trees.get(root, ()))
    present = [providers[slot] for slot in sorted(candidates)]
    members = [provider for provider in present if provider is not None]
    return changed_copy(forest.trees, _trees(members, slot_of_id), touched)


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
