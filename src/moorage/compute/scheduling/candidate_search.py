"""Claim targets for a server: candidates of Placement, ranked and filtered, fetched again when all are taken.

    sample of candidates -> HostRanking.order -> filters -> claim targets, best first
    all hosts filtered out            -> again with more candidates, finally with all
    8 claims overtaken by others      -> fetch new candidates, at most 4 rounds

A target counts as claimed for all servers that share the pool, until it is given back. Not here: the claim
(`host_selection`).
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from sqlalchemy import Connection, Engine

from moorage.compute.hosts.host_service import HostService
from moorage.compute.scheduling.candidate_pool import CandidatePool
from moorage.compute.scheduling.placement_request import PlacementRequest
from moorage.compute.scheduling.selection import Alternate, NoHost
from moorage.compute.store import scheduling_store
from moorage.compute.store.scheduling_store import UnusualHosts
from moorage.core.errors import NotFound, RemoteError
from moorage.core.names import DISABLED_HOST_TRAIT, RESERVED_HOST_TRAIT
from moorage.db.session import read
from moorage.placement.client.placement_client import Explanation, PlacementClient
from moorage.scheduler.filters import UNKNOWN_HOST, HostState, ServerRequirements, rejects
from moorage.scheduler.options import SchedulerSettings
from moorage.scheduler.reasons import Reasons, RejectionCount
from moorage.scheduler.weighers import WEIGHERS, prefers_free_capacity

#: Claims tried per round before candidates are fetched again, and the number of rounds.
CLAIMS_PER_ROUND = 8
ROUNDS = 4
#: Minimum number of candidates per server in a shared answer, so that servers do not all compete for the same host.
CANDIDATES_PER_SERVER = 3
#: {condition that every request has, as Placement words it: words for users}
_CONDITION_WORDS = {
    f"root_required=!{DISABLED_HOST_TRAIT},!{RESERVED_HOST_TRAIT}": "enabled and not under reservation",
    f"root_required=!{DISABLED_HOST_TRAIT}": "enabled",
}
#: Hosts per server whose state is loaded in the first batch; each further batch is eight times as large.
_FIRST_BATCH = 8


@dataclass
class SharedAnswers:
    """Answers of Placement that the servers of a batch share, by `PlacementRequest.pool_key`.

    `servers`: number of servers in the batch.
    """

    servers: int = 1
    pools: dict[tuple[str, frozenset[str]], CandidatePool] = field(default_factory=dict)


@dataclass(frozen=True)
class ClaimTarget:
    """A candidate to claim. `later_alternates`: the hosts after it, for retries if the build fails."""

    alternate: Alternate
    later_alternates: Iterator[Alternate]
    pool: CandidatePool | None = None
    at: int = 0

    def give_back(self) -> None:
        """Call if the target was not claimed, or the claim was refused: its units count as free again."""
        if self.pool is not None:
            self.pool.unmark_claimed(self.at)


#: Yields targets, the next one after each refused claim; returns the reasons when no target is left.
ClaimTargets = Generator[ClaimTarget, None, NoHost]
OpenHosts = Iterator[tuple[HostState, Sequence[int]]]


class CandidateSearcher:
    def __init__(
        self, engine: Engine, placement: PlacementClient, hosts: HostService, options: SchedulerSettings
    ) -> None:
        self._engine = engine
        self._placement = placement
        self._hosts = hosts
        self._options = options

    def claim_targets(
        self,
        request: PlacementRequest,
        refused: Mapping[str, int],
        *,
        alternates: Sequence[Alternate] = (),
        shared: SharedAnswers | None = None,
        before_round: Callable[[], None],
    ) -> ClaimTargets:
        """Yields claim targets, best first; advance the generator after each refused claim.

        Returns the reasons when no target is left. `alternates` of an earlier selection come first. `refused`: {host:
        number of claims overtaken by others}; the caller updates it, and it appears in the reasons. `before_round` is
        called before candidates are fetched again. Fetches candidates for at most `ROUNDS` rounds.
        """
        for number, alternate in self._open_alternates(alternates, request.requirements):
            yield ClaimTarget(alternate, iter(alternates[number + 1 :]))
        shared = shared or SharedAnswers()
        if (pool := shared.pools.get(request.pool_key)) is not None:
            yield from self._targets_in(pool, request, shared.servers, {})
        for round_number in range(ROUNDS):
            if round_number:
                before_round()
            found = yield from self._targets_of_round(request, shared, round_number)
            if found is not None:
                return found
        return NoHost(Reasons(request.text, refused_claims=refused))

    def explain(self, request: PlacementRequest) -> tuple[tuple[str, ...], NoHost]:
        """Returns (names of suitable hosts, best first; the reasons against all other hosts, with counts). Claims
        nothing.
        """
        pool = self._fetch_pool(
            request, self._unusual_hosts(), self._options.max_placement_results + request.excluded_count, None
        )
        if not len(pool):
            return (), self._no_candidates(request)
        rejected: dict[str, tuple[str, str]] = {}
        open_ones = [host.name for host, _ in self._open_hosts(pool, request.requirements, 1, rejected)]
        return tuple(open_ones), NoHost(Reasons(request.text, self._counts(request), rejected=rejected))

    def _targets_of_round(
        self, request: PlacementRequest, shared: SharedAnswers, number: int
    ) -> Generator[ClaimTarget, None, NoHost | None]:
        """Returns None if every claim was overtaken by others."""
        rejected: dict[str, tuple[str, str]] = {}
        unusual = self._unusual_hosts()
        is_usual = not self._options.weighers
        has_room = is_usual and prefers_free_capacity(self._options.multipliers, unusual.multipliers.values())
        for limit in self._limits(request, shared.servers, may_sample=has_room):
            sample = f"{request.requirements.server_id}/{number}" if has_room else None
            pool = self._fetch_pool(request, unusual, limit, sample)
            if not len(pool):
                return self._no_candidates(request)
            shared.pools[request.pool_key] = pool
            rejected = {}
            if (yield from self._targets_in(pool, request, shared.servers, rejected)):
                return None
            if limit is None or len(pool) < limit:
                break
        return NoHost(Reasons(request.text, rejected=rejected))

    def _limits(self, request: PlacementRequest, servers: int, *, may_sample: bool) -> Iterator[int | None]:
        """Yields the numbers of candidates to fetch: use the next one if the filters reject all hosts. None: no limit."""
        sample, most = (
            max(self._options.sample_size, CANDIDATES_PER_SERVER * servers),
            self._options.max_placement_results,
        )
        if not request.needs_all_candidates:
            if may_sample and self._options.sample_size and sample < most and not request.requirements.functions:
                yield sample + request.excluded_count
            yield most + request.excluded_count
        yield None

    def _unusual_hosts(self) -> UnusualHosts:
        with read(self._engine) as connection:
            return scheduling_store.unusual_hosts(connection, {*WEIGHERS, *self._options.weighers})

    def _fetch_pool(
        self, request: PlacementRequest, unusual: UnusualHosts, limit: int | None, sample: str | None
    ) -> CandidatePool:
        query = request.query if limit is None else [*request.query, ("limit", str(limit))]
        candidates, summaries = self._placement.candidates(query, sample=sample)
        functions = request.requirements.functions
        return CandidatePool(candidates, summaries, unusual, request.weigher_input, functions, self._options)

    def _targets_in(
        self, pool: CandidatePool, request: PlacementRequest, servers: int, rejected: dict[str, tuple[str, str]]
    ) -> Generator[ClaimTarget, None, int]:
        """Yields the targets in a pool, best first; returns their number."""
        targets = 0
        open_hosts = self._open_hosts(pool, request.requirements, servers, rejected)
        for host, positions in open_hosts:
            for at in positions:
                if not pool.still_fits(at):
                    continue
                if targets == CLAIMS_PER_ROUND:
                    return targets
                targets += 1
                pool.mark_claimed(at)
                alternate = Alternate(host.name, host.root_uuid, pool.candidate(at))
                target = ClaimTarget(alternate, _later_alternates(pool, open_hosts), pool, at)
                yield target
                target.give_back()
        return targets

    def _open_hosts(
        self, pool: CandidatePool, requirements: ServerRequirements, servers: int, rejected: dict[str, tuple[str, str]]
    ) -> OpenHosts:
        """Yields (host, its candidates) for hosts that pass the filters, best first; adds the others to `rejected`."""
        order = pool.ranking.order(requirements.server_id, requirements.group, subset=self._options.host_subset_size)
        batch_size = _FIRST_BATCH * servers
        while roots := list(islice(order, batch_size)):
            self._load_host_states(pool, roots, batch_size)
            batch_size *= 8
            for root in roots:
                host = pool.host_states[root]
                if host is None:
                    rejected[root] = ("is_known", UNKNOWN_HOST)
                elif reason := rejects(host, requirements, self._options.filters):
                    rejected[host.name] = reason
                else:
                    yield host, pool.candidates_of_host(root)

    def _load_host_states(self, pool: CandidatePool, roots: Sequence[str], batch_size: int) -> None:
        """Loads all hosts of a small pool at once, because the next server will need the state of other hosts."""
        if unseen := [root for root in roots if root not in pool.host_states]:
            if len(pool.ranking.roots) <= batch_size:
                unseen = [root for root in pool.ranking.roots if root not in pool.host_states]
            with read(self._engine) as connection:
                pool.host_states.update(self._host_states(connection, unseen))

    def _host_states(self, connection: Connection, roots: Sequence[str]) -> dict[str, HostState | None]:
        found = scheduling_store.host_states(connection, roots, self._hosts.counts_as_up)
        return {root: found.get(root) for root in roots}

    def _open_alternates(
        self, alternates: Sequence[Alternate], requirements: ServerRequirements
    ) -> list[tuple[int, Alternate]]:
        """(position, alternate) of alternates that still pass the filters."""
        if not alternates:
            return []
        with read(self._engine) as connection:
            states = self._host_states(connection, [one.root_uuid for one in alternates])
        return [
            (number, one)
            for number, one in enumerate(alternates)
            if (host := states[one.root_uuid]) and not rejects(host, requirements, self._options.filters)
        ]

    # ------------------------------------------------------------------------------------------ reasons

    def _no_candidates(self, request: PlacementRequest) -> NoHost:
        """The reasons why Placement has no candidate; a Placement without the explain extension gives fewer."""
        explanation = self._placement_explanation(request)
        if explanation is None:
            return NoHost(Reasons(request.text, note=f"Placement has no candidate for {request.text}"))
        closest = tuple(f"{one.provider}: {'; '.join(one.lacks)}" for one in explanation.closest)
        change = explanation.change
        return NoHost(
            Reasons(
                request.text,
                _counts(explanation, request.meanings),
                note="" if explanation.steps else "there is no host",
                closest=closest,
                change="" if change is None else f"{'; '.join(change.parts)} on {change.provider}",
            )
        )

    def _counts(self, request: PlacementRequest) -> tuple[RejectionCount, ...]:
        return _counts(self._placement_explanation(request), request.meanings)

    def _placement_explanation(self, request: PlacementRequest) -> Explanation | None:
        try:
            return self._placement.explain(request.query)
        except (NotFound, RemoteError):
            return None


def _later_alternates(pool: CandidatePool, open_hosts: OpenHosts) -> Iterator[Alternate]:
    return (Alternate(host.name, host.root_uuid, pool.candidate(positions[0])) for host, positions in open_hosts)


def _counts(explanation: Explanation | None, meanings: Mapping[str, str]) -> tuple[RejectionCount, ...]:
    def condition_in_words(constraint: str) -> str:
        return next(
            (words for uuid, words in meanings.items() if uuid in constraint),
            _CONDITION_WORDS.get(constraint, constraint),
        )

    steps = () if explanation is None else explanation.steps
    return tuple(
        RejectionCount(condition_in_words(step.constraint), step.before, step.after, step.removed) for step in steps
    )
