"""All providers in one immutable picture: objects per provider, columns per resource class.

Searches narrow tens of thousands of providers with array operations on the columns and look at objects only
where something survived. An update copies what changed and shares the rest: a claim copies the `used` column of
each class it touches and two small tuples.

Providers are addressed by *slot*, a dense small integer that stays theirs as long as they live.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from moorage.placement.chunks import Chunks
from moorage.placement.columns import Column, Slots, columns_of, replaced_columns
from moorage.placement.derived import Derived
from moorage.placement.layers import Layers
from moorage.placement.model import Names, Provider


@dataclass(frozen=True)
class Forest:
    """Built by `build`, changed by `with_changes`; never in place."""

    sequence: int = -1  #: every change up to this number of the change log is in
    names: Names = field(default_factory=Names)
    providers: Chunks[Provider | None] = field(default_factory=Chunks)
    slot_of_id: Layers[int, int] = field(default_factory=Layers)
    slot_of_uuid: Layers[str, int] = field(default_factory=Layers)
    slot_of_name: Layers[str, int] = field(default_factory=Layers)
    #: Slot of each slot's root; -1 where the slot is free.
    roots: Slots = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    #: Slot of each slot's parent; -1 where there is none.
    parents: Slots = field(default_factory=lambda: np.empty(0, dtype=np.int32))
    #: {slot of a root: slots of its tree, the root first, parents before children}
    trees: Layers[int, tuple[int, ...]] = field(default_factory=Layers)
    columns: Mapping[str, Column] = field(default_factory=dict)
    #: {aggregate: slots of its members}
    aggregates: Mapping[str, frozenset[int]] = field(default_factory=dict)
    #: {trait: slots of those that have it, in order}
    with_trait: Mapping[str, Slots] = field(default_factory=dict)
    #: Slots of providers that share their inventory.
    sharing: frozenset[int] = frozenset()
    #: What searches made of all this; shared with the forests before and after.
    derived: Derived = field(default_factory=Derived, compare=False, repr=False)

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
            slot_of_id=Layers(slot_of_id),
            slot_of_uuid=Layers({provider.uuid: slot for slot, provider in enumerate(listed)}),
            slot_of_name=Layers({provider.name: slot for slot, provider in enumerate(listed)}),
            roots=np.fromiter((slot_of_id[p.root_id] for p in listed), dtype=np.int32, count=len(listed)),
            parents=np.fromiter(
                (-1 if p.parent_id is None else slot_of_id[p.parent_id] for p in listed),
                dtype=np.int32,
                count=len(listed),
            ),
            trees=Layers(_trees(listed, slot_of_id)),
            columns=columns_of(enumerate(listed)),
            aggregates=_aggregates(enumerate(listed)),
            with_trait=_with_trait(enumerate(listed)),
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
        and old.name == new.name
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
    if all(_stays(forest, provider_id, new) for provider_id, new in changed.items()):
        return _with_offers(forest, {forest.slot_of_id[number]: new for number, new in changed.items()})
    before, after = _placed(forest, changed)
    was = [(slot, old) for slot, old in before.items() if old is not None]
    now = [(slot, new) for slot, new in after.items() if new is not None]
    slot_of_id = forest.slot_of_id.changed({new.id: slot for slot, new in now}, gone={old.id for _, old in was})
    roots, parents = _lengthened(forest.roots, max(after) + 1), _lengthened(forest.parents, max(after) + 1)
    for slot, new in after.items():
        roots[slot] = -1 if new is None else slot_of_id[new.root_id]
        parents[slot] = -1 if new is None or new.parent_id is None else slot_of_id[new.parent_id]
    providers = forest.providers.with_items(after)
    touched_trees = {int(forest.roots[slot]) for slot, _ in was} | {int(roots[slot]) for slot, _ in now}
    return replace(
        forest,
        providers=providers,
        slot_of_id=slot_of_id,
        slot_of_uuid=forest.slot_of_uuid.changed(
            {new.uuid: slot for slot, new in now}, gone={old.uuid for _, old in was}
        ),
        slot_of_name=forest.slot_of_name.changed(
            {new.name: slot for slot, new in now}, gone={old.name for _, old in was}
        ),
        roots=roots,
        parents=parents,
        trees=_regrown(forest, providers, slot_of_id, touched_trees, after),
        columns=replaced_columns(forest.columns, before, after),
        aggregates=_moved_members(forest.aggregates, before, after),
        with_trait=_changed_traits(forest.with_trait, before, after),
        sharing=_sharing(forest.sharing, after),
    )


def _lengthened(slots: Slots, length: int) -> Slots:
    """A copy, at least so long."""
    longer = np.full(max(len(slots), length), -1, dtype=np.int32)
    longer[: len(slots)] = slots
    return longer


def _placed(
    forest: Forest, changed: Mapping[int, Provider | None]
) -> tuple[dict[int, Provider | None], dict[int, Provider | None]]:
    """The states before and after by slot: new providers take slots that were left, then those after the last."""
    left = np.flatnonzero(forest.roots < 0).tolist() if len(forest) < len(forest.providers) else []
    length = len(forest.providers)
    before: dict[int, Provider | None] = {}
    after: dict[int, Provider | None] = {}
    for provider_id, new in sorted(changed.items()):
        slot = forest.slot_of_id.get(provider_id)
        if slot is None:
            slot = left.pop() if left else length
            length = max(length, slot + 1)
        before[slot] = forest.providers[slot] if slot < len(forest.providers) else None
        after[slot] = new
    return before, after


def _stays(forest: Forest, provider_id: int, new: Provider | None) -> bool:
    """Is it who and where it was?"""
    slot = forest.slot_of_id.get(provider_id)
    if slot is None or new is None:
        return False
    old = forest.at(slot)
    return (
        old.uuid == new.uuid and old.name == new.name and old.parent_id == new.parent_id and old.root_id == new.root_id
    )


def _with_offers(forest: Forest, after: Mapping[int, Provider | None]) -> Forest:
    """What they offer changed, not where they are: uuids and trees stay the same objects. `after` is by slot."""
    before = {slot: forest.providers[slot] for slot in after}
    return replace(
        forest,
        providers=forest.providers.with_items(after),
        columns=replaced_columns(forest.columns, before, after),
        aggregates=_moved_members(forest.aggregates, before, after),
        with_trait=_changed_traits(forest.with_trait, before, after),
        sharing=_sharing(forest.sharing, after),
    )


def _regrown(
    forest: Forest,
    providers: Chunks[Provider | None],
    slot_of_id: Mapping[int, int],
    touched: set[int],
    after: Mapping[int, Provider | None],
) -> Layers[int, tuple[int, ...]]:
    """The trees, those that were touched grown anew from the members they had and those that came."""
    candidates = set(after)
    for root in touched:
        candidates.update(forest.trees.get(root, ()))
    present = [providers[slot] for slot in sorted(candidates)]
    members = [provider for provider in present if provider is not None]
    return forest.trees.changed(_trees(members, slot_of_id), gone=touched)


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


def _with_trait(providers: Iterable[tuple[int, Provider]]) -> dict[str, Slots]:
    slots: dict[str, list[int]] = defaultdict(list)
    for slot, provider in providers:
        for trait in provider.traits:
            slots[trait].append(slot)
    return {trait: np.array(listed, dtype=np.int32) for trait, listed in slots.items()}


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
    return sharing if not share and sharing.isdisjoint(after) else (sharing - after.keys()) | share
