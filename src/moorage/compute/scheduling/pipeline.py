"""Selects hosts for servers and claims them: one pipeline, for one server or many, for builds and for moves.

    1  request   flavor, image, hints, zone -> query and requirements (`placement_request`, pure)
    2  pool      the candidates of Placement, once for each distinct query (`candidate_pool`)
    3  target    the best candidate (`moorage.scheduler.host_ranking`, pure) that still fits, on a host that passes the
                 filters (`moorage.scheduler.filters`, pure)
    4  claim     one request for all servers; if it is refused, one for each
    5  commit    by the caller, in one transaction: `SelectionCommitter.commit` for builds, `MigrationTask` for moves

`HostSelector.claim_hosts` runs steps 1 to 4. A server whose claim was refused takes its next candidate in step 3. It
goes back to step 2 when none is left:

    `CLAIMS_PER_POOL` claims were refused   -> new candidates, up to `MAX_POOLS` times
    the filters rejected all hosts          -> more candidates, finally all
    other servers of the batch took them    -> new candidates, after the claims of those servers

The common case takes two requests to Placement: candidates and claim.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from sqlalchemy import Engine

from moorage.compute.hosts import HostService
from moorage.compute.model.servers import Placed
from moorage.compute.scheduling.candidate_pool import CandidatePool
from moorage.compute.scheduling.job_worker import extend_lease, is_late
from moorage.compute.scheduling.placement_request import HostRequest, PlacementRequest, build_request
from moorage.compute.scheduling.selection import (
    Alternate,
    NoHost,
    Outcome,
    Selection,
    failed_outcome,
    no_candidates,
    rejection_counts,
)
from moorage.compute.store import scheduling_store
from moorage.core.clock import Clock
from moorage.core.errors import Conflict, MoorageError, NotFound, RemoteError, Unavailable
from moorage.core.names import RESERVED_HOST_TRAIT, RESERVED_REGION_TRAIT
from moorage.db.session import read
from moorage.placement.client.placement_client import Claim, Explanation, PlacementClient
from moorage.scheduler.filters import UNKNOWN_HOST, HostState, rejects
from moorage.scheduler.options import SchedulerSettings
from moorage.scheduler.prefilters import RESERVATION_KEY
from moorage.scheduler.reasons import Reasons
from moorage.scheduler.weighers import WEIGHERS, prefers_free_capacity

#: Claims of a server that may be refused in one pool, and the number of pools in which that may happen.
CLAIMS_PER_POOL = 8
MAX_POOLS = 4
#: Minimum number of candidates per server in a shared pool, so that servers do not all compete for the same host.
CANDIDATES_PER_SERVER = 3
#: Hosts per server whose state is read first; each further read is eight times as large.
_FIRST_READ = 8


@dataclass
class Batch:
    """Servers that get their hosts together or one after another: their number, and the pools that they share."""

    servers: int = 1
    pools: dict[tuple[str, frozenset[str]], CandidatePool] = field(default_factory=dict)


@dataclass
class _Order:
    """Servers that get hosts all together or not at all."""

    outcome: Outcome | None = None
    #: Until the other orders have claimed, claims nothing unless all its servers have a target.
    waits_for_others: bool = True


@dataclass
class _Ranking:
    """A pool, ranked for one server."""

    pool: CandidatePool
    candidates: Sequence[int]  #: positions in `pool`, best first
    next: int = 0  #: index in `candidates`
    rejected: dict[str, tuple[str, str]] = field(default_factory=dict)  #: {host: (filter, reason)}
    refused: int = 0  #: number of claims


@dataclass
class _Search:
    """One server on its way through the pipeline."""

    wanted: HostRequest
    batch: Batch
    order: _Order
    request: PlacementRequest = field(init=False)  #: set by step 1
    alternates: list[Alternate] = field(default_factory=list)  #: of an earlier selection; tried before any pool
    ranking: _Ranking | None = None  #: None: needs another pool than `used_up`
    used_up: CandidatePool | None = None
    refused: Counter[str] = field(default_factory=Counter)  #: {host: claims}, in all pools
    overtaken: int = 0  #: number of pools that are used up because claims were refused
    widened: int = 0  #: number of pools that are used up because the filters rejected all hosts
    must_wait: bool = False  #: for the claims of the other servers in the batch
    target: Alternate | None = None  #: to be claimed
    selection: Selection | None = None

    @property
    def is_open(self) -> bool:
        return self.selection is None and self.order.outcome is None


class HostSelector:
    """Selects hosts with the scheduler and claims them in Placement."""

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        placement: PlacementClient,
        hosts: HostService,
        options: SchedulerSettings | None = None,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._placement = placement
        self._outages = hosts.deps.outages
        self._up_window = timedelta(seconds=hosts.settings.up_window_s)
        self._options = options or SchedulerSettings()
        self._has_traits = False

    def ensure_traits(self) -> None:
        """Creates the traits that every query names; Placement refuses a query with an unknown trait."""
        if not self._has_traits:
            self._placement.ensure_trait(RESERVED_HOST_TRAIT)
            self._placement.ensure_trait(RESERVED_REGION_TRAIT)
            self._has_traits = True

    def claim_hosts(self, orders: Sequence[Sequence[HostRequest]], batch: Batch) -> list[Outcome]:
        """Selects and claims a host for each server of all `orders`; returns one outcome per order.

        An order gets hosts for all its servers or for none; if for none, some may still hold claims, which the caller
        releases. The outcome is an error if the search must be tried again later, for example `Unavailable` if
        Placement does not answer, or `Conflict` ``jobs.fenced`` if another worker now holds the job.

        The members of a server's group are read now. The transaction that writes the host into the server's row must
        call `group_service.recheck_placement`, and select again if that rejects the host.
        """
        started: list[list[_Search]] = []
        for servers in orders:
            order = _Order()
            started.append([_Search(one, batch, order) for one in servers])
        searches = [one for of_order in started for one in of_order]
        try:
            self._for_each(searches, self._build_request)  # 1
            while any(one.is_open for one in searches):
                self._for_each(searches, self._find_target)  # 2 and 3
                for of_order in started if len(started) > 1 else ():
                    _give_back_incomplete(of_order)
                targets = [one for one in searches if one.is_open and one.target is not None]
                if not self._claim_together(targets):  # 4
                    self._for_each(targets, self._claim)
        except MoorageError as error:  # a claim may have been granted; the next attempt releases it first
            for one in searches:
                if one.is_open:
                    one.order.outcome = failed_outcome(error)
        return [
            of_order[0].order.outcome or [one.selection for one in of_order if one.selection is not None]
            for of_order in started
        ]

    def explain(self, wanted: HostRequest) -> tuple[tuple[str, ...], NoHost]:
        """Returns (names of suitable hosts, best first; the reasons against all other hosts, with counts). Claims
        nothing. Raises `Invalid` and `RemoteError` for a request that Placement could never fulfil.
        """
        self.ensure_traits()
        search = _Search(wanted, Batch(), _Order())
        self._build_request(search)
        if isinstance(search.order.outcome, NoHost):
            return (), search.order.outcome
        request = search.request
        pool = self._fetch_pool(request)
        explanation = self._explanation(request)
        if not pool.roots:
            return (), no_candidates(request.text, request.meanings, explanation)
        ranking = _Ranking(pool, pool.ranked(request))
        found = [self._host_at(search, ranking, index) for index in range(len(ranking.candidates))]
        names = dict.fromkeys(host.name for host in found if host is not None)
        counts = rejection_counts(request.meanings, explanation)
        return tuple(names), NoHost(Reasons(request.text, counts, rejected=ranking.rejected))

    def _for_each(self, searches: Sequence[_Search], step: Callable[[_Search], None]) -> None:
        """Runs `step` for each open search. An error ends the searches of its order; `Unavailable` ends all."""
        for search in searches:
            if search.is_open:
                try:
                    step(search)
                except Unavailable:
                    raise
                except MoorageError as error:
                    search.order.outcome = failed_outcome(error)

    # -------------------------------------------------------------------------------------------- 1: request

    def _build_request(self, search: _Search) -> None:
        wanted, server, context, rules = search.wanted, search.wanted.server, None, self._options.aggregates
        is_reserved = RESERVATION_KEY in server.flavor.extra_specs
        if server.scheduler_hints or server.wanted_host or is_reserved or rules.apply_to(server.wanted_zone):
            with read(self._engine) as connection:
                context = scheduling_store.request_context(connection, server)
        request = build_request(wanted, context, rules)
        if isinstance(request, NoHost):
            search.order.outcome = request
            return
        search.request = request
        if wanted.may_hold_allocations:
            self._release(wanted)
        if wanted.alternates:
            states = self._host_states([one.root_uuid for one in wanted.alternates])
            search.alternates = [
                one
                for one in wanted.alternates
                if (host := states[one.root_uuid]) and not rejects(host, request.requirements, self._options.filters)
            ]

    def _release(self, wanted: HostRequest) -> None:
        # A builder that loses its lease between these two lines would release what its successor has just claimed. Both
        # lines are quick and a lease is long; the audit finds the remaining cases.
        if wanted.job is not None:
            extend_lease(self._engine, self._clock, wanted.job)
        self._placement.release(wanted.server.id)

    # -------------------------------------------------------------------------------------------- 2 and 3: pool, target

    def _find_target(self, search: _Search) -> None:
        """Steps 2 and 3.

        Finds none if other servers of the batch took the candidates; call again after their claims.
        """
        search.must_wait = False
        if search.alternates:
            search.target = search.alternates[0]
        while search.is_open and search.target is None and not search.must_wait:
            ranking = search.ranking
            if ranking is None:
                self._enter_pool(search)
            elif ranking.next == len(ranking.candidates):
                self._leave_pool(search, ranking)
            else:
                at, pool = ranking.candidates[ranking.next], ranking.pool
                host = self._host_at(search, ranking, ranking.next)
                if host is not None and pool.still_fits(at):
                    pool.subtract_claim(at)
                    search.target = Alternate(host.name, host.root_uuid, pool.candidates[at])
                else:
                    ranking.next += 1

    def _enter_pool(self, search: _Search) -> None:
        """Ranks the pool of the batch; a new one if there is none, or if the search has used it up."""
        request, batch = search.request, search.batch
        pool = batch.pools.get(request.pool_key)
        if pool is None or pool is search.used_up:
            seed = f"{request.requirements.server_id}/{search.overtaken}"
            pool = self._fetch_pool(request, seed, batch.servers, search.widened)
            if not pool.roots:
                explanation = self._explanation(request)
                search.order.outcome = no_candidates(request.text, request.meanings, explanation)
                return
            batch.pools[request.pool_key] = pool
        search.ranking = _Ranking(pool, pool.ranked(request))

    def _leave_pool(self, search: _Search, ranking: _Ranking) -> None:
        """No candidate is left in the pool for this search."""
        request, order = search.request, search.order
        search.used_up, search.ranking = ranking.pool, None
        if ranking.refused:
            search.overtaken += 1
            if search.overtaken == MAX_POOLS:
                order.outcome = NoHost(Reasons(request.text, refused_claims=search.refused))
            else:
                self._release(search.wanted)
        elif ranking.pool.claims:
            search.must_wait = True
        elif ranking.pool.is_complete:
            order.outcome = NoHost(Reasons(request.text, rejected=ranking.rejected))
        else:
            search.widened += 1

    def _fetch_pool(
        self, request: PlacementRequest, seed: str | None = None, servers: int = 1, widened: int = 0
    ) -> CandidatePool:
        """Fetches candidates: a sample by `seed`, if a sample is enough; the next larger number for each `widened`.

        Without a seed, for an explanation, at most `max_placement_results`.
        """
        options = self._options
        with read(self._engine) as connection:
            unusual = scheduling_store.unusual_hosts(connection, {*WEIGHERS, *options.weighers})
        is_sampled = seed is not None and not options.weighers
        is_sampled = is_sampled and prefers_free_capacity(options.multipliers, unusual.multipliers.values())
        limits: list[int | None] = [None]
        if seed is None or not request.needs_all_candidates:
            sample_size, most = max(options.sample_size, CANDIDATES_PER_SERVER * servers), options.max_placement_results
            limits.insert(0, most + request.excluded_count)
            if is_sampled and options.sample_size and sample_size < most and not request.requirements.functions:
                limits.insert(0, sample_size + request.excluded_count)
        limit = limits[min(widened, len(limits) - 1)]
        query = request.query if limit is None else [*request.query, ("limit", str(limit))]
        candidates, summaries = self._placement.candidates(query, sample=seed if is_sampled else None)
        return CandidatePool(candidates, summaries, unusual, request, options, limit)

    def _explanation(self, request: PlacementRequest) -> Explanation | None:
        """None: a Placement without the explain extension."""
        try:
            return self._placement.explain(request.query)
        except (NotFound, RemoteError):
            return None

    def _host_at(self, search: _Search, ranking: _Ranking, index: int) -> HostState | None:
        """The host of the candidate at `index`; None if the filters reject it."""
        pool, rejected = ranking.pool, ranking.rejected
        root = pool.roots[ranking.candidates[index]]
        if root not in pool.host_states:
            ahead = dict.fromkeys(pool.roots[at] for at in ranking.candidates[index:])
            unread = [one for one in ahead if one not in pool.host_states]
            pool.host_states |= self._host_states(
                unread[: _FIRST_READ * max(search.batch.servers, len(pool.host_states))]
            )
        host = pool.host_states[root]
        if host is None:
            rejected[root] = ("is_known", UNKNOWN_HOST)
        elif reason := rejects(host, search.request.requirements, self._options.filters):
            rejected[host.name] = reason
        else:
            return host
        return None

    def _host_states(self, roots: Sequence[str]) -> dict[str, HostState | None]:
        """None: no host of this compute service."""
        with read(self._engine) as connection:
            up_since = self._outages.heard_since(self._clock.now(), self._up_window)
            found = scheduling_store.host_states(connection, roots, up_since)
        return {root: found.get(root) for root in roots}

    # -------------------------------------------------------------------------------------------- 4: claim

    def _claim_together(self, searches: Sequence[_Search]) -> bool:
        """Claims for all or for none. Returns False if each must claim by itself: there is only one, this worker may
        soon lose the jobs, or a claim was overtaken or names a deleted provider.
        """
        now = self._clock.now()
        if len(searches) < 2 or any(one.wanted.job is not None and is_late(one.wanted.job, now) for one in searches):
            return False
        claims = {
            one.wanted.server.id: Claim(one.target.candidate, one.wanted.server.project_id, one.wanted.server.user_id)
            for one in searches
            if one.target is not None
        }
        try:
            self._placement.claim_together(claims)
        except Conflict:
            return False
        except RemoteError as error:
            if error.status >= 500:
                raise
            return False
        for one in searches:
            self._select(one)
        return True

    def _claim(self, search: _Search) -> None:
        """Claims the target; if the claim is refused, the search goes on with the next candidate."""
        server, job, target, ranking = search.wanted.server, search.wanted.job, search.target, search.ranking
        if target is None:
            return
        if job is not None and is_late(job, self._clock.now()):
            extend_lease(self._engine, self._clock, job)
        try:
            self._placement.claim(server.id, target.candidate, server.project_id, server.user_id)
        except Conflict:
            search.refused[target.host] += 1
            _give_back(search)
            if ranking is None:
                del search.alternates[0]
            else:
                ranking.refused += 1
                ranking.next = len(ranking.candidates) if ranking.refused == CLAIMS_PER_POOL else ranking.next + 1
        else:
            self._select(search)

    def _select(self, search: _Search) -> None:
        """Turns the claimed target into a selection, with alternates for retries if the build fails."""
        target, ranking, count = search.target, search.ranking, self._options.max_attempts - 1
        if target is None:
            return
        later: dict[str, Alternate] = {}
        if ranking is None:
            given = search.wanted.alternates
            later = {one.root_uuid: one for one in given[given.index(target) + 1 :][:count]}
        else:
            pool = ranking.pool
            for index in range(ranking.next + 1, len(ranking.candidates)):
                if len(later) == count:
                    break
                at = ranking.candidates[index]
                is_new = pool.roots[at] != target.root_uuid and pool.roots[at] not in later
                if is_new and (host := self._host_at(search, ranking, index)):
                    later[host.root_uuid] = Alternate(host.name, host.root_uuid, pool.candidates[at])
        placed = Placed(target.candidate.mappings, target.candidate.allocations)
        claims = sum(search.refused.values()) + 1
        search.selection = Selection(target.host, placed, claims, target.root_uuid, tuple(later.values()))
        search.target = None


def _give_back_incomplete(searches: Sequence[_Search]) -> None:
    """Gives the targets of an order back if it cannot claim all of them now, because one of its servers has none."""
    order = searches[0].order
    is_incomplete = any(one.is_open and one.target is None for one in searches)
    if order.outcome is not None or (order.waits_for_others and is_incomplete):
        for one in searches:
            _give_back(one)
            if one.ranking is not None:
                one.used_up, one.ranking = one.ranking.pool, None
        order.waits_for_others = False


def _give_back(search: _Search) -> None:
    """The target is not claimed: its units count as free again for all servers that share the pool."""
    if search.ranking is not None and search.target is not None:
        search.ranking.pool.subtract_claim(search.ranking.candidates[search.ranking.next], -1)
    search.target = None
