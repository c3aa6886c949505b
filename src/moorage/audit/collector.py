"""Collects an `AuditSnapshot`: reads Placement and the other services through their clients.

It reads Placement first. What appears later is not judged; and the service that made a consumer or an inventory had
stored it in its own database before, so it is there when that service is read.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from moorage.accelerator.client import AcceleratorClient
from moorage.audit.lease_collector import audited_aggregate, read_reservations, reservation_flavors
from moorage.audit.model import (
    INCOMPLETE,
    AuditedAccelerators,
    AuditedConsumer,
    AuditedDeployable,
    AuditedNames,
    AuditedPort,
    AuditedProvider,
    AuditedRequest,
    AuditedServer,
    AuditSnapshot,
    BusyServer,
    Compute,
    Owner,
)
from moorage.audit.rules import findings, leases, ports, servers
from moorage.compute.client.compute_client import ComputeClient
from moorage.compute.client.values import ServerState
from moorage.core.clock import Clock
from moorage.core.errors import ConcurrentUpdate, Invalid, NotFound
from moorage.core.names import reservation_class, reservation_provider
from moorage.network.client.moorage_ports import AuditablePorts
from moorage.network.client.server_ports import PortOfServer
from moorage.placement.client.placement_client import Consumer, PlacementClient, ProviderState
from moorage.placement.client.placement_client import Provider as PlacementProvider
from moorage.reservation.client import ReservationClient
from moorage.scheduler.flavor_resources import PROFILE_KEY, FlavorFields, request_for

#: The collector looks closer at servers of any age; the rules apply the grace period later.
NO_TIME = timedelta(0)

SHARING_TRAIT, DEVICE_TRAIT = "MISC_SHARES_VIA_AGGREGATE", "OWNER_CYBORG"

#: Statuses of servers whose allocations must be those of their flavor while no operation is in progress. Not servers
#: that are being built, wait for the confirmation of a move, or whose cell does not answer.
_AT_REST = frozenset({"ACTIVE", "PAUSED", "SUSPENDED", "SHUTOFF", "RESCUE", "SHELVED"})
_RUNNING = frozenset({"ACTIVE", "PAUSED"})
#: Statuses of servers without a host, which must have no allocations.
_WITHOUT_HOST = frozenset({"ERROR", "SHELVED_OFFLOADED"})
#: Final states of an evacuation: then the source host has no allocations of the server any more.
_EVACUATED_AND_CLEAN = frozenset({"completed", "error", "failed", "cancelled"})

#: The state of an accelerator request while its host binds it.
_BEING_BOUND = "BindStarted"

#: A custom class or trait in ``trait:CUSTOM_A``, ``in:CUSTOM_A,CUSTOM_B`` or ``resources1:CUSTOM_C``.
_WORD = re.compile(r"CUSTOM_[A-Z0-9_]+")

#: State of a handle that a server has.
_ATTACHED = "attached"

#: Attempts to read a provider whose generation changes between its two requests.
ATTEMPTS = 5

#: Called with the kind of objects being read, how many are done, and how many there are.
ReportProgress = Callable[[str, int, int], object]


@dataclass(frozen=True)
class AuditServices:
    """The clients of the services. One that is None is not part of the cloud; what only it knows is not judged."""

    placement: PlacementClient
    compute: ComputeClient | None = None
    accelerators: AcceleratorClient | None = None
    reservations: ReservationClient | None = None
    pool: str = "freepool"  #: name of the aggregate of unreserved hosts: [reservation] freepool
    ports: AuditablePorts | None = None  #: of Moorage's own network service


def collect_snapshot(
    services: AuditServices, clock: Clock, progress: ReportProgress, *, by_tree: bool = False, names: bool = False
) -> AuditSnapshot:
    """Read all services. Raises `Unavailable` or `RemoteError` if one cannot be read: a partial snapshot is useless.

    `by_tree`: make one request per tree, instead of two or three per provider, if Placement is Moorage's.
    `names`: also read resource classes and unused traits.
    """
    named = (services.placement.classes(), services.placement.unused_traits()) if names else None
    providers = _by_tree(services.placement, progress) if by_tree else None
    if providers is None:
        providers = _providers(services.placement, progress)
    may_be_incomplete = services.placement.consumers_of(INCOMPLETE) > 0
    now = clock.now()
    # Ports before servers: compute stores a server before its ports are bound.
    bound = None if services.ports is None else services.ports.bound_ports()
    snapshot = AuditSnapshot(
        now=now,
        providers=providers,
        consumers={},
        compute=None if services.compute is None else _compute(services.compute),
        accelerators=None if services.accelerators is None else _accelerators(services.accelerators),
        reservations=None
        if services.reservations is None
        else read_reservations(services.reservations, services.placement, services.compute, services.pool),
        names=None if named is None else AuditedNames(*named, names_in_use_by_requests(services)),
        ports=None if bound is None else {one.id: audited_port(one) for one in bound},
    )
    snapshot = _with_interfaces(snapshot, services)
    providers |= _read_again(services.placement, snapshot)
    snapshot = replace(snapshot, providers=providers)
    wanted = findings.suspect_consumers(snapshot) | servers.doubtful_servers(snapshot, NO_TIME)
    if may_be_incomplete:
        wanted = frozenset(consumer for provider in providers.values() for consumer in provider.held)
    consumers: dict[str, AuditedConsumer] = {}
    for done, uuid in enumerate(sorted(wanted), 1):
        holder = services.placement.holder(uuid)
        if holder is not None:
            consumers[uuid] = audited_consumer(holder)
        progress("consumers", done, len(wanted))
    return replace(
        snapshot,
        consumers=consumers,
        compute=_with_owners(snapshot, services.compute, consumers),
    )


def audited_consumer(holder: Consumer) -> AuditedConsumer:
    return AuditedConsumer(
        holder.uuid,
        holder.generation,
        holder.project_id,
        holder.user_id,
        holder.type,
        holder.allocations,
        holder.written_at,
    )


# --- placement --------------------------------------------------------------------------------------------------


def _providers(placement: PlacementClient, progress: ReportProgress) -> dict[str, AuditedProvider]:
    listed = placement.providers()
    sharing = {one.uuid for one in placement.providers([("required", SHARING_TRAIT)])}
    devices = {one.uuid for one in placement.providers([("required", DEVICE_TRAIT)])}
    found: dict[str, AuditedProvider] = {}
    for done, one in enumerate(listed, 1):
        provider = _provider(placement, one)
        if provider is not None:
            found[one.uuid] = replace(
                provider,
                is_sharing=one.uuid in sharing,
                is_device=one.uuid in devices,
                aggregates=_aggregates(placement, one) if sharing and _may_share(one, sharing) else frozenset(),
            )
        progress("providers", done, len(listed))
    return found


def _by_tree(placement: PlacementClient, progress: ReportProgress) -> dict[str, AuditedProvider] | None:
    """None if Placement is not Moorage's. A provider that changed while its tree was read is read again on its own."""
    listed = placement.providers()
    found: dict[str, AuditedProvider] = {}
    for done, one in enumerate(listed, 1):
        if one.uuid not in found:  # else it came with its tree
            states = placement.tree_states(one.uuid)
            if states is None and placement.provider(one.uuid) is not None:
                return None
            for state in states or ():
                provider = _of_state(state) or _provider(placement, state.provider)
                if provider is not None:
                    found[provider.uuid] = replace(
                        provider,
                        is_sharing=SHARING_TRAIT in state.traits,
                        is_device=DEVICE_TRAIT in state.traits,
                        aggregates=state.aggregates,
                    )
        progress("providers", done, len(listed))
    return found


def _of_state(state: ProviderState) -> AuditedProvider | None:
    """None if an allocation changed during the read, so that inventories and allocations do not match."""
    one = state.provider
    read = AuditedProvider(one.uuid, one.name, one.parent_uuid, one.root_uuid, state.inventories, state.held)
    return read if read.used == {name: units for name, units in state.usages.items() if units} else None


def _may_share(provider: PlacementProvider, sharing: set[str]) -> bool:
    return provider.parent_uuid is None or provider.uuid in sharing


def _aggregates(placement: PlacementClient, provider: PlacementProvider) -> frozenset[str]:
    return placement.aggregates(provider.uuid)[1]


def _provider(placement: PlacementClient, provider: PlacementProvider) -> AuditedProvider | None:
    """Inventories and allocations of one generation; None if the provider was deleted meanwhile."""
    for _ in range(ATTEMPTS):
        try:
            generation, held = placement.holders(provider.uuid)
            its_generation, inventories = placement.inventories(provider.uuid)
        except NotFound:
            return None
        if generation == its_generation:
            return AuditedProvider(
                provider.uuid, provider.name, provider.parent_uuid, provider.root_uuid, inventories, held
            )
    raise ConcurrentUpdate(
        f"provider {provider.name} ({provider.uuid}) changed during each of {ATTEMPTS} attempts to read it; audit "
        "again when there are fewer writes"
    )


def names_in_use_by_requests(services: AuditServices) -> frozenset[str]:
    """Custom class and trait names anywhere in flavors and device profiles."""
    groups: list[Mapping[str, str]] = []
    if services.compute is not None:
        groups += [flavor.extra_specs for flavor in services.compute.flavors()]
    if services.accelerators is not None:
        groups += [group for profile in services.accelerators.profiles() for group in profile["groups"]]
    words = {word for group in groups for item in group.items() for text in item for word in _WORD.findall(text)}
    return frozenset(words)


# --- the others -------------------------------------------------------------------------------------------------


def _compute(compute: ComputeClient) -> Compute:
    # Hosts before servers: a server that appears on a host later is too young to be judged, and one that is gone with
    # its host is not listed.
    nodes = compute.nodes()
    # These are made after their lease, and the leases are read later.
    flavors, aggregates = reservation_flavors(compute), compute.aggregates()
    # Migrations before servers: one that ends returns its allocations to the server, so one of the two lists has it.
    migrations = compute.migrations()
    found = compute.server_states()
    evacuated: dict[str, frozenset[str]] = {}
    for one in migrations:
        if one.type == "evacuation" and one.status not in _EVACUATED_AND_CLEAN and one.source_node is not None:
            evacuated[one.server_id] = evacuated.get(one.server_id, frozenset()) | {one.source_node}
    states = {uuid: audited_server(state) for uuid, state in found.items()}
    return Compute(
        frozenset(found),
        frozenset(one.uuid for one in migrations),
        frozenset(node.uuid for node in nodes.values()),
        states={uuid: server for uuid, server in states.items() if server is not None},
        nodes={name: node.uuid for name, node in nodes.items()},
        down=frozenset(name for name, node in nodes.items() if not node.is_up),
        busy={
            uuid: BusyServer(state.node, state.task, state.updated_at)
            for uuid, state in found.items()
            if state is not None and state.task is not None
        },
        reservation_flavors=flavors,
        aggregates=tuple(audited_aggregate(one) for one in aggregates),
        evacuated=evacuated,
    )


def audited_server(state: ServerState | None) -> AuditedServer | None:
    """None for a server that cannot be judged now."""
    if state is None or state.task is not None:
        return None
    if state.status not in (_WITHOUT_HOST if state.node is None else _AT_REST):
        return None
    # An administrator may call a server active whose build has failed: it has no guest, and needs nothing of its host.
    node = state.node if state.is_launched else None
    flavor, runs = state.flavor, state.status in _RUNNING and state.is_launched
    fields = FlavorFields(
        flavor.vcpus, flavor.ram_mb, flavor.disk_gb, flavor.ephemeral_gb, flavor.swap_mb, flavor.extra_specs
    )
    try:
        request = request_for(fields)
    except Invalid:
        return AuditedServer(node, state.updated_at, None, is_plain=False, runs=runs, macs=state.macs)
    wanted: dict[str, int] = {}
    for group in request.groups.values():
        for name, units in group.resources.items():
            wanted[name] = wanted.get(name, 0) + units
    if not state.has_image:  # its disk may be a volume, which uses no host's DISK_GB
        wanted.pop("DISK_GB", None)
    is_plain = set(request.groups) == {""} and PROFILE_KEY not in flavor.extra_specs and state.has_image
    return AuditedServer(node, state.updated_at, wanted, is_plain, runs, state.macs)


def _with_interfaces(snapshot: AuditSnapshot, services: AuditServices) -> AuditSnapshot:
    """Reads the interfaces of servers whose addresses do not match their ports, then those ports once more."""
    if services.ports is None or services.compute is None or snapshot.ports is None:
        return snapshot
    found = {uuid: services.compute.interface_ports(uuid) for uuid in sorted(ports.doubtful_servers(snapshot))}
    interfaces = {uuid: listed for uuid, listed in found.items() if listed is not None}
    present, lost = dict(snapshot.ports), set[str]()
    for uuid, listed in interfaces.items():
        held = {port.uuid for port in snapshot.ports.values() if port.server == uuid}
        for port_id in sorted(held ^ listed):
            now = services.ports.port(port_id)
            if now is None or not now.device_id:
                present.pop(port_id, None)
            else:
                present[port_id] = audited_port(now)
            if port_id in listed and (now is None or now.device_id != uuid):
                lost.add(port_id)
    return replace(snapshot, ports=present, interfaces=interfaces, lost_ports=frozenset(lost))


def audited_port(port: PortOfServer) -> AuditedPort:
    return AuditedPort(
        port.id, port.device_id, port.network_id, port.host, port.mac_address, port.has_address, port.updated_at
    )


def _with_owners(
    snapshot: AuditSnapshot, compute: ComputeClient | None, consumers: Mapping[str, AuditedConsumer]
) -> Compute | None:
    """Ask for the owners one by one, because a list omits some servers, such as soft-deleted ones."""
    known = snapshot.compute
    if known is None or compute is None:
        return known
    asked = {uuid for uuid, consumer in consumers.items() if consumer.is_incomplete}
    asked |= consumers.keys() - known.servers - known.migrations
    if snapshot.accelerators is not None:
        asked |= snapshot.accelerators.instances - known.servers
    asked |= {port.server for port in (snapshot.ports or {}).values()} - known.servers
    owners = {uuid: Owner(*owner) for uuid in sorted(asked) if (owner := compute.server_owner(uuid)) is not None}
    return replace(known, servers=known.servers | owners.keys(), owners=owners)


def _accelerators(accelerators: AcceleratorClient) -> AuditedAccelerators:
    requests = [one for one in accelerators.requests() if one.instance_uuid]
    found = accelerators.deployables()
    attached: dict[str, list[str]] = {}
    for host in sorted({device.hostname for device in accelerators.devices()}):
        handles = accelerators.handles(host)
        if handles is None:
            break
        for handle in handles:
            if handle.state == _ATTACHED and handle.request_uuid is None:
                attached.setdefault(handle.deployable, []).append(handle.address)
    return AuditedAccelerators(
        deployables=frozenset(one.rp_uuid for one in found if one.rp_uuid),
        instances=frozenset(one.instance_uuid for one in requests),
        parts=tuple(
            AuditedDeployable(one.uuid, one.name, one.rp_uuid, one.changed_at, tuple(attached.get(one.name, ())))
            for one in found
        ),
        requests=tuple(
            AuditedRequest(
                one.uuid,
                one.instance_uuid,
                one.device_rp_uuid,
                one.hostname,
                one.changed_at,
                is_made_here=one.profile is not None,
                is_waiting=one.state == _BEING_BOUND,
            )
            for one in requests
        ),
    )


def _read_again(placement: PlacementClient, snapshot: AuditSnapshot) -> dict[str, AuditedProvider]:
    """{uuid: provider}, read again: reservation providers whose inventories seem lost or wrong, and hosts that seem too
    small for their leases.

    The inventories of a lease that has just begun or changed are there by now.
    """
    again: dict[str, AuditedProvider] = {}
    for root in {root.uuid: root for root, _, _, _ in leases.overbooked_hosts(snapshot)}.values():
        with suppress(NotFound):
            again[root.uuid] = replace(root, inventories=placement.inventories(root.uuid)[1])
    changed = {host: set[str]() for host, _, _ in findings.lost_inventories(snapshot)}
    for _, host, reservation, _ in leases.wrong_slots(snapshot):
        changed.setdefault(host, set()).add(reservation_class(reservation))
    for host, names in sorted(changed.items()):
        listed = placement.provider_by_name(reservation_provider(host))
        provider = None if listed is None else _provider(placement, listed)
        if provider is not None:
            before = snapshot.providers.get(provider.uuid, replace(provider, held={}))
            kept = {name: one for name, one in before.inventories.items() if name not in names}
            again[provider.uuid] = replace(before, inventories={**provider.inventories, **kept})
    return again
