"""From a server to a claimed candidate: what `build_worker`, and every move of a server, asks of scheduler and Placement.

The good path is two requests: candidates, claim. Servers that wait together share both. Only where there is no
candidate is a further one made, that asks Placement for the reason; and only where something may be held from a former
try is it given back first.

    asked -> picks (`candidate_search`) -> claim                 the next pick when somebody else was quicker
    several: their first picks   -> one claim for all     refused as a whole: each claims on its own, as above
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
from moorage.compute.scheduling.candidate_search import ClaimTarget, Picks, Searcher, SharedAnswers
from moorage.compute.scheduling.placement_request import PlacementRequests, RequestChanges
from moorage.compute.scheduling.selection import Alternate, NoHost, Selection
from moorage.core.errors import Conflict, MoorageError, RemoteError, Unavailable
from moorage.core.names import RESERVED_HOST_TRAIT, RESERVED_REGION_TRAIT
from moorage.placement.client.placement_client import Claim, PlacementClient
from moorage.scheduler.options import SchedulerSettings

log = logging.getLogger(__name__)

T = TypeVar("T", NoHost, MoorageError, None)


@dataclass(frozen=True)
class Newcomer:
    """A new server that holds nothing. `image_properties`, `check_turn`: as of `Placer.place`."""

    server: Server
    image_properties: Mapping[str, str]
    check_turn: Callable[[], None]


#: A place for each of the servers that are placed together or not at all; or why not; or what has gone wrong.
Outcome = Sequence[Selection] | NoHost | MoorageError


class Placer:
    def __init__(
        self,
        engine: Engine,
        placement: PlacementClient,
        hosts: HostService,
        options: SchedulerSettings | None = None,
    ) -> None:
        self._placement = placement
        self._options = options or SchedulerSettings()
        self._asking = PlacementRequests(engine, self._options)
        self._searcher = Searcher(engine, placement, hosts, self._options)
        self._is_prepared = False

    def prepare(self) -> None:
        """Placement refuses a query that names a trait it does not know."""
        if not self._is_prepared:
            self._placement.ensure_trait(RESERVED_HOST_TRAIT)
            self._placement.ensure_trait(RESERVED_REGION_TRAIT)
            self._is_prepared = True

    def place(
        self,
        server: Server,
        image_properties: Mapping[str, str],
        *,
        flavor: Flavor | None = None,
        consumer: str | None = None,
        only_host: str | None = None,
        not_hosts: Mapping[str, str] = MappingProxyType({}),
        alternates: Sequence[Alternate] = (),
        beside: Sequence[str] = (),
        may_hold_something: bool = False,
        check_turn: Callable[[], None] = lambda: None,
        shared: SharedAnswers | None = None,
    ) -> Selection | NoHost:
        """Choose a host for `server` and claim there for `consumer`, or tell why there is none.

        `flavor`, `only_host`, `not_hosts`, `beside`: see `asked.Changes`. `consumer`: who holds the claim, the server
        itself otherwise; it must hold nothing else, and with `may_hold_something` what it holds of a former try is
        given back first. `alternates`: of a former selection, tried first. `check_turn` raises when this builder may
        not go on. `shared`: one for all servers of a batch. `image_properties`: what `image_needs` left of them.

        The members of the server's group are as they are now: whoever writes the host into the server's row asks
        `group_service.late_check` in that transaction, and places it again where that has an objection.

        Raises `Invalid` or `RemoteError` (status 400) for a request that Placement could never fulfil,
        `Unavailable` when it does not answer: that is no lack of hosts, try again later.
        """
        asked = self._asking.asked(server, image_properties, RequestChanges(flavor, only_host, not_hosts, beside))
        if isinstance(asked, NoHost):
            return asked
        claimant = _Claimant(self._placement, server, consumer or server.id, check_turn)
        if may_hold_something:
            # A builder that lost its lease between these two lines would take from its successor what that
            # has just claimed. Both lines are quick and a lease is long; the audit finds the rest.
            check_turn()
            claimant.give_back()
        picks = self._searcher.picks(
            asked, claimant.refused, alternates=alternates, shared=shared, before_round=claimant.before_round
        )
        return self._claimed(claimant, picks, _next(picks))

    def place_together(
        self, orders: Sequence[Sequence[Newcomer]], shared: SharedAnswers, may_claim: Callable[[], bool]
    ) -> list[Outcome | None]:
        """Hosts for the servers of several orders, all claimed in one request; by order. Of one order all get one or
        none does, and what one of them cannot have does not concern the others.

        None: to be placed by itself afterwards, for what is left depends on what the others get, or `may_claim` said
        so at the last moment. What `place` would raise is an outcome here.
        """
        begun: list[list[_Begun] | NoHost | MoorageError | None] = []
        for newcomers in orders:
            away = next((one for one in begun if isinstance(one, Unavailable)), None)
            begun.append(away or self._begin(newcomers, shared))
        first = [one for of_order in begun if isinstance(of_order, list) for one in of_order]
        if not may_claim():
            return [None] * len(orders)
        try:
            granted = len(first) > 1 and self._claim_together(first)
        except MoorageError as error:
            # Granted or not, nobody knows; whoever tries again gives back first.
            return [error if isinstance(one, list) else one for one in begun]
        return [self._ended(one, granted=granted) if isinstance(one, list) else one for one in begun]

    def why(
        self, server: Server, image_properties: Mapping[str, str], *, not_hosts: Mapping[str, str] | None = None
    ) -> tuple[tuple[str, ...], NoHost]:
        """(hosts that would take `server`, the best first; what was counted on the way). Nothing is claimed."""
        self.prepare()
        asked = self._asking.asked(server, image_properties, RequestChanges(not_hosts=not_hosts or {}))
        return ((), asked) if isinstance(asked, NoHost) else self._searcher.why(asked)

    def _begin(
        self, newcomers: Sequence[Newcomer], shared: SharedAnswers
    ) -> "list[_Begun] | NoHost | MoorageError | None":
        """The first pick of each; nothing stays taken where one of them has none."""
        begun: list[_Begun] = []
        try:
            for one in newcomers:
                claimant = _Claimant(self._placement, one.server, one.server.id, one.check_turn)
                asked = self._asking.asked(one.server, one.image_properties, RequestChanges())
                if isinstance(asked, NoHost):
                    return _returned(begun, asked)
                offers = shared.offers.get(asked.text)
                if offers is not None and not offers.has_any():
                    return _returned(begun, None)
                picks = self._searcher.picks(asked, claimant.refused, shared=shared, before_round=claimant.before_round)
                pick = _next(picks)
                if isinstance(pick, NoHost):
                    return _returned(begun, pick)
                begun.append(_Begun(claimant, picks, pick))
        except MoorageError as error:
            return _returned(begun, error)
        except Exception:  # one that always fails must not stand before all others: it fails again in its own turn
            log.exception("no host was looked for", extra={"servers": [one.server.id for one in newcomers]})
            return _returned(begun, None)
        return begun

    def _claim_together(self, begun: Sequence["_Begun"]) -> bool:
        """False: somebody was quicker with one of them, or a provider is gone; which one, each finds out by itself."""
        try:
            self._placement.claim_together({one.claimant.consumer: one.claimant.claim(one.pick) for one in begun})
        except Conflict:
            return False
        except RemoteError as error:
            if error.status >= 500:
                raise
            return False
        return True

    def _ended(self, begun: Sequence["_Begun"], *, granted: bool) -> Outcome:
        places: list[Selection] = []
        try:
            for one in begun:
                place = self._place_at(one.claimant, one.pick) if granted else self._claimed(*one.parts)
                if isinstance(place, NoHost):
                    return place
                places.append(place)
        except MoorageError as error:
            return error
        return places

    def _claimed(self, claimant: "_Claimant", picks: Picks, pick: ClaimTarget | NoHost) -> Selection | NoHost:
        """The first of `pick` and those that follow which is granted."""
        while not isinstance(pick, NoHost):
            if claimant.take(pick):
                return self._place_at(claimant, pick)
            pick = _next(picks)
        return pick

    def _place_at(self, claimant: "_Claimant", pick: ClaimTarget) -> Selection:
        target = pick.target
        placed = Placed(target.candidate.mappings, target.candidate.allocations)
        further = tuple(islice(pick.further, self._options.max_attempts - 1))
        return Selection(target.host, placed, sum(claimant.refused.values()) + 1, target.root_uuid, further)


class _Claimant:
    """Who claims for one consumer, until it is granted."""

    def __init__(
        self, placement: PlacementClient, server: Server, consumer: str, check_turn: Callable[[], None]
    ) -> None:
        self._placement = placement
        self._server = server
        self._check_turn = check_turn
        self.consumer = consumer
        #: {host: claims that others were quicker with}
        self.refused: Counter[str] = Counter()

    def claim(self, pick: ClaimTarget) -> Claim:
        return Claim(pick.target.candidate, self._server.project_id, self._server.user_id)

    def take(self, pick: ClaimTarget) -> bool:
        try:
            self._placement.claim(self.consumer, pick.target.candidate, self._server.project_id, self._server.user_id)
        except Conflict:
            self.refused[pick.target.host] += 1
            return False
        return True

    def before_round(self) -> None:
        self._check_turn()
        self.give_back()

    def give_back(self) -> None:
        self._placement.release(self.consumer)


@dataclass(frozen=True)
class _Begun:
    """A search whose first pick is to be claimed."""

    claimant: _Claimant
    picks: Picks
    pick: ClaimTarget

    @property
    def parts(self) -> tuple[_Claimant, Picks, ClaimTarget]:
        return self.claimant, self.picks, self.pick


def _next(picks: Picks) -> ClaimTarget | NoHost:
    try:
        return next(picks)
    except StopIteration as end:
        no_host: NoHost = end.value
        return no_host


def _returned(begun: Sequence[_Begun], reason: T) -> T:
    """The others of its order get nothing either."""
    for one in begun:
        one.pick.returned()
    return reason
