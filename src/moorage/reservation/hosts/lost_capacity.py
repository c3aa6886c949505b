"""Finds the slots that have no capacity any more: those on hosts that are down, and those that Placement's inventories
and traits no longer cover. Decides with `capacity.lost_slots`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from sqlalchemy import Engine

from moorage.db.session import read
from moorage.reservation.booking.external_lookups import ExternalLookups
from moorage.reservation.capacity.lost_slots import HeldSlot, lost_slots
from moorage.reservation.capacity.resource_types.registry import type_named
from moorage.reservation.model.leases import Allocation
from moorage.reservation.model.reservation_requests import FLAVOR_INSTANCE, RESOURCE_ANY
from moorage.reservation.model.slot_demand import SlotDemand
from moorage.reservation.store import capacity_store, host_store, lease_store

#: Types whose demands may have traits and groups.
_WITH_TRAITS = (FLAVOR_INSTANCE, RESOURCE_ANY)


@dataclass(frozen=True, slots=True)
class LostCapacity:
    """`down`: {host id: hypervisor hostname} of hosts that are down. `slots`: {slot id: (its lease, the reason)} of
    slots on other hosts that are not covered.
    """

    down: Mapping[int, str]
    slots: Mapping[str, tuple[str, str]]

    def concerns(self, row: Allocation) -> bool:
        return row.host_id in self.down or row.id in self.slots

    def reason(self, row: Allocation) -> str:
        if row.host_id in self.down:
            return f"host {self.down[row.host_id]} is down"
        return self.slots[row.id][1]

    @property
    def leases(self) -> frozenset[str]:
        return frozenset(lease_id for lease_id, _ in self.slots.values())


@dataclass(frozen=True)
class CapacityCheck:
    engine: Engine
    lookups: ExternalLookups

    def uncovered(self, host_ids: Collection[int] | None, now: datetime) -> dict[str, tuple[str, str]]:
        """{slot id: (its lease, the reason)} of the slots on these hosts (None: all) that capacity does not cover."""
        with read(self.engine) as connection:
            names = capacity_store.ready_hosts(connection)
            slots = capacity_store.held_slots(connection, now, host_ids)
            capacities = {each.host: each for each in host_store.capacities_of(connection, list(slots))}
        demands = self._demands([slot for each in slots.values() for slot in each])
        found: dict[str, tuple[str, str]] = {}
        for host, held in slots.items():
            mine = {key: demand if _is_on(names.get(host), roots) else None for key, (demand, roots) in demands.items()}
            reasons = lost_slots(capacities.get(host), held, mine)
            leases = {slot.id: slot.lease_id for slot in held}
            found |= {key: (leases[key], f"host {names.get(host)}: {text}") for key, text in reasons.items()}
        return found

    def _demands(self, slots: Sequence[HeldSlot]) -> dict[str, tuple[SlotDemand, frozenset[str] | None]]:
        """{reservation id: (its demand, names of hosts that match its root traits)}; without simple demands."""
        with read(self.engine) as connection:
            leases = sorted({slot.lease_id for slot in slots})
            reservations = lease_store.reservations_of_types(connection, leases, _WITH_TRAITS)
        having = cache(self.lookups.providers_with)
        found = {}
        for each in reservations:
            wanted = type_named(each.resource_type).wanted(each.request)
            if wanted is not None and not _is_simple(wanted.demand):
                found[each.id] = self.lookups.resolve_demand(wanted.demand, having)
        return found


def _is_simple(demand: SlotDemand) -> bool:
    return demand.is_simple and not (demand.root_required or demand.root_forbidden or demand.entire)


def _is_on(hostname: str | None, roots: frozenset[str] | None) -> bool:
    return roots is None or hostname in roots
