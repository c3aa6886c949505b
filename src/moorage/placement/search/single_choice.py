"""Trees where each requested class is on exactly one provider, found for all trees at once by array operations.

This is the case for most requests in most clouds: no granular groups, and each class on one provider of the tree or on
one that shares with it. Then there is no choice, and no search. Results that depend only on inventories, traits and
aggregates are cached in the forest's memo. Usage is compared for each request, block by block, so a request for ten
hosts of a hundred thousand does not examine all of them.

**Sampling.** With a limit but no seed, every answer begins with the oldest trees, so a scheduler that compares few
hosts would fill them one after the other. With a seed, the trees are visited with a `Stride`: from a start, in equal
steps, both derived from the seed. The same seed visits the same trees in the same order.
"""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from moorage.placement.forest.columns import Column, Slots
from moorage.placement.forest.forest import Forest
from moorage.placement.search import masks
from moorage.placement.search.layout import layout_of
from moorage.placement.search.request import CandidateRequest, RequestGroup
from moorage.placement.search.requirements import UNSATISFIABLE_AMOUNT

#: Minimum size of the first block of trees; each following block is `GROWTH` times as large.
FIRST_BLOCK = 256
GROWTH = 8


#: Characters of a seed that are used.
MAX_SEED_LENGTH = 128


@dataclass(frozen=True, slots=True)
class SingleChoiceTrees:
    """Trees that have all of some classes, each on exactly one provider; in the order of the anchors' slots."""

    anchors: Slots
    owners: NDArray[np.int32]  #: shape (classes, anchors): slot of the provider
    rows: NDArray[np.int32]  #: shape (classes, anchors): the provider's row in the column of the class
    #: by class: True if its `rows` are the whole column, in the column's order
    aligned: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class _Owners:
    """The provider of one class, by anchor."""

    anchors: Slots
    slots: Slots
    rows: NDArray[np.int32]


def single_choice_trees(forest: Forest, request: CandidateRequest) -> SingleChoiceTrees | None:
    """The trees that have all classes of the request, each on exactly one provider, regardless of amounts.

    None: the caller must search, because the request has granular groups or no resources, because at some anchor
    several providers have one of the classes, or because providers are nested and the microversion is below 1.29.
    """
    group = request.groups[0]
    if len(request.groups) > 1 or group.is_granular or not group.resources or (forest.is_nested and not request.nested):
        return None
    names = tuple(group.resources)
    columns = [forest.columns.get(name) for name in names]
    slots = tuple(None if column is None else column.slots for column in columns)
    shared = (forest.aggregates, forest.sharing) if forest.sharing else ()
    return forest.memo.get(
        ("single choice", names), (forest.trees, *slots, *shared), lambda: _find_trees(forest, names)
    )


def _find_trees(forest: Forest, names: tuple[str, ...]) -> SingleChoiceTrees | None:
    found = [_owners(forest, name) for name in names]
    anchors: Slots | None = None
    for owners in found:
        if owners is None:
            return None
        anchors = owners.anchors if anchors is None else np.intersect1d(anchors, owners.anchors, assume_unique=True)
    if anchors is None:
        return None
    places = [np.searchsorted(owners.anchors, anchors) for owners in found if owners is not None]
    rows = [owners.rows[place] for owners, place in zip(found, places, strict=True) if owners is not None]
    slots = [owners.slots[place] for owners, place in zip(found, places, strict=True) if owners is not None]
    aligned = tuple(
        len(row) == len(forest.columns[name].slots) and bool((row == np.arange(len(row))).all()) if len(row) else False
        for name, row in zip(names, rows, strict=True)
    )
    return SingleChoiceTrees(
        anchors.astype(np.int32), np.array(slots, dtype=np.int32), np.array(rows, dtype=np.int32), aligned
    )


def _owners(forest: Forest, name: str) -> _Owners | None:
    """The provider of the class `name` at each anchor; None if any anchor has several."""
    column = forest.columns.get(name)
    if column is None:
        empty = np.empty(0, dtype=np.int32)
        return _Owners(empty, empty, empty)
    anchors, slots = forest.roots[column.slots], column.slots
    if forest.sharing and masks.is_sharing(forest)[slots].any():
        layout = layout_of(forest)
        has = np.zeros(len(forest.roots), dtype=np.bool_)
        has[slots] = True
        places = np.flatnonzero(has[layout.members])
        anchors, slots = layout.anchors[layout.anchor_of[places]], layout.members[places]
    order = np.argsort(anchors, kind="stable")
    anchors, slots = anchors[order], slots[order]
    if (anchors[1:] == anchors[:-1]).any():
        return None
    return _Owners(anchors, slots, np.searchsorted(column.slots, slots).astype(np.int32))


def scan_trees(
    forest: Forest, request: CandidateRequest, trees: SingleChoiceTrees, sample: str | None = None
) -> Iterator[tuple[Slots, NDArray[np.int32]]]:
    """Yields (anchors, providers) of the trees that can serve the request, block by block.

    `providers` has the shape (anchors, classes). The trees are in the order of slots or, with a limit and a seed
    `sample`, in the order of the seed's `Stride`.
    """
    group = request.groups[0]
    if not len(trees.anchors):
        return
    columns = [forest.columns[name] for name in group.resources]
    amounts = [min(amount, UNSATISFIABLE_AMOUNT) for amount in group.resources.values()]
    allowed = _allowed_places(forest, request, trees, columns)
    count = len(trees.anchors) if allowed is None else len(allowed)
    if sample is not None and request.limit is not None and count:
        yield from _scan_sample(columns, amounts, trees, allowed, count, request.limit, sample)
        return
    start, size = 0, count if request.limit is None else max(FIRST_BLOCK, 2 * request.limit)
    while start < count:
        block = slice(start, start + size)
        fits = _fits(columns, amounts, trees, block if allowed is None else allowed[block])
        hits = np.flatnonzero(fits)
        if len(hits):
            places = hits + start if allowed is None else allowed[block][hits]
            yield trees.anchors[places], trees.owners[:, places].T
        start, size = start + size, size * GROWTH


def _scan_sample(
    columns: list[Column],
    amounts: list[int],
    trees: SingleChoiceTrees,
    allowed: NDArray[np.int32] | None,
    count: int,
    limit: int,
    seed: str,
) -> Iterator[tuple[Slots, NDArray[np.int32]]]:
    """`scan_trees` with a limit and a seed."""
    order, start, size = stride_for(count, seed), 0, limit
    while start < count:
        block = order.between(start, start + size)
        places = block if allowed is None else allowed[block]
        places = places[_fits(columns, amounts, trees, places)]
        if len(places):
            yield trees.anchors[places], trees.owners[:, places].T
        start, size = start + size, size * GROWTH


def _fits(
    columns: list[Column], amounts: list[int], trees: SingleChoiceTrees, places: slice | NDArray[np.signedinteger]
) -> masks.Mask:
    found: list[masks.Mask] = []
    for number, (column, amount) in enumerate(zip(columns, amounts, strict=True)):
        rows = places if trees.aligned[number] else trees.rows[number, places]
        found.append(column.used[rows] + amount <= column.capacity[rows])
    for fits in found[1:]:
        found[0] &= fits
    return found[0]


def _allowed_places(
    forest: Forest, request: CandidateRequest, trees: SingleChoiceTrees, columns: list[Column]
) -> NDArray[np.int32] | None:
    """Indexes of the trees that meet all conditions except free capacity; None: all trees."""
    group = request.groups[0]
    required = frozenset().union(*group.traits.required, request.root_required, request.root_forbidden)
    aggregates = frozenset().union(*group.aggregates.required, group.aggregates.forbidden)
    sources = (
        trees,
        forest.roots,
        *(array for column in columns for array in (column.min_unit, column.max_unit, column.step_size)),
        *(forest.with_trait.get(trait) for trait in sorted(required | group.traits.forbidden)),
        *(forest.aggregates.get(aggregate) for aggregate in sorted(aggregates)),
    )
    filters = (group.traits, group.aggregates, group.in_tree, request.root_required, request.root_forbidden)
    key = ("allowed places", tuple(group.resources.items()), *filters)
    return forest.memo.get(key, sources, lambda: _compute_allowed_places(forest, request, trees, columns))


def _compute_allowed_places(
    forest: Forest, request: CandidateRequest, trees: SingleChoiceTrees, columns: list[Column]
) -> NDArray[np.int32] | None:
    group = request.groups[0]
    found = root_filter(forest, request, trees.anchors) & _by_aggregates_and_tree(forest, group, trees)
    for number, ((name, amount), column) in enumerate(zip(group.resources.items(), columns, strict=True)):
        units = masks.allowed(forest, name, column, min(amount, UNSATISFIABLE_AMOUNT))
        if units is not None:
            found &= units[trees.rows[number]]
    if group.traits.forbidden:
        found &= ~masks.with_any(forest, group.traits.forbidden)[trees.owners].any(axis=0)
    for any_of in group.traits.required:
        found &= masks.with_any(forest, any_of)[trees.owners].any(axis=0)
    return None if found.all() else np.flatnonzero(found).astype(np.int32)


def _by_aggregates_and_tree(forest: Forest, group: RequestGroup, trees: SingleChoiceTrees) -> masks.Mask:
    """By tree: True if it meets ``member_of`` and ``in_tree``. An aggregate of the root counts for its whole tree."""
    found = np.ones(len(trees.anchors), dtype=np.bool_)
    local = forest.roots[trees.owners] == trees.anchors
    if group.aggregates.required:
        inside = masks.in_all(forest, group.aggregates.required)
        found &= (inside[trees.owners] | local & inside[trees.anchors]).all(axis=0)
    if group.aggregates.forbidden:
        inside = masks.members_of_any(forest, group.aggregates.forbidden)
        found &= ~inside[trees.anchors] & ~inside[trees.owners].any(axis=0)
    if group.in_tree is not None:
        slot = forest.slot_of_uuid.get(group.in_tree)
        found &= local.all(axis=0) & (trees.anchors == (-1 if slot is None else forest.root_of(slot)))
    return found


def root_filter(forest: Forest, request: CandidateRequest, slots: Slots) -> masks.Mask:
    """By index in `slots`: True if the provider has all required and no forbidden root traits."""
    found = np.ones(len(slots), dtype=np.bool_)
    for trait in request.root_required:
        found &= masks.with_any(forest, frozenset((trait,)))[slots]
    if request.root_forbidden:
        found &= ~masks.with_any(forest, request.root_forbidden)[slots]
    return found


@dataclass(frozen=True, slots=True)
class Stride:
    """The permutation ``(start + i * step) % count`` of ``0 .. count - 1``."""

    count: int
    start: int
    step: int

    def between(self, begin: int, end: int) -> NDArray[np.intp]:
        """The elements from position `begin` to before position `end` of the permutation."""
        order = np.arange(begin, min(end, self.count), dtype=np.int64)
        return ((self.start + order * self.step) % self.count).astype(np.intp)


def stride_for(count: int, seed: str) -> Stride:
    """A permutation that depends only on `count` (at least 1) and `seed`."""
    digest = hashlib.blake2b(seed[:MAX_SEED_LENGTH].encode(errors="replace"), digest_size=16).digest()
    start, step = int.from_bytes(digest[:8]) % count, int.from_bytes(digest[8:]) % count
    while math.gcd(step, count) != 1:
        step += 1
    return Stride(count, start, step)
