"""Finds all faults in a snapshot. Pure: the same snapshot gives the same findings, in the same order.

A repair is safe only if the object belongs to a service that knows all its objects, that service does not know this
one, and that has been so for the grace period. An operator decides about every other repair.

Unused names: only custom classes and traits that the reservation service and hosts name themselves, since operators own
the others. A name in a flavor or a device profile is in use, because a request for a missing name is an error.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta

from moorage.audit.model import (
    MIGRATION_TYPE,
    SERVER_TYPE,
    UNKNOWN_TYPE,
    AuditedConsumer,
    AuditedProvider,
    AuditSnapshot,
    Finding,
    FindingKind,
    Repair,
    joined_names,
    provider_names,
    root_by_provider,
)
from moorage.audit.rules.devices import device_findings
from moorage.audit.rules.leases import capacity, lease_findings
from moorage.audit.rules.ports import port_findings
from moorage.audit.rules.servers import server_findings, stuck_findings
from moorage.core.inventories import inventory_faults
from moorage.core.names import (
    is_accelerator_class,
    is_bitstream_trait,
    is_reservation_class,
    reservation_class,
    reservation_provider,
)

#: Prefix of the names of reservation providers.
RESERVATION_PREFIX = reservation_provider("")


def suspect_consumers(snapshot: AuditSnapshot) -> frozenset[str]:
    """Consumers that no service has reported: they need a closer look."""
    if snapshot.compute is None:
        return frozenset()
    holding = {consumer for provider in snapshot.providers.values() for consumer in provider.held}
    spoken_for = snapshot.compute.servers | snapshot.compute.migrations
    if snapshot.reservations is not None:
        spoken_for |= snapshot.reservations.leases | snapshot.reservations.reservations
    return frozenset(holding - spoken_for)


def too_young_consumers(snapshot: AuditSnapshot, grace: timedelta) -> frozenset[str]:
    """Suspect consumers that are too young to judge: the operation that made them may be in progress."""
    return frozenset(
        uuid
        for uuid in suspect_consumers(snapshot)
        if uuid in snapshot.consumers and snapshot.now - snapshot.consumers[uuid].written_at < grace
    )


def all_findings(snapshot: AuditSnapshot, grace: timedelta) -> list[Finding]:
    """All findings, by kind. Suspect consumers younger than `grace` are not judged."""
    young = too_young_consumers(snapshot, grace)
    found = [
        *_wrong_roots(snapshot),
        *_ownerless_providers(snapshot),
        *(one for provider in _in_order(snapshot) for one in _inventory_findings(snapshot, provider)),
        *(
            _unknown_consumer(snapshot, snapshot.consumers[uuid])
            for uuid in sorted(suspect_consumers(snapshot) - young)
            if uuid in snapshot.consumers
        ),
        *_incomplete_consumers(snapshot),
        *_lost_inventories(snapshot),
        *server_findings(snapshot, grace),
        *device_findings(snapshot, grace),
        *lease_findings(snapshot),
        *stuck_findings(snapshot, grace),
        *port_findings(snapshot, grace),
        *unused_names(snapshot),
    ]
    return sorted(found, key=lambda one: list(FindingKind).index(one.kind))


def _in_order(snapshot: AuditSnapshot) -> list[AuditedProvider]:
    return sorted(snapshot.providers.values(), key=lambda provider: (provider.name, provider.uuid))


# --- providers --------------------------------------------------------------------------------------------------


def _wrong_roots(snapshot: AuditSnapshot) -> Iterator[Finding]:
    right = root_by_provider(snapshot.providers)
    for provider in _in_order(snapshot):
        root = snapshot.providers[right[provider.uuid]]
        if provider.parent_uuid is not None and provider.parent_uuid not in snapshot.providers:
            why = f"its parent {provider.parent_uuid} does not exist"
        elif right[provider.uuid] != provider.root_uuid:
            why = f"its parents lead to {root.name} ({root.uuid}), its root is {provider.root_uuid}"
        else:
            continue
        yield Finding(
            FindingKind.WRONG_ROOT,
            provider.uuid,
            provider.name,
            why,
            "nothing: no API writes a root; set the parent again, or export and import the database",
        )


def _ownerless_providers(snapshot: AuditSnapshot) -> Iterator[Finding]:
    if snapshot.compute is None:
        return
    right = root_by_provider(snapshot.providers)
    owned = _owned_roots(snapshot, right)
    parents = {provider.parent_uuid for provider in snapshot.providers.values()}
    for provider in _in_order(snapshot):
        why = _why_ownerless(snapshot, provider, is_owned=right[provider.uuid] in owned)
        if why is None:
            continue
        is_free = not provider.held and provider.uuid not in parents
        yield Finding(
            FindingKind.OWNERLESS_PROVIDER,
            provider.uuid,
            provider.name,
            why,
            "nothing; with --also UUID deletes it" if is_free
            else "nothing: it is in use; find its owner",
            Repair.DELETE_PROVIDER if is_free else None,
        )  # fmt: skip


def _owned_roots(snapshot: AuditSnapshot, right: Mapping[str, str]) -> frozenset[str]:
    """Roots of trees with a provider that a service knows, and of sharing providers that serve such a tree."""
    claimed: set[str] = set()
    if snapshot.compute is not None:
        claimed |= snapshot.compute.hypervisors
    if snapshot.accelerators is not None:
        claimed |= snapshot.accelerators.deployables
    if snapshot.reservations is not None:
        names = {f"{RESERVATION_PREFIX}{host}" for host in snapshot.reservations.hosts}
        claimed |= {provider.uuid for provider in snapshot.providers.values() if provider.name in names}
    owned = {right[uuid] for uuid in claimed if uuid in right}
    served = frozenset[str]().union(*(snapshot.providers[root].aggregates for root in owned))
    return frozenset(owned) | {
        right[provider.uuid]
        for provider in snapshot.providers.values()
        if provider.is_sharing and provider.aggregates & served
    }


def _why_ownerless(snapshot: AuditSnapshot, provider: AuditedProvider, *, is_owned: bool) -> str | None:
    if provider.name.startswith(RESERVATION_PREFIX) and snapshot.reservations is not None:
        host = provider.name.removeprefix(RESERVATION_PREFIX)
        return None if host in snapshot.reservations.hosts else f"reservations do not know host {host}"
    if provider.is_device and snapshot.accelerators is not None:
        known = provider.uuid in snapshot.accelerators.deployables
        return None if known else "it is the provider of a device, but no accelerator has it"
    if is_owned or provider.parent_uuid is not None:
        return None
    return "no hypervisor, accelerator or reserved host claims it or its children"


# --- inventories ------------------------------------------------------------------------------------------------


def _inventory_findings(snapshot: AuditSnapshot, provider: AuditedProvider) -> Iterator[Finding]:
    used = provider.used
    for name in sorted(used.keys() - provider.inventories.keys()):
        holders = sorted(consumer for consumer, held in provider.held.items() if name in held)
        yield Finding(
            FindingKind.MISSING_INVENTORY,
            provider.uuid,
            provider.name,
            f"{used[name]} {name} in use by {joined_names(holders)}, but it offers none",
            f"nothing: offer {name} again, or move those servers",
            resource_class=name,
        )
    for name, inventory in sorted(provider.inventories.items()):
        faults = list(inventory_faults(inventory))
        if faults:
            yield Finding(
                FindingKind.IMPOSSIBLE_INVENTORY,
                provider.uuid,
                provider.name,
                f"{name}: {'; '.join(faults)}",
                "nothing: only its author knows the intended values; correct them",
                resource_class=name,
            )
        elif used.get(name, 0) > capacity(inventory):
            yield Finding(
                FindingKind.OVER_CAPACITY,
                provider.uuid,
                provider.name,
                f"{used[name]} {name} in use, of {capacity(inventory)}",
                f"nothing: raise total or allocation_ratio, or move {used[name] - capacity(inventory)} {name} away",
                resource_class=name,
            )
        if _is_without_lease(snapshot, name):
            yield _without_lease(provider, name, used.get(name, 0))


def _is_without_lease(snapshot: AuditSnapshot, name: str) -> bool:
    if snapshot.reservations is None or not is_reservation_class(name):
        return False
    return name not in {reservation_class(one) for one in snapshot.reservations.reservations}


def _without_lease(provider: AuditedProvider, name: str, used: int) -> Finding:
    return Finding(
        FindingKind.OWNERLESS_INVENTORY,
        provider.uuid,
        provider.name,
        f"no lease has the reservation of {name}",
        f"nothing while {used} are in use" if used else "removes this inventory",
        None if used else Repair.DROP_INVENTORY,
        is_safe=not used,
        resource_class=name,
    )


def lost_inventories(snapshot: AuditSnapshot) -> list[tuple[str, str, int]]:
    """(hypervisor hostname, active reservation, its slots there), for slots that no inventory in Placement offers."""
    if snapshot.reservations is None:
        return []
    offered = {(provider.name, name) for provider in snapshot.providers.values() for name in provider.inventories}
    return [
        (host, reservation, slots)
        for reservation, hosts in sorted(snapshot.reservations.slots.items())
        for host, slots in sorted(hosts.items())
        if (reservation_provider(host), reservation_class(reservation)) not in offered
    ]


def _lost_inventories(snapshot: AuditSnapshot) -> Iterator[Finding]:
    by_name = {provider.name: provider for provider in snapshot.providers.values()}
    for host, reservation, slots in lost_inventories(snapshot):
        ours, root, name = by_name.get(reservation_provider(host)), by_name.get(host), reservation_class(reservation)
        why = f"it runs with {slots} slots there, and " + ("the provider is gone" if ours is None else "it offers none")
        obstacle = None
        if root is None:
            obstacle = f"nothing: {host} has no provider either; start its compute service, then audit again"
        elif ours is not None and ours.parent_uuid != root.uuid:
            obstacle = f"nothing: the provider is not below {host}'s ({root.uuid}); set its parent, then audit again"
        yield Finding(
            FindingKind.LOST_INVENTORY,
            reservation,
            reservation_provider(host),
            why,
            obstacle or f"offers {slots} {name} there",
            None if obstacle else Repair.MAKE_INVENTORY,
            is_safe=obstacle is None,
            resource_class=name,
            host=host,
        )


# --- consumers --------------------------------------------------------------------------------------------------


def _unknown_consumer(snapshot: AuditSnapshot, consumer: AuditedConsumer) -> Finding:
    has_device = snapshot.accelerators is not None and consumer.uuid in snapshot.accelerators.instances
    is_servers = consumer.type == SERVER_TYPE
    if has_device:
        why, advice = "compute does not know it, but an accelerator is attached to it", "nothing: free the device first"
    elif is_servers:
        why, advice = "compute knows no such server", "releases its allocations"
    elif consumer.type == MIGRATION_TYPE:
        why, advice = "compute knows no such migration", "nothing; with --also UUID releases it"
    else:
        said = "says no type" if consumer.type == UNKNOWN_TYPE else f"is a {consumer.type}"
        why = f"no service that was asked knows it, and it {said}"
        advice = "nothing: it may be another service's; with --also UUID releases it"
    return Finding(
        FindingKind.UNKNOWN_CONSUMER,
        consumer.uuid,
        provider_names(snapshot, consumer.allocations),
        why,
        advice,
        None if has_device else Repair.RELEASE,
        is_safe=is_servers and not has_device,
    )


def _incomplete_consumers(snapshot: AuditSnapshot) -> Iterator[Finding]:
    """Consumers without an owner that compute knows, because compute has the owner. Others are unknown consumers."""
    for uuid, consumer in sorted(snapshot.consumers.items()):
        if not consumer.is_incomplete or snapshot.compute is None or uuid not in snapshot.compute.servers:
            continue
        owner = snapshot.compute.owners.get(uuid)
        yield Finding(
            FindingKind.INCOMPLETE_CONSUMER,
            uuid,
            provider_names(snapshot, consumer.allocations),
            "it was written without an owner",
            "nothing: compute names no owner" if owner is None else f"assigns it to project {owner.project_id}",
            None if owner is None else Repair.SET_OWNER,
            is_safe=owner is not None,
            owner=owner,
        )


def unused_names(snapshot: AuditSnapshot) -> Iterator[Finding]:
    """Unused names; none unless compute, accelerators and reservations were all read: each may need a name."""
    names = snapshot.names
    if names is None or None in (snapshot.compute, snapshot.accelerators) or snapshot.reservations is None:
        return
    offered = {name for provider in snapshot.providers.values() for name in provider.inventories}
    held = {name for provider in snapshot.providers.values() for name in provider.used}
    reserved = {reservation_class(one) for one in snapshot.reservations.reservations}
    ours = {name for name in names.classes if is_reservation_class(name) or is_accelerator_class(name)}
    for name in sorted(ours - offered - held - reserved - names.asked_for):
        yield _unused_finding(FindingKind.UNUSED_CLASS, name, "no provider offers it", Repair.DELETE_CLASS)
    for name in sorted(filter(is_bitstream_trait, names.traits - names.asked_for)):
        yield _unused_finding(FindingKind.UNUSED_TRAIT, name, "no provider has it", Repair.DELETE_TRAIT)


def _unused_finding(kind: FindingKind, name: str, why: str, action: Repair) -> Finding:
    return Finding(
        kind, name, "Placement", f"{why}, and no lease, flavor or device profile asks for it", "deletes it", action,
        is_safe=True,
    )  # fmt: skip
