"""From a server to a claimed candidate: what `build` asks of the scheduler and of Placement.

The good path is two requests: candidates, claim. Only where there is no candidate is a third one made, that
asks Placement for the reason; and only where something may be held from a former try is it given back first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Engine

from moorage.compute import host_store
from moorage.compute.host_service import HostService
from moorage.compute.model import DEFAULT_ZONE, Placed, Server
from moorage.compute.server_request import fields_of
from moorage.core.errors import Conflict, NotFound, RemoteError
from moorage.db.transactions import read
from moorage.placement.client import Candidate, PlacementClient, Step, Summary
from moorage.scheduler.filters import HostView, Room, Wanted
from moorage.scheduler.flavor_resources import query_for, request_for
from moorage.scheduler.select import Ranking, select

#: Candidates that Placement is asked for; all of them where a zone is wanted, for it does not know of zones.
LIMIT = 1000
#: Claims of one round before candidates are fetched anew, and how many rounds there are.
CLAIMS_PER_ROUND = 8
ROUNDS = 4


@dataclass(frozen=True)
class Place:
    host: str
    placed: Placed
    claims: int  #: how many were tried, this one included


@dataclass(frozen=True)
class NoHost:
    """`reason` is for users and names no host; `details`, for administrators, do."""

    reason: str
    details: str


class Placer:
    def __init__(self, engine: Engine, placement: PlacementClient, hosts: HostService) -> None:
        self._engine = engine
        self._placement = placement
        self._hosts = hosts

    def place(
        self,
        server: Server,
        image_properties: Mapping[str, str],
        *,
        may_hold_something: bool,
        check_turn: Callable[[], None],
    ) -> Place | NoHost:
        """Claim a candidate for `server`. `check_turn` raises when this builder may not go on.

        Raises `Invalid` or `RemoteError` for a request that Placement could never fulfil, `Unavailable` when
        it does not answer.
        """
        wanted = Wanted(server.id, server.wanted_zone, server.wanted_host)
        request = request_for(fields_of(server.flavor), image_properties)
        query = query_for(request, limit=None if wanted.zone else LIMIT, in_tree=self._tree_of(wanted.host))
        claims = 0
        for round_number in range(ROUNDS):
            if may_hold_something or round_number:
                # A builder that lost its lease between these two lines would take from its successor what that
                # has just claimed. Both lines are quick and a lease is long; the audit finds the rest.
                check_turn()
                self._placement.release(server.id)
            candidates, summaries = self._placement.candidates(query)
            if not candidates:
                return self._no_candidates(query)
            ranking = select(candidates, self._views(summaries), wanted)
            if not ranking.selections:
                return NoHost(f"Placement has room, but: {ranking.reasons()}.", _details(ranking))
            for host, candidate in _in_order(ranking)[:CLAIMS_PER_ROUND]:
                claims += 1
                try:
                    self._placement.claim(server.id, candidate, server.project_id, server.user_id)
                except Conflict:
                    continue  # somebody else was quicker there
                return Place(host, Placed(candidate.mappings, candidate.allocations), claims)
        return NoHost(f"All of {claims} claims were overtaken by others; try again.", "")

    def _no_candidates(self, query: Sequence[tuple[str, str]]) -> NoHost:
        """Why Placement has none; without its extension (a real Placement), as much as is known."""
        try:
            explanation = self._placement.explain(query)
        except (NotFound, RemoteError):
            return NoHost(f"Placement has no candidate for {_text(query)}.", _text(query))
        lines = [_text(query), explanation.text]
        for step in explanation.steps:
            lines += [f"{step.constraint}: {step.before} -> {step.after}", *(f"  {why}" for why in step.removed)]
        return NoHost(_funnel(explanation.steps), "\n".join(lines))

    def _tree_of(self, host: str | None) -> str | None:
        if host is None:
            return None
        with read(self._engine) as connection:
            found = host_store.host(connection, host)
        return None if found is None else found.report.provider_uuid

    def _views(self, summaries: Mapping[str, Summary]) -> dict[str, HostView]:
        with read(self._engine) as connection:
            return {view.root_uuid: view for view in self._all_views(connection, summaries)}

    def _all_views(self, connection: Connection, summaries: Mapping[str, Summary]) -> list[HostView]:
        zones = host_store.zones(connection)
        return [
            HostView(
                name=host.name,
                root_uuid=host.report.provider_uuid,
                zone=zones.get(host.name, DEFAULT_ZONE),
                is_up=self._hosts.is_up(host),
                is_enabled=host.is_enabled,
                room=_room(summaries.get(host.report.provider_uuid)),
            )
            for host in host_store.all_hosts(connection)
        ]


def _funnel(steps: Sequence[Step]) -> str:
    """``2 hosts considered; resources:VCPU=4 left 1; resources:CUSTOM_GOLD=1 left 0.``: no host is named."""
    considered = steps[0].before if steps else 0
    parts = [f"{considered} {'host' if considered == 1 else 'hosts'} considered"]
    parts += [f"{step.constraint} left {step.after}" for step in steps if step.after < step.before]
    return "; ".join(parts) + "."


def _room(summary: Summary | None) -> dict[str, Room]:
    if summary is None:
        return {}
    return {name: Room(summary.capacity[name], summary.used.get(name, 0)) for name in summary.capacity}


def _in_order(ranking: Ranking[Candidate]) -> list[tuple[str, Candidate]]:
    """The best host first with all its candidates: a race for one of its devices leaves the others."""
    return [(selection.host.name, one) for selection in ranking.selections for one in selection.candidates]


def _details(ranking: Ranking[Candidate]) -> str:
    return "\n".join(f"{host}: {reason}" for host, reason in sorted(ranking.rejected.items()))


def _text(query: Sequence[tuple[str, str]]) -> str:
    return "&".join(f"{name}={value}" for name, value in query)
