"""Explains why there is no candidate: applies the constraints of the search one after the other, to all hosts at once.

After each constraint it counts the hosts (trees) where the group, with its constraints so far, could still be served,
and names some that drop out, with the reason. The last step checks all groups together. If no host is left,
`closest_hosts` finds the hosts that come closest, and the smallest change that would make the request fit.
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
    """A tree that dropped out; `provider` is the name of its root."""

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
    closest: tuple[ClosestHost, ...] = ()  #: where there is no candidate: hosts that lack least, the best first
    change: Relaxation | None = (
        None  #: without candidates: the change after which the closest host could serve the request
    )


#: Hosts named per step, with the reason.
MAX_NAMED = 3
#: Candidates counted, where the request has no limit.
MAX_COUNTED = 1000


def explain(forest: Forest, request: CandidateRequest, *, max_steps: int = MAX_STEPS) -> Explanation:
    """Raises `Invalid` (code placement.query.too_complex) where the search itself would."""
    hosts, budget = HostVerdicts(forest, request), SearchBudget(max_steps)
    met = hosts.by_host("parts met", lambda some: _parts_met(forest, request, some, budget))
    gone = hosts.kept("gone", met, (), lambda: _gone(hosts, met, len(_parts(request))))
    named = [anchor for one in gone for anchor in one.first]
    steps = hosts.kept("steps", met, named, lambda: tuple(_steps(request, hosts, gone)))
    served = steps[-1].after if steps else 0
    if served or forest.sharing:  # sharing providers can serve a request without any host
        limited = request if request.limit else replace(request, limit=MAX_COUNTED)
        found = find_candidates(forest, limited, max_steps=max_steps)
        if served:
            counted = f"at least {_counted(len(found))}" if len(found) == limited.limit else _counted(len(found))
            return Explanation(f"{counted} on {served} of {len(hosts)} hosts.", len(found), steps)
        if len(found):
            text = f"{_refusal(len(hosts), steps)} What is shared gives {_counted(len(found))} without any host."
            return Explanation(text, len(found), steps)
    remedy = closest_hosts_for(forest, request, hosts, max_steps)
    return Explanation(_refusal(len(hosts), steps), 0, steps, remedy.closest, remedy.change)


# --- conditions met ---------------------------------------------------------------------------------------------


def _parts_met(forest: Forest, request: CandidateRequest, some: HostSubset, budget: SearchBudget) -> NDArray[np.int32]:
    """By anchor: the number of `_parts` met, in sequence, before the first that is not met."""
    constraints = sum(len(group.constraints) for group in some.groups)
    budget.spend(BudgetItem.COMPARING, constraints * len(some.block.slots) // COMPARISONS_PER_STEP)
    met = np.zeros(len(some.anchors), dtype=np.int32)
    alive = np.ones(len(some.anchors), dtype=np.bool_)
    for served in _served(forest, request, some):
        alive &= served
        met += alive
        if not alive.any():
            return met
    met += alive & _together(forest, some.block, alive, request, budget)
    return met


def _served(forest: Forest, request: CandidateRequest, some: HostSubset) -> Iterator[Mask]:
    """Yields for each part but the last, by anchor: is it met there, together with the parts of its group before it?"""
    if request.root_required or request.root_forbidden:
        yield root_filter(forest, request, some.block.roots[some.block.starts])
    for group in some.groups:
        yield from group.served()


def _together(forest: Forest, block: MemberBlock, alive: Mask, request: CandidateRequest, budget: SearchBudget) -> Mask:
    """By anchor: True if all groups fit there together."""
    found = np.zeros(len(block.anchors), dtype=np.bool_)
    if any(not group.is_granular and not group.resources for group in request.groups):
        return found
    if single_choice_trees(forest, request) is not None:
        return alive  # one group, and nothing to choose for it
    for one in block.restricted_to(alive).equivalence_classes():
        solved = first_solutions(block.requirements.search_key, one.situation, 1, budget.steps)
        budget.spend(BudgetItem.TRYING, solved.steps)
        if len(solved.rows):
            found[np.searchsorted(block.anchors, one.anchors)] = True
    return found


# --- in words ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Part:
    words: str
    why_not: Callable[[Sequence[Provider]], str]  #: why a host does not meet it, of the providers near it


def _parts(request: CandidateRequest) -> Sequence[_Part]:
    """In order: root traits, each group's constraints, all groups together. Computed once for each request object."""
    parts = request.memo.get("parts")
    if not isinstance(parts, list):
        parts = request.memo["parts"] = _made_parts(request)
    return parts


def _made_parts(request: CandidateRequest) -> list[_Part]:
    parts: list[_Part] = []
    if request.root_required or request.root_forbidden:
        listed = [*sorted(request.root_required), *(f"!{trait}" for trait in sorted(request.root_forbidden))]
        parts.append(_Part(f"root_required={','.join(listed)}", partial(_root_reason, request)))
    parts += [_Part(str(one), one.why_not) for constraints in constraints_by_group(request) for one in constraints]
    return [*parts, _Part(_words_for_all(request), _not_together)]


def _root_reason(request: CandidateRequest, near: Sequence[Provider]) -> str:
    root = near[0]
    if missing := sorted(request.root_required - root.traits):
        return f"{root.name} has no {', '.join(missing)}"
    return f"{root.name} has {', '.join(sorted(request.root_forbidden & root.traits))}"


def _not_together(near: Sequence[Provider]) -> str:
    return f"{near[0].name} can serve each group alone but not all of them at once"


def _words_for_all(request: CandidateRequest) -> str:
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


def _gone(hosts: HostVerdicts, met: NDArray[np.int32], parts: int) -> list[_Removals]:
    """By part."""
    counts = np.bincount(met, minlength=parts)[:parts].tolist()
    return [
        _Removals(count, hosts.anchors[_first(met == number)].tolist() if count else ())
        for number, count in enumerate(counts)
    ]


def _steps(request: CandidateRequest, hosts: HostVerdicts, gone: Sequence[_Removals]) -> Iterator[FunnelStep]:
    """One step per part, until no host is left."""
    left = len(hosts)
    for part, here in zip(_parts(request), gone, strict=True):
        if not left:
            return
        near = map(hosts.providers_near, here.first)
        removed = tuple(Removed(providers[0].name, part.why_not(providers)) for providers in near)
        yield FunnelStep(part.words, left, left - here.count, removed)
        left -= here.count


def _first(mask: Mask) -> list[int]:
    """Places of the first `MAX_NAMED`."""
    found: list[int] = []
    start = 0
    while start < len(mask) and len(found) < MAX_NAMED:
        place = start + int(mask[start:].argmax())
        if not mask[place]:
            break
        found.append(place)
        start = place + 1
    return found


def _refusal(considered: int, steps: Sequence[FunnelStep]) -> str:
    """Names only the constraints that removed hosts."""
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
