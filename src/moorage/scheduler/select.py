"""From candidates to an order of hosts: those of one answer of Placement, weighed together.

    Contest(candidates) . order(...) -> roots, the best first . taken(...) -> order again, for the next server

One answer may serve several servers that ask for the same: what was claimed for the first is subtracted here, and
whether it is still there for the second Placement says when it is claimed.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from moorage.scheduler.server_groups import GroupPolicy, ServerGroupView, preference
from moorage.scheduler.weighers import WEIGHERS, Facts, Numbers, Weigher, WeigherInput, normalised

Multipliers = Mapping[str, float]


class HostRanking:
    """`roots`: of each candidate the root of its tree. `facts_of`: asked once for each root, and again when changed.

    `multipliers`: {weigher: number}; `special`: {root: {weigher: number}}, of hosts in aggregates that say so. `more`:
    weighers of other packages, which count once where nobody says otherwise.
    """

    def __init__(
        self,
        roots: Sequence[str],
        facts_of: Callable[[str], Facts],
        task: WeigherInput,
        multipliers: Multipliers | None = None,
        special: Mapping[str, Multipliers] | None = None,
        more: Mapping[str, Weigher] = MappingProxyType({}),
    ) -> None:
        by_root: dict[str, list[int]] = defaultdict(list)
        for at, root in enumerate(roots):
            by_root[root].append(at)
        #: {root: positions of its candidates, in Placement's order}
        self.candidates: Mapping[str, Sequence[int]] = by_root
        self.roots = list(by_root)
        self._position = {root: at for at, root in enumerate(self.roots)}
        self._facts_of = facts_of
        self._task = task
        self._special = special or {}
        usual = {name: factor for name, (_, factor) in WEIGHERS.items()} | dict.fromkeys(more, 1.0)
        self._multipliers = usual | dict(multipliers or {})
        every = {name: weigher for name, (weigher, _) in WEIGHERS.items() if weigher is not None} | dict(more)
        #: {name: weigher}, each a row of `_numbers`
        self._weighers = {name: weigher for name, weigher in every.items() if self._matters(name)}
        facts = [self._measured(root) for root in self.roots]
        self._numbers = np.array(facts, np.float64).reshape(len(facts), len(self._weighers)).T.copy()
        self._factors = np.array([self._factors_of(name) for name in self._weighers]).reshape(self._numbers.shape)

    def order(self, seed: str, group: ServerGroupView | None = None, *, subset: int = 1) -> Iterator[str]:
        """Roots, the best first. Equals, and the first `subset` among themselves, come in an order of `seed` alone:
        different servers do not all run to the same host, and the same server comes to the same answer again.
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
        """Of each root, in the order of `roots`."""
        total: Numbers = (normalised(self._numbers) * self._factors).sum(axis=0)
        if group is not None and group.policy in (GroupPolicy.SOFT_AFFINITY, GroupPolicy.SOFT_ANTI_AFFINITY):
            name = group.policy.value.replace("-", "_")
            numbers = np.fromiter((preference(group, root) for root in self.roots), np.float64, len(self.roots))
            total += normalised(numbers) * self._factors_of(name)
        return total

    def changed(self, root: str) -> None:
        """Something of it was claimed: its facts are asked again."""
        self._numbers[:, self._position[root]] = self._measured(root)

    def _measured(self, root: str) -> list[float]:
        """What each weigher says of it."""
        facts = self._facts_of(root)
        return [weigher(facts, self._task) for weigher in self._weighers.values()]

    def _matters(self, name: str) -> bool:
        return bool(self._multipliers[name] or any(name in special for special in self._special.values()))

    def _factors_of(self, name: str) -> Numbers:
        """The multiplier of one weigher, by root."""
        factors = np.full(len(self.roots), self._multipliers[name])
        for root, special in self._special.items():
            if name in special and root in self._position:
                factors[self._position[root]] = special[name]
        return factors


def counted(reasons: Mapping[str, str]) -> str:
    """The reasons, counted and without host names: ``2 hosts: its compute service is down``."""
    counts = Counter(reasons.values())
    return "; ".join(f"{count} {'host' if count == 1 else 'hosts'}: {why}" for why, count in sorted(counts.items()))
