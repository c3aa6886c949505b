"""Where a server is to claim next: candidates of Placement, weighed and filtered, and fresh ones when those are gone.

    few candidates from all over the cloud -> Contest.order -> filters -> picks, the best first
    none that the filters leave            -> the same with more of them, at last with all
    8 claims that others were quicker with -> fresh ones, 4 rounds in all

A pick counts as taken for whoever shares the answer, until it is returned. Not here: the claim itself (`host_selection`).
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
from moorage.db.transactions import read
from moorage.placement.client.placement_client import Explanation, PlacementClient
from moorage.scheduler.filters import UNKNOWN_HOST, rejects
from moorage.scheduler.hosts import HostState, ServerRequirements
from moorage.scheduler.options import SchedulerSettings
from moorage.scheduler.reasons import Reasons, RejectionCount
from moorage.scheduler.weighers import WEIGHERS, prefers_room

#: Claims of one round before candidates are fetched anew, and how many rounds there are.
CLAIMS_PER_ROUND = 8
ROUNDS = 4
#: Of candidates that servers share, so many for each at least: the best of them must not be one and the same.
SHARE = 3
#: What every request asks of a host, as Placement explains it, and in words of users.
_WORDS = {
    f"root_required=!{DISABLED_HOST_TRAIT},!{RESERVED_HOST_TRAIT}": "enabled and not under reservation",
    f"root_required=!{DISABLED_HOST_TRAIT}": "enabled",
}
#: Hosts that are looked at together, the first time, for each server; then eight times as many.
_FIRST_LOOK = 8


@dataclass
class SharedAnswers:
    """Answers of Placement that servers which wait together share, by query. `servers`: how many they are."""

    servers: int = 1
    offers: dict[str, CandidatePool] = field(default_factory=dict)


@dataclass(frozen=True)
class ClaimTarget:
    """Where to claim. `further`: the hosts that come after it, if a build fails there."""

    target: Alternate
    further: Iterator[Alternate]
    offers: CandidatePool | None = None
    at: int = 0

    def returned(self) -> None:
        """Nobody claims it, or in vain."""
        if self.offers is not None:
            self.offers.returned(self.at)


#: What is to be claimed; asked for the next one when the last was refused. At the end, why there is none.
Picks = Generator[ClaimTarget, None, NoHost]
Walk = Iterator[tuple[HostState, Sequence[int]]]


class Searcher:
    def __init__(
        self, engine: Engine, placement: PlacementClient, hosts: HostService, options: SchedulerSettings
    ) -> None:
        self._engine = engine
        self._placement = placement
        self._hosts = hosts
        self._options = options

    def picks(
        self,
        asked: PlacementRequest,
        refused: Mapping[str, int],
        *,
        alternates: Sequence[Alternate] = (),
        shared: SharedAnswers | None = None,
        before_round: Callable[[], None],
    ) -> Picks:
        """`alternates`: of a former selection, first of all. `refused`: {host: claims that others were quicker with},
        kept by the caller. `before_round` is called before candidates are fetched another time.
        """
        for number, alternate in self._possible(alternates, asked.wanted):
            yield ClaimTarget(alternate, iter(alternates[number + 1 :]))
        shared = shared or SharedAnswers()
        if (offers := shared.offers.get(asked.text)) is not None:
            yield from self._picks_of(offers, asked, shared.servers, {})
        for round_number in range(ROUNDS):
            if round_number:
                before_round()
            found = yield from self._round(asked, shared, round_number)
            if found is not None:
                return found
        return NoHost(Reasons(asked.text, refused_claims=refused))

    def why(self, asked: PlacementRequest) -> tuple[tuple[str, ...], NoHost]:
        """(hosts that would take it, the best first; what was counted on the way). Nothing is claimed."""
        offers = self._offers(asked, self._situation(), self._options.max_placement_results + asked.ruled_out, None)
        if not len(offers):
            return (), self._no_candidates(asked)
        rejected: dict[str, tuple[str, str]] = {}
        open_ones = [view.name for view, _ in self._walk(offers, asked.wanted, 1, rejected)]
        return tuple(open_ones), NoHost(Reasons(asked.text, self._counts(asked), rejected=rejected))

    def _round(
        self, asked: PlacementRequest, shared: SharedAnswers, number: int
    ) -> Generator[ClaimTarget, None, NoHost | None]:
        """None when others were quicker all the time."""
        rejected: dict[str, tuple[str, str]] = {}
        situation = self._situation()
        is_usual = not self._options.weighers
        has_room = is_usual and prefers_room(self._options.multipliers, situation.multipliers.values())
        for limit in self._limits(asked, shared.servers, few=has_room):
            sample = f"{asked.wanted.server_id}/{number}" if has_room else None
            offers = self._offers(asked, situation, limit, sample)
            if not len(offers):
                return self._no_candidates(asked)
            shared.offers[asked.text] = offers
            rejected = {}
            if (yield from self._picks_of(offers, asked, shared.servers, rejected)):
                return None
            if limit is None or len(offers) < limit:
                break
        return NoHost(Reasons(asked.text, rejected=rejected))

    def _limits(self, asked: PlacementRequest, servers: int, *, few: bool) -> Iterator[int | None]:
        """How many candidates are compared: at first, and then if the filters leave none of so many. None: all."""
        sample, most = max(self._options.sample_size, SHARE * servers), self._options.max_placement_results
        if not asked.is_drawn_to_hosts:
            if few and self._options.sample_size and sample < most and not asked.wanted.functions:
                yield sample + asked.ruled_out
            yield most + asked.ruled_out
        yield None

    def _situation(self) -> UnusualHosts:
        with read(self._engine) as connection:
            return scheduling_store.situation(connection, {*WEIGHERS, *self._options.weighers})

    def _offers(
        self, asked: PlacementRequest, situation: UnusualHosts, limit: int | None, sample: str | None
    ) -> CandidatePool:
        query = asked.query if limit is None else [*asked.query, ("limit", str(limit))]
        candidates, summaries = self._placement.candidates(query, sample=sample)
        functions = asked.wanted.functions
        return CandidatePool(candidates, summaries, situation, asked.task, functions, self._options)

    def _picks_of(
        self, offers: CandidatePool, asked: PlacementRequest, servers: int, rejected: dict[str, tuple[str, str]]
    ) -> Generator[ClaimTarget, None, int]:
        """The best that can be had of `candidate_pool`; how many there were."""
        picks = 0
        walk = self._walk(offers, asked.wanted, servers, rejected)
        for view, positions in walk:
            for at in positions:
                if not offers.is_there(at):
                    continue
                if picks == CLAIMS_PER_ROUND:
                    return picks
                picks += 1
                offers.claimed(at)
                target = Alternate(view.name, view.root_uuid, offers.candidate(at))
                pick = ClaimTarget(target, _rest(offers, walk), offers, at)
                yield pick
                pick.returned()
        return picks

    def _walk(
        self, offers: CandidatePool, wanted: ServerRequirements, servers: int, rejected: dict[str, tuple[str, str]]
    ) -> Walk:
        """(host, its candidates) of those that the filters leave, the best first; the others go into `rejected`."""
        order = offers.contest.order(wanted.server_id, wanted.group, subset=self._options.host_subset_size)
        look = _FIRST_LOOK * servers
        while roots := list(islice(order, look)):
            self._look_at(offers, roots, look)
            look *= 8
            for root in roots:
                view = offers.views[root]
                if view is None:
                    rejected[root] = ("is_known", UNKNOWN_HOST)
                elif reason := rejects(view, wanted, self._options.filters):
                    rejected[view.name] = reason
                else:
                    yield view, offers.of_host(root)

    def _look_at(self, offers: CandidatePool, roots: Sequence[str], look: int) -> None:
        """At all that are offered where those are few: the next server looks at others of them."""
        if unseen := [root for root in roots if root not in offers.views]:
            if len(offers.contest.roots) <= look:
                unseen = [root for root in offers.contest.roots if root not in offers.views]
            with read(self._engine) as connection:
                offers.views.update(self._views(connection, unseen))

    def _views(self, connection: Connection, roots: Sequence[str]) -> dict[str, HostState | None]:
        found = scheduling_store.views_of(connection, roots, self._hosts.is_heard)
        return {root: found.get(root) for root in roots}

    def _possible(self, alternates: Sequence[Alternate], wanted: ServerRequirements) -> list[tuple[int, Alternate]]:
        """Those that are still open, with their numbers."""
        if not alternates:
            return []
        with read(self._engine) as connection:
            views = self._views(connection, [one.root_uuid for one in alternates])
        return [
            (number, one)
            for number, one in enumerate(alternates)
            if (view := views[one.root_uuid]) and not rejects(view, wanted, self._options.filters)
        ]

    # ------------------------------------------------------------------------------------------ reasons

    def _no_candidates(self, asked: PlacementRequest) -> NoHost:
        """Why Placement has none; without its extension (a real Placement), as much as is known."""
        explanation = self._explained(asked)
        if explanation is None:
            return NoHost(Reasons(asked.text, note=f"Placement has no candidate for {asked.text}"))
        closest = tuple(f"{one.provider}: {'; '.join(one.lacks)}" for one in explanation.closest)
        change = explanation.change
        return NoHost(
            Reasons(
                asked.text,
                _counts(explanation, asked.meanings),
                note="" if explanation.steps else "there is no host",
                closest=closest,
                change="" if change is None else f"{'; '.join(change.parts)} on {change.provider}",
            )
        )

    def _counts(self, asked: PlacementRequest) -> tuple[RejectionCount, ...]:
        return _counts(self._explained(asked), asked.meanings)

    def _explained(self, asked: PlacementRequest) -> Explanation | None:
        try:
            return self._placement.explain(asked.query)
        except (NotFound, RemoteError):
            return None


def _rest(offers: CandidatePool, walk: Walk) -> Iterator[Alternate]:
    return (Alternate(view.name, view.root_uuid, offers.candidate(positions[0])) for view, positions in walk)


def _counts(explanation: Explanation | None, meanings: Mapping[str, str]) -> tuple[RejectionCount, ...]:
    def worded(constraint: str) -> str:
        return next(
            (words for uuid, words in meanings.items() if uuid in constraint), _WORDS.get(constraint, constraint)
        )

    steps = () if explanation is None else explanation.steps
    return tuple(RejectionCount(worded(step.constraint), step.before, step.after, step.removed) for step in steps)
