"""Trees with only one way to serve a request, found for all trees at once by array operations.

That is what most requests meet on most hosts: no granular groups, and each class on one provider of the tree or on
one that shares with it. Nothing is to be chosen there, so nothing is searched. Trees with several ways are left to
`moorage.placement.tree_search`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from moorage.placement.columns import Slots
from moorage.placement.forest import Forest
from moorage.placement.query import AllOfAny
from moorage.placement.request import Request, RequestGroup

#: By slot.
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Ways:
    """The trees of a forest as one request divides them; both in the order of slots."""

    only: Slots  #: roots of trees with one way
    owners: NDArray[np.int32]  #: a row per class of the request: who gives it, for each of `only`
    many: Slots  #: roots of the trees that are to be searched


def divide(forest: Forest, request: Request) -> Ways | None:
    """None where the request has granular groups, or is of the time when candidates were not nested."""
    group = request.groups[0]
    if len(request.groups) > 1 or group.is_granular or not group.resources or (forest.is_nested and not request.nested):
        return None
    offering = _Offering(forest, group)
    alive = roots_with(forest, request) & offering.roots
    several = np.zeros(len(alive), dtype=np.bool_)
    owners = np.zeros((len(group.resources), len(alive)), dtype=np.int32)
    for row, (name, amount) in enumerate(group.resources.items()):
        count = offering.owners_of(name, amount, owners[row])
        alive &= count > 0
        several |= count > 1
    only = np.flatnonzero(alive & ~several)
    owners = owners[:, only]
    held = _traits_held(forest, owners, group.traits.required)
    return Ways(only[held].astype(np.int32), owners[:, held], np.flatnonzero(alive & several).astype(np.int32))


def roots_with(forest: Forest, request: Request) -> Mask:
    """Roots of trees that have the root's traits in the request."""
    alive = root_mask(forest)
    for trait in request.root_required:
        alive &= with_any(forest, frozenset((trait,)))
    if request.root_forbidden:
        alive &= ~with_any(forest, request.root_forbidden)
    return alive


def root_mask(forest: Forest) -> Mask:
    """By slot: is it the root of a tree?"""
    return np.asarray(forest.roots == np.arange(len(forest.roots)), dtype=np.bool_)


def with_any(forest: Forest, traits: frozenset[str]) -> Mask:
    """Providers with at least one of these traits."""
    mask = np.zeros(len(forest.roots), dtype=np.bool_)
    for trait in traits:
        if (slots := forest.with_trait.get(trait)) is not None:
            mask[slots] = True
    return mask


def members_of_any(forest: Forest, aggregates: frozenset[str]) -> Mask:
    """Members of at least one of these aggregates."""
    mask = np.zeros(len(forest.roots), dtype=np.bool_)
    for aggregate in aggregates:
        members = forest.aggregates.get(aggregate, frozenset())
        mask[np.fromiter(members, dtype=np.int32, count=len(members))] = True
    return mask


class _Offering:
    """Which providers the traits, aggregates and `in_tree` of the unsuffixed group leave, in their tree and shared.

    An aggregate of the root spans its whole tree, required or forbidden; what is shared must be a member itself.
    """

    def __init__(self, forest: Forest, group: RequestGroup) -> None:
        self._forest = forest
        count = len(forest.roots)
        self.roots: Mask = np.ones(count, dtype=np.bool_)
        free: Mask = np.ones(count, dtype=np.bool_)
        if group.traits.forbidden:
            free &= ~with_any(forest, group.traits.forbidden)
        if group.aggregates.forbidden:
            outside = ~members_of_any(forest, group.aggregates.forbidden)
            free &= outside
            self.roots &= outside
        member: Mask = np.ones(count, dtype=np.bool_)
        for any_of in group.aggregates.required:
            member &= members_of_any(forest, any_of)
        if group.in_tree is not None:
            slot = forest.slot_of_uuid.get(group.in_tree)
            self.roots &= np.arange(count) == (-1 if slot is None else forest.root_of(slot))
        self._local: Mask = free & (member | member[forest.roots])
        self._shared: Mask = free & member
        self._shares = forest.sharing if group.in_tree is None else frozenset[int]()

    def owners_of(self, name: str, amount: int, owner: NDArray[np.int32]) -> NDArray[np.intp]:
        """By root: how many could give it; `owner` is set to one of them."""
        forest = self._forest
        column = forest.columns.get(name)
        if column is None:
            return np.zeros(len(forest.roots), dtype=np.intp)
        slots = column.fitting(amount)
        local = slots[self._local[slots]]
        roots = forest.roots[local]
        owner[roots] = local
        count = np.bincount(roots, minlength=len(forest.roots))
        for slot in sorted(self._shares.intersection(slots.tolist())) if self._shares else ():
            if self._shared[slot]:
                near = list(forest.roots_near(slot) - {forest.root_of(slot)})
                owner[near] = slot
                count[near] += 1
        return count


def _traits_held(forest: Forest, owners: NDArray[np.int32], required: AllOfAny) -> Mask:
    """Do the providers of each way have one of each of these sets, together?"""
    held: Mask = np.ones(owners.shape[1], dtype=np.bool_)
    for any_of in required:
        held &= with_any(forest, any_of)[owners].any(axis=0)
    return held
