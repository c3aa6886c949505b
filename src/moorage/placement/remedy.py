"""What could be done where a request has no candidate: the hosts that lack least, and the smallest change.

A host's distance is the number of constraints that it does not meet, taken one by one; where units are short, by the
share that is missing. For the nearest host these constraints are relaxed (fewer units where it has some, else left
away), and the changed request is tried there; if the groups still do not fit together, the policy, the subtrees and at
last whole groups are left away, as few as will do.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from moorage.core.errors import Invalid
from moorage.placement import masks
from moorage.placement.alike import Block
from moorage.placement.constraints import Constraint, GroupMasks, Kind, alternatives
from moorage.placement.demand import TOO_MUCH, demand_of
from moorage.placement.forest import Forest
from moorage.placement.layout import Layout
from moorage.placement.model import Provider
from moorage.placement.only_ways import fits_at, only_ways, root_filter
from moorage.placement.query import AggregateFilter, AllOfAny, TraitFilter
from moorage.placement.request import Request, RequestGroup
from moorage.placement.tree_search import first_ways
from moorage.placement.work import Budget, Work

#: Hosts named as the closest.
CLOSEST = 3
#: What a constraint costs that is to be left away. Units that are short cost less, those that are nowhere more (nobody
#: asks for a host without them): `masks.shortage`.
LEFT_AWAY = 2.0
#: Members whose distance is weighed for one constraint, for one step of work.
WEIGHED = 8
#: Steps of work to make decisions of one group.
MADE = 32
#: Times that a changed request is tried before there is none.
TRIES = 24


@dataclass(frozen=True, slots=True)
class Close:
    """A host that nearly fits; `provider` is the name of its root."""

    provider: str
    lacks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """What would make a request fit on `provider`."""

    provider: str
    parts: tuple[str, ...]  #: in words
    request: Request


@dataclass(frozen=True, slots=True)
class Unmet:
    constraint: Constraint
    amount: int  #: units that could be had instead from who comes closest; 0 where there are none, or it is not units


@dataclass(frozen=True, slots=True)
class CloseHost:
    close: Close
    anchor: int  #: its place in the layout
    root: Provider
    unmet: tuple[Unmet, ...]


def closest_hosts(forest: Forest, request: Request, block: Block, groups: Sequence[GroupMasks]) -> list[CloseHost]:
    """At most `CLOSEST`, the best first."""
    if not len(block.anchors):
        return []
    costs = [_Costs(block, group) for group in groups]
    distance = sum((cost.by_anchor for cost in costs), np.zeros(len(block.anchors)))
    if request.root_required or request.root_forbidden:
        roots = block.roots[block.starts]
        for trait in request.root_required:
            distance += np.where(masks.with_any(forest, frozenset((trait,)))[roots], 0, LEFT_AWAY)
        for trait in request.root_forbidden:
            distance += np.where(masks.with_any(forest, frozenset((trait,)))[roots], LEFT_AWAY, 0)
    return [_close_host(forest, request, block, costs, place) for place in _nearest(distance)]


def _nearest(distance: NDArray[np.float64]) -> list[int]:
    """Places of the least, at most `CLOSEST`, in order. Partial sorting is slow where most are equal, as here."""
    found: list[int] = []
    while len(found) < min(CLOSEST, len(distance)):
        equal = np.flatnonzero(distance == distance.min())[: CLOSEST - len(found)]
        found += equal.tolist()
        distance[equal] = np.inf
    return found


class _Costs:
    """What it would cost to have one group served, by member and by anchor."""

    def __init__(self, block: Block, group: GroupMasks) -> None:
        self.group = group
        self._block = block
        filters = np.zeros(len(block.slots))
        units: list[tuple[int, NDArray[np.float64]]] = []
        self._traits: list[int] = []
        self._filters: list[int] = []
        for number, constraint in enumerate(group.constraints):
            if constraint.kind is Kind.UNITS:
                units.append((number, block.shortage(constraint.name, min(constraint.amount, TOO_MUCH))))
            elif constraint.kind is Kind.TRAIT and not group.group.is_granular:
                self._traits.append(number)
            else:
                self._filters.append(number)
                filters += ~group.mask(number) * LEFT_AWAY
        # A granular group needs all of it on one provider, the unsuffixed group each class somewhere.
        if group.group.is_granular:
            alone = filters + sum((cost for _, cost in units), np.zeros(len(block.slots)))
            self._needs = [([number for number, _ in units], alone)]
        else:
            self._needs = [([number], cost + filters) for number, cost in units]
        self.by_anchor = np.zeros(len(block.anchors))
        for _, cost in self._needs:
            self.by_anchor += np.minimum.reduceat(cost, block.starts) if len(block.starts) < len(cost) else cost
        for number in self._traits:
            self.by_anchor += ~block.by_anchor(group.mask(number)) * LEFT_AWAY

    def unmet(self, members: slice) -> list[tuple[int, Constraint]]:
        """(member, constraint) for the members of one anchor: what those who cost least do not meet."""
        found: dict[Constraint, int] = {}
        best = [members.start]
        for numbers, cost in self._needs:
            best.append(members.start + int(np.argmin(cost[members])))
            for number in (*numbers, *self._filters):
                if not self.group.mask(number)[best[-1]]:
                    found.setdefault(self.group.constraints[number], best[-1])
        for number in self._traits:
            if not self.group.mask(number)[best[1:]].any():
                found.setdefault(self.group.constraints[number], members.start)
        return [(member, constraint) for constraint, member in found.items()]


def _close_host(forest: Forest, request: Request, block: Block, costs: Sequence[_Costs], place: int) -> CloseHost:
    start = int(block.starts[place])
    end = int(block.starts[place + 1]) if place + 1 < len(block.starts) else len(block.slots)
    members = slice(start, end)
    root = forest.at(int(block.roots[start]))
    unmet, lacks = [], _root_lacks(request, root)
    for cost in costs:
        for member, constraint in cost.unmet(members):
            unmet.append(Unmet(constraint, _amount(block, constraint, member)))
            lacks.append(f"{constraint}: {constraint.why_not([forest.at(int(block.slots[member]))])}")
    if not lacks:
        lacks = [f"{root.name} can serve each group alone but not all of them at once"]
    return CloseHost(Close(root.name, tuple(lacks)), int(block.anchors[place]), root, tuple(unmet))


def _amount(block: Block, constraint: Constraint, member: int) -> int:
    if constraint.kind is not Kind.UNITS:
        return 0
    return block.attainable(constraint.name, min(constraint.amount, TOO_MUCH), member)


def _root_lacks(request: Request, root: Provider) -> list[str]:
    lacks = [
        f"root_required={trait}: {root.name} does not have it" for trait in sorted(request.root_required - root.traits)
    ]
    return lacks + [
        f"root_required=!{trait}: {root.name} has it" for trait in sorted(request.root_forbidden & root.traits)
    ]


# --- the change -------------------------------------------------------------------------------------------------


def smallest_change(
    forest: Forest, request: Request, layout: Layout, closest: Sequence[CloseHost], budget: Budget
) -> Change | None:
    """For the first of these hosts where a change helps; None where none of them has any of it, or it takes too long."""
    try:
        changes = (_Trial(forest, layout, request, host, budget).change() for host in closest)
        return next((change for change in changes if change is not None), None)
    except Invalid:
        return None  # why there is no candidate is known all the same


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a change."""

    suffix: str | None  #: of the group that it is about; None: it is about all of them
    words: str


@dataclass(frozen=True, slots=True)
class _Way:
    """Something that can be left away."""

    part: _Part
    relax: Callable[[Request], Request]


class _Trial:
    """Changed requests tried on one host."""

    def __init__(self, forest: Forest, layout: Layout, request: Request, host: CloseHost, budget: Budget) -> None:
        self._forest = forest
        self._request = request
        self._layout = layout
        self._host = host
        self._budget = budget
        self._left = TRIES

    def change(self) -> Change | None:
        request = self._request
        changed, words = _with_root(request, self._host.root)
        parts = [_Part(None, words)] if words else []
        groups = {group.suffix: group for group in request.groups}
        for unmet in self._host.unmet:
            suffix = unmet.constraint.suffix
            groups[suffix], words = _without(groups[suffix], unmet)
            parts.append(_Part(suffix, words))
        changed = replace(changed, groups=tuple(groups.values()))
        if self._fits(changed):
            return self._change(changed, parts)
        return self._fewer_groups(changed, parts)

    def _fewer_groups(self, request: Request, parts: list[_Part]) -> Change | None:
        """Leave away what holds for the groups together, then groups: one of it if that is enough."""
        ways = _ways_out(request)[: TRIES // 2]
        for way in ways:
            if self._fits(way.relax(request)):
                return self._change(way.relax(request), [*parts, way.part])
        for way in ways:
            request, parts = way.relax(request), [*parts, way.part]
            if self._fits(request):
                return self._change(request, parts)
        return None

    def _change(self, request: Request, parts: list[_Part]) -> Change:
        """What is said of a group that is left away in the end is not worth telling."""
        tidy = _tidy(request)
        kept = {group.suffix for group in tidy.groups}
        told = [part.words for part in parts if part.suffix is None or part.suffix in kept]
        gone = [_leave_away(group) for group in self._request.groups if group.suffix not in kept]
        return Change(self._host.root.name, (*told, *gone), tidy)

    def _fits(self, request: Request) -> bool:
        request = _tidy(request)
        if not self._left or not any(group.resources for group in request.groups):
            return False
        self._left -= 1
        self._budget.spend(Work.TRYING, len(request.groups) * MADE)
        anchor = int(self._layout.anchors[self._host.anchor])
        if (ways := only_ways(self._forest, request)) is not None:
            return fits_at(self._forest, request, ways, anchor)
        if not root_filter(self._forest, request)[anchor]:
            return False
        demand = demand_of(request)
        block = Block(self._forest, self._layout, demand, np.array([self._host.anchor]))
        for one in block.alike():
            solved = first_ways(demand.question, one.situation, 1, self._budget.steps)
            self._budget.spend(Work.TRYING, solved.steps)
            if len(solved.ways):
                return True
        return False


def _with_root(request: Request, root: Provider) -> tuple[Request, str]:
    missing = sorted(request.root_required - root.traits)
    present = sorted(request.root_forbidden & root.traits)
    changed = replace(
        request,
        root_required=request.root_required.difference(missing),
        root_forbidden=request.root_forbidden.difference(present),
    )
    words = ",".join([*missing, *(f"!{trait}" for trait in present)])
    return changed, f"leave away root_required={words}" if words else ""


def _without(group: RequestGroup, unmet: Unmet) -> tuple[RequestGroup, str]:
    constraint = unmet.constraint
    words = f"leave away {constraint}"
    traits, aggregates = group.traits, group.aggregates
    match constraint.kind:
        case Kind.UNITS:
            if unmet.amount:
                words = f"resources{constraint.suffix}:{constraint.name}={unmet.amount} instead of {constraint.amount}"
                return replace(group, resources={**group.resources, constraint.name: unmet.amount}), words
            resources = {name: units for name, units in group.resources.items() if name != constraint.name}
            return replace(group, resources=resources), words
        case Kind.TREE:
            return replace(group, in_tree=None), words
        case Kind.MEMBER:
            aggregates = AggregateFilter(_others(aggregates.required, constraint.names), aggregates.forbidden)
        case Kind.NOT_MEMBER:
            aggregates = AggregateFilter(aggregates.required)
        case Kind.TRAIT:
            traits = TraitFilter(_others(traits.required, constraint.names), traits.forbidden)
        case Kind.NO_TRAIT:
            traits = TraitFilter(traits.required)
    return replace(group, traits=traits, aggregates=aggregates), words


def _others(required: AllOfAny, names: frozenset[str]) -> AllOfAny:
    return tuple(any_of for any_of in required if any_of != names)


def _ways_out(request: Request) -> list[_Way]:
    found: list[_Way] = []
    if request.group_policy == "isolate":
        found.append(_Way(_Part(None, "group_policy=none"), lambda so_far: replace(so_far, group_policy="none")))
    found += [_without_subtree(suffixes) for suffixes in request.same_subtrees]
    found += [_without_group(group) for group in reversed(request.groups) if group.is_granular]
    found += [_without_traits(group) for group in request.groups if not group.is_granular and group.traits.required]
    return found


def _without_subtree(suffixes: frozenset[str]) -> _Way:
    def relax(request: Request) -> Request:
        return replace(request, same_subtrees=tuple(one for one in request.same_subtrees if one != suffixes))

    return _Way(_Part(None, f"leave away same_subtree={','.join(sorted(suffixes))}"), relax)


def _without_group(group: RequestGroup) -> _Way:
    def relax(request: Request) -> Request:
        return replace(request, groups=tuple(one for one in request.groups if one.suffix != group.suffix))

    return _Way(_Part(group.suffix, _leave_away(group)), relax)


def _leave_away(group: RequestGroup) -> str:
    return f"leave away group {group.suffix}" if group.is_granular else "leave away the unsuffixed group"


def _without_traits(group: RequestGroup) -> _Way:
    def relax(request: Request) -> Request:
        relaxed = [
            replace(one, traits=TraitFilter((), one.traits.forbidden)) if one.suffix == group.suffix else one
            for one in request.groups
        ]
        return replace(request, groups=tuple(relaxed))

    words = ", ".join(alternatives(any_of) for any_of in group.traits.required)
    return _Way(_Part(group.suffix, f"leave away required{group.suffix}={words}"), relax)


def _tidy(request: Request) -> Request:
    """Without groups and subtrees about which nothing is said any more."""
    named = frozenset().union(*request.same_subtrees)
    groups = tuple(
        group
        for group in request.groups
        if group.resources or (group.suffix in named and (group.traits.required or group.aggregates.required))
    )
    present = frozenset(group.suffix for group in groups)
    subtrees = tuple(suffixes & present for suffixes in request.same_subtrees if suffixes & present)
    return replace(request, groups=groups, same_subtrees=subtrees)
