"""Selects a host for a server and claims it; used by build jobs and by every move.

The common case takes two requests: candidates and claim. Servers that wait together share both. The selector requests
an explanation from Placement only if there is no candidate, and first releases allocations only if an earlier attempt
may have left some.

    request -> claim targets (`candidate_search`) -> claim       next target if the claim was overtaken
    several servers: first targets -> one claim for all          if refused, each server claims by itself as above
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from types import MappingProxyType
from typing import TypeVar

from sqlalchemy import Engine

from moorage.compute.hosts.host_service import HostService
from moorage.compute.model.servers import Flavor, Placed, Server
from moorage.compute.scheduling.candidate_search import CandidateSearcher, ClaimTarget, ClaimTargets, SharedAnswers
from moorage.compute.scheduling.placement_request import PlacementRequestBuilder, RequestChanges
from moorage.compute.scheduling.selection import Alternate, NoHost, Selection
from moorage.core.errors import Conflict, MoorageError, RemoteError, Unavailable
from moorage.core.names import RESERVED_HOST_TRAIT, RESERVED_REGION_TRAIT
from moorage.placement.client.placement_client import Claim, PlacementClient
from moorage.scheduler.options import SchedulerSettings

log = logging.getLogger(__name__)

T = TypeVar("T", NoHost, MoorageError, None)


@dataclass(frozen=True)
class ServerToPlace:
    """A new server without allocations. `image_properties`, `check_turn`: see `HostSelector.select_and_claim`."""

    server: Server
    image_properties: Mapping[str, str]
    check_turn: Callable[[], None]


#: A selection for each server of an order; or the reasons why one has no host; or the error that prevented it.
SelectionOutcome = Sequence[Selection] | NoHost | MoorageError


class HostSelector:
    """Selects hosts with the scheduler and claims them in Placement."""

    def __init__(
        self,
        engine: Engine,
        placement: PlacementClient,
        hosts: HostService,
        options: SchedulerSettings | None = None,
    ) -> None:
        self._placement = placement
        self._options = options or SchedulerSettings()
        self._requests = PlacementRequestBuilder(engine, self._options)
        self._searcher = CandidateSearcher(engine, placement, hosts, self._options)
        self._has_traits = False

    def ensure_traits(self) -> None:
        """Creates the traits that every query names; Placement refuses a query with an unknown trait."""
        if not self._has_traits:
            self._placement.ensure_trait(RESERVED_HOST_TRAIT)
            self._placement.ensure_trait(RESERVED_REGION_TRAIT)
            self._has_traits = True

    def select_and_claim(
        self,
        server: Server,
        image_properties: Mapping[str, str],
        *,
        flavor: Flavor | None = None,
        consumer: str | None = None,
        only_host: str | None = None,
        excluded_hosts: Mapping[str, str] = MappingProxyType({}),
        alternates: Sequence[Alternate] = (),
        beside: Sequence[str] = (),
        may_hold_allocations: bool = False,
        check_turn: Callable[[], None] = lambda: None,
        shared: SharedAnswers | None = None,
    ) -> Selection | NoHost:
        """Selects a host for `server` and claims it for `consumer`, or returns the reasons why there is none.

        `flavor`, `only_host`, `excluded_hosts`, `beside`: see `RequestChanges`. `consumer`: the holder of the claim, by
        default the server itself. It must have no other allocations; with `may_hold_allocations`, its allocations from
        an earlier attempt are released first. `alternates` of an earlier selection are tried first. `check_turn` raises
        if this worker must not continue. `shared`: one object for all servers of a batch. `image_properties`: the
        result of `scheduling_properties`.

        The members of the server's group are read now. The transaction that writes the host into the server's row must
        call `group_service.recheck_placement`, and select again if that rejects the host.

        Raises `Invalid` or `RemoteError` (status 400) for a request that Placement could never fulfil. Raises
        `Unavailable` if Placement does not answer; this is not a lack of hosts, so try again later.
        """
        request = self._requests.build_request(
            server, image_properties, RequestChanges(flavor, only_host, excluded_hosts, beside)
        )
        if isinstance(request, NoHost):
            return request
        claimer = _Claimer(self._placement, server, consumer or server.id, check_turn)
        if may_hold_allocations:
            # A builder that loses its lease between these two lines would release what its successor has just
            # claimed. Both lines are quick and a lease is long; the audit finds the remaining cases.
            check_turn()
            claimer.release()
        targets = self._searcher.claim_targets(
            request, claimer.refused, alternates=alternates, shared=shared, before_round=claimer.before_round
        )
        return self._claim_first(claimer, targets, _next_target(targets))

    def select_and_claim_together(
        self, orders: Sequence[Sequence[ServerToPlace]], shared: SharedAnswers, may_claim: Callable[[], bool]
    ) -> list[SelectionOutcome | None]:
        """Selects hosts for all `orders` and claims them in one request; returns one outcome per order.

        An order gets hosts for all its servers or for none. An order that fails does not affect the others.

        An outcome of None: the caller must select for this order by itself afterwards, because the remaining capacity
        depends on the other orders, or because `may_claim` returned False. Errors that `select_and_claim` would raise
        are outcomes here.
        """
        started: list[list[_StartedSearch] | NoHost | MoorageError | None] = []
        for servers in orders:
            away = next((one for one in started if isinstance(one, Unavailable)), None)
            started.append(away or self._start_searches(servers, shared))
        first = [one for of_order in started if isinstance(of_order, list) for one in of_order]
        if not may_claim():
            return [None] * len(orders)
        try:
            granted = len(first) > 1 and self._claim_together(first)
        except MoorageError as error:
            # The claim may or may not have been granted. The next attempt releases it first.
            return [error if isinstance(one, list) else one for one in started]
        return [self._finish_order(one, granted=granted) if isinstance(one, list) else one for one in started]

    def explain(
        self, server: Server, image_properties: Mapping[str, str], *, excluded_hosts: Mapping[str, str] | None = None
    ) -> tuple[tuple[str, ...], NoHost]:
        """Returns (names of suitable hosts, best first; the reasons against all other hosts, with counts). Claims
        nothing.
        """
        self.ensure_traits()
        request = self._requests.build_request(
            server, image_properties, RequestChanges(excluded_hosts=excluded_hosts or {})
        )
        return ((), request) if isinstance(request, NoHost) else self._searcher.explain(request)

    def _start_searches(
        self, servers: Sequence[ServerToPlace], shared: SharedAnswers
    ) -> "list[_StartedSearch] | NoHost | MoorageError | None":
        """The first target of each server of an order; if one server has none, all targets are given back."""
        started: list[_StartedSearch] = []
        try:
            for one in servers:
                claimer = _Claimer(self._placement, one.server, one.server.id, one.check_turn)
                request = self._requests.build_request(one.server, one.image_properties, RequestChanges())
                if isinstance(request, NoHost):
                    return _give_back_all(started, request)
                pool = shared.pools.get(request.pool_key)
                if pool is not None and not pool.has_candidates_left():
                    return _give_back_all(started, None)
                targets = self._searcher.claim_targets(
                    request, claimer.refused, shared=shared, before_round=claimer.before_round
                )
                target = _next_target(targets)
                if isinstance(target, NoHost):
                    return _give_back_all(started, target)
                started.append(_StartedSearch(claimer, targets, target))
        except MoorageError as error:
            return _give_back_all(started, error)
        except Exception:  # an order that always fails must not block the others: it fails again when run by itself
            log.exception("host search failed", extra={"servers": [one.server.id for one in servers]})
            return _give_back_all(started, None)
        return started

    def _claim_together(self, started: Sequence["_StartedSearch"]) -> bool:
        """False if one of the claims was overtaken or names a deleted provider. Each order then finds out by itself."""
        try:
            self._placement.claim_together({one.claimer.consumer: one.claimer.claim(one.target) for one in started})
        except Conflict:
            return False
        except RemoteError as error:
            if error.status >= 500:
                raise
            return False
        return True

    def _finish_order(self, started: Sequence["_StartedSearch"], *, granted: bool) -> SelectionOutcome:
        selections: list[Selection] = []
        try:
            for one in started:
                selection = self._selection_of(one.claimer, one.target) if granted else self._claim_first(*one.parts)
                if isinstance(selection, NoHost):
                    return selection
                selections.append(selection)
        except MoorageError as error:
            return error
        return selections

    def _claim_first(
        self, claimer: "_Claimer", targets: ClaimTargets, target: ClaimTarget | NoHost
    ) -> Selection | NoHost:
        """The selection for the first target whose claim is granted."""
        while not isinstance(target, NoHost):
            if claimer.try_claim(target):
                return self._selection_of(claimer, target)
            target = _next_target(targets)
        return target

    def _selection_of(self, claimer: "_Claimer", target: ClaimTarget) -> Selection:
        alternate = target.alternate
        placed = Placed(alternate.candidate.mappings, alternate.candidate.allocations)
        further = tuple(islice(target.later_alternates, self._options.max_attempts - 1))
        return Selection(alternate.host, placed, sum(claimer.refused.values()) + 1, alternate.root_uuid, further)


class _Claimer:
    """Claims for one consumer until a claim is granted."""

    def __init__(
        self, placement: PlacementClient, server: Server, consumer: str, check_turn: Callable[[], None]
    ) -> None:
        self._placement = placement
        self._server = server
        self._check_turn = check_turn
        self.consumer = consumer
        #: {host: claims overtaken by others}
        self.refused: Counter[str] = Counter()

    def claim(self, target: ClaimTarget) -> Claim:
        return Claim(target.alternate.candidate, self._server.project_id, self._server.user_id)

    def try_claim(self, target: ClaimTarget) -> bool:
        try:
            self._placement.claim(
                self.consumer, target.alternate.candidate, self._server.project_id, self._server.user_id
            )
        except Conflict:
            self.refused[target.alternate.host] += 1
            return False
        return True

    def before_round(self) -> None:
        self._check_turn()
        self.release()

    def release(self) -> None:
        self._placement.release(self.consumer)


@dataclass(frozen=True)
class _StartedSearch:
    """A search whose first target is about to be claimed."""

    claimer: _Claimer
    targets: ClaimTargets
    target: ClaimTarget

    @property
    def parts(self) -> tuple[_Claimer, ClaimTargets, ClaimTarget]:
        return self.claimer, self.targets, self.target


def _next_target(targets: ClaimTargets) -> ClaimTarget | NoHost:
    try:
        return next(targets)
    except StopIteration as end:
        no_host: NoHost = end.value
        return no_host


def _give_back_all(started: Sequence[_StartedSearch], reason: T) -> T:
    """Gives back the targets of an order of which one server has no host."""
    for one in started:
        one.target.give_back()
    return reason
