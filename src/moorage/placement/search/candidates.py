"""Finds allocation candidates: sets of providers that could serve a request together.

    forest + CandidateRequest
      -> trees with a single choice for each class: each is a candidate (`single_choice`)
         or
      -> anchors (tree roots) where every requirement has at least one provider; anchors in the same situation form one
         class (`equivalence_classes`)
      -> the solutions of each situation, by depth-first search (`tree_search`)
      -> translated to each anchor of the class: candidates

The product of all groups is never built: the search takes anchors in growing blocks, and stops at the limit. With a
limit, it first tries, for each requirement in each tree, only one of several members that the request cannot tell
apart. It tries their permutations only if the limit is not reached. So the answer has many hosts instead of one host
many times: the first hosts or, with a sample seed, hosts from all over the cloud (`single_choice.stride_for`).

Source: placement API reference, "Allocation candidates"; where it is silent, Placement 16.0.0 measured.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from moorage.placement.forest.columns import Slots
from moorage.placement.forest.forest import Forest
from moorage.placement.search import masks
from moorage.placement.search.equivalence_classes import EquivalenceClass, MemberBlock
from moorage.placement.search.layout import Layout, Places, layout_of
from moorage.placement.search.request import CandidateRequest
from moorage.placement.search.requirements import Requirement, Requirements, SearchKey, requirements_of
from moorage.placement.search.search_budget import COMPARISONS_PER_STEP, MAX_STEPS, BudgetItem, SearchBudget
from moorage.placement.search.single_choice import root_filter, scan_trees, single_choice_trees, stride_for
from moorage.placement.search.tree_search import Solutions, first_solutions, other_solutions

#: A limit: `int`, or `int | None`.
L = TypeVar("L")

#: Minimum size of the first block of anchors; each following block is `GROWTH` times as large.
FIRST_BLOCK = 512
GROWTH = 8
#: A place after all anchors.
END = 2**62
#: Minimum number of candidates checked for duplicates at once.
MIN_DUPLICATE_BATCH = 1024
#: A resource class is rare if fewer than one member in `RARE_FACTOR` has it; rare classes narrow the anchors first.
RARE_FACTOR = 8


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to serve the whole request. Providers are given as slots of the forest."""

    anchor: int  #: slot of the root of its tree
    allocations: Mapping[int, Mapping[str, int]]  # {slot: {class: amount}}
    mappings: Mapping[str, tuple[int, ...]]  # {suffix: slots}


@dataclass(frozen=True, slots=True)
class SearchResult:
    """Candidates of one search, at most `CandidateRequest.limit`."""

    requirements: tuple[Requirement, ...]
    anchors: Slots  #: by candidate: slot of the root of its tree
    chosen: NDArray[np.int32]  #: shape (candidates, requirements): slot of the chosen provider

    def __len__(self) -> int:
        return len(self.anchors)


def list_candidates(
    forest: Forest, request: CandidateRequest, *, max_steps: int = MAX_STEPS, sample: str | None = None
) -> list[Candidate]:
    """The candidates of `find_candidates` as objects, in the same order. Raises the same error."""
    found = find_candidates(forest, request, max_steps=max_steps, sample=sample)
    pairs = zip(found.anchors.tolist(), found.chosen.tolist(), strict=True)
    return [_candidate(found.requirements, anchor, slots) for anchor, slots in pairs]


def _candidate(requirements: Sequence[Requirement], anchor: int, slots: Sequence[int]) -> Candidate:
    allocations: dict[int, dict[str, int]] = {}
    mappings: dict[str, dict[int, None]] = {}
    for requirement, slot in zip(requirements, slots, strict=True):
        mappings.setdefault(requirement.suffix, {})[slot] = None
        for name, amount in requirement.resources.items():
            held = allocations.setdefault(slot, {})
            held[name] = held.get(name, 0) + amount
    return Candidate(anchor, allocations, {suffix: tuple(slots) for suffix, slots in mappings.items()})


def find_candidates(
    forest: Forest, request: CandidateRequest, *, max_steps: int = MAX_STEPS, sample: str | None = None
) -> SearchResult:
    """Finds at most `request.limit` candidates (None: all), each only once.

    Without `sample`, the oldest trees come first. With a limit and the seed `sample`, the trees come from all over the
    cloud, in an order that depends only on the seed. Raises `Invalid` (code placement.query.too_complex) if the search
    needs more than `max_steps` steps.
    """
    requirements = requirements_of(request)
    collector = _Collector(forest, requirements, request.limit)
    trees = single_choice_trees(forest, request)
    if trees is not None:
        for anchors, owners in scan_trees(forest, request, trees, sample):
            collector.add(anchors, owners)
            if collector.is_full:
                break
    elif all(group.is_granular or group.resources for group in request.groups):
        _search(forest, request, requirements, collector, SearchBudget(max_steps), sample)
    return collector.found()


def _search(
    forest: Forest,
    request: CandidateRequest,
    requirements: Requirements,
    collector: "_Collector",
    budget: SearchBudget,
    sample: str | None,
) -> None:
    layout = layout_of(forest)
    blocks: list[list[EquivalenceClass]] = []
    for anchors in _blocks(anchors_for(forest, layout, request, requirements), request.limit, sample):
        block = MemberBlock(forest, layout, requirements, anchors)
        budget.spend(BudgetItem.COMPARING, requirements.size * len(block.slots) // COMPARISONS_PER_STEP)
        blocks.append(block.equivalence_classes())
        _collect(layout, requirements, blocks[-1], first_solutions, request.limit, collector, budget)
        if collector.is_full:
            return
    if request.limit is None:
        return
    for classes in blocks:
        _collect(layout, requirements, classes, other_solutions, request.limit, collector, budget)
        if collector.is_full:
            return


def _blocks(anchors: Places, limit: int | None, sample: str | None) -> Iterator[Places]:
    if sample is not None and limit is not None and len(anchors):
        order, start, size = stride_for(len(anchors), sample), 0, limit
        while start < len(anchors):
            yield anchors[np.sort(order.between(start, start + size))]
            start, size = start + size, size * GROWTH
        return
    start, size = 0, len(anchors) if limit is None else max(FIRST_BLOCK, 2 * limit)
    while start < len(anchors):
        yield anchors[start : start + size]
        start, size = start + size, size * GROWTH


def anchors_for(forest: Forest, layout: Layout, request: CandidateRequest, requirements: Requirements) -> Places:
    """Places in `layout.anchors` of the anchors worth searching, in order: those with the root traits and ``in_tree``.

    If the rarest class of the request is rare (`RARE_FACTOR`), only anchors with a member that has enough of it.
    """
    found = np.arange(len(layout.anchors))
    for spec in requirements.specs:
        # A sharing provider serves a granular group at the anchors of other trees, too.
        if spec.in_tree is not None and not (spec.granular and forest.sharing):
            slot = forest.slot_of_uuid.get(spec.in_tree)
            found = found[layout.anchors[found] == (-1 if slot is None else forest.root_of(slot))]
    rarest: tuple[int, str, int] | None = None
    for spec in requirements.specs:
        for name, amount in spec.resources:
            column = forest.columns.get(name)
            if column is None:
                return np.empty(0, dtype=np.intp)
            if rarest is None or len(column.slots) < rarest[0]:
                rarest = (len(column.slots), name, amount)
    if rarest is not None and rarest[0] * RARE_FACTOR < len(layout.members) and len(found) > 1:
        _, name, amount = rarest
        column = forest.columns[name]
        has = np.zeros(len(forest.roots), dtype=np.bool_)
        has[column.slots[masks.fitting(forest, name, column, amount)[:-1]]] = True
        found = np.intersect1d(found, layout.anchor_of[has[layout.members]])
    if request.root_required or request.root_forbidden:
        found = found[root_filter(forest, request, layout.anchors[found])]
    return found


def _collect(
    layout: Layout,
    requirements: Requirements,
    classes: Sequence[EquivalenceClass],
    solve: Callable[[SearchKey, bytes, L, int], Solutions],
    limit: L,
    collector: "_Collector",
    budget: SearchBudget,
) -> None:
    """Add the solutions of each class at each of its anchors, in the order of the anchors, until the collector is full.

    `classes` must be sorted by their first anchors. A class is searched only if the classes before it have too few
    solutions.
    """
    solved: list[Solutions] = []
    since = 0
    while since < END and classes and not collector.is_full:
        found, wanted = 0, collector.wanted
        while len(solved) < len(classes) and (wanted is None or found < wanted):
            solved.append(solve(requirements.search_key, classes[len(solved)].situation, limit, budget.steps))
            budget.spend(BudgetItem.TRYING, solved[-1].steps)
            found += len(solved[-1].rows)
        until = int(classes[len(solved)].anchors[0]) if len(solved) < len(classes) else END
        _collect_between(layout, classes[: len(solved)], solved, (since, until), collector, budget)
        since = until


def _collect_between(
    layout: Layout,
    classes: Sequence[EquivalenceClass],
    solved: Sequence[Solutions],
    places: tuple[int, int],
    collector: "_Collector",
    budget: SearchBudget,
) -> None:
    """Add the solutions at the anchors with places in the half-open range `places`."""
    anchors = np.concatenate([one.anchors for one in classes])
    lengths = [len(one.anchors) for one in classes]
    counts = np.repeat([len(one.rows) for one in solved], lengths)
    group = np.repeat(np.arange(len(classes)), lengths)
    row = np.concatenate([np.arange(length) for length in lengths])
    order = np.argsort(anchors)
    order = order[slice(*np.searchsorted(anchors[order], places))]
    total = np.cumsum(counts[order])
    start = 0
    while start < len(order) and not collector.is_full:
        before = total[start - 1] if start else 0
        wanted = collector.wanted
        end = len(order) if wanted is None else int(np.searchsorted(total, before + wanted)) + 1
        chosen = order[start:end]
        budget.spend(BudgetItem.LISTING, int(counts[chosen].sum()) * collector.width)
        _translate(layout, classes, solved, group[chosen], row[chosen], collector)
        start = end


def _translate(
    layout: Layout,
    classes: Sequence[EquivalenceClass],
    solved: Sequence[Solutions],
    groups: NDArray[np.intp],
    rows: NDArray[np.intp],
    collector: "_Collector",
) -> None:
    anchors, chosen = [], []
    for group in np.unique(groups).tolist():
        own_rows = rows[groups == group]
        solutions = solved[group].rows
        if len(solutions):
            slots = classes[group].members[own_rows][:, solutions]
            chosen.append(slots.reshape(-1, solutions.shape[1]))
            anchors.append(np.repeat(layout.anchors[classes[group].anchors[own_rows]], len(solutions)))
    if anchors:
        all_anchors = np.concatenate(anchors)
        order = np.argsort(all_anchors, kind="stable")
        collector.add(all_anchors[order], np.concatenate(chosen)[order])


class _Collector:
    """Collects candidates and drops duplicates."""

    def __init__(self, forest: Forest, requirements: Requirements, limit: int | None) -> None:
        self._requirements = requirements.requirements
        self._limit = limit
        self._count = 0
        self._anchors: list[Slots] = []
        self._chosen: list[NDArray[np.int32]] = []
        # Several anchors can have the same candidate only if all its providers are sharing ones: any other provider
        # serves only the anchor of its own tree.
        self._shares = masks.is_sharing(forest) if forest.sharing else None
        self._seen: set[tuple[int, ...]] = set()

    @property
    def width(self) -> int:
        return len(self._requirements)

    @property
    def is_full(self) -> bool:
        return self._limit is not None and self._count >= self._limit

    @property
    def wanted(self) -> int | None:
        """Number of candidates to examine next; None: all."""
        if self._limit is None:
            return None
        left = self._limit - self._count
        return left if self._shares is None else max(left, MIN_DUPLICATE_BATCH)

    def add(self, anchors: Slots, chosen: NDArray[np.int32]) -> None:
        if self._shares is not None:
            anchors, chosen = self._without_duplicates(self._shares, anchors, chosen)
        if self._limit is not None:
            left = self._limit - self._count
            anchors, chosen = anchors[:left], chosen[:left]
        self._count += len(anchors)
        self._anchors.append(anchors)
        self._chosen.append(chosen)

    def _without_duplicates(
        self, shares: masks.Mask, anchors: Slots, chosen: NDArray[np.int32]
    ) -> tuple[Slots, NDArray[np.int32]]:
        duplicates: masks.Mask = np.asarray(shares[chosen].all(axis=1), dtype=np.bool_)
        for place in np.flatnonzero(duplicates).tolist():
            key = tuple(chosen[place].tolist())
            duplicates[place] = key in self._seen
            self._seen.add(key)
        return anchors[~duplicates], chosen[~duplicates]

    def found(self) -> SearchResult:
        if not self._anchors:
            nothing = np.empty((0, self.width), dtype=np.int32)
            return SearchResult(
                self._requirements, nothing[:, 0] if self.width else np.empty(0, dtype=np.int32), nothing
            )
        return SearchResult(self._requirements, np.concatenate(self._anchors), np.concatenate(self._chosen))
