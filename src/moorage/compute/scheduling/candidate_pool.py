"""One answer of Placement, as the scheduler weighs it: facts of hosts, and what of it we have claimed since.

It serves all servers of a batch that ask for the same. What others claim meanwhile is not in it: Placement says so when
a claim comes.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from moorage.compute.store.scheduling_store import UnusualHosts
from moorage.placement.client.placement_client import Candidate, Candidates, Summary
from moorage.scheduler.hosts import HostState
from moorage.scheduler.options import SchedulerSettings
from moorage.scheduler.select import HostRanking
from moorage.scheduler.weighers import Facts, WeigherInput, carries, is_accelerator


class CandidatePool:
    """`functions`: what accelerators shall carry, see `weighers.wanted_functions`."""

    def __init__(
        self,
        candidates: Candidates,
        summaries: Mapping[str, Summary],
        situation: UnusualHosts,
        task: WeigherInput,
        functions: frozenset[str],
        options: SchedulerSettings,
    ) -> None:
        self._candidates = candidates
        self._summaries = summaries
        self._situation = situation
        self._functions = functions
        self._taken: Counter[tuple[str, str]] = Counter()
        self._devices = _free_devices(summaries)
        #: roots of hosts where a device carries a wanted function
        self._carriers = frozenset(one.root_provider_uuid for one in summaries.values() if self._carries(one))
        #: {root: host}, as far as they were looked at
        self.views: dict[str, HostState | None] = {}
        #: {root: its tree}, where weighers of other packages may ask for it
        self._trees = _trees(summaries) if options.weighers else {}
        roots = [candidates.root(at) for at in range(len(candidates))]
        self.contest = HostRanking(
            roots, self._facts, task, options.multipliers, situation.multipliers, options.weighers
        )

    def __len__(self) -> int:
        """Candidates."""
        return len(self._candidates)

    def of_host(self, root: str) -> Sequence[int]:
        """Positions of its candidates, in Placement's order; those on a device with the wanted function first."""
        positions = self.contest.candidates[root]
        if not self._carriers or root not in self._carriers:
            return positions
        return sorted(positions, key=lambda at: not self._uses_carrier(at))

    def candidate(self, at: int) -> Candidate:
        return self._candidates[at]

    def is_there(self, at: int) -> bool:
        """Whether it is still there after what we have claimed ourselves."""
        if not self._taken:
            return True
        for uuid, amounts in self._candidates[at].allocations.items():
            for name, amount in amounts.items():
                taken = self._taken[uuid, name]
                room = self._summaries[uuid].resources.get(name) if taken else None
                if room is not None and room.used + taken + amount > room.capacity:
                    return False
        return True

    def has_any(self) -> bool:
        """Whether anything is left of it."""
        return any(self.is_there(at) for at in range(len(self)))

    def claimed(self, at: int) -> None:
        """It is about to be claimed: for the servers that share the answer it is gone."""
        self._take(at, 1)

    def returned(self, at: int) -> None:
        """It was not claimed after all."""
        self._take(at, -1)

    def _take(self, at: int, times: int) -> None:
        candidate = self._candidates[at]
        for uuid, amounts in candidate.allocations.items():
            for name, amount in amounts.items():
                self._taken[uuid, name] += times * amount
                if is_accelerator(name):
                    self._devices[candidate.root_uuid] -= times * amount
        self.contest.changed(candidate.root_uuid)

    def _facts(self, root: str) -> Facts:
        tree = self._trees.get(root, {})
        return Facts(
            free_memory_mb=self._free(root, "MEMORY_MB"),
            free_processors=self._free(root, "VCPU") + self._free(root, "PCPU"),
            free_disk_gb=self._free(root, "DISK_GB"),
            free_accelerators=self._devices[root],
            has_function=root in self._carriers,
            jobs=self._situation.open_jobs.get(root, 0),
            failed_builds=self._situation.failed_builds.get(root, 0),
            free=self._free_in(tree),
            traits=frozenset(trait for one in tree.values() for trait in one.traits),
        )

    def _free_in(self, tree: Mapping[str, Summary]) -> dict[str, float]:
        free: Counter[str] = Counter()
        for uuid, summary in tree.items():
            for name, room in summary.resources.items():
                free[name] += room.capacity - room.used - self._taken[uuid, name]
        return dict(free)

    def _free(self, root: str, name: str) -> float:
        summary = self._summaries.get(root)
        room = None if summary is None else summary.resources.get(name)
        if room is None:
            return 0.0
        return room.capacity - room.used - (self._taken[root, name] if self._taken else 0)

    def _carries(self, summary: Summary) -> bool:
        return bool(self._functions) and carries(summary.traits, self._functions)

    def _uses_carrier(self, at: int) -> bool:
        return any(self._carries(self._summaries[uuid]) for uuid in self._candidates[at].allocations)


def _trees(summaries: Mapping[str, Summary]) -> dict[str, dict[str, Summary]]:
    """{root: {provider: of it}}"""
    trees: dict[str, dict[str, Summary]] = defaultdict(dict)
    for uuid, summary in summaries.items():
        trees[summary.root_provider_uuid][uuid] = summary
    return trees


def _free_devices(summaries: Mapping[str, Summary]) -> Counter[str]:
    """{root: accelerators that nobody holds}."""
    found: Counter[str] = Counter()
    for summary in summaries.values():
        for name, room in summary.resources.items():
            if is_accelerator(name):
                found[summary.root_provider_uuid] += room.capacity - room.used
    return found
