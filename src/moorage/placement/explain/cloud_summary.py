"""A summary of a whole cloud, and pages of its trees, for clouds with too many hosts to list at once.

Sums are computed on the columns; objects are read only for the trees of one page. Pure.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from moorage.placement.forest.columns import Column, Slots
from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import Provider

#: Number of classes listed, most frequent first; each reservation has its own class, so there may be very many.
MAX_CLASSES = 100
#: Classes listed per aggregate, unless the request names others.
CLASSES_OF_AGGREGATES = 8
MAX_AGGREGATES = 200


@dataclass(frozen=True, slots=True)
class Units:
    """Totals of one class over some providers. Negative capacities count as 0. Sums are exact up to 2**53."""

    name: str
    providers: int
    capacity: int
    used: int


@dataclass(frozen=True, slots=True)
class AggregatePart:
    """The trees with a member in an aggregate, and their totals."""

    uuid: str
    trees: int
    units: tuple[Units, ...]


@dataclass(frozen=True, slots=True)
class CloudSummary:
    """`*_left_out`: number of classes or aggregates beyond the limits."""

    trees: int
    providers: int
    units: tuple[Units, ...]
    classes_left_out: int
    aggregates: tuple[AggregatePart, ...]
    aggregates_left_out: int


def summarise_cloud(forest: Forest, classes: Collection[str] = ()) -> CloudSummary:
    """`classes`: the classes listed per aggregate; unknown ones are ignored."""
    columns = forest.columns
    by_size = sorted(columns, key=lambda name: (-len(columns[name].slots), name))
    shown = [name for name in classes if name in columns] if classes else by_size[:CLASSES_OF_AGGREGATES]
    largest = sorted(forest.aggregates, key=lambda uuid: (-len(forest.aggregates[uuid]), uuid))
    return CloudSummary(
        trees=len(forest.trees),
        providers=len(forest),
        units=tuple(_units(name, columns[name]) for name in by_size[:MAX_CLASSES]),
        classes_left_out=max(0, len(by_size) - MAX_CLASSES),
        aggregates=_parts(forest, largest[:MAX_AGGREGATES], {name: columns[name] for name in shown}),
        aggregates_left_out=max(0, len(largest) - MAX_AGGREGATES),
    )


def _units(name: str, column: Column) -> Units:
    capacity = column.capacity.clip(0).sum(dtype=np.float64)
    return Units(name, len(column.slots), int(capacity), int(column.used.sum(dtype=np.float64)))


def _parts(forest: Forest, aggregates: Sequence[str], columns: Mapping[str, Column]) -> tuple[AggregatePart, ...]:
    """Sums over the pairs (aggregate, root of a tree with a member in it)."""
    roots = [np.unique(forest.roots[list(forest.aggregates[uuid])]) for uuid in aggregates]
    if not roots:
        return ()
    counts = [len(found) for found in roots]
    paired, numbers = np.concatenate(roots), np.repeat(np.arange(len(roots)), counts)

    def by_aggregate(column: Column, weights: NDArray[np.float64] | None) -> list[int]:
        by_root = np.bincount(forest.roots[column.slots], weights, minlength=len(forest.roots))
        return [int(units) for units in np.bincount(numbers, by_root[paired], minlength=len(roots))]

    units: list[list[Units]] = [[] for _ in roots]
    for name, column in columns.items():
        providers = by_aggregate(column, None)
        capacity = by_aggregate(column, column.capacity.clip(0).astype(np.float64))
        used = by_aggregate(column, column.used.astype(np.float64))
        for place, part in enumerate(units):
            if providers[place]:
                part.append(Units(name, providers[place], capacity[place], used[place]))
    return tuple(
        AggregatePart(uuid, count, tuple(part)) for uuid, count, part in zip(aggregates, counts, units, strict=True)
    )


# --- pages of trees -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TreeFilter:
    """Conditions on a tree: for each, at least one provider of the tree must meet it.

    `search`: the name contains it, or the uuid begins with it, ignoring case. The others: the provider is a member of
    the aggregate, has inventory of the class, has the trait.
    """

    search: str = ""
    member_of: str | None = None
    resource_class: str | None = None
    trait: str | None = None


@dataclass(frozen=True, slots=True)
class TreeRow:
    """A tree: its root, the number of its providers, and their totals, by class."""

    root: Provider
    providers: int
    units: tuple[Units, ...]


@dataclass(frozen=True, slots=True)
class TreePage:
    """`matching`: number of matching trees on all pages.

    `following`: `after` of the next page; None on the last page.
    """

    rows: tuple[TreeRow, ...]
    matching: int
    following: str | None


def tree_page(forest: Forest, wanted: TreeFilter, after: str | None, limit: int) -> TreePage:
    """The trees after the root named `after`, which need not exist, in natural order: host-2 before host-10."""
    ordered, keys = forest.memo.get(
        "trees by name", (forest.slot_of_name, forest.trees), lambda: _roots_by_name(forest)
    )
    matching = _matching_roots(forest, wanted)
    found = ordered if matching is None else [slot for slot in ordered if slot in matching]
    if matching is not None:
        keys = [natural_key(forest.at(slot).name) for slot in found]
    start = 0 if after is None else bisect_right(keys, natural_key(after))
    shown = found[start : start + limit]
    is_more = start + limit < len(found)
    return TreePage(
        tuple(_row(forest, slot) for slot in shown),
        len(found),
        forest.at(shown[-1]).name if is_more else None,
    )


Key = tuple[tuple[str | int, ...], str]


def natural_key(name: str) -> Key:
    """A sort key that compares numbers in names by value; the name itself breaks ties."""
    parts = re.split("([0-9]+)", name.lower())
    return tuple(int(part) if place % 2 else part for place, part in enumerate(parts)), name


def _roots_by_name(forest: Forest) -> tuple[list[int], list[Key]]:
    keyed = sorted((natural_key(forest.at(slot).name), slot) for slot in forest.trees)
    return [slot for _, slot in keyed], [key for key, _ in keyed]


def _matching_roots(forest: Forest, wanted: TreeFilter) -> set[int] | None:
    """Slots of the roots of matching trees; None: all trees match."""
    matches: list[set[int]] = []
    if wanted.search:
        matches.append(_roots_by_text(forest, wanted.search.lower()))
    if wanted.member_of is not None:
        matches.append(_roots_of(forest, list(forest.aggregates.get(wanted.member_of, ()))))
    if wanted.resource_class is not None:
        column = forest.columns.get(wanted.resource_class)
        matches.append(set() if column is None else _roots_of(forest, column.slots))
    if wanted.trait is not None:
        matches.append(_roots_of(forest, forest.with_trait.get(wanted.trait, [])))
    return set.intersection(*matches) if matches else None


def _roots_by_text(forest: Forest, text: str) -> set[int]:
    return _roots_of(
        forest,
        [
            slot
            for slot, one in enumerate(forest.providers)
            if one is not None and (text in one.name.lower() or one.uuid.startswith(text))
        ],
    )


def _roots_of(forest: Forest, slots: Slots | list[int]) -> set[int]:
    return set(forest.roots[slots].tolist()) if len(slots) else set()


def _row(forest: Forest, root: int) -> TreeRow:
    members = [forest.at(slot) for slot in forest.trees[root]]
    return TreeRow(forest.at(root), len(members), tuple(summed_units(members)))


def summed_units(providers: Iterable[Provider]) -> list[Units]:
    """Totals of these providers, sorted by class."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for provider in providers:
        for name, inventory in provider.inventories.items():
            row = sums[name]
            row[0] += 1
            row[1] += max(0, inventory.capacity)
            row[2] += provider.used.get(name, 0)
    return [Units(name, *sums[name]) for name in sorted(sums)]
