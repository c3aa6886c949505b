"""Allocation candidates: which providers could together give what a request wants.

    forest + Request -> trees with only one way: those are candidates (`moorage.placement.only_ways`)
                     -> other anchors (roots of trees where every group could be served, by array operations)
                     -> per anchor: Choices (each class of the unsuffixed group and each granular group is one
                        choice with the slots that could serve it)
                     -> depth-first over the choices, pruned by capacity, policy and subtree -> Candidates

The product of groups is never built: candidates come one by one, and whoever has enough stops. Two things keep
the depth-first search from getting lost among equal devices:

* with a limit, equal devices (leaves with the same parent, traits, aggregates, inventory and usage) are one
  device at first: only one of each set of equals is tried per choice, over all trees; only if that does not fill
  the limit the permutations follow. So a limit shows many hosts instead of one host many times.
* a state from which nothing was found is remembered up to the exchange of equal devices, so that eight groups on
  seven equal devices fail at once and not after 8! tries.

Source: placement API reference, "Allocation candidates"; where it is silent, Placement 16.0.0 measured.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from moorage.placement.forest import Forest
from moorage.placement.model import Provider
from moorage.placement.only_ways import Mask, Ways, divide, roots_with
from moorage.placement.query import in_aggregates, meets
from moorage.placement.request import Request, RequestGroup
from moorage.placement.tree_search import MAX_STEPS, Budget, Candidate, Choice, TreeSearch


@dataclass(frozen=True, slots=True)
class Found:
    """Candidates of one search, at most as many as the limit says."""

    #: Slots of providers that alone give all of the unsuffixed group, which is all that is wanted.
    alone: list[int]
    others: list[Candidate]


def search(forest: Forest, request: Request, *, max_steps: int = MAX_STEPS) -> list[Candidate]:
    """The candidates of `find`, in one form."""
    found = find(forest, request, max_steps=max_steps)
    return [*(alone(forest, request, slot) for slot in found.alone), *found.others]


def alone(forest: Forest, request: Request, slot: int) -> Candidate:
    """The candidate that one slot of `Found.alone` stands for."""
    return Candidate(forest.root_of(slot), {slot: request.groups[0].resources}, {"": (slot,)})


def find(forest: Forest, request: Request, *, max_steps: int = MAX_STEPS) -> Found:
    """At most `request.limit` candidates. Raises `Invalid` (code placement.query.too_complex) beyond `max_steps`."""
    ways = divide(forest, request)
    if ways is None:
        seen: set[object] = set()
        return Found([], _searched(forest, request, anchors(forest, request), request.limit, seen, Budget(max_steps)))
    found, seen = _only(forest, request, ways)
    left = None if request.limit is None else request.limit - len(found.alone) - len(found.others)
    if left == 0 or not len(ways.many):
        return found
    more = _searched(forest, request, ways.many.tolist(), left, seen, Budget(max_steps))
    return Found(found.alone, found.others + more)


def _only(forest: Forest, request: Request, ways: Ways) -> tuple[Found, set[object]]:
    """What needs no search, and what was seen of it, where the same can come up again."""
    seen: set[object] = set()
    owners = ways.owners if forest.sharing else ways.owners[:, : request.limit]
    is_alone = (owners == owners[0]).all(axis=0)
    if not forest.sharing:
        roots, others = ways.only[: request.limit][~is_alone].tolist(), owners[:, ~is_alone].T.tolist()
        found = [_way(request, root, owner) for root, owner in zip(roots, others, strict=True)]
        return Found(owners[0][is_alone].tolist(), found), seen
    found = [
        candidate
        for root, owner in zip(ways.only.tolist(), owners.T.tolist(), strict=True)
        if _is_new(candidate := _way(request, root, owner), seen)
    ]
    return Found([], found[: request.limit]), seen


def _way(request: Request, root: int, owners: Sequence[int]) -> Candidate:
    allocations: dict[int, dict[str, int]] = {}
    for (name, amount), slot in zip(request.groups[0].resources.items(), owners, strict=True):
        allocations.setdefault(slot, {})[name] = amount
    return Candidate(root, allocations, {"": tuple(allocations)})


def _searched(
    forest: Forest, request: Request, roots: Iterable[int], limit: int | None, seen: set[object], budget: Budget
) -> list[Candidate]:
    found: list[Candidate] = []
    again: list[TreeSearch] = []
    for anchor in roots:
        choices = choices_at(forest, anchor, request)
        if not choices:
            continue
        tree = TreeSearch(forest, request, anchor, choices, budget)
        equals_as_one = request.limit is not None and tree.has_equals
        if equals_as_one:
            again.append(tree)
        for candidate in tree.run(equals_as_one=equals_as_one):
            if (equals_as_one or forest.sharing) and not _is_new(candidate, seen):
                continue
            found.append(candidate)
            if len(found) == limit:
                return found
    for tree in again:
        for candidate in tree.run(equals_as_one=False):
            if _is_new(candidate, seen):
                found.append(candidate)
                if len(found) == limit:
                    return found
    return found


def _is_new(candidate: Candidate, seen: set[object]) -> bool:
    """The same allocations can come up under several anchors (sharing providers) and in both passes."""
    key = (
        tuple(sorted((slot, tuple(sorted(amounts.items()))) for slot, amounts in candidate.allocations.items())),
        tuple(sorted((suffix, tuple(sorted(slots))) for suffix, slots in candidate.mappings.items())),
    )
    if key in seen:
        return False
    seen.add(key)
    return True


# --- where to look ----------------------------------------------------------------------------------------------


def anchors(forest: Forest, request: Request) -> Iterator[int]:
    """Slots of the roots where each class of each group is to be had, taken alone; in order."""
    alive = roots_with(forest, request)
    for group in request.groups:
        for name, amount in group.resources.items():
            alive &= _anchors_with(forest, group, name, amount)
    yield from np.flatnonzero(alive).tolist()


def _anchors_with(forest: Forest, group: RequestGroup, name: str, amount: int) -> Mask:
    near = np.zeros(len(forest.roots), dtype=np.bool_)
    column = forest.columns.get(name)
    if column is None:
        return near
    slots = column.fitting(amount)
    near[forest.roots[slots]] = True
    if forest.sharing and (group.is_granular or group.in_tree is None):
        for slot in forest.sharing.intersection(slots.tolist()):
            near[list(forest.roots_near(slot))] = True
    return near


# --- what could serve each group there --------------------------------------------------------------------------


def choices_at(forest: Forest, anchor: int, request: Request) -> list[Choice]:
    """The choices to be made at this anchor; empty when one of them has nothing to choose from."""
    shared = forest.sharing_with(anchor)
    choices: list[Choice] = []
    for group in request.groups:
        mine = (
            granular_choice(forest, anchor, shared, group)
            if group.is_granular
            else spread_choices(forest, anchor, shared, group)
        )
        if not mine or not all(choice.slots for choice in mine):
            return []
        choices += mine
    return choices


def granular_choice(forest: Forest, anchor: int, shared: Sequence[int], group: RequestGroup) -> list[Choice]:
    """All resources, traits and aggregates of the group on one provider; aggregates of its root do not count."""
    if not group.resources and not group.traits.required and not group.aggregates.required:
        # The peer finds nothing for a group that only says what it does not want.
        return []
    tree = _wanted_tree(forest, group)
    slots = tuple(
        slot
        for slot in (*forest.trees[anchor], *shared)
        if (tree is None or forest.root_of(slot) == tree) and _serves(forest.at(slot), group)
    )
    return [Choice(group.suffix, tuple(group.resources.items()), slots)]


def _serves(provider: Provider, group: RequestGroup) -> bool:
    return (
        all(provider.fits(name, amount) for name, amount in group.resources.items())
        and group.traits.forbidden.isdisjoint(provider.traits)
        and meets(group.traits.required, provider.traits)
        and in_aggregates(provider.aggregates, group.aggregates)
    )


def spread_choices(forest: Forest, anchor: int, shared: Sequence[int], group: RequestGroup) -> list[Choice]:
    """One choice per class: a provider of the tree, or one that shares with it.

    An aggregate of the root spans its whole tree, required or forbidden. Required traits are for all providers of
    the candidate together and looked at when those are known; a forbidden one rules a provider out at once.
    """
    tree = _wanted_tree(forest, group)
    root = forest.at(anchor)
    local = forest.trees[anchor] if tree is None or tree == anchor else ()
    if not group.aggregates.forbidden.isdisjoint(root.aggregates):
        return []
    spanned = meets(group.aggregates.required, root.aggregates)
    eligible = [slot for slot in local if spanned or meets(group.aggregates.required, forest.at(slot).aggregates)]
    if tree is None:
        eligible += [slot for slot in shared if meets(group.aggregates.required, forest.at(slot).aggregates)]
    free = [
        slot
        for slot in eligible
        if group.aggregates.forbidden.isdisjoint(forest.at(slot).aggregates)
        and group.traits.forbidden.isdisjoint(forest.at(slot).traits)
    ]
    return [
        Choice("", ((name, amount),), tuple(slot for slot in free if forest.at(slot).fits(name, amount)))
        for name, amount in group.resources.items()
    ]


def _wanted_tree(forest: Forest, group: RequestGroup) -> int | None:
    """Slot of the root of `in_tree`; -1, which no provider has, where that provider does not exist."""
    if group.in_tree is None:
        return None
    slot = forest.slot_of_uuid.get(group.in_tree)
    return -1 if slot is None else forest.root_of(slot)
