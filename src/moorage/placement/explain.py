"""Why there is no candidate: the same constraints as the search, one after the other, on all hosts at once.

After each constraint it is counted how many hosts (trees) are left where the group, asked for with the constraints so
far, could be served; some of those that drop out are named with the reason. The last step is the groups together.
Where nothing is left, `moorage.placement.remedy` finds the hosts that came closest and the smallest change that would
make the request fit.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from moorage.placement import masks
from moorage.placement.alike import Block
from moorage.placement.candidates import find
from moorage.placement.constraints import Constraint, GroupMasks
from moorage.placement.demand import demand_of
from moorage.placement.forest import Forest
from moorage.placement.layout import Layout, Places, layout_of
from moorage.placement.masks import Mask
from moorage.placement.model import Provider
from moorage.placement.only_ways import only_ways, root_filter
from moorage.placement.remedy import WEIGHED, Change, Close, closest_hosts, smallest_change
from moorage.placement.request import Request
from moorage.placement.tree_search import first_ways
from moorage.placement.work import COMPARED, MAX_STEPS, Budget, Work


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
    removed: tuple[Removed, ...]  #: at most `NAMED` of those that dropped out


@dataclass(frozen=True, slots=True)
class Explanation:
    text: str  #: one sentence for humans
    candidates: int
    steps: tuple[Step, ...]
    closest: tuple[Close, ...] = ()  #: where there is no candidate: hosts that lack least, the best first
    change: Change | None = None  #: where there is no candidate: what would make the closest host serve the request


#: Hosts named per step, with the reason.
NAMED = 3
#: Candidates counted, where the request has no limit.
COUNTED = 1000


def explain(forest: Forest, request: Request, *, max_steps: int = MAX_STEPS) -> Explanation:
    """Raises `Invalid` (code placement.query.too_complex) where the search itself would."""
    layout = layout_of(forest)
    hosts = _hosts(forest, layout)
    block = Block(forest, layout, demand_of(request), hosts, kept="hosts")
    groups = [GroupMasks(forest, block, group) for group in request.groups]
    budget = Budget(max_steps)
    compared = sum(len(group.constraints) for group in groups) * len(block.slots)
    budget.spend(Work.COMPARING, compared // COMPARED)
    steps = tuple(_steps(forest, request, block, groups, budget))
    served = steps[-1].after if steps else 0
    if served or forest.sharing:  # what is shared can be had without any host, too
        limit = request.limit or COUNTED
        found = find(forest, replace(request, limit=limit), max_steps=max_steps)
        if served:
            counted = f"at least {_counted(len(found))}" if len(found) == limit else _counted(len(found))
            return Explanation(f"{counted} on {served} of {len(hosts)} hosts.", len(found), steps)
        if len(found):
            text = f"{_refusal(len(hosts), steps)} What is shared gives {_counted(len(found))} without any host."
            return Explanation(text, len(found), steps)
    if not len(hosts):
        return Explanation(_refusal(0, ()), 0, ())
    if not budget.affords(compared // WEIGHED):
        return Explanation(_refusal(len(hosts), steps), 0, steps)
    closest = closest_hosts(forest, request, block, groups)
    change = smallest_change(forest, request, layout, closest, budget)
    text = _refusal(len(hosts), steps)
    return Explanation(text, 0, steps, tuple(one.close for one in closest), change)


def _hosts(forest: Forest, layout: Layout) -> Places:
    """Places of all trees that are more than a provider shared by others."""

    def make() -> Places:
        own = forest.roots[layout.members] == layout.anchors[layout.anchor_of]
        if forest.sharing:
            own &= ~masks.is_sharing(forest)[layout.members]
        return np.unique(layout.anchor_of[own]).astype(np.intp)

    return forest.derived.get("hosts", (layout, forest.sharing), make)


def _steps(
    forest: Forest, request: Request, block: Block, groups: Sequence[GroupMasks], budget: Budget
) -> Iterator[Step]:
    """In order: the root's traits, each group's own constraints, all groups together; until nobody is left."""
    alive = np.ones(len(block.anchors), dtype=np.bool_)
    for constraint, left, reason in _narrowed(forest, request, block, groups, alive, budget):
        roots = [forest.at(slot) for slot in block.roots[block.starts[np.flatnonzero(alive & ~left)[:NAMED]]].tolist()]
        removed = tuple(Removed(root.name, reason(root)) for root in roots)
        yield Step(constraint, int(np.count_nonzero(alive)), int(np.count_nonzero(left)), removed)
        alive &= left
        if not alive.any():
            return


def _narrowed(
    forest: Forest, request: Request, block: Block, groups: Sequence[GroupMasks], alive: Mask, budget: Budget
) -> Iterator[tuple[str, Mask, Callable[[Provider], str]]]:
    """(constraint, who is left of `alive`, which the caller narrows, why a root is not)"""
    if not len(alive):
        return
    if request.root_required or request.root_forbidden:
        listed = [*sorted(request.root_required), *(f"!{trait}" for trait in sorted(request.root_forbidden))]
        left = alive & root_filter(forest, request)[block.roots[block.starts]]
        yield f"root_required={','.join(listed)}", left, lambda root: _root_reason(request, root)
    for group in groups:
        for constraint, served in group.served():
            yield str(constraint), alive & served, _Why(forest, constraint)
    together = alive & _together(forest, block, alive, request, budget)
    yield (
        _words_for_all(request),
        together,
        lambda root: f"{root.name} can serve each group alone but not all of them at once",
    )


@dataclass(frozen=True, slots=True)
class _Why:
    forest: Forest
    constraint: Constraint

    def __call__(self, root: Provider) -> str:
        slot = self.forest.slot_of_uuid[root.uuid]
        members = (*self.forest.trees[slot], *self.forest.sharing_with(slot))
        return self.constraint.why_not([self.forest.at(member) for member in members])


def _root_reason(request: Request, root: Provider) -> str:
    if missing := sorted(request.root_required - root.traits):
        return f"{root.name} has no {', '.join(missing)}"
    return f"{root.name} has {', '.join(sorted(request.root_forbidden & root.traits))}"


def _words_for_all(request: Request) -> str:
    parts = ["all groups together"]
    if request.group_policy is not None:
        parts.append(f"group_policy={request.group_policy}")
    parts += [f"same_subtree={','.join(sorted(suffixes))}" for suffixes in request.same_subtrees]
    return ", ".join(parts)


def _together(forest: Forest, block: Block, alive: Mask, request: Request, budget: Budget) -> Mask:
    """By anchor: do all groups fit there at once?"""
    found = np.zeros(len(block.anchors), dtype=np.bool_)
    if any(not group.is_granular and not group.resources for group in request.groups):
        return found
    if only_ways(forest, request) is not None:
        return alive  # one group, and nothing to choose for it
    place = np.full(int(block.anchors.max()) + 1, -1)
    place[block.anchors] = np.arange(len(block.anchors))
    for one in block.only(alive).alike():
        solved = first_ways(block.demand.question, one.situation, 1, budget.steps)
        budget.spend(Work.TRYING, solved.steps)
        if len(solved.ways):
            found[place[one.anchors]] = True
    return found


def _refusal(considered: int, steps: Sequence[Step]) -> str:
    """Only what took hosts away is named."""
    if not considered:
        return "No valid host: there are no hosts at all."
    parts = [f"{considered} host{'s' if considered != 1 else ''} considered"]
    for step in steps:
        count = step.before - step.after
        if not count:
            continue
        reasons = [removed.reason for removed in step.removed]
        if count > len(reasons):
            reasons.append(f"and {count - len(reasons)} more")
        parts.append(f"{step.constraint} left {step.after} ({', '.join(reasons)})")
    return f"No valid host: {'; '.join(parts)}."


def _counted(candidates: int) -> str:
    return f"{candidates} candidate{'s' if candidates != 1 else ''}"
