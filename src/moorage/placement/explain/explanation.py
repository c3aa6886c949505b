"""Explains why a request has no candidate: applies its constraints one after the other, to all hosts at once.

After each constraint it counts the hosts (trees) that could still serve the group with its constraints so far, and
names some of the removed hosts with the reason. The last step checks all groups together. If no host is left,
`closest_hosts` finds the hosts that lack least, and the smallest change that would make the request fit.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from moorage.placement.explain.closest_hosts import ClosestHost, closest_hosts_for
from moorage.placement.explain.host_verdicts import HostSubset, HostVerdicts
from moorage.placement.explain.relaxation import Relaxation
from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import Provider
from moorage.placement.search.candidates import find_candidates
from moorage.placement.search.constraints import constraints_by_group
from moorage.placement.search.equivalence_classes import MemberBlock
from moorage.placement.search.masks import Mask
from moorage.placement.search.request import CandidateRequest
from moorage.placement.search.search_budget import COMPARISONS_PER_STEP, MAX_STEPS, BudgetItem, SearchBudget
from moorage.placement.search.single_choice import root_filter, single_choice_trees
from moorage.placement.search.tree_search import first_solutions


@dataclass(frozen=True, slots=True)
class Removed:
    """A tree that a constraint removed; `provider` is the name of its root."""

    provider: str
    reason: str


@dataclass(frozen=True, slots=True)
class FunnelStep:
    constraint: str
    before: int
    after: int
    removed: tuple[Removed, ...]  #: at most `MAX_NAMED` of the removed trees


@dataclass(frozen=True, slots=True)
class Explanation:
    text: str  #: one sentence for humans
    candidates: int
    steps: tuple[FunnelStep, ...]
    closest: tuple[ClosestHost, ...] = ()  #: without candidates: the hosts that lack least, the best first
    change: Relaxation | None = None  #: without candidates: the change after which a host could serve the request


#: Hosts named per step, with the reason.
MAX_NAMED = 3
#: Limit on counted candidates, for requests without a limit.
MAX_COUNTED = 1000


def explain(forest: Forest, request: CandidateRequest, *, max_steps: int = MAX_STEPS) -> Explanation:
    """Raises `Invalid` (code placement.query.too_complex) if a search with `max_steps` would."""
    hosts, budget = HostVerdicts(forest, request), SearchBudget(max_steps)
    met = hosts.by_host("parts met", lambda subset: _parts_met(forest, request, subset, budget))
    removals = hosts.cached("removals", met, (), lambda: _removals(hosts, met, len(_parts(request))))
    named = [anchor for one in removals for anchor in one.first]
    steps = hosts.cached("steps", met, named, lambda: tuple(_steps(request, hosts, removals)))
    served = steps[-1].after if steps else 0
    if served or forest.sharing:  # sharing providers can serve a request without any host
        limited = request if request.limit else replace(request, limit=MAX_COUNTED)
        found = find_candidates(forest, limited, max_steps=max_steps)
        if served:
            count_text = (
                f"at least {_candidates_text(len(found))}"
                if len(found) == limited.limit
                else _candidates_text(len(found))
            )
            return Explanation(f"{count_text} on {served} of {len(hosts)} hosts.", len(found), steps)
        if len(found):
            alone = f"Sharing providers alone give {_candidates_text(len(found))} without any host."
            return Explanation(f"{_no_host_text(len(hosts), steps)} {alone}", len(found), steps)
    nearest = closest_hosts_for(forest, request, hosts, max_steps)
    return Explanation(_no_host_text(len(hosts), steps), 0, steps, nearest.closest, nearest.change)


# --- conditions met ---------------------------------------------------------------------------------------------


def _parts_met(
    forest: Forest, request: CandidateRequest, subset: HostSubset, budget: SearchBudget
) -> NDArray[np.int32]:
    """By anchor: the number of `_parts` that it meets before the first one that it does not meet."""
    constraints = sum(len(group.constraints) for group in subset.groups)
    budget.spend(BudgetItem.COMPARING, constraints * len(subset.block.slots) // COMPARISONS_PER_STEP)
    met = np.zeros(len(subset.anchors), dtype=np.int32)
    alive = np.ones(len(subset.anchors), dtype=np.bool_)
    for served in _masks_served(forest, request, subset):
        alive &= served
        met += alive
        if not alive.any():
            return met
    met += alive & _fit_together(forest, subset.block, alive, request, budget)
    return met


def _masks_served(forest: Forest, request: CandidateRequest, subset: HostSubset) -> Iterator[Mask]:
    """Yields a mask by anchor for each part but the last: True if it meets the part and those of its group before."""
    if request.root_required or request.root_forbidden:
        yield root_filter(forest, request, subset.block.roots[subset.block.starts])
    for group in subset.groups:
        yield from group.served()


def _fit_together(
    forest: Forest, block: MemberBlock, alive: Mask, request: CandidateRequest, budget: SearchBudget
) -> Mask:
    """By anchor: True if it can serve all groups together."""
    found = np.zeros(len(block.anchors), dtype=np.bool_)
    if any(not group.is_granular and not group.resources for group in request.groups):
        return found
    if single_choice_trees(forest, request) is not None:
        return alive  # one group, and at most one provider per class
    for one in block.restricted_to(alive).equivalence_classes():
        solved = first_solutions(block.requirements.search_key, one.situation, 1, budget.steps)
        budget.spend(BudgetItem.TRYING, solved.steps)
        if len(solved.rows):
            found[np.searchsorted(block.anchors, one.anchors)] = True
    return found


# --- texts ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    text: str
    why_not: Callable[[Sequence[Provider]], str]  #: from the providers near a host: why it does not meet the part


def _parts(request: CandidateRequest) -> Sequence[_Part]:
    """The conditions in order: root traits, each group's constraints, all groups together. Cached in `request`."""
    parts = request.memo.get("parts")
    if not isinstance(parts, list):
        parts = request.memo["parts"] = _compute_parts(request)
    return parts


def _compute_parts(request: CandidateRequest) -> list[_Part]:
    parts: list[_Part] = []
    if request.root_required or request.root_forbidden:
        listed = [*sorted(request.root_required), *(f"!{trait}" for trait in sorted(request.root_forbidden))]
        parts.append(_Part(f"root_required={','.join(listed)}", partial(_root_reason, request)))
    parts += [_Part(str(one), one.why_not) for constraints in constraints_by_group(request) for one in constraints]
    return [*parts, _Part(_all_groups_text(request), _why_not_together)]


def _root_reason(request: CandidateRequest, near: Sequence[Provider]) -> str:
    root = near[0]
    if missing := sorted(request.root_required - root.traits):
        return f"{root.name} has no {', '.join(missing)}"
    return f"{root.name} has {', '.join(sorted(request.root_forbidden & root.traits))}"


def _why_not_together(near: Sequence[Provider]) -> str:
    return f"{near[0].name} can serve each group alone but not all of them at once"


def _all_groups_text(request: CandidateRequest) -> str:
    parts = ["all groups together"]
    if request.group_policy is not None:
        parts.append(f"group_policy={request.group_policy}")
    parts += [f"same_subtree={','.join(sorted(suffixes))}" for suffixes in request.same_subtrees]
    return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class _Removals:
    """Hosts that fail a part and meet all parts before it."""

    count: int
    first: Sequence[int]  #: anchors, at most `MAX_NAMED`


def _removals(hosts: HostVerdicts, met: NDArray[np.int32], parts: int) -> list[_Removals]:
    """By part."""
    counts = np.bincount(met, minlength=parts)[:parts].tolist()
    return [
        _Removals(count, hosts.anchors[_first_places(met == number)].tolist() if count else ())
        for number, count in enumerate(counts)
    ]


def _steps(request: CandidateRequest, hosts: HostVerdicts, removals: Sequence[_Removals]) -> Iterator[FunnelStep]:
    """One step per part, until no host is left."""
    left = len(hosts)
    for part, here in zip(_parts(request), removals, strict=True):
        if not left:
            return
        near = map(hosts.providers_near, here.first)
        removed = tuple(Removed(providers[0].name, part.why_not(providers)) for providers in near)
        yield FunnelStep(part.text, left, left - here.count, removed)
        left -= here.count


def _first_places(mask: Mask) -> list[int]:
    """Indexes of the first `MAX_NAMED` True elements."""
    found: list[int] = []
    start = 0
    while start < len(mask) and len(found) < MAX_NAMED:
        place = start + int(mask[start:].argmax())
        if not mask[place]:
            break
        found.append(place)
        start = place + 1
    return found


def _no_host_text(considered: int, steps: Sequence[FunnelStep]) -> str:
    """One sentence that names the constraints that removed hosts."""
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


def _candidates_text(candidates: int) -> str:
    return f"{candidates} candidate{'s' if candidates != 1 else ''}"
