"""One answer of Placement, prepared for weighing: facts about hosts, less our own claims since the answer.

A pool serves all servers of a batch that have the same request. Claims by others are not subtracted; Placement refuses
a claim that no longer fits.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping

from moorage.compute.scheduling.placement_request import PlacementRequest
from moorage.compute.store.scheduling_store import UnusualHosts
from moorage.placement.client.placement_client import Candidate, Candidates, Summary
from moorage.scheduler.filters import HostState
from moorage.scheduler.host_ranking import HostRanking
from moorage.scheduler.options import SchedulerSettings
from moorage.scheduler.weighers import HostFacts, carries_function, is_accelerator


class CandidatePool:
    """`limit`: the maximum number of candidates that were requested; None: all."""

    def __init__(
        self,
        candidates: Candidates,
        summaries: Mapping[str, Summary],
        unusual: UnusualHosts,
        request: PlacementRequest,
        options: SchedulerSettings,
        limit: int | None,
    ) -> None:
        self._candidates = candidates
        self._summaries = summaries
        self._unusual = unusual
        self._functions = request.requirements.functions
        self._subset = options.host_subset_size
        #: {(provider, resource class): units} of candidates that are marked as claimed
        self._claimed: Counter[tuple[str, str]] = Counter()
        #: {root: free accelerators}
        self._devices: Counter[str] = Counter()
        for summary in summaries.values():
            for name, room in summary.resources.items():
                if is_accelerator(name):
                    self._devices[summary.root_provider_uuid] += room.capacity - room.used
        #: {root: its provider tree}, only if weighers of other packages are enabled
        self._trees: dict[str, dict[str, Summary]] = defaultdict(dict)
        for uuid, summary in summaries.items() if options.weighers else ():
            self._trees[summary.root_provider_uuid][uuid] = summary
        #: roots of hosts on which a device carries a wanted function
        self._carriers = frozenset(one.root_provider_uuid for one in summaries.values() if self._carries_function(one))
        self.is_complete = limit is None or len(candidates) < limit
        #: number of candidates that are marked as claimed
        self.marks = 0
        #: {root: host state}, as far as read; None: no host of this compute service
        self.host_states: dict[str, HostState | None] = {}
        #: the root of each candidate's tree
        self.roots = [candidates.root_uuid(at) for at in range(len(candidates))]
        #: {root: facts}
        self._facts = {root: self._host_facts(root) for root in dict.fromkeys(self.roots)}
        self._ranking = HostRanking(
            self.roots, self._facts.__getitem__, request.weigher_input, options.multipliers, unusual.multipliers,
            options.weighers,
        )  # fmt: skip

    def __len__(self) -> int:
        """Number of candidates."""
        return len(self._candidates)

    def ranked(self, request: PlacementRequest) -> list[int]:
        """Positions of all candidates, those of the best host first.

        Those of one host have Placement's order, but candidates on a device with a wanted function come first.
        """
        wanted, ranking = request.requirements, self._ranking
        order = ranking.order(wanted.server_id, wanted.group, subset=self._subset)
        if not self._carriers:
            return [at for root in order for at in ranking.candidates[root]]
        return [at for root in order for at in sorted(ranking.candidates[root], key=self._lacks_function)]

    def candidate(self, at: int) -> Candidate:
        return self._candidates[at]

    def still_fits(self, at: int) -> bool:
        """Whether the candidate at this position still fits after our own claims."""
        if not self.marks:
            return True
        for uuid, amounts in self._candidates[at].allocations.items():
            for name, amount in amounts.items():
                taken = self._claimed[uuid, name]
                room = self._summaries[uuid].resources.get(name) if taken else None
                if room is not None and room.used + taken + amount > room.capacity:
                    return False
        return True

    def mark_claimed(self, at: int, times: int = 1) -> None:
        """Subtracts the candidate's units for all servers that share this pool. Call before the claim; -1 undoes it."""
        candidate = self._candidates[at]
        self.marks += times
        for uuid, amounts in candidate.allocations.items():
            for name, amount in amounts.items():
                self._claimed[uuid, name] += times * amount
                if is_accelerator(name):
                    self._devices[candidate.root_uuid] -= times * amount
        self._facts[candidate.root_uuid] = self._host_facts(candidate.root_uuid)
        self._ranking.refresh_root(candidate.root_uuid)

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

    def _lacks_function(self, at: int) -> bool:
        return not any(self._carries_function(self._summaries[uuid]) for uuid in self._candidates[at].allocations)
