"""From candidates to an order of hosts, with the reason for each host that is not in it."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from moorage.scheduler.filters import HostView, Wanted, rejects
from moorage.scheduler.weighers import tie_break, weight

UNKNOWN_HOST = "no compute service has registered it"


class OfTree(Protocol):
    """A candidate, as far as it matters here: the tree it takes from."""

    @property
    def root_uuid(self) -> str: ...


C = TypeVar("C", bound=OfTree)


@dataclass(frozen=True)
class Selection(Generic[C]):
    """A host and its candidates, in Placement's order: each of them may be claimed."""

    host: HostView
    candidates: tuple[C, ...]


@dataclass(frozen=True)
class Ranking(Generic[C]):
    selections: tuple[Selection[C], ...]  #: best first
    rejected: Mapping[str, str]  #: {host name, or root uuid of an unknown one: reason}

    def reasons(self) -> str:
        """The reasons, counted and without host names: ``2 hosts: its compute service is down``."""
        counts = Counter(self.rejected.values())
        return "; ".join(f"{count} {'host' if count == 1 else 'hosts'}: {why}" for why, count in sorted(counts.items()))


def select(candidates: Sequence[C], hosts: Mapping[str, HostView], wanted: Wanted) -> Ranking[C]:
    """`hosts` by root provider uuid. Every host of a candidate is either selected or rejected with a reason."""
    by_root: dict[str, list[C]] = defaultdict(list)
    for candidate in candidates:
        by_root[candidate.root_uuid].append(candidate)
    rejected: dict[str, str] = {}
    possible: list[Selection[C]] = []
    for root_uuid, of_host in by_root.items():
        host = hosts.get(root_uuid)
        if host is None:
            rejected[root_uuid] = UNKNOWN_HOST
        elif reason := rejects(host, wanted):
            rejected[host.name] = reason
        else:
            possible.append(Selection(host, tuple(of_host)))
    possible.sort(key=lambda one: (-weight(one.host, wanted), tie_break(one.host, wanted)))
    return Ranking(tuple(possible), rejected)
