"""Finds the slots of a host that its present capacity no longer covers. Pure.

If the capacity covers only some slots, the slots of started leases keep theirs first, then the slots of leases that
were created earlier. So a pending lease loses its slots before a running one; among equals, the lease that was created
last. A slot competes only with slots that overlap it in time.

A slot is also lost if it is larger than its provider allows (``max_unit``), or if its provider no longer has the traits
that the reservation requires.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from moorage.reservation.capacity.calendar import HostCapacity
from moorage.reservation.capacity.packing import pack
from moorage.reservation.model.slot_demand import WHOLE_HOST, Amounts, SlotDemand, class_of


@dataclass(frozen=True, slots=True)
class HeldSlot:
    """A slot with the values of its rank. `created_at`: of its lease."""

    id: str
    host: int
    reservation_id: str
    lease_id: str
    start: datetime
    end: datetime
    amounts: Amounts
    is_active: bool
    created_at: datetime

    @property
    def rank(self) -> tuple[bool, datetime, str, str, str]:
        return (not self.is_active, self.created_at, self.lease_id, self.reservation_id, self.id)


def lost_slots(
    capacity: HostCapacity | None, slots: Iterable[HeldSlot], demands: Mapping[str, SlotDemand | None]
) -> dict[str, str]:
    """{id of a lost slot: reason} of one host.

    `capacity`: None if Placement has no inventory of the host. `demands`: {reservation id: the demand of its slots, as
    `SlotDemand.known` completes it; None if the host no longer has the root's traits}, for demands that have traits,
    groups or `entire` classes.
    """
    if capacity is None:
        return {slot.id: "Placement has no inventory of the host" for slot in slots}
    lost: dict[str, str] = {}
    kept: list[HeldSlot] = []
    for slot in sorted(slots, key=lambda slot: slot.rank):
        reason = _unfit(capacity, slot, demands) or _uncovered(capacity, slot, kept)
        if reason is None:
            kept.append(slot)
        else:
            lost[slot.id] = reason
    return lost


def _unfit(capacity: HostCapacity, slot: HeldSlot, demands: Mapping[str, SlotDemand | None]) -> str | None:
    """The reason why the slot would not fit even alone."""
    if WHOLE_HOST in slot.amounts:
        return None
    for place, amount in slot.amounts.items():
        if amount > capacity.largest.get(place, amount):
            limit = capacity.largest[place]
            return f"{_named(capacity, place)} allows at most {limit} units per consumer, and the slot has {amount}"
    return _mismatch(capacity, slot, demands[slot.reservation_id]) if slot.reservation_id in demands else None


def _mismatch(capacity: HostCapacity, slot: HeldSlot, demand: SlotDemand | None) -> str | None:
    """The reason why the providers of the slot no longer match the demand."""
    if demand is None:
        return "the host no longer has the traits that the reservation requires"
    for place in slot.amounts:
        if class_of(place) in demand.entire and capacity.capacity.get(place, 0) > slot.amounts[place]:
            return f"{_named(capacity, place)} has grown, and the slot must have the whole inventory"
    is_there = slot.amounts.keys() <= capacity.capacity.keys()
    if is_there and not pack(capacity.shelves(), slot.amounts, capacity.largest, demand, 1):
        return "the providers of the slot no longer have the traits or the tree that the reservation requires"
    return None


def _uncovered(capacity: HostCapacity, slot: HeldSlot, kept: Sequence[HeldSlot]) -> str | None:
    for place, amount in slot.amounts.items():
        limit = 1 if place == WHOLE_HOST else capacity.capacity.get(place, 0)
        if _peak(slot, place, kept) + amount > limit:
            return f"{_named(capacity, place)} has only {limit} units left"
    return None


def _peak(slot: HeldSlot, place: str, kept: Sequence[HeldSlot]) -> int:
    """The highest amount of `place` that the kept slots use during the period of `slot`."""
    beside = [each for each in kept if place in each.amounts and each.start < slot.end and each.end > slot.start]
    if not beside:
        return 0
    # Usage can only rise where a slot starts.
    moments = {max(each.start, slot.start) for each in beside}
    return max(sum(each.amounts[place] for each in beside if each.start <= moment < each.end) for moment in moments)


def _named(capacity: HostCapacity, place: str) -> str:
    provider = capacity.providers.get(place)
    return class_of(place) if provider is None else f"{class_of(place)} of {provider}"
