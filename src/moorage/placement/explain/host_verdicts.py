"""Results by host for one request, cached with the forest until a provider near the host changes.

A result depends only on the request and on the providers near the host: its tree, and the providers that share with it.
`RequestFingerprint` reduces each provider to bits, one for each condition of the request. Most writes are claims after
which another such claim still fits. Then no bit changes, and no host is examined again, even if all hosts share the
changed provider. Otherwise only the hosts near changed providers are examined again.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

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

#: Nothing is cached for requests with longer keys, because hostile requests would fill the memory.
MAX_KEY_LENGTH = 4000


#: A bit for each condition, in the smallest sufficient integer type.
Bits = NDArray[np.uint64]


MAX_FINGERPRINT_BITS = 64


@dataclass(frozen=True, slots=True)
class RequestFingerprint:
    """The conditions on a provider on which the answer to a request depends, apart from the tree structure."""

    units: tuple[tuple[str, int], ...]  #: (class, amount): the amount fits
    traits: tuple[frozenset[str], ...]  #: the provider has one of these
    aggregates: tuple[frozenset[str], ...]  #: the provider is in one of these

    def bits(self, forest: Forest, slots: Slots) -> Bits:
        """By index in `slots`: one bit per condition, set if the provider meets it."""
        count = len(self.units) + len(self.traits) + len(self.aggregates)
        found: Bits = np.zeros(len(slots), dtype=np.min_scalar_type((1 << count) - 1))
        for number, mask in enumerate(self._masks(forest, slots)):
            found[mask] |= 1 << number
        return found

    def is_short(self, forest: Forest, slots: Slots, bits: Bits) -> Mask:
        """By index in `slots`: True if the provider has a class, but too few units.

        `bits`: the result of `bits(slots)`.
        """
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
    """The fingerprint of `request`. None if bits are not enough, because several groups compete for units of a
    provider, or because there are too many conditions.
    """
    if "fingerprint" not in request.memo:
        request.memo["fingerprint"] = None if requirements_of(request).contested else _compiled_fingerprint(request)
    found = request.memo["fingerprint"]
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
    """All hosts, in order: the trees that do not consist of sharing providers only."""

    def __init__(self, forest: Forest, request: CandidateRequest) -> None:
        self._forest = forest
        self._request = request
        self._request_key = _request_key(request)
        self._last_subset: HostSubset | None = None
        self._stamps = forest.providers.stamps()
        self._last_changed: tuple[Sequence[Stamps], Slots] | None = None
        self._fingerprint = fingerprint_of(request)
        self._last_bits: tuple[Slots, Bits] | None = None
        self.layout = layout_of(forest)
        self._hosts = _hosts(forest, self.layout)

    def __len__(self) -> int:
        return len(self.anchors)

    @property
    def anchors(self) -> Places:
        return self._hosts.anchors

    @property
    def members(self) -> int:
        """Upper bound of the number of providers near any host."""
        return len(self.layout.members)

    def subset(self, anchors: Places) -> HostSubset:
        """The subset of these anchors. A repeated call returns the same object, with its cached results."""
        if self._last_subset is None or not np.array_equal(self._last_subset.anchors, anchors):
            block = MemberBlock(self._forest, self.layout, requirements_of(self._request), anchors)
            self._last_subset = HostSubset(anchors, block, group_masks(self._forest, self._request, block))
        return self._last_subset

    def providers_near(self, anchor: int) -> list[Provider]:
        """The root of the host's tree first, sharing providers last."""
        start, end = self.layout.starts[anchor : anchor + 2].tolist()
        return [self._forest.at(slot) for slot in self.layout.members[start:end].tolist()]

    def by_host(self, what: str, find: Callable[[HostSubset], NDArray[N]], *, weighs: bool = False) -> NDArray[N]:
        """The results of `find` for each host; the same array as in the last call if nothing has changed.

        `what`: a name for the results. `weighs`: they also depend on the number of missing units.
        """
        if len(self._request_key) > MAX_KEY_LENGTH:
            return find(self.subset(self.anchors))

        def revised(last: _StoredVerdicts[N] | None) -> _StoredVerdicts[N]:
            if last is None:
                bits = self._bits(np.arange(len(self._forest.roots), dtype=np.int32))
                return _StoredVerdicts(self._stamps, bits, find(self.subset(self.anchors)))
            slots = self._changed(last.stamps)
            if not len(slots):
                return last
            bits, slots = self._changed_bits(slots, last.bits, weighs=weighs)
            changed = self._near(slots) if len(slots) else _NONE
            if not len(changed):
                return _StoredVerdicts(self._stamps, bits, last.found)
            return _StoredVerdicts(
                self._stamps, bits, _replaced(last.found, changed, find(self.subset(self.anchors[changed])))
            )

        return self._forest.memo.revised((what, self._request_key), (self.layout, self._hosts), revised).found

    def cached(self, what: str, found: NDArray[np.generic], anchors: Iterable[int], make: Callable[[], T]) -> T:
        """The cached result of `make`, which may depend only on `found`, a result of `by_host`, and on the providers
        near `anchors`.
        """
        if len(self._request_key) > MAX_KEY_LENGTH:
            return make()
        near = [provider for anchor in anchors for provider in self.providers_near(anchor)]
        return self._forest.memo.get((what, self._request_key), (self.layout, found, *near), make)

    def _changed(self, before: Sequence[Stamps]) -> Slots:
        """Slots of the providers that have changed since `before`."""
        if self._last_changed is None or self._last_changed[0] is not before:
            self._last_changed = before, _differing_slots(before, self._stamps)
        return self._last_changed[1]

    def _bits(self, slots: Slots) -> Bits | None:
        return None if self._fingerprint is None else self._fingerprint.bits(self._forest, slots)

    def _changed_bits(self, slots: Slots, before: Bits | None, *, weighs: bool) -> tuple[Bits | None, Slots]:
        """(bits of all providers, those of `slots` whose change matters for the request)."""
        if self._fingerprint is None or before is None:
            return None, slots
        if self._last_bits is None or self._last_bits[0] is not slots:
            self._last_bits = slots, self._fingerprint.bits(self._forest, slots)
        bits = self._last_bits[1]
        differ = bits != before[slots]
        all_bits = before
        if differ.any():
            all_bits = before.copy()
            all_bits[slots] = bits
        return all_bits, slots[differ | self._fingerprint.is_short(self._forest, slots, bits) if weighs else differ]

    def _near(self, slots: Slots) -> Places:
        """Places of the hosts near these providers."""
        forest, layout = self._forest, self.layout
        if layout.has_shared:
            touched = np.zeros(len(forest.roots), dtype=np.bool_)
            touched[slots] = True
            roots = layout.anchors[layout.anchor_of[touched[layout.members]]]
        else:
            roots = forest.roots[slots]
        places = self._hosts.place_at[roots[roots >= 0]]
        return np.unique(places[places >= 0])


def _differing_slots(before: Sequence[Stamps], after: Sequence[Stamps]) -> Slots:
    """Slots with different stamps. Both have the same number of slots, because the trees are the same."""
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
    stamps: Sequence[Stamps]  #: of the providers when the results were computed
    bits: Bits | None  #: by slot: fingerprint of each provider; None if the request has none
    found: NDArray[N]  #: by host


def _replaced(values: NDArray[N], places: Places, new: NDArray[N]) -> NDArray[N]:
    if (values[places] == new).all():
        return values
    changed = values.copy()
    changed[places] = new
    return changed


@dataclass(frozen=True, slots=True)
class _HostIndex:
    anchors: Places  #: of each host, in order
    place_at: Places  #: by slot of a root: place of its host; -1 for other slots


def _hosts(forest: Forest, layout: Layout) -> _HostIndex:
    def make() -> _HostIndex:
        own = forest.roots[layout.members] == layout.anchors[layout.anchor_of]
        if forest.sharing:
            own &= ~masks.is_sharing(forest)[layout.members]
        anchors = np.unique(layout.anchor_of[own]).astype(np.intp)
        place_at = np.full(len(forest.roots), -1)
        place_at[layout.anchors[anchors]] = np.arange(len(anchors))
        return _HostIndex(anchors, place_at)

    return forest.memo.get("hosts", (layout, forest.sharing, forest.roots), make)


def _request_key(request: CandidateRequest) -> str:
    """A key that is equal for requests with equal meaning, apart from the limit."""
    key = request.memo.get("key")
    if not isinstance(key, str):
        key = request.memo["key"] = repr(replace(request, limit=None))
    return key
