"""For a request without candidates: the hosts that lack least, and the smallest change of the request that would help.

A host's distance is the weighted number of constraints that it does not meet, each checked alone; missing units count
by the missing fraction. `relaxation` computes the smallest change for the nearest host where one helps.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from moorage.placement.explain.host_verdicts import HostSubset, HostVerdicts
from moorage.placement.explain.relaxation import CloseHost, Relaxation, Unmet, smallest_relaxation
from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import Provider
from moorage.placement.search import masks
from moorage.placement.search.constraints import Constraint, ConstraintKind, GroupMasks, constraints_by_group
from moorage.placement.search.equivalence_classes import MemberBlock
from moorage.placement.search.request import CandidateRequest
from moorage.placement.search.requirements import UNSATISFIABLE_AMOUNT
from moorage.placement.search.search_budget import SearchBudget

#: Hosts named as the closest.
MAX_CLOSEST = 3
#: Cost of dropping a constraint. A shortage of units costs less, an absent class more (`masks.shortage`).
DROPPED_COST = 2.0
#: Distances of members from one constraint that are computed at the cost of one step.
DISTANCES_PER_STEP = 8


@dataclass(frozen=True, slots=True)
class ClosestHost:
    """A host that nearly fits; `provider` is the name of its root."""

    provider: str
    lacks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClosestHosts:
    closest: tuple[ClosestHost, ...] = ()  #: hosts that lack least, the best first, at most `MAX_CLOSEST`
    change: Relaxation | None = None  #: the change after which one of them could serve the request


def closest_hosts_for(forest: Forest, request: CandidateRequest, hosts: HostVerdicts, max_steps: int) -> ClosestHosts:
    """Empty if there are no hosts, or if computing all distances would exceed the budget."""
    distances = sum(map(len, constraints_by_group(request))) * hosts.members // DISTANCES_PER_STEP
    if not len(hosts) or not SearchBudget(max_steps).affords(distances):
        return ClosestHosts()
    distance = hosts.by_host("distance", lambda subset: _distance(forest, request, subset), weighs=True)
    near = hosts.cached("nearest", distance, (), lambda: [int(hosts.anchors[place]) for place in _nearest(distance)])

    def compute() -> ClosestHosts:
        closest = _close_hosts(forest, request, hosts.subset(np.array(sorted(near))), near)
        change = smallest_relaxation(
            forest, request, hosts.layout, [host for _, host in closest], SearchBudget(max_steps)
        )
        return ClosestHosts(tuple(close for close, _ in closest), change)

    return hosts.cached("closest", hosts.anchors, near, compute)


def _distance(forest: Forest, request: CandidateRequest, subset: HostSubset) -> NDArray[np.float64]:
    """By anchor."""
    distance = np.zeros(len(subset.anchors))
    for group in subset.groups:
        distance += _Costs(subset.block, group).by_anchor()
    if request.root_required or request.root_forbidden:
        roots = subset.block.roots[subset.block.starts]
        for trait in request.root_required:
            distance += np.where(masks.with_any(forest, frozenset((trait,)))[roots], 0, DROPPED_COST)
        for trait in request.root_forbidden:
            distance += np.where(masks.with_any(forest, frozenset((trait,)))[roots], DROPPED_COST, 0)
    return distance


def _close_hosts(
    forest: Forest, request: CandidateRequest, subset: HostSubset, anchors: Sequence[int]
) -> list[tuple[ClosestHost, CloseHost]]:
    """The hosts at `anchors`, in this order; `subset` has them in ascending order."""
    costs = [_Costs(subset.block, group) for group in subset.groups]
    places = np.searchsorted(subset.anchors, anchors).tolist()
    return [_close_host(forest, request, subset.block, costs, place) for place in places]


def _nearest(distance: NDArray[np.float64]) -> list[int]:
    """Places of the `MAX_CLOSEST` smallest distances, ascending; of equal ones, the first. Sorting would be slower."""
    distance = distance.copy()
    found: list[int] = []
    while len(found) < min(MAX_CLOSEST, len(distance)):
        found.append(int(distance.argmin()))
        distance[found[-1]] = np.inf
    return found


class _Costs:
    """By member: the cost of making it serve one group."""

    def __init__(self, block: MemberBlock, group: GroupMasks) -> None:
        self.group = group
        self._block = block
        filters = np.zeros(len(block.slots))
        units: list[tuple[int, NDArray[np.float64]]] = []
        self._traits: list[int] = []
        self._filters: list[int] = []
        for number, constraint in enumerate(group.constraints):
            if constraint.kind is ConstraintKind.UNITS:
                units.append((number, block.shortage(constraint.name, min(constraint.amount, UNSATISFIABLE_AMOUNT))))
            elif constraint.kind is ConstraintKind.TRAIT and not group.group.is_granular:
                self._traits.append(number)
            else:
                self._filters.append(number)
                filters += ~group.mask(number) * DROPPED_COST
        # A granular group needs all units on one provider; the unsuffixed group needs each class on some provider.
        if group.group.is_granular:
            total = filters + sum((cost for _, cost in units), np.zeros(len(block.slots)))
            self._needs = [([number for number, _ in units], total)]
        else:
            self._needs = [([number], cost + filters) for number, cost in units]

    def by_anchor(self) -> NDArray[np.float64]:
        block, found = self._block, np.zeros(len(self._block.anchors))
        for _, cost in self._needs:
            found += cost if block.has_one_each else np.minimum.reduceat(cost, block.starts)
        for number in self._traits:
            found += ~block.by_anchor(self.group.mask(number)) * DROPPED_COST
        return found

    def unmet(self, members: slice) -> list[tuple[int, Constraint]]:
        """[(member, constraint)]: the constraints that the cheapest members of an anchor do not meet."""
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


def _close_host(
    forest: Forest, request: CandidateRequest, block: MemberBlock, costs: Sequence[_Costs], place: int
) -> tuple[ClosestHost, CloseHost]:
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
    return ClosestHost(root.name, tuple(lacks)), CloseHost(int(block.anchors[place]), root, tuple(unmet))


def _amount(block: MemberBlock, constraint: Constraint, member: int) -> int:
    if constraint.kind is not ConstraintKind.UNITS:
        return 0
    return block.attainable(constraint.name, min(constraint.amount, UNSATISFIABLE_AMOUNT), member)


def _root_lacks(request: CandidateRequest, root: Provider) -> list[str]:
    lacks = [
        f"root_required={trait}: {root.name} does not have it" for trait in sorted(request.root_required - root.traits)
    ]
    return lacks + [
        f"root_required=!{trait}: {root.name} has it" for trait in sorted(request.root_forbidden & root.traits)
    ]
