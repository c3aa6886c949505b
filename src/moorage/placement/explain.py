"""Why there is no candidate: the same search, constraint by constraint.

After each constraint it is counted how many trees (hosts) are left where the group, asked for with the constraints
so far, could be served; those that drop out there are listed with the reason. The last step is the groups together.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from moorage.placement.candidates import choices_at, granular_choice, search, spread_choices
from moorage.placement.forest import Forest
from moorage.placement.model import Provider
from moorage.placement.only_ways import root_mask
from moorage.placement.query import AggregateFilter, TraitFilter, meets
from moorage.placement.request import Request, RequestGroup
from moorage.placement.tree_search import MAX_STEPS, Budget, Choice, TreeSearch


@dataclass(frozen=True, slots=True)
class Removed:
    """A tree that dropped out; `provider` is the name of its root."""

    provider: str
    reason: str


@dataclass(frozen=True, slots=True)
class Step:
    constraint: str
    before: int
    after: int
    removed: tuple[Removed, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    text: str  #: one sentence for humans
    candidates: int
    steps: tuple[Step, ...]


#: Reasons named in the sentence; the steps have them all.
NAMED = 3
#: Candidates counted, where the request has no limit.
COUNTED = 1000

#: Slot of a root -> None where the tree stays, else the reason why it goes.
_Keeps = Callable[[int], str | None]


def explain(forest: Forest, request: Request) -> Explanation:
    alive = _hosts(forest)
    considered = len(alive)
    steps: list[Step] = []
    for constraint, keeps in _constraints(forest, request):
        reasons = {root: keeps(root) for root in alive}
        removed = tuple(Removed(forest.at(root).name, reason) for root, reason in reasons.items() if reason)
        steps.append(Step(constraint, len(alive), len(alive) - len(removed), removed))
        alive = [root for root, reason in reasons.items() if not reason]
        if not alive:
            return Explanation(_refusal(considered, steps), 0, tuple(steps))
    found = search(forest, replace(request, limit=request.limit or COUNTED))
    return Explanation(_success(considered, len(found), len({one.anchor for one in found})), len(found), tuple(steps))


def _hosts(forest: Forest) -> list[int]:
    """Roots of all trees that are more than a provider shared by others."""
    roots = np.flatnonzero(root_mask(forest)).tolist()
    return [root for root in roots if any(not forest.at(slot).is_sharing for slot in forest.trees[root])]


def _constraints(forest: Forest, request: Request) -> Iterator[tuple[str, _Keeps]]:
    """In order: the root's traits, each group's own constraints, all groups together."""
    if request.root_required or request.root_forbidden:
        listed = [*sorted(request.root_required), *(f"!{trait}" for trait in sorted(request.root_forbidden))]
        yield f"root_required={','.join(listed)}", _root_traits(forest, request)
    for group in request.groups:
        relaxed = RequestGroup(group.suffix)
        for constraint, stricter, reason in _growing(group):
            relaxed = stricter(relaxed)
            yield constraint, _served(forest, relaxed, reason)
    yield _together(request), _all_groups(forest, request)


def _growing(
    group: RequestGroup,
) -> Iterator[tuple[str, Callable[[RequestGroup], RequestGroup], Callable[[Sequence[Provider]], str]]]:
    """(constraint, how it makes a group stricter, why a tree of these providers does not meet it)"""
    suffix = group.suffix
    for name, amount in group.resources.items():

        def with_class(so_far: RequestGroup, name: str = name, amount: int = amount) -> RequestGroup:
            return replace(so_far, resources={**so_far.resources, name: amount})

        yield f"resources{suffix}:{name}={amount}", with_class, _lacks(name, amount)
    if group.in_tree is not None:
        yield (
            f"in_tree{suffix}={group.in_tree}",
            lambda so_far: replace(so_far, in_tree=group.in_tree),
            lambda providers: f"{providers[0].name} is another tree",
        )
    for any_of in group.aggregates.required:

        def with_aggregate(so_far: RequestGroup, any_of: frozenset[str] = any_of) -> RequestGroup:
            required = (*so_far.aggregates.required, any_of)
            return replace(so_far, aggregates=AggregateFilter(required, so_far.aggregates.forbidden))

        wanted = _alternatives(any_of)
        yield f"member_of{suffix}={wanted}", with_aggregate, _not_member(wanted)
    if group.aggregates.forbidden:
        wanted = "!" + _alternatives(group.aggregates.forbidden)
        yield (
            f"member_of{suffix}={wanted}",
            lambda so_far: replace(
                so_far, aggregates=AggregateFilter(so_far.aggregates.required, group.aggregates.forbidden)
            ),
            lambda providers: f"{providers[0].name} is in a forbidden aggregate",
        )
    for any_of in group.traits.required:

        def with_trait(so_far: RequestGroup, any_of: frozenset[str] = any_of) -> RequestGroup:
            return replace(so_far, traits=TraitFilter((*so_far.traits.required, any_of), so_far.traits.forbidden))

        wanted = _alternatives(any_of)
        yield f"required{suffix}={wanted}", with_trait, _without_trait(wanted)
    if group.traits.forbidden:
        yield (
            f"required{suffix}={','.join(f'!{trait}' for trait in sorted(group.traits.forbidden))}",
            lambda so_far: replace(so_far, traits=TraitFilter(so_far.traits.required, group.traits.forbidden)),
            _with_forbidden(group.traits.forbidden),
        )


def _root_traits(forest: Forest, request: Request) -> _Keeps:
    def keeps(root: int) -> str | None:
        provider = forest.at(root)
        if missing := sorted(request.root_required - provider.traits):
            return f"{provider.name} has no {', '.join(missing)}"
        if present := sorted(request.root_forbidden & provider.traits):
            return f"{provider.name} has {', '.join(present)}"
        return None

    return keeps


def _served(forest: Forest, group: RequestGroup, reason: Callable[[Sequence[Provider]], str]) -> _Keeps:
    """Could the group, with its constraints so far, be served here?"""

    def keeps(root: int) -> str | None:
        shared = forest.sharing_with(root)
        if group.is_granular:
            choices = granular_choice(forest, root, shared, group)
            served = all(choice.slots for choice in choices)
        else:
            choices = spread_choices(forest, root, shared, group)
            served = len(choices) == len(group.resources) and all(choice.slots for choice in choices)
            served = served and _traits_in_reach(forest, choices, group)
        return None if served else reason([forest.at(slot) for slot in (*forest.trees[root], *shared)])

    return keeps


def _traits_in_reach(forest: Forest, choices: Sequence[Choice], group: RequestGroup) -> bool:
    slots = {slot for choice in choices for slot in choice.slots}
    return meets(group.traits.required, frozenset().union(*(forest.at(slot).traits for slot in slots)))


def _together(request: Request) -> str:
    parts = ["all groups together"]
    if request.group_policy is not None:
        parts.append(f"group_policy={request.group_policy}")
    parts += [f"same_subtree={','.join(sorted(suffixes))}" for suffixes in request.same_subtrees]
    return ", ".join(parts)


def _all_groups(forest: Forest, request: Request) -> _Keeps:
    def keeps(root: int) -> str | None:
        choices = choices_at(forest, root, request)
        found = bool(choices) and any(
            TreeSearch(forest, request, root, choices, Budget(MAX_STEPS)).run(equals_as_one=True)
        )
        return None if found else f"{forest.at(root).name} can serve each group alone but not all of them at once"

    return keeps


# --- reasons ----------------------------------------------------------------------------------------------------


def _lacks(name: str, amount: int) -> Callable[[Sequence[Provider]], str]:
    def reason(providers: Sequence[Provider]) -> str:
        offering = [provider for provider in providers if name in provider.inventories]
        if not offering:
            return f"{providers[0].name} has no {name}"
        fitting = [provider for provider in offering if provider.fits(name, amount)]
        if fitting:
            return f"{fitting[0].name} has {name} but not the rest of the group"
        best = max(offering, key=lambda provider: provider.inventories[name].capacity - provider.used.get(name, 0))
        inventory, used = best.inventories[name], best.used.get(name, 0)
        if used + amount > inventory.capacity:
            return f"{best.name} has {used} of {inventory.capacity} in use"
        return (
            f"{best.name} gives {inventory.min_unit} to {inventory.max_unit} in steps of {inventory.step_size} "
            "to one consumer"
        )

    return reason


def _not_member(wanted: str) -> Callable[[Sequence[Provider]], str]:
    return lambda providers: f"{providers[0].name} is not in {wanted}"


def _without_trait(wanted: str) -> Callable[[Sequence[Provider]], str]:
    return lambda providers: f"{providers[0].name} has no {wanted} where the resources are"


def _with_forbidden(traits: frozenset[str]) -> Callable[[Sequence[Provider]], str]:
    def reason(providers: Sequence[Provider]) -> str:
        for provider in providers:
            if present := sorted(traits & provider.traits):
                return f"{provider.name} has {', '.join(present)}"
        return f"{providers[0].name} has a forbidden trait"

    return reason


def _alternatives(names: frozenset[str]) -> str:
    return next(iter(names)) if len(names) == 1 else f"in:{','.join(sorted(names))}"


def _refusal(considered: int, steps: Sequence[Step]) -> str:
    """Only what took hosts away is named."""
    if not considered:
        return "No valid host: there are no hosts at all."
    parts = [f"{considered} host{'s' if considered != 1 else ''} considered"]
    for step in steps:
        if not step.removed:
            continue
        reasons = [removed.reason for removed in step.removed[:NAMED]]
        if len(step.removed) > NAMED:
            reasons.append(f"and {len(step.removed) - NAMED} more")
        parts.append(f"{step.constraint} left {step.after} ({', '.join(reasons)})")
    return f"No valid host: {'; '.join(parts)}."


def _success(considered: int, found: int, hosts: int) -> str:
    return f"{found} candidate{'s' if found != 1 else ''} on {hosts} of {considered} hosts."
