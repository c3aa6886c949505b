"""Reads leases for an audit, and the flavors and aggregates that the reservation service made for them in compute."""

from collections import Counter
from collections.abc import Mapping

from moorage.audit.model import AuditedAggregate, Reservations, ReservedFlavor
from moorage.compute.client.compute_client import ComputeClient
from moorage.compute.client.values import Aggregate as ComputeAggregate
from moorage.core.ids import is_uuid
from moorage.core.names import reservation_class, reservation_flavor
from moorage.placement.client.placement_client import PlacementClient
from moorage.reservation.client import LeaseView, ReservationClient, ReservationView

#: Types of reservations whose slots are inventories while they are active, and that have a private flavor.
_WITH_SLOTS = ("virtual:instance", "flavor:instance", "resource:any")


def read_reservations(
    reservations: ReservationClient, placement: PlacementClient, compute: ComputeClient | None, pool: str
) -> Reservations:
    slots = reservations.slots()  # first: the slots of a lease that does not change afterwards are final
    leases = reservations.leases()
    hosts = reservations.hosts()
    running = {one.id: (lease, one) for lease in leases for one in lease.reservations if _runs(lease, one)}
    short = {
        one.id: lease.name
        for lease in leases
        for one in lease.reservations
        if one.lacks_resources and one.status != "deleted"  # a lease that has ended keeps its flag
    }
    where: dict[str, dict[str, int]] = {}
    needs: dict[str, Counter[str]] = {}
    with_slots = {
        uuid
        for uuid, (_, one) in running.items()
        if one.resource_type in _WITH_SLOTS and _has_inventory(one, placement)
    }
    for host in hosts:
        for reservation, number in slots.get(host.id, {}).items():
            if reservation in running:
                units = {name: number * each for name, each in running[reservation][1].amounts.items()}
                needs.setdefault(host.hypervisor_hostname, Counter()).update(units)
            if reservation in with_slots:
                where.setdefault(reservation, {})[host.hypervisor_hostname] = number
    # After the hosts: every registered host is in an aggregate by then.
    aggregates = () if compute is None else compute.aggregates()
    return Reservations(
        leases=frozenset(lease.id for lease in leases),
        reservations=frozenset(one.id for lease in leases for one in lease.reservations if one.status != "deleted"),
        hosts=frozenset(host.hypervisor_hostname for host in hosts),
        slots=where,
        flavors={
            uuid: ReservedFlavor(lease.project_id, _projects(compute, uuid))
            for uuid, (lease, one) in running.items()
            if compute is not None and one.resource_type in _WITH_SLOTS
        },
        needs=needs,
        short=short,
        short_hosts=frozenset(
            host.hypervisor_hostname for host in hosts if short.keys() & slots.get(host.id, {}).keys()
        ),
        services={} if compute is None else {host.hypervisor_hostname: host.service_name for host in hosts},
        in_aggregates=frozenset(
            host for one in aggregates if one.name == pool or audited_aggregate(one).is_lent for host in one.hosts
        ),
        pool=pool,
    )


def reservation_flavors(compute: ComputeClient) -> frozenset[str]:
    return frozenset(one.id for one in compute.flavors() if one.name == reservation_flavor(one.id))


def audited_aggregate(aggregate: ComputeAggregate) -> AuditedAggregate:
    zone = aggregate.metadata.get("availability_zone", "")
    is_lent = is_uuid(aggregate.name) and zone.endswith(aggregate.name)  # Blazar may use another prefix
    return AuditedAggregate(aggregate.name, frozenset(aggregate.hosts), is_lent)


def _runs(lease: LeaseView, reservation: ReservationView) -> bool:
    return lease.status == "ACTIVE" and reservation.status == "active"


def _projects(compute: ComputeClient, flavor_id: str) -> frozenset[str] | None:
    projects = frozenset(compute.flavor_access(flavor_id))
    return None if not projects and not compute.has_flavor(flavor_id) else projects


def _has_inventory(reservation: ReservationView, placement: PlacementClient) -> bool:
    """False for the reservations of the oldest systems, which have an aggregate and no resource class."""
    return reservation.aggregate_id is None or placement.has_class(reservation_class(reservation.id))


def current_slots(
    reservations: ReservationClient | None, placement: PlacementClient, reservation: str
) -> Mapping[str, int]:
    """{hypervisor hostname: slots} of `reservation` at this moment; empty unless it is active."""
    if reservations is None:
        return {}
    return read_reservations(reservations, placement, None, "").slots.get(reservation, {})
