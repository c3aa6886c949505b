"""Turns the rules for aggregates into conditions of a Placement query on the aggregates of a candidate's host.

    availability zone     ``member_of=in:`` the aggregates of that zone; default zone: in no aggregate with a zone
    tenant aggregates     metadata ``filter_tenant_id*``: the project's servers go to these hosts only
    isolated aggregates   metadata ``trait:X=required``: only for servers that require X
    legacy reservations   only the aggregate of the reservation that the flavor or hint names (`LegacyReservation`)

Source: Nova's request filters and options of the same names; for legacy reservations, the flavors, hints and metadata
that Blazar's own filter reads (R27, R28 of the instance reservations).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from moorage.scheduler.flavor_resources import ResourceRequest

ZONE_KEY = "availability_zone"
_TENANT_KEY, _TRAIT_KEY = "filter_tenant_id", "trait:"
RESERVATION_KEY, _RESERVATION, _OWNER_KEY = "aggregate_instance_extra_specs:reservation", "reservation", "blazar:owner"


@dataclass(frozen=True)
class AggregateView:
    uuid: str
    metadata: Mapping[str, str]
    name: str = ""


@dataclass(frozen=True)
class LegacyReservation:
    """A reservation made by an older Blazar. It restricts a request to the hosts of one aggregate.

    Instance reservations: a private flavor and the aggregate's metadata contain its id. Host reservations: the user's
    hint contains its id, the aggregate has its id as name, and the aggregate's metadata contains the owner.
    """

    id: str
    is_hinted: bool

    def uses(self, aggregate: "AggregateView", project_id: str) -> bool:
        if self.is_hinted:
            # Any user can send the hint. Without the check of the owner, it could name the aggregate of the free pool.
            return aggregate.name == self.id and aggregate.metadata.get(_OWNER_KEY) == project_id
        return aggregate.metadata.get(_RESERVATION) == self.id


def legacy_reservation(extra_specs: Mapping[str, str], hints: Mapping[str, object]) -> LegacyReservation | None:
    hinted = hints.get(_RESERVATION)
    if named := extra_specs.get(RESERVATION_KEY):
        return LegacyReservation(named, is_hinted=False)
    return LegacyReservation(hinted, is_hinted=True) if isinstance(hinted, str) and hinted else None


@dataclass(frozen=True)
class AggregateRules:
    """Nova's options of these names, all off by default."""

    limit_tenants_to_placement_aggregate: bool = False
    placement_aggregate_required_for_tenants: bool = False
    enable_isolated_aggregate_filtering: bool = False

    def apply_to(self, zone: str | None) -> bool:
        """Whether aggregates matter for a request for `zone`; if not, they need not be read."""
        return zone is not None or self.limit_tenants_to_placement_aggregate or self.enable_isolated_aggregate_filtering


@dataclass(frozen=True)
class NoOpenAggregate:
    """No aggregate accepts the request, for this reason."""

    reason: str


def aggregate_conditions(
    aggregates: Iterable[AggregateView],
    rules: AggregateRules,
    request: ResourceRequest,
    *,
    zone: str | None,
    default_zone: str,
    project_id: str,
    reservation: LegacyReservation | None = None,
) -> dict[str, str] | NoOpenAggregate:
    """{value of ``member_of``: its meaning, for messages}; all conditions must hold."""
    aggregates = list(aggregates)
    found: dict[str, str] = {}
    if zone is not None:
        of_zone = [one.uuid for one in aggregates if one.metadata.get(ZONE_KEY) == zone]
        zoned = [one.uuid for one in aggregates if one.metadata.get(ZONE_KEY)]
        if zone != default_zone and not of_zone:
            return NoOpenAggregate(f"no host is in availability zone {zone}")
        if of_zone:
            found["in:" + ",".join(of_zone)] = f"availability zone {zone}"
        elif zoned:
            found["!in:" + ",".join(zoned)] = f"availability zone {zone}"
    if reservation is not None:
        reserved = [one.uuid for one in aggregates if reservation.uses(one, project_id)]
        if not reserved:
            return NoOpenAggregate(f"the project has no hosts of reservation {reservation.id} now")
        found["in:" + ",".join(reserved)] = f"hosts of reservation {reservation.id}"
    if rules.limit_tenants_to_placement_aggregate:
        own = [one.uuid for one in aggregates if project_id in _tenants(one)]
        if own:
            found["in:" + ",".join(own)] = "aggregates of the project"
        elif rules.placement_aggregate_required_for_tenants:
            return NoOpenAggregate(
                "no aggregate is assigned to the project, and its servers may only be in such an aggregate"
            )
    if rules.enable_isolated_aggregate_filtering:
        closed = [one.uuid for one in aggregates if _traits(one) - _required(request)]
        if closed:
            found["!in:" + ",".join(closed)] = "not in aggregates for other traits"
    return found


def _tenants(aggregate: AggregateView) -> frozenset[str]:
    return frozenset(value for key, value in aggregate.metadata.items() if key.startswith(_TENANT_KEY))


def _traits(aggregate: AggregateView) -> frozenset[str]:
    return frozenset(
        key.removeprefix(_TRAIT_KEY)
        for key, value in aggregate.metadata.items()
        if key.startswith(_TRAIT_KEY) and value == "required"
    )


def _required(request: ResourceRequest) -> frozenset[str]:
    def names() -> Iterator[str]:
        for group in request.groups.values():
            yield from group.required

    return frozenset(names()) | frozenset(request.root_required)
