"""Builds a server's query to Placement and its requirements on a host, from flavor, image, hints, zone and aggregates.

Pure: `RequestContext` has the facts from the database.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from moorage.compute.model.servers import DEFAULT_ZONE, Server
from moorage.compute.requests.server_request import flavor_fields
from moorage.compute.scheduling.selection import Alternate, NoHost
from moorage.compute.store.scheduling_store import RequestContext
from moorage.jobs.model import Job
from moorage.scheduler.candidate_query import Query, SearchScope, candidate_query
from moorage.scheduler.filters import ServerRequirements, wanted_metadata
from moorage.scheduler.flavor_resources import request_for, required_platform
from moorage.scheduler.prefilters import (
    AggregateRules,
    LegacyReservation,
    NoOpenAggregate,
    aggregate_conditions,
    legacy_reservation,
)
from moorage.scheduler.reasons import Reasons
from moorage.scheduler.server_groups import GroupPolicy, affinity_root
from moorage.scheduler.spec_rules import guest_settings
from moorage.scheduler.weighers import WeigherInput, counts_as_accelerator, wanted_functions


@dataclass(frozen=True)
class HostRequest:
    """A server that needs a host.

    `server`: as it will be; for a resize it has the new flavor. `image_properties`: the result of
    `scheduling_properties`. `job`: the job that this worker holds; None if nothing is claimed. `excluded_hosts`: {host:
    reason, as shown in the counted reasons}, such as the current host or hosts where the build failed. `beside`: root
    uuids of hosts just selected for other servers of the same request, whose rows do not have them yet. `alternates` of
    an earlier selection are tried first. With `may_hold_allocations`, the server's allocations from an earlier attempt
    are released first; otherwise it must have none.
    """

    server: Server
    image_properties: Mapping[str, str]
    job: Job | None = None
    excluded_hosts: Mapping[str, str] = field(default_factory=dict)
    beside: Sequence[str] = ()
    alternates: Sequence[Alternate] = ()
    may_hold_allocations: bool = False


@dataclass(frozen=True)
class PlacementRequest:
    """`query` has no limit: the pipeline decides how many candidates are compared."""

    query: Query
    text: str  #: `query`, for messages
    requirements: ServerRequirements
    weigher_input: WeigherInput
    #: Requests with the same key can share a `CandidatePool`: it ranks hosts by the wanted functions as well.
    pool_key: tuple[str, frozenset[str]]
    #: {uuid in the query: its meaning}, for users who must not see uuids of hosts and aggregates
    meanings: Mapping[str, str]
    #: number of hosts excluded for this server alone; the search fetches this many more candidates
    excluded_count: int
    #: a preferred host may be any host of the cloud, so a sample of candidates is not enough
    needs_all_candidates: bool


def depends_on_other_servers(server: Server) -> bool:
    """Whether the choice of a host depends on the hosts of other servers; then earlier servers must get their hosts
    first.
    """
    return any(server.scheduler_hints.get(name) for name in ("group", "same_host", "different_host"))


def build_request(
    host_request: HostRequest, context: RequestContext | None, rules: AggregateRules
) -> PlacementRequest | NoHost:
    """The request of a server, or the reasons why no host can meet its hints and aggregates.

    `context`: None if the server has no hints, requests no host, and no rule for aggregates applies to it. Raises
    `Invalid` for a flavor that Placement could never fulfil.
    """
    server, image_properties = host_request.server, host_request.image_properties
    extra_specs = server.flavor.extra_specs
    resources = request_for(flavor_fields(server.flavor), image_properties)
    reservation: LegacyReservation | None = None
    members: Mapping[str, str] | NoOpenAggregate = {}
    if context is None:
        context = RequestContext()
    else:
        reservation = legacy_reservation(extra_specs, server.scheduler_hints)
        members = aggregate_conditions(
            context.aggregates, rules, resources, zone=server.wanted_zone, default_zone=DEFAULT_ZONE,
            project_id=server.project_id, reservation=reservation,
        )  # fmt: skip
    if isinstance(members, NoOpenAggregate):
        return NoHost(Reasons("", note=members.reason))
    if context.beside is not None and not context.beside:
        return NoHost(Reasons("", note="none of the servers that same_host names is on a host"))
    apart = dict.fromkeys(context.apart, "a server of different_host is there")
    excluded_hosts = {**apart, **host_request.excluded_hosts}
    group, in_tree, meaning = context.group, context.wanted_root, "the requested host"
    if group is not None:
        group = replace(group, members=Counter(group.members) + Counter(host_request.beside))
        if in_tree is None:
            in_tree, meaning = affinity_root(group), "the host of its server group"
    if in_tree is None and context.beside_root is not None:
        in_tree, meaning = context.beside_root, "the host of the server that same_host names"
    # The image's requirements on accelerators are used if the flavor has none.
    image_accelerators = {name: value for name, value in image_properties.items() if name.startswith("accel:")}
    requirements = ServerRequirements(
        server.id, server.wanted_zone, server.wanted_host, excluded_hosts, context.beside, group,
        *required_platform(image_properties), wanted_functions(extra_specs) or wanted_functions(image_accelerators),
        wanted_metadata(extra_specs), tuple(guest_settings(extra_specs, server.image_properties or {})),
        server.project_id, server.scheduler_hints, extra_specs,
    )  # fmt: skip
    devices = any(counts_as_accelerator(name) for one in resources.groups.values() for name in one.resources)
    meanings = {uuid: words for value, words in members.items() for uuid in value.partition("in:")[2].split(",")}
    if in_tree is not None:
        meanings[in_tree] = meaning
    prefers_members = group is not None and group.policy is GroupPolicy.SOFT_AFFINITY and bool(group.members)
    query = candidate_query(resources, SearchScope(in_tree, tuple(members), reservation is not None))
    text = "&".join(f"{name}={value}" for name, value in query)
    return PlacementRequest(
        query,
        text,
        requirements,
        WeigherInput(devices),
        (text, requirements.functions),
        meanings,
        excluded_count=len(excluded_hosts) + (len(group.members) if group else 0),
        needs_all_candidates=in_tree is None and (context.beside is not None or prefers_members),
    )
