"""The smallest change that makes a request fit on a close host.

Each constraint that the host does not meet is reduced to the units that the host can give, or removed, and the changed
request is tried there. If the groups still do not fit together, the policy, the subtrees and finally whole groups are
removed, as few as possible.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from moorage.core.errors import Invalid
from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import Provider
from moorage.placement.search.constraints import Constraint, ConstraintKind, alternatives
from moorage.placement.search.equivalence_classes import MemberBlock
from moorage.placement.search.layout import Layout
from moorage.placement.search.query import AggregateFilter, AllOfAny, TraitFilter
from moorage.placement.search.request import CandidateRequest, RequestGroup
from moorage.placement.search.requirements import requirements_of
from moorage.placement.search.search_budget import BudgetItem, SearchBudget
from moorage.placement.search.single_choice import root_filter
from moorage.placement.search.tree_search import first_solutions

#: Steps charged for preparing one group.
STEPS_PER_GROUP = 32
#: Changed requests tried before giving up.
MAX_TRIES = 24


@dataclass(frozen=True, slots=True)
class Relaxation:
    """The change that makes a request fit on `provider`."""

    provider: str
    parts: tuple[str, ...]  #: descriptions of the changes
    request: CandidateRequest


@dataclass(frozen=True, slots=True)
class Unmet:
    constraint: Constraint
    amount: int  #: units that the closest provider could give instead; 0: none, or the constraint is not about units


@dataclass(frozen=True, slots=True)
class CloseHost:
    """A host, and the constraints that it does not meet."""

    anchor: int  #: its place in the layout
    root: Provider
    unmet: tuple[Unmet, ...]


def smallest_relaxation(
    forest: Forest, request: CandidateRequest, layout: Layout, closest: Sequence[CloseHost], budget: SearchBudget
) -> Relaxation | None:
    """The smallest change for the first host of `closest` for which one helps.

    None if none helps, or if the search exceeds the budget.
    """
    try:
        changes = (_Trial(forest, layout, request, host, budget).change() for host in closest)
        return next((change for change in changes if change is not None), None)
    except Invalid:
        return None  # over the budget; the explanation is complete without a change


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a change."""

    suffix: str | None  #: of the changed group; None: the part concerns all groups
    text: str


@dataclass(frozen=True, slots=True)
class _Loosening:
    """The removal of a group, or of a condition on all groups."""

    part: _Part
    relax: Callable[[CandidateRequest], CandidateRequest]


class _Trial:
    """Tries changed requests on one host."""

    def __init__(
        self, forest: Forest, layout: Layout, request: CandidateRequest, host: CloseHost, budget: SearchBudget
    ) -> None:
        self._forest = forest
        self._request = request
        self._layout = layout
        self._host = host
        self._budget = budget
        self._tries_left = MAX_TRIES

    def change(self) -> Relaxation | None:
        request = self._request
        changed, words = _with_root(request, self._host.root)
        parts = [_Part(None, words)] if words else []
        groups = {group.suffix: group for group in request.groups}
        for unmet in self._host.unmet:
            suffix = unmet.constraint.suffix
            groups[suffix], words = _relaxed_group(groups[suffix], unmet)
            parts.append(_Part(suffix, words))
        changed = replace(changed, groups=tuple(groups.values()))
        if self._fits(changed):
            return self._change(changed, parts)
        return self._fewer_groups(changed, parts)

    def _fewer_groups(self, request: CandidateRequest, parts: list[_Part]) -> Relaxation | None:
        """Remove conditions on all groups, then groups: only one of them if that is enough."""
        loosenings = _loosenings(request)[: MAX_TRIES // 2]
        for loosening in loosenings:
            if self._fits(loosening.relax(request)):
                return self._change(loosening.relax(request), [*parts, loosening.part])
        for loosening in loosenings:
            request, parts = loosening.relax(request), [*parts, loosening.part]
            if self._fits(request):
                return self._change(request, parts)
        return None

    def _change(self, request: CandidateRequest, parts: list[_Part]) -> Relaxation:
        """The result; omits changes of groups that are removed in the end."""
        final = _without_empty_groups(request)
        kept = {group.suffix for group in final.groups}
        changes = [part.text for part in parts if part.suffix is None or part.suffix in kept]
        removals = [_removal_text(group) for group in self._request.groups if group.suffix not in kept]
        return Relaxation(self._host.root.name, (*changes, *removals), final)

    def _fits(self, request: CandidateRequest) -> bool:
        request = _without_empty_groups(request)
        if not self._tries_left or not any(group.resources for group in request.groups):
            return False
        self._tries_left -= 1
        self._budget.spend(BudgetItem.TRYING, len(request.groups) * STEPS_PER_GROUP)
        block = MemberBlock(self._forest, self._layout, requirements_of(request), np.array([self._host.anchor]))
        if not root_filter(self._forest, request, block.roots[:1]).all():
            return False
        for one in block.equivalence_classes():
            solved = first_solutions(block.requirements.search_key, one.situation, 1, self._budget.steps)
            self._budget.spend(BudgetItem.TRYING, solved.steps)
            if len(solved.rows):
                return True
        return False


def _with_root(request: CandidateRequest, root: Provider) -> tuple[CandidateRequest, str]:
    missing = sorted(request.root_required - root.traits)
    present = sorted(request.root_forbidden & root.traits)
    changed = replace(
        request,
        root_required=request.root_required.difference(missing),
        root_forbidden=request.root_forbidden.difference(present),
    )
    words = ",".join([*missing, *(f"!{trait}" for trait in present)])
    return changed, f"remove root_required={words}" if words else ""


def _relaxed_group(group: RequestGroup, unmet: Unmet) -> tuple[RequestGroup, str]:
    constraint = unmet.constraint
    words = f"remove {constraint}"
    traits, aggregates = group.traits, group.aggregates
    match constraint.kind:
        case ConstraintKind.UNITS:
            if unmet.amount:
                words = f"resources{constraint.suffix}:{constraint.name}={unmet.amount} instead of {constraint.amount}"
                return replace(group, resources={**group.resources, constraint.name: unmet.amount}), words
            resources = {name: units for name, units in group.resources.items() if name != constraint.name}
            return replace(group, resources=resources), words
        case ConstraintKind.TREE:
            return replace(group, in_tree=None), words
        case ConstraintKind.MEMBER:
            aggregates = AggregateFilter(_all_but(aggregates.required, constraint.names), aggregates.forbidden)
        case ConstraintKind.NOT_MEMBER:
            aggregates = AggregateFilter(aggregates.required)
        case ConstraintKind.TRAIT:
            traits = TraitFilter(_all_but(traits.required, constraint.names), traits.forbidden)
        case ConstraintKind.NO_TRAIT:
            traits = TraitFilter(traits.required)
    return replace(group, traits=traits, aggregates=aggregates), words


def _all_but(required: AllOfAny, names: frozenset[str]) -> AllOfAny:
    return tuple(any_of for any_of in required if any_of != names)


def _loosenings(request: CandidateRequest) -> list[_Loosening]:
    found: list[_Loosening] = []
    if request.group_policy == "isolate":
        found.append(_Loosening(_Part(None, "group_policy=none"), lambda so_far: replace(so_far, group_policy="none")))
    found += [_without_subtree(suffixes) for suffixes in request.same_subtrees]
    found += [_without_group(group) for group in reversed(request.groups) if group.is_granular]
    found += [_without_traits(group) for group in request.groups if not group.is_granular and group.traits.required]
    return found


def _without_subtree(suffixes: frozenset[str]) -> _Loosening:
    def relax(request: CandidateRequest) -> CandidateRequest:
        return replace(request, same_subtrees=tuple(one for one in request.same_subtrees if one != suffixes))

    return _Loosening(_Part(None, f"remove same_subtree={','.join(sorted(suffixes))}"), relax)


def _without_group(group: RequestGroup) -> _Loosening:
    def relax(request: CandidateRequest) -> CandidateRequest:
        return replace(request, groups=tuple(one for one in request.groups if one.suffix != group.suffix))

    return _Loosening(_Part(group.suffix, _removal_text(group)), relax)


def _removal_text(group: RequestGroup) -> str:
    return f"remove group {group.suffix}" if group.is_granular else "remove the unsuffixed group"


def _without_traits(group: RequestGroup) -> _Loosening:
    def relax(request: CandidateRequest) -> CandidateRequest:
        relaxed = [
            replace(one, traits=TraitFilter((), one.traits.forbidden)) if one.suffix == group.suffix else one
            for one in request.groups
        ]
        return replace(request, groups=tuple(relaxed))

    words = ", ".join(alternatives(any_of) for any_of in group.traits.required)
    return _Loosening(_Part(group.suffix, f"remove required{group.suffix}={words}"), relax)


def _without_empty_groups(request: CandidateRequest) -> CandidateRequest:
    """The request without groups and subtrees that have no condition left."""
    named = frozenset().union(*request.same_subtrees)
    groups = tuple(
        group
        for group in request.groups
        if group.resources or (group.suffix in named and (group.traits.required or group.aggregates.required))
    )
    present = frozenset(group.suffix for group in groups)
    subtrees = tuple(suffixes & present for suffixes in request.same_subtrees if suffixes & present)
    return replace(request, groups=groups, same_subtrees=subtrees)
