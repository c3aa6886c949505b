"""Compares the objects that the reservation service made in Placement and compute with their leases. Pure.

Objects can be missing only for ACTIVE leases. Remains of deleted leases are recognised by their names: flavors
``reservation:<id>``, aggregates ``<id>`` in an availability zone of their own.
"""

from collections import Counter
from collections.abc import Iterator, Mapping

from moorage.audit.model import AuditedProvider, AuditSnapshot, Compute, Finding, FindingKind, Repair, Reservations
from moorage.core.inventories import Inventory
from moorage.core.names import reservation_class, reservation_flavor, reservation_provider


def lease_findings(snapshot: AuditSnapshot) -> Iterator[Finding]:
    if snapshot.reservations is None:
        return
    yield from _wrong_slots(snapshot)
    yield from _without_resources(snapshot.reservations)
    yield from _overbooked(snapshot)
    if snapshot.compute is not None:
        yield from _flavors(snapshot.reservations, snapshot.compute)
        yield from _aggregates(snapshot.reservations, snapshot.compute)
        yield from _pool(snapshot.reservations, snapshot.compute)


# --- slots ------------------------------------------------------------------------------------------------------


def wrong_slots(snapshot: AuditSnapshot) -> Iterator[tuple[AuditedProvider, str, str, int]]:
    """(reservation provider, hypervisor hostname, active reservation, its slots there) for each wrong total."""
    if snapshot.reservations is None:
        return
    by_name = {provider.name: provider for provider in snapshot.providers.values()}
    for host in sorted(snapshot.reservations.hosts):
        provider = by_name.get(reservation_provider(host))
        if provider is None:
            continue
        for reservation, slots in sorted(snapshot.reservations.slots.items()):
            name = reservation_class(reservation)
            inventory, planned = provider.inventories.get(name), slots.get(host, 0)
            if inventory is None or is_right(inventory, planned, provider.used.get(name, 0)):
                continue
            yield provider, host, reservation, planned


def capacity(inventory: Inventory) -> int:
    return int((inventory.total - inventory.reserved) * inventory.allocation_ratio)


def is_right(inventory: Inventory, planned: int, used: int) -> bool:
    """Whether the total is right. A failed host has no slots any more; its servers' units stay while they exist."""
    return inventory.total == planned or (planned == 0 and inventory.total == used)


def _wrong_slots(snapshot: AuditSnapshot) -> Iterator[Finding]:
    for provider, host, reservation, planned in wrong_slots(snapshot):
        name = reservation_class(reservation)
        used = provider.used.get(name, 0)
        can_be_set = used <= planned
        yield Finding(
            FindingKind.WRONG_SLOTS,
            reservation,
            provider.name,
            f"{provider.inventories[name].total} slots are offered there, and the lease has {planned}",
            (f"offers {planned} there" if planned else "removes the inventory")
            if can_be_set
            else f"nothing: {used} are in use; delete {used - planned} of its servers there",
            Repair.SET_SLOTS if can_be_set else None,
            is_safe=can_be_set,
            resource_class=name,
            host=host,
        )


# --- capacity ---------------------------------------------------------------------------------------------------


def overbooked_hosts(snapshot: AuditSnapshot) -> Iterator[tuple[AuditedProvider, str, int, int]]:
    """(root provider, class, units that active leases have there, units that it has) where the leases have more.

    Without hosts of which the reservation service itself reports lost slots.
    """
    known = snapshot.reservations
    if known is None:
        return
    roots = {provider.name: provider for provider in snapshot.providers.values() if provider.parent_uuid is None}
    for host, needs in sorted(known.needs.items()):
        root = roots.get(host)
        if root is None or host in known.short_hosts:
            continue
        offered = Counter[str]()
        for provider in snapshot.providers.values():
            if provider.root_uuid == root.uuid and provider.name != reservation_provider(host):
                offered.update({name: max(0, capacity(one)) for name, one in provider.inventories.items()})
        yield from (
            (root, name, units, offered[name]) for name, units in sorted(needs.items()) if units > offered[name]
        )


def _overbooked(snapshot: AuditSnapshot) -> Iterator[Finding]:
    for root, name, units, offered in overbooked_hosts(snapshot):
        yield Finding(
            FindingKind.OVERBOOKED_HOST,
            root.uuid,
            root.name,
            f"active leases have {units} {name} there, of {offered}",
            f"nothing: give back {units - offered} {name}, or make the leases smaller",
            resource_class=name,
        )


def _without_resources(reservations: Reservations) -> Iterator[Finding]:
    for uuid, lease in sorted(reservations.short.items()):
        yield Finding(
            FindingKind.LEASE_WITHOUT_RESOURCES,
            uuid,
            lease,
            "slots of it have no capacity any more, and no other host has capacity for them",
            "nothing: give the capacity back or register a host; its timeline names the host",
        )


# --- flavors ----------------------------------------------------------------------------------------------------


def _flavors(reservations: Reservations, compute: Compute) -> Iterator[Finding]:
    for uuid in sorted(compute.reservation_flavors - reservations.reservations):
        yield Finding(
            FindingKind.FLAVOR_WITHOUT_LEASE,
            uuid,
            reservation_flavor(uuid),
            "no lease has this reservation",
            "deletes the flavor, unless servers have it",
            Repair.DELETE_FLAVOR,
            is_safe=True,
        )
    for uuid, flavor in sorted(reservations.flavors.items()):
        if flavor.projects is None:
            yield Finding(
                FindingKind.LEASE_WITHOUT_FLAVOR,
                uuid,
                reservation_flavor(uuid),
                f"it runs for project {flavor.project_id}, but its flavor is gone",
                "nothing: create a private flavor with this id for that project, or create the lease again",
            )
        elif flavor.project_id not in flavor.projects:
            yield Finding(
                FindingKind.LEASE_WITHOUT_ACCESS,
                uuid,
                reservation_flavor(uuid),
                f"it runs for project {flavor.project_id}, which may not use its flavor",
                "gives the project access to it",
                Repair.GRANT_ACCESS,
                is_safe=True,
            )


# --- reserved hosts ---------------------------------------------------------------------------------------------


def _aggregates(reservations: Reservations, compute: Compute) -> Iterator[Finding]:
    for aggregate in sorted(compute.aggregates, key=lambda one: one.name):
        if aggregate.is_lent and aggregate.name not in reservations.reservations:
            yield Finding(
                FindingKind.AGGREGATE_WITHOUT_LEASE,
                aggregate.name,
                ", ".join(sorted(aggregate.hosts)),
                "no lease has this reservation",
                f"nothing: add its hosts to {reservations.pool}, then delete it",
            )


def _pool(reservations: Reservations, compute: Compute) -> Iterator[Finding]:
    for host, service in sorted(reservations.services.items()):
        if service not in reservations.in_aggregates:
            yield Finding(
                FindingKind.HOST_OUTSIDE_POOL,
                service,
                host,
                f"it is reserved, but neither lent nor in {reservations.pool}",
                f"adds it to {reservations.pool}",
                Repair.JOIN_POOL,
                is_safe=True,
                host=host,
            )
    known = set(reservations.services.values())
    for stranger in sorted(_hosts_in(reservations.pool, compute) - known):
        yield Finding(
            FindingKind.STRANGER_IN_POOL,
            stranger,
            reservations.pool,
            "reservations do not know it" + ("" if _has(compute.nodes, stranger) else ", nor does compute"),
            f"nothing: register it with reservations, or remove it from {reservations.pool}",
        )


def _hosts_in(pool: str, compute: Compute) -> set[str]:
    return {host for aggregate in compute.aggregates if aggregate.name == pool for host in aggregate.hosts}


def _has(nodes: Mapping[str, str], service: str) -> bool:
    """Whether compute knows the service. Bare-metal nodes have other names, but are not in the pool."""
    return service in nodes
