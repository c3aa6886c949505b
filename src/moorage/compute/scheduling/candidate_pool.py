"""One answer of Placement, prepared for weighing: facts about hosts, less our own claims since the answer.

A pool serves all servers of a batch that have the same request. Claims by others are not subtracted; Placement refuses
a claim that no longer fits.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import replace

from moorage.compute.scheduling.placement_request import PlacementRequest
from moorage.compute.store.scheduling_store import UnusualHosts
from moorage.placement.client.placement_client import Candidates, Summary
from moorage.scheduler.filters import HostState
from moorage.scheduler.host_ranking import HostRanking
from moorage.scheduler.options import SchedulerSettings
from moorage.scheduler.weighers import HostFacts, carries_function, counts_as_accelerator

#: `HostFacts.free` of all hosts if no weigher needs it; shared, because a pool may have thousands of hosts.
_NOTHING: Mapping[str, float] = {}


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
        self.candidates = candidates
        #: the root of each candidate's tree
        self.roots = [candidates.root_uuid(at) for at in range(len(candidates))]
        self.is_complete = limit is None or len(candidates) < limit
        #: {root: host state}, as far as read; None: no host of this compute service
        self.host_states: dict[str, HostState | None] = {}
        #: number of claims that were subtracted
        self.claims = 0
        self._summaries = summaries
        self._unusual = unusual
        self._subset = options.host_subset_size
        #: {(provider, resource class): units} of those claims
        self._claimed: Counter[tuple[str, str]] = Counter()
        #: {root: free accelerators}
        self._devices: Counter[str] = Counter()
        for summary in summaries.values():
            for name, resource in summary.resources.items():
                if counts_as_accelerator(name):
                    self._devices[summary.root_provider_uuid] += resource.capacity - resource.used
        #: {root: its provider tree}, only if weighers of other packages are enabled
        self._trees: dict[str, dict[str, Summary]] = defaultdict(dict)
        for uuid, summary in summaries.items() if options.weighers else ():
            self._trees[summary.root_provider_uuid][uuid] = summary
        functions = request.requirements.functions
        #: providers that have a wanted function, and the roots of their trees
        self._with_function = {
            uuid for uuid, one in summaries.items() if functions and carries_function(one.traits, functions)
        }
        self._roots_with_function = {summaries[uuid].root_provider_uuid for uuid in self._with_function}
        #: {root: facts}
        self._facts = {root: self._host_facts(root) for root in dict.fromkeys(self.roots)}
        self._ranking = HostRanking(
            self.roots, self._facts.__getitem__, request.weigher_input, options.multipliers, unusual.multipliers,
            options.weighers,
        )  # fmt: skip

    def ranked(self, request: PlacementRequest) -> list[int]:
        """Positions of all candidates, those of the best host first.

        Those of one host have Placement's order, but candidates on a device with a wanted function come first.
        """
        requirements, of_root = request.requirements, self._ranking.candidates
        order = self._ranking.order(requirements.server_id, requirements.group, subset=self._subset)
        if not self._with_function:
            return [at for root in order for at in of_root[root]]
        lacks_function = [self._with_function.isdisjoint(one.allocations) for one in self.candidates]
        return [at for root in order for at in sorted(of_root[root], key=lacks_function.__getitem__)]

    def still_fits(self, at: int) -> bool:
        """Whether the candidate at this position still fits after our own claims."""
        if not self.claims:
            return True
        for uuid, amounts in self.candidates[at].allocations.items():
            for name, amount in amounts.items():
                taken = self._claimed[uuid, name]
                resource = self._summaries[uuid].resources.get(name) if taken else None
                if resource is not None and resource.used + taken + amount > resource.capacity:
                    return False
        return True

    def subtract_claim(self, at: int, times: int = 1) -> None:
        """Subtracts the candidate's units for all servers that share this pool. Call before the claim; -1 undoes it."""
        candidate = self.candidates[at]
        self.claims += times
        for uuid, amounts in candidate.allocations.items():
            for name, amount in amounts.items():
                self._claimed[uuid, name] += times * amount
                if counts_as_accelerator(name):
                    self._devices[candidate.root_uuid] -= times * amount
        self._facts[candidate.root_uuid] = self._host_facts(candidate.root_uuid)
        self._ranking.refresh_root(candidate.root_uuid)

    def _host_facts(self, root: str) -> HostFacts:
        summary = self._summaries.get(root)
        own = {} if summary is None else summary.resources
        on_root = {
            name: resource.capacity - resource.used - self._claimed.get((root, name), 0)
            for name, resource in own.items()
        }
        facts = HostFacts(
            free_memory_mb=on_root.get("MEMORY_MB", 0),
            free_processors=on_root.get("VCPU", 0) + on_root.get("PCPU", 0),
            free_disk_gb=on_root.get("DISK_GB", 0),
            free_accelerators=self._devices[root],
            has_function=root in self._roots_with_function,
            jobs=self._unusual.open_jobs.get(root, 0),
            failed_builds=self._unusual.failed_builds.get(root, 0),
            free=_NOTHING,
        )
        if root not in self._trees:
            return facts
        in_tree: Counter[str] = Counter()
        for uuid, one in self._trees[root].items():
            for name, resource in one.resources.items():
                in_tree[name] += resource.capacity - resource.used - self._claimed[uuid, name]
        traits = frozenset(trait for one in self._trees[root].values() for trait in one.traits)
        return replace(facts, free=dict(in_tree), traits=traits)
