"""One answer of Placement, prepared for weighing: facts about hosts, less our own claims since the answer.

A pool serves all servers of a batch that have the same request. Claims by others are not subtracted; Placement refuses
a claim that no longer fits.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from moorage.compute.store.scheduling_store import UnusualHosts
from moorage.placement.client.placement_client import Candidate, Candidates, Summary
from moorage.scheduler.filters import HostState
from moorage.scheduler.host_ranking import HostRanking
from moorage.scheduler.options import SchedulerSettings
from moorage.scheduler.weighers import HostFacts, WeigherInput, carries_function, is_accelerator


class CandidatePool:
    """`functions`: functions that the accelerators shall carry, see `weighers.wanted_functions`."""

    def __init__(
        self,
        candidates: Candidates,
        summaries: Mapping[str, Summary],
        unusual: UnusualHosts,
        weigher_input: WeigherInput,
        functions: frozenset[str],
        options: SchedulerSettings,
    ) -> None:
        self._candidates = candidates
        self._summaries = summaries
        self._unusual = unusual
        self._functions = functions
        self._claimed: Counter[tuple[str, str]] = Counter()
        self._devices = _free_devices(summaries)
        #: roots of hosts on which a device carries a wanted function
        self._carriers = frozenset(one.root_provider_uuid for one in summaries.values() if self._carries_function(one))
        #: {root: host state}, as far as loaded; None: no host of this compute service
        self.host_states: dict[str, HostState | None] = {}
        #: {root: its provider tree}, only if weighers of other packages are enabled
        self._trees = _trees(summaries) if options.weighers else {}
        roots = [candidates.root_uuid(at) for at in range(len(candidates))]
        self.ranking = HostRanking(
            roots, self._host_facts, weigher_input, options.multipliers, unusual.multipliers, options.weighers
        )

    def __len__(self) -> int:
        """Number of candidates."""
        return len(self._candidates)

    def candidates_of_host(self, root: str) -> Sequence[int]:
        """Positions of the host's candidates in Placement's order; those on a device with a wanted function come first."""
        positions = self.ranking.candidates[root]
        if not self._carriers or root not in self._carriers:
            return positions
        return sorted(positions, key=lambda at: not self._uses_function_carrier(at))

    def candidate(self, at: int) -> Candidate:
        return self._candidates[at]

    def still_fits(self, at: int) -> bool:
        """Whether the candidate at this position still fits after our own claims."""
        if not self._claimed:
            return True
        for uuid, amounts in self._candidates[at].allocations.items():
            for name, amount in amounts.items():
                taken = self._claimed[uuid, name]
                room = self._summaries[uuid].resources.get(name) if taken else None
                if room is not None and room.used + taken + amount > room.capacity:
                    return False
        return True

    def has_candidates_left(self) -> bool:
        return any(self.still_fits(at) for at in range(len(self)))

    def mark_claimed(self, at: int) -> None:
        """Subtracts the candidate's units for all servers that share this pool. Call before the claim."""
        self._change_claimed(at, 1)

    def unmark_claimed(self, at: int) -> None:
        """Undoes `mark_claimed`: the candidate was not claimed."""
        self._change_claimed(at, -1)

    def _change_claimed(self, at: int, times: int) -> None:
        candidate = self._candidates[at]
        for uuid, amounts in candidate.allocations.items():
            for name, amount in amounts.items():
                self._claimed[uuid, name] += times * amount
                if is_accelerator(name):
                    self._devices[candidate.root_uuid] -= times * amount
        self.ranking.refresh_root(candidate.root_uuid)

    def _host_facts(self, root: str) -> HostFacts:
        tree = self._trees.get(root, {})
        return HostFacts(
            free_memory_mb=self._free(root, "MEMORY_MB"),
            free_processors=self._free(root, "VCPU") + self._free(root, "PCPU"),
            free_disk_gb=self._free(root, "DISK_GB"),
            free_accelerators=self._devices[root],
            has_function=root in self._carriers,
            jobs=self._unusual.open_jobs.get(root, 0),
            failed_builds=self._unusual.failed_builds.get(root, 0),
            free=self._free_in_tree(tree),
            traits=frozenset(trait for one in tree.values() for trait in one.traits),
        )

    def _free_in_tree(self, tree: Mapping[str, Summary]) -> dict[str, float]:
        free: Counter[str] = Counter()
        for uuid, summary in tree.items():
            for name, room in summary.resources.items():
                free[name] += room.capacity - room.used - self._claimed[uuid, name]
        return dict(free)

    def _free(self, root: str, name: str) -> float:
        summary = self._summaries.get(root)
        room = None if summary is None else summary.resources.get(name)
        if room is None:
            return 0.0
        return room.capacity - room.used - (self._claimed[root, name] if self._claimed else 0)

    def _carries_function(self, summary: Summary) -> bool:
        return bool(self._functions) and carries_function(summary.traits, self._functions)

    def _uses_function_carrier(self, at: int) -> bool:
        return any(self._carries_function(self._summaries[uuid]) for uuid in self._candidates[at].allocations)


def _trees(summaries: Mapping[str, Summary]) -> dict[str, dict[str, Summary]]:
    """{root: {provider: its summary}}"""
    trees: dict[str, dict[str, Summary]] = defaultdict(dict)
    for uuid, summary in summaries.items():
        trees[summary.root_provider_uuid][uuid] = summary
    return trees


def _free_devices(summaries: Mapping[str, Summary]) -> Counter[str]:
    """{root: free accelerators}"""
    found: Counter[str] = Counter()
    for summary in summaries.values():
        for name, room in summary.resources.items():
            if is_accelerator(name):
                found[summary.root_provider_uuid] += room.capacity - room.used
    return found
