"""What one server asks of Placement and of its host: from its flavor, its hints, its zone and the aggregates."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection, Engine

from moorage.compute.model.servers import DEFAULT_ZONE, Flavor, Server
from moorage.compute.requests.server_request import fields_of
from moorage.compute.scheduling.selection import NoHost
from moorage.compute.store import group_store, host_store, scheduling_store, server_store
from moorage.core.ids import is_uuid
from moorage.db.transactions import read
from moorage.scheduler.candidate_query import Query, SearchScope, query_for
from moorage.scheduler.flavor_resources import FlavorFields, ResourceRequest, request_for
from moorage.scheduler.hosts import ServerRequirements
from moorage.scheduler.image_needs import architecture, hypervisor_type
from moorage.scheduler.options import SchedulerSettings
from moorage.scheduler.prefilters import Closed, OlderReservation, member_of, older_reservation
from moorage.scheduler.reasons import Reasons
from moorage.scheduler.server_groups import GroupPolicy, ServerGroupView
from moorage.scheduler.server_groups import only_host as only_host_of
from moorage.scheduler.weighers import WeigherInput, is_accelerator, wanted_functions


@dataclass(frozen=True)
class RequestChanges:
    """How the search for a host differs from that for a new server.

    `flavor`: what the server is to be from now on (a resize). `only_host`: on this one or none; otherwise the host that
    the server was made for. `not_hosts`: {host: why not, as the count of reasons shall say}: where it is now, where it
    failed. `beside`: roots of the hosts that others of the same request have just got, and whose rows do not say so yet.
    """

    flavor: Flavor | None = None
    only_host: str | None = None
    not_hosts: Mapping[str, str] = field(default_factory=dict)
    beside: Sequence[str] = ()


@dataclass(frozen=True)
class PlacementRequest:
    """`query` has no limit: how many candidates are compared is `candidate_search`'s matter."""

    query: Query
    wanted: ServerRequirements
    task: WeigherInput
    #: {uuid in the query: what it is there for}, for who must not see uuids of hosts and aggregates
    meanings: Mapping[str, str]
    #: hosts that are closed to this server alone: they must not use up the candidates
    ruled_out: int = 0
    #: what it wants to be with may be on any host: all candidates are needed
    is_drawn_to_hosts: bool = False

    @property
    def text(self) -> str:
        return "&".join(f"{name}={value}" for name, value in self.query)


@dataclass(frozen=True)
class _Circumstances:
    """What the database says of a request. `members`: conditions on aggregates, see `prefilters.member_of`.

    `beside`, `apart`: hosts of the servers that it is to be with, and away from. `beside_root`: where that is one host.
    """

    group: ServerGroupView | None = None
    in_tree: str | None = None
    members: Mapping[str, str] | Closed = field(default_factory=dict)
    beside: frozenset[str] | None = None
    beside_root: str | None = None
    apart: frozenset[str] = frozenset()


class PlacementRequests:
    def __init__(self, engine: Engine, options: SchedulerSettings) -> None:
        self._engine = engine
        self._options = options
        #: The last request, and what it was made of: servers that wait together mostly ask for the same.
        self._last: tuple[FlavorFields, Mapping[str, str], ResourceRequest] | None = None

    def asked(
        self, server: Server, image_properties: Mapping[str, str], changes: RequestChanges
    ) -> PlacementRequest | NoHost:
        """What `server` asks for, or why that is nowhere before anybody is asked.

        Raises `Invalid` for a flavor that Placement could never fulfil.
        """
        flavor = changes.flavor or server.flavor
        request = self._request(fields_of(flavor), image_properties)
        host = changes.only_host or server.wanted_host
        reservation = older_reservation(flavor.extra_specs, server.scheduler_hints)
        found = self._circumstances(server, request, host, reservation)
        if isinstance(found.members, Closed):
            return NoHost(Reasons("", note=found.members.reason))
        if found.beside is not None and not found.beside:
            return NoHost(Reasons("", note="none of the servers that same_host names is on a host"))
        not_hosts = {**dict.fromkeys(found.apart, "a server of different_host is there"), **changes.not_hosts}
        group, in_tree, meaning = found.group, found.in_tree, "the host that was asked for"
        if group is not None:
            group = replace(group, members=Counter(group.members) + Counter(changes.beside))
            if in_tree is None:
                in_tree, meaning = only_host_of(group), "the host of its server group"
        if in_tree is None and found.beside_root is not None:
            in_tree, meaning = found.beside_root, "the host of the server that same_host names"
        wanted = ServerRequirements(
            server.id, server.wanted_zone, host, not_hosts, found.beside, group,
            architecture(image_properties), hypervisor_type(image_properties),
            wanted_functions(flavor.extra_specs) or wanted_functions(_hints(image_properties)),
            server.project_id, server.scheduler_hints, flavor.extra_specs,
        )  # fmt: skip
        devices = any(is_accelerator(name) for one in request.groups.values() for name in one.resources)
        meanings = _meanings(found.members)
        if in_tree is not None:
            meanings[in_tree] = meaning
        return PlacementRequest(
            query_for(request, SearchScope(in_tree, tuple(found.members), reservation is not None)),
            wanted,
            WeigherInput(devices),
            meanings,
            ruled_out=len(not_hosts) + (len(group.members) if group else 0),
            is_drawn_to_hosts=in_tree is None and (found.beside is not None or _is_drawn_by(group)),
        )

    def _request(self, fields: FlavorFields, image_properties: Mapping[str, str]) -> ResourceRequest:
        last = self._last
        if last is None or (last[0], last[1]) != (fields, image_properties):
            last = self._last = (fields, image_properties, request_for(fields, image_properties))
        return last[2]

    def _circumstances(
        self, server: Server, request: ResourceRequest, host: str | None, reservation: OlderReservation | None
    ) -> _Circumstances:
        """Mostly there is nothing to read."""
        hints, zone, rules = server.scheduler_hints, server.wanted_zone, self._options.aggregates
        hinted, near, away = hints.get("group"), _named(hints, "same_host"), _named(hints, "different_host")
        if not (hinted or near or away or host or reservation or rules.matter(zone)):
            return _Circumstances()
        with read(self._engine) as connection:
            group = group_store.view_of(connection, server.id, hinted=hinted) if hinted else None
            in_tree = None if host is None else _root_of(connection, host)
            aggregates = scheduling_store.aggregate_views(connection)
            beside = _hosts_of(connection, near, server.project_id) if near else None
            beside_root = _root_of(connection, min(beside)) if beside and len(beside) == 1 else None
            apart = _hosts_of(connection, away, server.project_id)
        project = server.project_id
        members = member_of(
            aggregates,
            rules,
            request,
            zone=zone,
            default_zone=DEFAULT_ZONE,
            project_id=project,
            reservation=reservation,
        )
        return _Circumstances(group, in_tree, members, beside, beside_root, apart)


def _hints(image_properties: Mapping[str, str]) -> dict[str, str]:
    """What the server's image asks accelerators to carry, where its flavor says nothing."""
    return {name: value for name, value in image_properties.items() if name.startswith("accel:")}


def is_about_others(server: Server) -> bool:
    """Whether where it may go depends on where other servers go: those before it must have their hosts by then."""
    return any(server.scheduler_hints.get(name) for name in ("group", "same_host", "different_host"))


def _named(hints: Mapping[str, object], name: str) -> list[str]:
    """What a hint says, ``"<uuid>"`` or ``["<uuid>", ...]``; as in Nova, servers that there are not are on no host."""
    value = hints.get(name)
    named = value if isinstance(value, list) else [value]
    return [one for one in named if isinstance(one, str) and one]


def _hosts_of(connection: Connection, named: Sequence[str], project_id: str) -> frozenset[str]:
    """Of the project's own servers: a tenant chose the names, and where others' servers are is not its business."""
    return frozenset(server_store.hosts_of_servers(connection, [one for one in named if is_uuid(one)], project_id))


def _is_drawn_by(group: ServerGroupView | None) -> bool:
    return group is not None and group.policy is GroupPolicy.SOFT_AFFINITY and bool(group.members)


def _meanings(members: Mapping[str, str]) -> dict[str, str]:
    return {uuid: words for value, words in members.items() for uuid in value.partition("in:")[2].split(",")}


def _root_of(connection: Connection, host: str) -> str | None:
    found = host_store.host(connection, host)
    return None if found is None else found.report.provider_uuid
