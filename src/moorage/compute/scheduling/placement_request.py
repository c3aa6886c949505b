"""Builds a server's query to Placement and its requirements on a host, from flavor, image, hints, zone and aggregates."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection, Engine

from moorage.compute.model.servers import DEFAULT_ZONE, Flavor, Server
from moorage.compute.requests.server_request import flavor_fields
from moorage.compute.scheduling.selection import NoHost
from moorage.compute.store import group_store, host_store, scheduling_store, server_store
from moorage.core.ids import is_uuid
from moorage.db.session import read
from moorage.scheduler.candidate_query import Query, SearchScope, candidate_query
from moorage.scheduler.filters import ServerRequirements
from moorage.scheduler.flavor_resources import FlavorFields, ResourceRequest, architecture, hypervisor_type, request_for
from moorage.scheduler.options import SchedulerSettings
from moorage.scheduler.prefilters import LegacyReservation, NoOpenAggregate, aggregate_conditions, legacy_reservation
from moorage.scheduler.reasons import Reasons
from moorage.scheduler.server_groups import GroupPolicy, ServerGroupView, affinity_root
from moorage.scheduler.weighers import WeigherInput, is_accelerator, wanted_functions


@dataclass(frozen=True)
class RequestChanges:
    """Differences from the request of a new server.

    `flavor`: the new flavor of a resize. `only_host`: the only host allowed; by default the one that the server was
    created for, if any. `excluded_hosts`: {host: reason, as shown in the counted reasons}, such as the current host or
    hosts where the build failed. `beside`: root uuids of hosts just selected for other servers of the same request,
    whose rows do not have them yet.
    """

    flavor: Flavor | None = None
    only_host: str | None = None
    excluded_hosts: Mapping[str, str] = field(default_factory=dict)
    beside: Sequence[str] = ()


@dataclass(frozen=True)
class PlacementRequest:
    """`query` has no limit: `candidate_search` decides how many candidates are compared."""

    query: Query
    requirements: ServerRequirements
    weigher_input: WeigherInput
    #: {uuid in the query: its meaning}, for users who must not see uuids of hosts and aggregates
    meanings: Mapping[str, str]
    #: number of hosts excluded for this server alone; the search fetches this many more candidates
    excluded_count: int = 0
    #: a preferred host may be any host of the cloud, so a sample of candidates is not enough
    needs_all_candidates: bool = False

    @property
    def text(self) -> str:
        return "&".join(f"{name}={value}" for name, value in self.query)

    @property
    def pool_key(self) -> tuple[str, frozenset[str]]:
        """Requests with the same key can share a `CandidatePool`: it ranks hosts by the wanted functions as well."""
        return self.text, self.requirements.functions


@dataclass(frozen=True)
class _RequestContext:
    """Facts from the database about a request. `members`: conditions on aggregates, see
    `prefilters.aggregate_conditions`.

    `beside`, `apart`: hosts of the servers named by ``same_host`` and ``different_host``. `beside_root`: set if
    `beside` is one host.
    """

    group: ServerGroupView | None = None
    in_tree: str | None = None
    members: Mapping[str, str] | NoOpenAggregate = field(default_factory=dict)
    beside: frozenset[str] | None = None
    beside_root: str | None = None
    apart: frozenset[str] = frozenset()


class PlacementRequestBuilder:
    def __init__(self, engine: Engine, options: SchedulerSettings) -> None:
        self._engine = engine
        self._options = options
        #: Cache of one: (flavor, image properties, request). Servers that wait together mostly have the same.
        self._last: tuple[FlavorFields, Mapping[str, str], ResourceRequest] | None = None

    def build_request(
        self, server: Server, image_properties: Mapping[str, str], changes: RequestChanges
    ) -> PlacementRequest | NoHost:
        """The request of `server`, or the reasons why no host can meet its hints and aggregates.

        Raises `Invalid` for a flavor that Placement could never fulfil.
        """
        flavor = changes.flavor or server.flavor
        request = self._resource_request(flavor_fields(flavor), image_properties)
        host = changes.only_host or server.wanted_host
        reservation = legacy_reservation(flavor.extra_specs, server.scheduler_hints)
        found = self._request_context(server, request, host, reservation)
        if isinstance(found.members, NoOpenAggregate):
            return NoHost(Reasons("", note=found.members.reason))
        if found.beside is not None and not found.beside:
            return NoHost(Reasons("", note="none of the servers that same_host names is on a host"))
        excluded_hosts = {**dict.fromkeys(found.apart, "a server of different_host is there"), **changes.excluded_hosts}
        group, in_tree, meaning = found.group, found.in_tree, "the requested host"
        if group is not None:
            group = replace(group, members=Counter(group.members) + Counter(changes.beside))
            if in_tree is None:
                in_tree, meaning = affinity_root(group), "the host of its server group"
        if in_tree is None and found.beside_root is not None:
            in_tree, meaning = found.beside_root, "the host of the server that same_host names"
        wanted = ServerRequirements(
            server.id, server.wanted_zone, host, excluded_hosts, found.beside, group,
            architecture(image_properties), hypervisor_type(image_properties),
            wanted_functions(flavor.extra_specs) or wanted_functions(_accelerator_properties(image_properties)),
            server.project_id, server.scheduler_hints, flavor.extra_specs,
        )  # fmt: skip
        devices = any(is_accelerator(name) for one in request.groups.values() for name in one.resources)
        meanings = _meanings_by_uuid(found.members)
        if in_tree is not None:
            meanings[in_tree] = meaning
        return PlacementRequest(
            candidate_query(request, SearchScope(in_tree, tuple(found.members), reservation is not None)),
            wanted,
            WeigherInput(devices),
            meanings,
            excluded_count=len(excluded_hosts) + (len(group.members) if group else 0),
            needs_all_candidates=in_tree is None and (found.beside is not None or _prefers_members_hosts(group)),
        )

    def _resource_request(self, fields: FlavorFields, image_properties: Mapping[str, str]) -> ResourceRequest:
        last = self._last
        if last is None or (last[0], last[1]) != (fields, image_properties):
            last = self._last = (fields, image_properties, request_for(fields, image_properties))
        return last[2]

    def _request_context(
        self, server: Server, request: ResourceRequest, host: str | None, reservation: LegacyReservation | None
    ) -> _RequestContext:
        """Reads nothing in the common case."""
        hints, zone, rules = server.scheduler_hints, server.wanted_zone, self._options.aggregates
        hinted, near, away = (
            hints.get("group"),
            _hinted_servers(hints, "same_host"),
            _hinted_servers(hints, "different_host"),
        )
        if not (hinted or near or away or host or reservation or rules.apply_to(zone)):
            return _RequestContext()
        with read(self._engine) as connection:
            group = group_store.group_view(connection, server.id, hinted=hinted) if hinted else None
            in_tree = None if host is None else _root_of(connection, host)
            aggregates = scheduling_store.aggregate_views(connection)
            beside = _hosts_of(connection, near, server.project_id) if near else None
            beside_root = _root_of(connection, min(beside)) if beside and len(beside) == 1 else None
            apart = _hosts_of(connection, away, server.project_id)
        project = server.project_id
        members = aggregate_conditions(
            aggregates,
            rules,
            request,
            zone=zone,
            default_zone=DEFAULT_ZONE,
            project_id=project,
            reservation=reservation,
        )
        return _RequestContext(group, in_tree, members, beside, beside_root, apart)


def _accelerator_properties(image_properties: Mapping[str, str]) -> dict[str, str]:
    """The image's requirements on accelerators, used if the flavor has none."""
    return {name: value for name, value in image_properties.items() if name.startswith("accel:")}


def depends_on_other_servers(server: Server) -> bool:
    """Whether the choice of a host depends on the hosts of other servers; then earlier servers must get their hosts
    first.
    """
    return any(server.scheduler_hints.get(name) for name in ("group", "same_host", "different_host"))


def _hinted_servers(hints: Mapping[str, object], name: str) -> list[str]:
    """The server ids of a hint, ``"<uuid>"`` or ``["<uuid>", ...]``. As in Nova, an unknown id is no host."""
    value = hints.get(name)
    named = value if isinstance(value, list) else [value]
    return [one for one in named if isinstance(one, str) and one]


def _hosts_of(connection: Connection, named: Sequence[str], project_id: str) -> frozenset[str]:
    """Hosts of the project's own servers only: a tenant chose the ids, and must not learn where others' servers are."""
    return frozenset(server_store.hosts_of_servers(connection, [one for one in named if is_uuid(one)], project_id))


def _prefers_members_hosts(group: ServerGroupView | None) -> bool:
    return group is not None and group.policy is GroupPolicy.SOFT_AFFINITY and bool(group.members)


def _meanings_by_uuid(members: Mapping[str, str]) -> dict[str, str]:
    return {uuid: words for value, words in members.items() for uuid in value.partition("in:")[2].split(",")}


def _root_of(connection: Connection, host: str) -> str | None:
    found = host_store.host(connection, host)
    return None if found is None else found.report.provider_uuid
