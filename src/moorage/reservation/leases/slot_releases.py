"""Chooses the slots that active reservations give up when their amounts shrink: those that no server uses."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from moorage.core.errors import Conflict
from moorage.db.session import read
from moorage.reservation.booking.capacity_requests import held_of
from moorage.reservation.booking.previews import SlotRelease
from moorage.reservation.booking.slot_users import SlotUsers
from moorage.reservation.capacity.lease_update import UpdateDecision
from moorage.reservation.capacity.resource_types.virtual_instance import KEEPS_SLOTS
from moorage.reservation.deps import ReservationDeps
from moorage.reservation.model.leases import Allocation, Lease, LeaseStatus, Reservation
from moorage.reservation.model.reservation_requests import AnyRequest, FlavorRequest, InstanceRequest
from moorage.reservation.model.steps import ReleaseSlots
from moorage.reservation.store import host_store


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
