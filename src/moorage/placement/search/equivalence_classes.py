"""Anchors that a request cannot tell apart, grouped by array operations.

A *situation* contains all facts about an anchor that matter for the request. For each member that could serve at least
one spec, these are the specs that it serves, the required traits that it has, the units of each contested class that it
could give (limited to the most that the request could take), and its nearest ancestor among these members.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from moorage.placement.forest.columns import Rows, Slots
from moorage.placement.forest.forest import Forest
from moorage.placement.search import masks
from moorage.placement.search.layout import Layout, Places, nearest_ancestors
from moorage.placement.search.masks import Mask
from moorage.placement.search.requirements import Requirements, Spec
from moorage.placement.search.tree_search import WORD


@dataclass(frozen=True, slots=True)
class EquivalenceClass:
    situation: bytes
    anchors: Places  #: places of the anchors in `Layout.anchors`, ascending
    members: Slots  #: shape (anchors, members of the situation): slot of the member


class MemberBlock:
    """The members of some anchors, and masks of the conditions that they meet. Results are cached in the object."""

    def __init__(self, forest: Forest, layout: Layout, requirements: Requirements, anchors: Places) -> None:
        self._forest = forest
        self._layout = layout
        self.anchors = anchors
        self.places, self.starts = layout.members_of(anchors)
        self.slots: Slots = layout.members[self.places]
        self.roots: Slots = layout.anchors[layout.anchor_of[self.places]]
        self.requirements = requirements
        self._eligible: dict[object, Mask] = {}
        self._fits: dict[tuple[str, int], Mask] = {}
        self._rows: dict[str, Rows] = {}

    def serves(self, spec: Spec) -> Mask:
        """By member: True if it meets all conditions of `spec`, so that it could be chosen for it."""
        if spec.is_empty:
            return np.zeros(len(self.slots), dtype=np.bool_)
        found = self.eligible(spec)
        for name, amount in spec.resources:
            found = found & self.fits(name, amount)
        return found

    def fits(self, name: str, amount: int) -> Mask:
        """By member: True if a new consumer could take `amount` of the class `name` there."""
        cached = self._fits.get((name, amount))
        if cached is None:
            cached = self._fits[name, amount] = masks.fits(self._forest, name, amount, self._rows_of(name))
        return cached

    def available(self, name: str, most: int) -> NDArray[np.int64]:
        """By member: units of the class `name` that one consumer could take there, from 0 to `most`."""
        return masks.available(self._forest, name, most, self._rows_of(name))

    def attainable(self, name: str, wanted: int, member: int) -> int:
        """`Column.attainable_at` for the member at this index in the block; 0 if it does not have the class `name`."""
        column, rows = self._forest.columns.get(name), self._rows_of(name)[member : member + 1]
        if column is None or rows[0] == len(column.slots):
            return 0
        return int(column.attainable_at(rows, wanted)[0])

    def shortage(self, name: str, wanted: int) -> NDArray[np.float64]:
        """By member: `masks.shortage` for the class `name`."""
        return masks.shortage(self._forest, name, wanted, self._rows_of(name), self.fits(name, wanted))

    def _rows_of(self, name: str) -> Rows:
        cached = self._rows.get(name)
        if cached is None:
            cached = self._rows[name] = masks.rows_at(self._forest, name, self.slots)
        return cached

    def eligible(self, spec: Spec) -> Mask:
        """By member: True if it meets the conditions of `spec` on traits, aggregates and tree.

        For the unsuffixed group, an aggregate of the root, required or forbidden, counts for its whole tree. A sharing
        provider, and the provider of a granular group, must itself be in a required aggregate.
        """
        key = (spec.granular, spec.traits, spec.aggregates, spec.in_tree)
        cached = self._eligible.get(key)
        if cached is None:
            cached = self._eligible[key] = self._compute_eligible(spec)
        return cached

    def _compute_eligible(self, spec: Spec) -> Mask:
        forest, slots = self._forest, self.slots
        found = np.ones(len(slots), dtype=np.bool_)
        for any_of in spec.traits.required:
            found &= masks.with_any(forest, any_of)[slots]
        if spec.traits.forbidden:
            found &= ~masks.with_any(forest, spec.traits.forbidden)[slots]
        if spec.aggregates.required:
            inside = masks.in_all(forest, spec.aggregates.required)
            member = inside[slots]
            if not spec.granular:
                member = member | inside[self.roots] & self.is_local
            found &= member
        if spec.aggregates.forbidden:
            inside = masks.members_of_any(forest, spec.aggregates.forbidden)
            found &= ~inside[slots]
            if not spec.granular:
                found &= ~inside[self.roots]
        if spec.in_tree is not None:
            slot = forest.slot_of_uuid.get(spec.in_tree)
            found &= forest.roots[slots] == (-1 if slot is None else forest.root_of(slot))
            if not spec.granular:
                found &= self.is_local
        return found

    @cached_property
    def is_local(self) -> Mask:
        """By member: True if it belongs to its anchor's own tree, False for a sharing provider of another tree."""
        return np.asarray(self._forest.roots[self.slots] == self.roots, dtype=np.bool_)

    @property
    def has_one_each(self) -> bool:
        """True if each anchor has exactly one member: itself."""
        return len(self.slots) == len(self.anchors)

    def by_anchor(self, members: Mask) -> Mask:
        """By anchor: True if the mask `members` is True for at least one member of the anchor."""
        if self.has_one_each:
            return members
        found = np.zeros(len(self.anchors), dtype=np.bool_)
        found[self.local_anchor[members]] = True
        return found

    @cached_property
    def local_anchor(self) -> Places:
        """By member: index of its anchor within this block."""
        return np.repeat(np.arange(len(self.anchors)), np.diff(self.starts, append=len(self.slots)))

    def restricted_to(self, anchors: Mask) -> "MemberBlock":
        """A block of only those anchors for which the mask `anchors` is True."""
        return (
            self if anchors.all() else MemberBlock(self._forest, self._layout, self.requirements, self.anchors[anchors])
        )

    def equivalence_classes(self) -> list[EquivalenceClass]:
        """The anchors where each requirement has at least one provider, by situation; sorted by first anchor."""
        requirements = self.requirements
        served = [self.serves(spec) for spec in requirements.specs]
        viable = np.ones(len(self.anchors), dtype=np.bool_)
        for members in served:
            viable &= self.by_anchor(members)
        if not viable.any():
            return []
        local_anchor = self.local_anchor
        useful = _any_of(served) & viable[local_anchor]
        kept = np.flatnonzero(useful)
        columns = self._columns(kept, useful, served, local_anchor)
        return self._group_by_situation(columns, kept, np.flatnonzero(viable), local_anchor[kept])

    def _columns(self, kept: Places, useful: Mask, served: Sequence[Mask], local_anchor: Places) -> NDArray[np.int64]:
        """The situations of all anchors, one row per kept member, in the format that `tree_search` decodes."""
        requirements, slots = self.requirements, self.slots[kept]
        columns = _words([members[kept] for members in served])
        if requirements.spread_traits:
            spread = _any_of(
                [members for members, spec in zip(served, requirements.specs, strict=True) if not spec.granular]
            )
            traits = masks.with_any_of_all(self._forest, requirements.spread_traits)
            columns += _words([mask[slots] & spread[kept] for mask in traits])
        columns += [self.available(name, most)[kept] for name, most in requirements.contested.items()]
        if requirements.search_key.one_per_tree:
            # Shared providers belong to other trees, identified by their roots; the anchor's own tree is -1.
            roots = self._forest.roots[slots]
            columns.append(np.where(roots == self.roots[kept], -1, roots).astype(np.int64))
        if requirements.search_key.subtrees:
            columns.append(self._nearest_ancestors(kept, useful, local_anchor))
        return np.ascontiguousarray(np.stack(columns, axis=1))

    def _nearest_ancestors(self, kept: Places, useful: Mask, local_anchor: Places) -> NDArray[np.int64]:
        """By useful member: index, among its anchor's useful members, of its nearest useful ancestor; -1: none."""
        layout = self._layout
        up = nearest_ancestors(self._forest)
        number = np.full(len(layout.members), -1, dtype=np.int64)
        anchors = local_anchor[kept]
        first = np.searchsorted(anchors, anchors)
        number[self.places[kept]] = np.arange(len(kept)) - first
        is_kept = np.zeros(len(layout.members), dtype=np.bool_)
        is_kept[self.places[useful]] = True
        nearest = up[self.places[kept]].astype(np.int64)
        while (skipped := (nearest >= 0) & ~is_kept[nearest]).any():
            nearest[skipped] = up[nearest[skipped]]
        return np.where(nearest >= 0, number[nearest], -1)

    def _group_by_situation(
        self, columns: NDArray[np.int64], kept: Places, viable: Places, anchors: Places
    ) -> list[EquivalenceClass]:
        """`anchors`: by kept member, index of its anchor. Each anchor in `viable` has at least one kept member."""
        starts = np.searchsorted(anchors, viable)
        ends = np.append(starts[1:], len(kept))
        width = columns.shape[1] * columns.itemsize
        rows = columns.tobytes()
        groups: dict[bytes, list[int]] = {}
        bounds = zip((starts * width).tolist(), (ends * width).tolist(), strict=True)
        for number, (start, end) in enumerate(bounds):
            groups.setdefault(rows[start:end], []).append(number)
        slots = self.slots[kept]
        found = []
        for situation, numbers in groups.items():
            chosen = np.array(numbers)
            members = slots[starts[chosen][:, None] + np.arange(len(situation) // width)]
            found.append(EquivalenceClass(situation, self.anchors[viable[chosen]], members))
        return found


def _any_of(members: Sequence[Mask]) -> Mask:
    found = members[0]
    for more in members[1:]:
        found = found | more
    return found


def _words(bits: Sequence[Mask]) -> list[NDArray[np.int64]]:
    """Packs flags into integers of `WORD` bits, by member. `bits`: one mask per flag."""
    words = []
    for start in range(0, len(bits), WORD):
        word = np.zeros(len(bits[0]), dtype=np.int64)
        for number, flags in enumerate(bits[start : start + WORD]):
            word |= flags.astype(np.int64) << number
        words.append(word)
    return words
