"""Finds the slots of active reservations that servers use: they are not released, nor moved while their host is up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from moorage.compute.client.compute_client import ComputeClient
from moorage.core.names import reservation_provider
from moorage.placement.client.placement_client import PlacementClient
from moorage.reservation.model.leases import Allocation, Reservation
from moorage.reservation.model.slot_demand import WHOLE_HOST


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
