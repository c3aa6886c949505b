"""Builds a server's query to Placement and its requirements on a host, from flavor, image, hints, zone and aggregates.

Pure: `RequestContext` has the facts from the database.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from moorage.compute.model.servers import DEFAULT_ZONE, Flavor, Server
from moorage.compute.requests.server_request import flavor_fields
from moorage.compute.scheduling.selection import Alternate, NoHost
from moorage.compute.store.scheduling_store import RequestContext
from moorage.jobs.model import Job
from moorage.scheduler.candidate_query import Query, SearchScope, candidate_query
from moorage.scheduler.filters import ServerRequirements
from moorage.scheduler.flavor_resources import architecture, hypervisor_type, request_for
from moorage.scheduler.prefilters import AggregateRules, NoOpenAggregate, aggregate_conditions, legacy_reservation
from moorage.scheduler.reasons import Reasons
from moorage.scheduler.server_groups import GroupPolicy, affinity_root
from moorage.scheduler.weighers import WeigherInput, is_accelerator, wanted_functions


@dataclass(frozen=True)
class HostRequest:
    """A server that needs a host.

    `image_properties`: the result of `scheduling_properties`. `job`: the job that this worker holds; None if nothing
    is claimed. `flavor`: the new flavor of a resize. `only_host`: the only host allowed; by default the one that the
    server was created for, if any. `excluded_hosts`: {host: reason, as shown in the counted reasons}, such as the
    current host or hosts where the build failed. `beside`: root uuids of hosts just selected for other servers of the
    same request, whose rows do not have them yet. `alternates` of an earlier selection are tried first. With
    `may_hold_allocations`, the server's allocations from an earlier attempt are released first; otherwise it must have
    none.
    """

    server: Server
    image_properties: Mapping[str, str]
    job: Job | None = None
    flavor: Flavor | None = None
    only_host: str | None = None
    excluded_hosts: Mapping[str, str] = field(default_factory=dict)
    beside: Sequence[str] = ()
    alternates: Sequence[Alternate] = ()
    may_hold_allocations: bool = False

    @property
    def wanted_host(self) -> str | None:
        return self.only_host or self.server.wanted_host


@dataclass(frozen=True)
class PlacementRequest:
    """`query` has no limit: the pipeline decides how many candidates are compared."""

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


def needs_context(wanted: HostRequest, rules: AggregateRules) -> bool:
    """Whether `build_request` needs facts from the database; it does not in the common case."""
    server, flavor = wanted.server, wanted.flavor or wanted.server.flavor
    return bool(
        depends_on_other_servers(server)
        or wanted.wanted_host
        or legacy_reservation(flavor.extra_specs, server.scheduler_hints)
        or rules.apply_to(server.wanted_zone)
    )


def depends_on_other_servers(server: Server) -> bool:
    """Whether the choice of a host depends on the hosts of other servers; then earlier servers must get their hosts
    first.
    """
    return any(server.scheduler_hints.get(name) for name in ("group", "same_host", "different_host"))


def build_request(wanted: HostRequest, context: RequestContext, rules: AggregateRules) -> PlacementRequest | NoHost:
    """The request of a server, or the reasons why no host can meet its hints and aggregates.

    Raises `Invalid` for a flavor that Placement could never fulfil.
    """
    server, flavor, image_properties = wanted.server, wanted.flavor or wanted.server.flavor, wanted.image_properties
    request = request_for(flavor_fields(flavor), image_properties)
    reservation = legacy_reservation(flavor.extra_specs, server.scheduler_hints)
    members = aggregate_conditions(
        context.aggregates, rules, request, zone=server.wanted_zone, default_zone=DEFAULT_ZONE,
        project_id=server.project_id, reservation=reservation,
    )  # fmt: skip
    if isinstance(members, NoOpenAggregate):
        return NoHost(Reasons("", note=members.reason))
    if context.beside is not None and not context.beside:
        return NoHost(Reasons("", note="none of the servers that same_host names is on a host"))
    excluded_hosts = {**dict.fromkeys(context.apart, "a server of different_host is there"), **wanted.excluded_hosts}
    group, in_tree, meaning = context.group, context.wanted_root, "the requested host"
    if group is not None:
        group = replace(group, members=Counter(group.members) + Counter(wanted.beside))
        if in_tree is None:
            in_tree, meaning = affinity_root(group), "the host of its server group"
    if in_tree is None and context.beside_root is not None:
        in_tree, meaning = context.beside_root, "the host of the server that same_host names"
    # The image's requirements on accelerators are used if the flavor has none.
    image_accelerators = {name: value for name, value in image_properties.items() if name.startswith("accel:")}
    requirements = ServerRequirements(
        server.id, server.wanted_zone, wanted.wanted_host, excluded_hosts, context.beside, group,
        architecture(image_properties), hypervisor_type(image_properties),
        wanted_functions(flavor.extra_specs) or wanted_functions(image_accelerators),
        server.project_id, server.scheduler_hints, flavor.extra_specs,
    )  # fmt: skip
    devices = any(is_accelerator(name) for one in request.groups.values() for name in one.resources)
    meanings = {uuid: words for value, words in members.items() for uuid in value.partition("in:")[2].split(",")}
    if in_tree is not None:
        meanings[in_tree] = meaning
    prefers_members = group is not None and group.policy is GroupPolicy.SOFT_AFFINITY and bool(group.members)
    return PlacementRequest(
        candidate_query(request, SearchScope(in_tree, tuple(members), reservation is not None)),
        requirements,
        WeigherInput(devices),
        meanings,
        excluded_count=len(excluded_hosts) + (len(group.members) if group else 0),
        needs_all_candidates=in_tree is None and (context.beside is not None or prefers_members),
    )
