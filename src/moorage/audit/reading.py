"""A picture of what Placement has written down and of what the other services know, through their clients.

Placement is read first: what appears later is not judged, and whatever made a consumer or an inventory that was seen
had written it down in its own service before that, so it is there when that service is asked.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from moorage.accelerator.client import AcceleratorClient
from moorage.audit import findings
from moorage.audit.model import INCOMPLETE, Accelerators, Compute, Consumer, Owner, Picture, Provider, Reservations
from moorage.compute.client import ComputeClient
from moorage.core.clock import Clock
from moorage.core.errors import ConcurrentUpdate, NotFound
from moorage.placement.client import Holder, PlacementClient
from moorage.placement.client import Provider as PlacementProvider
from moorage.reservation.client import ReservationClient

SHARING_TRAIT, DEVICE_TRAIT = "MISC_SHARES_VIA_AGGREGATE", "OWNER_CYBORG"

#: How often a provider is read again that changed between two of its readings.
ATTEMPTS = 5

#: Called with what is being read, how much of it is done and how much there is.
Progress = Callable[[str, int, int], object]


@dataclass(frozen=True)
class Services:
    """Those that are None are not there, and nothing is said about what only they could know."""

    placement: PlacementClient
    compute: ComputeClient | None = None
    accelerators: AcceleratorClient | None = None
    reservations: ReservationClient | None = None


def read(services: Services, clock: Clock, progress: Progress) -> Picture:
    """Raises `Unavailable` or `RemoteError` where a service that is there cannot be read: half a picture is none."""
    providers = _providers(services.placement, progress)
    may_be_incomplete = services.placement.consumers_of(INCOMPLETE) > 0
    picture = Picture(
        now=clock.now(),
        providers=providers,
        consumers={},
        compute=None if services.compute is None else _compute(services.compute),
        accelerators=None if services.accelerators is None else _accelerators(services.accelerators),
        reservations=None if services.reservations is None else _reservations(services.reservations),
    )
    wanted = findings.suspects(picture)
    if may_be_incomplete:
        wanted = frozenset(consumer for provider in providers.values() for consumer in provider.held)
    consumers: dict[str, Consumer] = {}
    for done, uuid in enumerate(sorted(wanted), 1):
        holder = services.placement.holder(uuid)
        if holder is not None:
            consumers[uuid] = consumer_of(holder)
        progress("consumers", done, len(wanted))
    return replace(picture, consumers=consumers, compute=_with_owners(picture.compute, services.compute, consumers))


def consumer_of(holder: Holder) -> Consumer:
    return Consumer(
        holder.uuid,
        holder.generation,
        holder.project_id,
        holder.user_id,
        holder.type,
        holder.allocations,
        holder.written_at,
    )


# --- placement --------------------------------------------------------------------------------------------------


def _providers(placement: PlacementClient, progress: Progress) -> dict[str, Provider]:
    listed = placement.providers()
    sharing = {one.uuid for one in placement.providers([("required", SHARING_TRAIT)])}
    devices = {one.uuid for one in placement.providers([("required", DEVICE_TRAIT)])}
    found: dict[str, Provider] = {}
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


def _may_share(provider: PlacementProvider, sharing: set[str]) -> bool:
    return provider.parent_uuid is None or provider.uuid in sharing


def _aggregates(placement: PlacementClient, provider: PlacementProvider) -> frozenset[str]:
    return placement.aggregates(provider.uuid)[1]


def _provider(placement: PlacementClient, provider: PlacementProvider) -> Provider | None:
    """Inventories and allocations of one generation; None where it was deleted meanwhile."""
    for _ in range(ATTEMPTS):
        try:
            generation, held = placement.holders(provider.uuid)
            its_generation, inventories = placement.inventories(provider.uuid)
        except NotFound:
            return None
        if generation == its_generation:
            return Provider(provider.uuid, provider.name, provider.parent_uuid, provider.root_uuid, inventories, held)
    raise ConcurrentUpdate(
        f"provider {provider.name} ({provider.uuid}) changed {ATTEMPTS} times while it was read; audit again when less "
        "is written there"
    )


# --- the others -------------------------------------------------------------------------------------------------


def _compute(compute: ComputeClient) -> Compute:
    # A migration that ends gives its allocations back to the server: asked for first, it is in one of the two.
    migrations = compute.migration_ids()
    return Compute(frozenset(compute.server_ids()), frozenset(migrations), frozenset(compute.hypervisor_ids()))


def _with_owners(
    known: Compute | None, compute: ComputeClient | None, consumers: dict[str, Consumer]
) -> Compute | None:
    """Asked one by one: a list leaves out some that are there, such as servers that are deleted softly."""
    if known is None or compute is None:
        return known
    owners = {}
    for uuid, consumer in consumers.items():
        is_suspect = uuid not in known.servers and uuid not in known.migrations
        if (is_suspect or consumer.is_incomplete) and (owner := compute.server_owner(uuid)) is not None:
            owners[uuid] = Owner(*owner)
    return replace(known, servers=known.servers | owners.keys(), owners=owners)


def _accelerators(accelerators: AcceleratorClient) -> Accelerators:
    return Accelerators(
        deployables=frozenset(one.rp_uuid for one in accelerators.deployables() if one.rp_uuid),
        instances=frozenset(one.instance_uuid for one in accelerators.requests() if one.instance_uuid),
    )


def _reservations(reservations: ReservationClient) -> Reservations:
    leases = reservations.leases()
    return Reservations(
        leases=frozenset(lease.id for lease in leases),
        reservations=frozenset(one.id for lease in leases for one in lease.reservations if one.status != "deleted"),
        hosts=frozenset(host.hypervisor_hostname for host in reservations.hosts()),
    )
