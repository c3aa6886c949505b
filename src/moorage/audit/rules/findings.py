"""What is wrong in a picture. Pure: the same picture gives the same findings, in the same order.

A finding is safe to mend only where a service that knows all of its own does not know this one, where the thing is
that service's own, and where it has been so for a while. Everything else is for people to decide.
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
    listed,
    names_of,
    roots,
)
from moorage.audit.rules.devices import device_findings
from moorage.audit.rules.leases import lease_findings
from moorage.audit.rules.servers import disagreements, stuck_work
from moorage.core.inventories import Inventory, inventory_faults
from moorage.core.names import (
    is_accelerator_class,
    is_bitstream_trait,
    is_reservation_class,
    reservation_class,
    reservation_provider,
)

#: What reservations call the provider of a host begins with it.
RESERVATION_PREFIX = reservation_provider("")


def suspects(picture: AuditSnapshot) -> frozenset[str]:
    """Consumers that no service has spoken for: they need a closer look."""
    if picture.compute is None:
        return frozenset()
    holding = {consumer for provider in picture.providers.values() for consumer in provider.held}
    spoken_for = picture.compute.servers | picture.compute.migrations
    if picture.reservations is not None:
        spoken_for |= picture.reservations.leases | picture.reservations.reservations
    return frozenset(holding - spoken_for)


def too_young(picture: AuditSnapshot, grace: timedelta) -> frozenset[str]:
    """Suspects of which nothing can be said yet: what made them may not be done."""
    return frozenset(
        uuid
        for uuid in suspects(picture)
        if uuid in picture.consumers and picture.now - picture.consumers[uuid].written_at < grace
    )


def all_findings(picture: AuditSnapshot, grace: timedelta) -> list[Finding]:
    """Everything that is wrong; suspects younger than `grace` are not judged."""
    young = too_young(picture, grace)
    found = [
        *_wrong_roots(picture),
        *_ownerless_providers(picture),
        *(one for provider in _in_order(picture) for one in _inventory_findings(picture, provider)),
        *(
            _unknown_consumer(picture, picture.consumers[uuid])
            for uuid in sorted(suspects(picture) - young)
            if uuid in picture.consumers
        ),
        *_incomplete_consumers(picture),
        *_lost_inventories(picture),
        *disagreements(picture, grace),
        *device_findings(picture, grace),
        *lease_findings(picture),
        *stuck_work(picture, grace),
        *unused_names(picture),
    ]
    return sorted(found, key=lambda one: list(FindingKind).index(one.kind))


def capacity(inventory: Inventory) -> int:
    return int((inventory.total - inventory.reserved) * inventory.allocation_ratio)


def _in_order(picture: AuditSnapshot) -> list[AuditedProvider]:
    return sorted(picture.providers.values(), key=lambda provider: (provider.name, provider.uuid))


# --- providers --------------------------------------------------------------------------------------------------


def _wrong_roots(picture: AuditSnapshot) -> Iterator[Finding]:
    right = roots(picture.providers)
    for provider in _in_order(picture):
        root = picture.providers[right[provider.uuid]]
        if provider.parent_uuid is not None and provider.parent_uuid not in picture.providers:
            why = f"its parent {provider.parent_uuid} is not there"
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


def _ownerless_providers(picture: AuditSnapshot) -> Iterator[Finding]:
    if picture.compute is None:
        return
    right = roots(picture.providers)
    owned = _owned_roots(picture, right)
    parents = {provider.parent_uuid for provider in picture.providers.values()}
    for provider in _in_order(picture):
        why = _why_ownerless(picture, provider, is_owned=right[provider.uuid] in owned)
        if why is None:
            continue
        is_free = not provider.held and provider.uuid not in parents
        yield Finding(
            FindingKind.OWNERLESS_PROVIDER,
            provider.uuid,
            provider.name,
            why,
            "nothing; with --also UUID deletes it" if is_free
            else "nothing; it is in use: whose is it?",
            Repair.DELETE_PROVIDER if is_free else None,
        )  # fmt: skip


def _owned_roots(picture: AuditSnapshot, right: Mapping[str, str]) -> frozenset[str]:
    """Roots of trees in which some provider is claimed, and of sharing providers that serve one of those."""
    claimed: set[str] = set()
    if picture.compute is not None:
        claimed |= picture.compute.hypervisors
    if picture.accelerators is not None:
        claimed |= picture.accelerators.deployables
    if picture.reservations is not None:
        names = {f"{RESERVATION_PREFIX}{host}" for host in picture.reservations.hosts}
        claimed |= {provider.uuid for provider in picture.providers.values() if provider.name in names}
    owned = {right[uuid] for uuid in claimed if uuid in right}
    served = frozenset[str]().union(*(picture.providers[root].aggregates for root in owned))
    return frozenset(owned) | {
        right[provider.uuid]
        for provider in picture.providers.values()
        if provider.is_sharing and provider.aggregates & served
    }


def _why_ownerless(picture: AuditSnapshot, provider: AuditedProvider, *, is_owned: bool) -> str | None:
    if provider.name.startswith(RESERVATION_PREFIX) and picture.reservations is not None:
        host = provider.name.removeprefix(RESERVATION_PREFIX)
        return None if host in picture.reservations.hosts else f"reservations do not know host {host}"
    if provider.is_device and picture.accelerators is not None:
        known = provider.uuid in picture.accelerators.deployables
        return None if known else "it is a device's, and no accelerator has this provider"
    if is_owned or provider.parent_uuid is not None:
        return None
    return "no hypervisor, accelerator or reserved host claims it or its children"


# --- inventories ------------------------------------------------------------------------------------------------


def _inventory_findings(picture: AuditSnapshot, provider: AuditedProvider) -> Iterator[Finding]:
    used = provider.used
    for name in sorted(used.keys() - provider.inventories.keys()):
        holders = sorted(consumer for consumer, held in provider.held.items() if name in held)
        yield Finding(
            FindingKind.MISSING_INVENTORY,
            provider.uuid,
            provider.name,
            f"{used[name]} {name} in use by {listed(holders)}, and it offers none",
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
                "nothing: what was meant is known to whoever wrote it",
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
        if _is_without_lease(picture, name):
            yield _without_lease(provider, name, used.get(name, 0))


def _is_without_lease(picture: AuditSnapshot, name: str) -> bool:
    if picture.reservations is None or not is_reservation_class(name):
        return False
    return name not in {reservation_class(one) for one in picture.reservations.reservations}


def _without_lease(provider: AuditedProvider, name: str, used: int) -> Finding:
    return Finding(
        FindingKind.OWNERLESS_INVENTORY,
        provider.uuid,
        provider.name,
        f"no lease has the reservation of {name}",
        f"nothing while {used} are in use" if used else "takes this inventory out",
        None if used else Repair.DROP_INVENTORY,
        is_safe=not used,
        resource_class=name,
    )


def lost(picture: AuditSnapshot) -> list[tuple[str, str, int]]:
    """(hypervisor hostname, reservation that runs, its slots there), of those that Placement does not offer."""
    if picture.reservations is None:
        return []
    offered = {(provider.name, name) for provider in picture.providers.values() for name in provider.inventories}
    return [
        (host, reservation, slots)
        for reservation, hosts in sorted(picture.reservations.slots.items())
        for host, slots in sorted(hosts.items())
        if (reservation_provider(host), reservation_class(reservation)) not in offered
    ]


def _lost_inventories(picture: AuditSnapshot) -> Iterator[Finding]:
    by_name = {provider.name: provider for provider in picture.providers.values()}
    for host, reservation, slots in lost(picture):
        ours, root, name = by_name.get(reservation_provider(host)), by_name.get(host), reservation_class(reservation)
        why = f"it runs with {slots} slots there, and " + ("the provider is gone" if ours is None else "offers none")
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


def _unknown_consumer(picture: AuditSnapshot, consumer: AuditedConsumer) -> Finding:
    has_device = picture.accelerators is not None and consumer.uuid in picture.accelerators.instances
    is_servers = consumer.type == SERVER_TYPE
    if has_device:
        why, advice = "compute does not know it, but an accelerator is attached to it", "nothing: free the device first"
    elif is_servers:
        why, advice = "compute knows no such server", "releases what it holds"
    elif consumer.type == MIGRATION_TYPE:
        why, advice = "compute knows no such migration", "nothing; with --also UUID releases it"
    else:
        said = "says no type" if consumer.type == UNKNOWN_TYPE else f"is a {consumer.type}"
        why = f"no service that was asked knows it, and it {said}"
        advice = "nothing: it may be another service's; with --also UUID releases it"
    return Finding(
        FindingKind.UNKNOWN_CONSUMER,
        consumer.uuid,
        names_of(picture, consumer.allocations),
        why,
        advice,
        None if has_device else Repair.RELEASE,
        is_safe=is_servers and not has_device,
    )


def _incomplete_consumers(picture: AuditSnapshot) -> Iterator[Finding]:
    """Those that compute knows: it also knows whose they are. The others are unknown consumers already."""
    for uuid, consumer in sorted(picture.consumers.items()):
        if not consumer.is_incomplete or picture.compute is None or uuid not in picture.compute.servers:
            continue
        owner = picture.compute.owners.get(uuid)
        yield Finding(
            FindingKind.INCOMPLETE_CONSUMER,
            uuid,
            names_of(picture, consumer.allocations),
            "nobody said whose it is",
            "nothing: compute did not say" if owner is None else f"gives it to project {owner.project_id}",
            None if owner is None else Repair.SET_OWNER,
            is_safe=owner is not None,
            owner=owner,
        )


def unused_names(picture: AuditSnapshot) -> Iterator[Finding]:
    """Nothing without compute, accelerators and reservations: one that is not asked may need it."""
    names = picture.names
    if names is None or None in (picture.compute, picture.accelerators) or picture.reservations is None:
        return
    offered = {name for provider in picture.providers.values() for name in provider.inventories}
    held = {name for provider in picture.providers.values() for name in provider.used}
    reserved = {reservation_class(one) for one in picture.reservations.reservations}
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
