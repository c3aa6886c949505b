"""Ranks the hosts of one Placement answer: candidates -> hosts, best first.

    HostRanking(roots of candidates, ...) -> order(seed, group) -> roots, best first
                                          -> refresh_root(root) after a claim, then order again for the next server

One answer may serve several servers with the same request. Claims for earlier servers are subtracted from the facts;
whether a candidate is still free is decided by Placement when it is claimed.
"""

import hashlib
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from moorage.scheduler.server_groups import GroupPolicy, ServerGroupView, group_preference
from moorage.scheduler.weighers import WEIGHERS, HostFacts, Numbers, Weigher, WeigherInput, normalised

Multipliers = Mapping[str, float]


class HostRanking:
    """`roots`: the root of each candidate's tree. `host_facts`: called once per root, and again by `refresh_root`.

    `multipliers`: {weigher: number}; `aggregate_multipliers`: {root: {weigher: number}} from the metadata of
    aggregates. `plugin_weighers`: weighers of other packages; their default multiplier is 1. `more` is its former name,
    which warns.
    """

    def __init__(
        self,
        roots: Sequence[str],
        host_facts: Callable[[str], HostFacts],
        weigher_input: WeigherInput,
        multipliers: Multipliers | None = None,
        aggregate_multipliers: Mapping[str, Multipliers] | None = None,
        plugin_weighers: Mapping[str, Weigher] = MappingProxyType({}),
        *,
        more: Mapping[str, Weigher] | None = None,
    ) -> None:
        if more is not None:
            warnings.warn("the argument more of HostRanking is now plugin_weighers", DeprecationWarning, stacklevel=2)
            plugin_weighers = {**more, **plugin_weighers}
        by_root: dict[str, list[int]] = defaultdict(list)
        for at, root in enumerate(roots):
            by_root[root].append(at)
        #: {root: positions of its candidates, in Placement's order}
        self.candidates: Mapping[str, Sequence[int]] = by_root
        self.roots = list(by_root)
        self._position = {root: at for at, root in enumerate(self.roots)}
        self._host_facts = host_facts
        self._weigher_input = weigher_input
        self._aggregate_multipliers = aggregate_multipliers or {}
        defaults = {name: default for name, (_, default) in WEIGHERS.items()} | dict.fromkeys(plugin_weighers, 1.0)
        self._multipliers = defaults | dict(multipliers or {})
        every = {name: weigher for name, (weigher, _) in WEIGHERS.items() if weigher is not None} | dict(
            plugin_weighers
        )
        #: {name: weigher}, each a row of `_numbers`
        used = {name for name, multiplier in self._multipliers.items() if multiplier}
        used.update(name for of_root in self._aggregate_multipliers.values() for name in of_root)
        self._weighers = {name: weigher for name, weigher in every.items() if name in used}
        facts = [self._numbers_for(root) for root in self.roots]
        self._numbers = np.array(facts, np.float64).reshape(len(facts), len(self._weighers)).T.copy()
        self._multiplier_rows = np.array([self._multipliers_for(name) for name in self._weighers]).reshape(
            self._numbers.shape
        )

    def order(self, seed: str, group: ServerGroupView | None = None, *, subset: int = 1) -> Iterator[str]:
        """Root uuids, best first.

        Hosts of equal weight, and the first `subset` hosts, are shuffled by `seed` alone: different servers do not all
        go to the same host, and the same server gets the same answer again.
        """
        if not self.roots:
            return iter(())
        weights = self.weights(group)
        chance = np.random.default_rng(int.from_bytes(hashlib.blake2b(seed.encode(), digest_size=8).digest()))
        order = np.lexsort((chance.permutation(len(weights)), -weights))
        first = min(subset, len(order))
        order[:first] = chance.permutation(order[:first])
        return iter([self.roots[at] for at in order.tolist()])

    def weights(self, group: ServerGroupView | None = None) -> Numbers:
        """The weight of each root, in the order of `roots`."""
        total: Numbers = (normalised(self._numbers) * self._multiplier_rows).sum(axis=0)
        if group is not None and group.policy in (GroupPolicy.SOFT_AFFINITY, GroupPolicy.SOFT_ANTI_AFFINITY):
            name = group.policy.value.replace("-", "_")
            numbers = np.fromiter((group_preference(group, root) for root in self.roots), np.float64, len(self.roots))
            total += normalised(numbers) * self._multipliers_for(name)
        return total

    def refresh_root(self, root: str) -> None:
        """Reads the facts of the root again, after a claim on it."""
        self._numbers[:, self._position[root]] = self._numbers_for(root)

    def _numbers_for(self, root: str) -> list[float]:
        """One number from each weigher."""
        facts = self._host_facts(root)
        return [weigher(facts, self._weigher_input) for weigher in self._weighers.values()]

    def _multipliers_for(self, name: str) -> Numbers:
        """The multiplier of one weigher for each root."""
        multipliers = np.full(len(self.roots), self._multipliers[name])
        for root, aggregate_multipliers in self._aggregate_multipliers.items():
            if name in aggregate_multipliers and root in self._position:
                multipliers[self._position[root]] = aggregate_multipliers[name]
        return multipliers


def count_reasons(reasons: Mapping[str, str]) -> str:
    """The reasons, counted and without host names: ``2 hosts: its compute service is down``."""
    counts = Counter(reasons.values())
    return "; ".join(f"{count} {'host' if count == 1 else 'hosts'}: {why}" for why, count in sorted(counts.items()))
