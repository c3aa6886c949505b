"""Chooses the slots that active reservations give up when their amounts shrink: those that no server uses.

`SlotUsers` finds the slots that servers use: they are not released, nor moved while their host is up.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from moorage.compute.client.compute_client import ComputeClient
from moorage.core.errors import Conflict
from moorage.core.names import reservation_provider
from moorage.db.session import read
from moorage.placement.client.placement_client import PlacementClient
from moorage.reservation.booking.capacity_requests import held_of
from moorage.reservation.booking.previews import SlotRelease
from moorage.reservation.capacity.lease_update import UpdateDecision
from moorage.reservation.capacity.resource_types.virtual_instance import KEEPS_SLOTS
from moorage.reservation.deps import ReservationDeps
from moorage.reservation.model.leases import Allocation, Lease, LeaseStatus, Reservation
from moorage.reservation.model.reservation_requests import AnyRequest, FlavorRequest, InstanceRequest
from moorage.reservation.model.slot_demand import WHOLE_HOST
from moorage.reservation.model.steps import ReleaseSlots
from moorage.reservation.store import host_store


@dataclass(frozen=True)
class SlotUsers:
    placement: PlacementClient
    compute: ComputeClient

    def used(
        self,
        reservation: Reservation,
        host: str,
        rows: Sequence[Allocation],
        lost: Sequence[Allocation],
        providers: Mapping[str, str],
    ) -> frozenset[str]:
        """Ids of the slots in `lost` that servers use, so that they must stay.

        `rows`: all slots of the reservation on this host, by its hypervisor hostname; `lost`: some of them.
        `providers`: {label: name of its provider} of the host.
        """
        lost = sorted(lost, key=lambda row: row.id)
        if any(WHOLE_HOST in row.resources for row in lost):
            found = self.compute.hypervisor(host)
            return frozenset(row.id for row in lost) if found is not None and found.running_servers else frozenset()
        servers = self._servers(reservation, host)
        kept = self._with_their_devices(host, lost, providers, servers)
        free = [row.id for row in lost if row.id not in kept]
        # A server's slot is any of the reservation's on its host: only the slots beyond the servers are free.
        movable = max(0, len(rows) - max(len(servers), len(kept)))
        return frozenset(kept) | frozenset(free[movable:])

    def _servers(self, reservation: Reservation, host: str) -> frozenset[str]:
        """The servers of the reservation on this host."""
        if not reservation.has_inventory:
            return frozenset(server.id for server in self.compute.servers_of_flavor(reservation.id))
        provider = self.placement.provider_by_name(reservation_provider(host))
        if provider is None:
            return frozenset()
        held = self.placement.provider_allocations(provider.uuid)
        return frozenset(server for server, units in held.items() if units.get(reservation.resource_class))

    def _with_their_devices(
        self, host: str, lost: Sequence[Allocation], providers: Mapping[str, str], servers: frozenset[str]
    ) -> list[str]:
        """Ids of as many slots of each nested provider as servers of the reservation hold it."""
        kept: list[str] = []
        left: dict[str, int] = {}
        for row in lost if servers else ():
            mine = {providers[place] for place in row.resources if providers.get(place, host) != host}
            for name in mine - left.keys():
                provider = self.placement.provider_by_name(name)
                held = {} if provider is None else self.placement.provider_allocations(provider.uuid)
                left[name] = len(held.keys() & servers)
            if any(left[name] > 0 for name in mine):
                kept.append(row.id)
                for name in mine:
                    left[name] -= 1
        return kept


@dataclass(frozen=True)
class SlotReleases:
    deps: ReservationDeps

    def of(self, lease: Lease, decision: UpdateDecision) -> list[SlotRelease]:
        """The slots that this update gives up. Raises `Conflict` if servers use too many."""
        if lease.status is not LeaseStatus.ACTIVE:
            return []
        surplus = {each.id: _surplus(each, decision) for each in lease.reservations}
        found = [self._choose(each, surplus[each.id]) for each in lease.reservations if surplus[each.id] > 0]
        if found and decision.grows:
            raise Conflict("reduce the amount and prolong the lease in two requests")
        return found

    def _choose(self, reservation: Reservation, surplus: int) -> SlotRelease:
        with read(self.deps.engine) as connection:
            rows = host_store.allocations_of(connection, [reservation.id])
            hosts = {row.host_id for row in rows}
            names = {host: name for host, (name, _) in host_store.host_names(connection, hosts).items()}
            providers = {each.host: each.providers for each in host_store.capacities_of(connection, hosts)}
        on_host: dict[int, list[Allocation]] = defaultdict(list)
        for row in sorted(rows, key=lambda row: row.id):
            on_host[row.host_id].append(row)
        gone: dict[int, list[Allocation]] = {}
        # Hosts with few slots first, so that some become free altogether.
        for host in sorted(on_host, key=lambda host: (len(on_host[host]), host)):
            missing = surplus - sum(map(len, gone.values()))
            if missing == 0:
                break
            unused = self._unused(reservation, names[host], on_host[host], providers.get(host, {}))
            if unused:
                gone[host] = unused[:missing]
        if (missing := surplus - sum(map(len, gone.values()))) > 0:
            used = len(rows) - surplus + missing
            raise Conflict(f"{KEEPS_SLOTS} Servers use {used} of its slots: delete some, or ask for {used} or more.")
        steps = [
            ReleaseSlots(reservation.id, names[host], len(on_host[host]) - len(some), [row.id for row in some])
            for host, some in sorted(gone.items())
        ]
        released = {row.id for some in gone.values() for row in some}
        left = held_of(row for row in rows if row.id not in released).get(reservation.id, {})
        return SlotRelease(reservation, held_of(rows).get(reservation.id, {}), left, steps)

    def _unused(
        self, reservation: Reservation, host: str, rows: Sequence[Allocation], providers: Mapping[str, str]
    ) -> list[Allocation]:
        used = SlotUsers(self.deps.placement, self.deps.compute).used(reservation, host, rows, rows, providers)
        return [row for row in rows if row.id not in used]


def _surplus(reservation: Reservation, decision: UpdateDecision) -> int:
    """The number of slots by which servers' reservations shrink. Whole hosts and addresses are never given up."""
    old, new = reservation.request, decision.requests.get(reservation.id, reservation.request)
    kinds = (InstanceRequest, FlavorRequest, AnyRequest)
    return old.amount - new.amount if isinstance(old, kinds) and isinstance(new, kinds) else 0
