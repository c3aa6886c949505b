"""Results by host for one request, kept with the forest until a provider near the host changes.

A result depends on the request and on the providers near the host (its tree, and the providers that share with it),
and on nothing else. `RequestFingerprint` reduces each provider to the bits that the request can notice. Most writes
are claims that leave room for another one, so no bit changes and no host is examined again, even if the changed
provider is a store that all hosts share. Otherwise only the hosts near changed providers are evaluated again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from moorage.placement.forest.columns import Slots
from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import Provider
from moorage.placement.forest.persistent_list import CHUNK_BITS, Stamps
from moorage.placement.search import masks
from moorage.placement.search.constraints import GroupMasks, group_masks
from moorage.placement.search.equivalence_classes import MemberBlock
from moorage.placement.search.layout import Layout, Places, layout_of
from moorage.placement.search.masks import Mask
from moorage.placement.search.request import CandidateRequest
from moorage.placement.search.requirements import UNSATISFIABLE_AMOUNT, requirements_of

T = TypeVar("T")
N = TypeVar("N", bound=np.generic)

#: Nothing is kept for requests with longer keys: hostile ones would fill the memory.
MAX_KEY_LENGTH = 4000


#: A bit for each condition, in the smallest sufficient integer type.
Bits = NDArray[np.unsignedinteger[Any]]


MAX_FINGERPRINT_BITS = 64


@dataclass(frozen=True, slots=True)
class RequestFingerprint:
    """The conditions on a provider that the answer to a request depends on, apart from the tree structure."""

    units: tuple[tuple[str, int], ...]  #: (class, amount): the amount fits
    traits: tuple[frozenset[str], ...]  #: the provider has one of these
    aggregates: tuple[frozenset[str], ...]  #: the provider is in one of these

    def bits(self, forest: Forest, slots: Slots) -> Bits:
        """By index in `slots`: one bit per condition that the provider meets: units, traits, aggregates."""
        count = len(self.units) + len(self.traits) + len(self.aggregates)
        found: Bits = np.zeros(len(slots), dtype=np.min_scalar_type((1 << count) - 1))
        for number, mask in enumerate(self._masks(forest, slots)):
            found[mask] |= 1 << number
        return found

    def is_short(self, forest: Forest, slots: Slots, bits: Bits) -> Mask:
        """By index in `slots`, with their `bits`: True if the provider has a class, but too little. The bits have no amounts."""
        found = np.zeros(len(slots), dtype=np.bool_)
        for number, (name, _) in enumerate(self.units):
            if (column := forest.columns.get(name)) is not None:
                found |= (masks.rows_at(forest, name, slots) < len(column.slots)) & (bits & (1 << number) == 0)
        return found

    def _masks(self, forest: Forest, slots: Slots) -> Iterator[Mask]:
        for name, amount in self.units:
            yield masks.fits(forest, name, amount, masks.rows_at(forest, name, slots))
        for any_of in self.traits:
            yield masks.with_any(forest, any_of)[slots]
        for any_of in self.aggregates:
            yield masks.members_of_any(forest, any_of)[slots]


def fingerprint_of(request: CandidateRequest) -> RequestFingerprint | None:
    """The fingerprint of `request`; None if bits are not enough, because several groups compete for a provider's units, or
    because there are too many conditions.
    """
    if "noticed" not in request.memo:
        request.memo["noticed"] = None if requirements_of(request).contested else _compiled_fingerprint(request)
    found = request.memo["noticed"]
    return found if isinstance(found, RequestFingerprint) else None


def _compiled_fingerprint(request: CandidateRequest) -> RequestFingerprint | None:
    units: dict[tuple[str, int], None] = {}
    traits = dict.fromkeys(frozenset((trait,)) for trait in (*request.root_required, *request.root_forbidden))
    aggregates: dict[frozenset[str], None] = {}
    for group in request.groups:
        units |= dict.fromkeys((name, min(amount, UNSATISFIABLE_AMOUNT)) for name, amount in group.resources.items())
        traits |= dict.fromkeys((*group.traits.required, group.traits.forbidden))
        aggregates |= dict.fromkeys((*group.aggregates.required, group.aggregates.forbidden))
    if len(units) + len(traits) + len(aggregates) > MAX_FINGERPRINT_BITS:
        return None
    return RequestFingerprint(tuple(units), tuple(filter(None, traits)), tuple(filter(None, aggregates)))


@dataclass(frozen=True, slots=True)
class HostSubset:
    """Some hosts, and each group's constraints applied to the providers near them."""

    anchors: Places
    block: MemberBlock
    groups: Sequence[GroupMasks]


class HostVerdicts:
    """All hosts in order: the trees that are more than one provider shared by others."""

    def __init__(self, forest: Forest, request: CandidateRequest) -> None:
        self._forest = forest
        self._request = request
        self._words = _words(request)
        self._asked: HostSubset | None = None
        self._stamps = forest.providers.stamps()
        self._since: tuple[Sequence[Stamps], Slots] | None = None
        self._noticed = fingerprint_of(request)
        self._noticed_last: tuple[Slots, Bits] | None = None
        self.layout = layout_of(forest)
        self._listed = _listed(forest, self.layout)

    def __len__(self) -> int:
        return len(self.anchors)

    @property
    def anchors(self) -> Places:
        return self._listed.anchors

    @property
    def members(self) -> int:
        """Upper bound of the number of providers near any host."""
        return len(self.layout.members)

    def some(self, anchors: Places) -> HostSubset:
        """The same object as last time for the same anchors, with everything computed since."""
        if self._asked is None or not np.array_equal(self._asked.anchors, anchors):
            block = MemberBlock(self._forest, self.layout, requirements_of(self._request), anchors)
            self._asked = HostSubset(anchors, block, group_masks(self._forest, self._request, block))
        return self._asked

    def providers_near(self, anchor: int) -> list[Provider]:
        """The root of the host's tree first, sharing providers last."""
        start, end = self.layout.starts[anchor : anchor + 2].tolist()
        return [self._forest.at(slot) for slot in self.layout.members[start:end].tolist()]

    def by_host(self, what: str, find: Callable[[HostSubset], NDArray[N]], *, weighs: bool = False) -> NDArray[N]:
        """The results of `find` for each host; the same array as before if nothing has changed.

        `weighs`: the result also depends on how many units are missing.
        """
        if len(self._words) > MAX_KEY_LENGTH:
            return find(self.some(self.anchors))

        def revised(last: _StoredVerdicts[N] | None) -> _StoredVerdicts[N]:
            if last is None:
                bits = self._bits(np.arange(len(self._forest.roots), dtype=np.int32))
                return _StoredVerdicts(self._stamps, bits, find(self.some(self.anchors)))
            slots = self._changed(last.stamps)
            if not len(slots):
                return last
            bits, slots = self._noticed_at(slots, last.bits, weighs=weighs)
            changed = self._near(slots) if len(slots) else _NONE
            if not len(changed):
                return _StoredVerdicts(self._stamps, bits, last.found)
            return _StoredVerdicts(
                self._stamps, bits, _replaced(last.found, changed, find(self.some(self.anchors[changed])))
            )

        return self._forest.memo.revised((what, self._words), (self.layout, self._listed), revised).found

    def kept(self, what: str, found: NDArray[Any], anchors: Iterable[int], make: Callable[[], T]) -> T:
        """The result of `make`, which depends on the results by host and on the providers near these anchors."""
        if len(self._words) > MAX_KEY_LENGTH:
            return make()
        near = [provider for anchor in anchors for provider in self.providers_near(anchor)]
        return self._forest.memo.get((what, self._words), (self.layout, found, *near), make)

    def _changed(self, before: Sequence[Stamps]) -> Slots:
        """Slots of the providers that have changed."""
        if self._since is None or self._since[0] is not before:
            self._since = before, _differing(before, self._stamps)
        return self._since[1]

    def _bits(self, slots: Slots) -> Bits | None:
        return None if self._noticed is None else self._noticed.bits(self._forest, slots)

    def _noticed_at(self, slots: Slots, before: Bits | None, *, weighs: bool) -> tuple[Bits | None, Slots]:
        """The bits of all providers, and those of `slots` whose change the request can notice."""
        if self._noticed is None or before is None:
            return None, slots
        if self._noticed_last is None or self._noticed_last[0] is not slots:
            self._noticed_last = slots, self._noticed.bits(self._forest, slots)
        bits = self._noticed_last[1]
        differ = bits != before[slots]
        seen = before
        if differ.any():
            seen = before.copy()
            seen[slots] = bits
        return seen, slots[differ | self._noticed.is_short(self._forest, slots, bits) if weighs else differ]

    def _near(self, slots: Slots) -> Places:
        """Places of the hosts near these providers."""
        forest, layout = self._forest, self.layout
        if layout.has_shared:
            touched = np.zeros(len(forest.roots), dtype=np.bool_)
            touched[slots] = True
            roots = layout.anchors[layout.anchor_of[touched[layout.members]]]
        else:
            roots = forest.roots[slots]
        places = self._listed.place_at[roots[roots >= 0]]
        return np.unique(places[places >= 0])


def _differing(before: Sequence[Stamps], after: Sequence[Stamps]) -> Slots:
    """Slots with another stamp. The number of slots is the same, otherwise the trees would differ."""
    pairs = enumerate(zip(before, after, strict=True))
    found = [
        np.flatnonzero(old != new).astype(np.int32) + (number << CHUNK_BITS)
        for number, (old, new) in pairs
        if old is not new
    ]
    return np.concatenate(found) if found else np.empty(0, dtype=np.int32)


_NONE: Places = np.empty(0, dtype=np.intp)


@dataclass(frozen=True, slots=True)
class _StoredVerdicts(Generic[N]):
    stamps: Sequence[Stamps]  #: of the providers, as they were then
    bits: Bits | None  #: by slot: fingerprint of each provider; None if the request has none
    found: NDArray[N]  #: by host


def _replaced(values: NDArray[N], places: Places, new: NDArray[N]) -> NDArray[N]:
    if (values[places] == new).all():
        return values
    changed = values.copy()
    changed[places] = new
    return changed


@dataclass(frozen=True, slots=True)
class _Listed:
    anchors: Places  #: of each host, in order
    place_at: Places  #: by slot: place of the host whose root it is, -1 where it is none's


def _listed(forest: Forest, layout: Layout) -> _Listed:
    def make() -> _Listed:
        own = forest.roots[layout.members] == layout.anchors[layout.anchor_of]
        if forest.sharing:
            own &= ~masks.is_sharing(forest)[layout.members]
        anchors = np.unique(layout.anchor_of[own]).astype(np.intp)
        place_at = np.full(len(forest.roots), -1)
        place_at[layout.anchors[anchors]] = np.arange(len(anchors))
        return _Listed(anchors, place_at)

    return forest.memo.get("hosts", (layout, forest.sharing, forest.roots), make)


def _words(request: CandidateRequest) -> str:
    """A key that differs for requests with different meaning; without the limit."""
    words = request.memo.get("words")
    if not isinstance(words, str):
        words = request.memo["words"] = repr(replace(request, limit=None))
    return words
