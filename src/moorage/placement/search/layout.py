"""The providers that could serve at each anchor, for all trees in one pair of arrays.

The members of an *anchor* (the root of a tree) are contiguous: its own tree, the root first and parents before
children, then the sharing providers of other trees, by slot.
"""

from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from moorage.placement.forest.columns import Slots
from moorage.placement.forest.forest import Forest

Places = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Layout:
    """The members of the anchor at place ``i`` are ``members[starts[i] : starts[i + 1]]``."""

    anchors: Slots  #: ascending
    starts: Places
    members: Slots
    anchor_of: Slots  #: by member: place of its anchor
    has_shared: bool

    def members_of(self, anchors: Places) -> tuple[Places, Places]:
        """(places of the members of `anchors`, concatenated; by anchor: index of its first member in these)."""
        if len(anchors) == len(self.anchors):
            return np.arange(len(self.members)), self.starts[:-1]
        begin, end = self.starts[anchors], self.starts[anchors + 1]
        lengths = end - begin
        starts = np.cumsum(lengths) - lengths
        return np.arange(int(lengths.sum())) + np.repeat(begin - starts, lengths), starts


def layout_of(forest: Forest) -> Layout:
    """The layout of all trees; cached while trees, aggregates and sharing providers stay the same."""
    shared = (forest.aggregates, forest.sharing) if forest.sharing else ()
    return forest.memo.get("layout", (forest.trees, *shared), lambda: _compute_layout(forest))


def _compute_layout(forest: Forest) -> Layout:
    anchors = np.array(sorted(forest.trees), dtype=np.int32)
    trees = [forest.trees[root] for root in anchors.tolist()]
    lengths = np.fromiter(map(len, trees), dtype=np.intp, count=len(trees))
    members = np.fromiter(chain.from_iterable(trees), dtype=np.int32, count=int(lengths.sum()))
    anchor_of = np.repeat(np.arange(len(trees), dtype=np.int32), lengths)
    served = [_served_anchors(forest, anchors, slot) for slot in sorted(forest.sharing)]
    if served and sum(map(len, served)):
        sharing = np.repeat(np.array(sorted(forest.sharing), dtype=np.int32), [len(places) for places in served])
        members = np.concatenate((members, sharing))
        anchor_of = np.concatenate((anchor_of, *served)).astype(np.int32)
        order = np.argsort(anchor_of, kind="stable")
        members, anchor_of = members[order], anchor_of[order]
    starts = np.searchsorted(anchor_of, np.arange(len(trees) + 1))
    return Layout(anchors, starts, members, anchor_of, len(members) > int(lengths.sum()))


def _served_anchors(forest: Forest, anchors: Slots, slot: int) -> Slots:
    """Places of the anchors of the other trees with a member in one of the provider's aggregates."""
    own = forest.root_of(slot)
    served = [
        forest.roots[np.fromiter(members, dtype=np.int32, count=len(members))]
        for members in (forest.aggregates[aggregate] for aggregate in forest.at(slot).aggregates)
    ]
    roots = np.unique(np.concatenate(served)) if served else np.empty(0, dtype=np.int32)
    places: Slots = np.searchsorted(anchors, roots[roots != own]).astype(np.int32)
    return places


def nearest_ancestors(forest: Forest) -> NDArray[np.int32]:
    """By member: place of its nearest ancestor among the members of the same anchor; -1 if it has none."""
    layout = layout_of(forest)
    return forest.memo.get("above", (layout, forest.parents), lambda: _compute_nearest_ancestors(forest, layout))


def _compute_nearest_ancestors(forest: Forest, layout: Layout) -> NDArray[np.int32]:
    parents = forest.parents
    result = np.full(len(layout.members), -1, dtype=np.int32)
    local = np.flatnonzero(forest.roots[layout.members] == layout.anchors[layout.anchor_of])
    place = np.full(len(forest.roots), -1, dtype=np.int32)
    place[layout.members[local]] = local
    has_parent = local[parents[layout.members[local]] >= 0]
    result[has_parent] = place[parents[layout.members[has_parent]]]
    shared = np.setdiff1d(np.arange(len(layout.members)), local)
    if (parents[layout.members[shared]] >= 0).any():
        _set_shared_ancestors(layout, parents, shared, result)
    return result


def _set_shared_ancestors(layout: Layout, parents: Slots, shared: Places, result: NDArray[np.int32]) -> None:
    """Sets `result` for sharing providers that are nested below each other. They are rare, and in other trees."""
    place = {(int(layout.anchor_of[at]), int(layout.members[at])): at for at in shared.tolist()}
    for (anchor, slot), at in place.items():
        up = int(parents[slot])
        while up >= 0 and (anchor, up) not in place:
            up = int(parents[up])
        if up >= 0:
            result[at] = place[anchor, up]
