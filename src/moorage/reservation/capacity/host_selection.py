"""Selects hosts for the reservations of a lease: how many slots fit on each host, and which hosts to take.

    capacity request (demand, amount, affinity) -> free slots per host -> {host: slots taken} -> amounts of each slot

The reservations of a lease are planned one after another, each on the capacity that the earlier ones leave. (Blazar
plans each as if it were alone, and so gives the same capacity twice.) A reservation keeps its present hosts where
possible. Beyond these, the fullest hosts are taken first, so that large free hosts stay free for large requests.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import permutations
from typing import TypeAlias

import numpy as np

from moorage.reservation.capacity.calendar import Calendar, HostUsage
from moorage.reservation.capacity.usage_profiles import Ints
from moorage.reservation.model.slot_demand import Amounts, SlotDemand

#: A lease with at most this number of reservations is planned in all their orders.
MAX_PERMUTED = 4

Picked: TypeAlias = Mapping[int, int]  #: {host id: slots}, only positive numbers
Placing: TypeAlias = Mapping[int, Sequence[Amounts]]  #: {host id: amounts of each slot there}, none empty


@dataclass(frozen=True, slots=True)
class CapacityRequest:
    """The capacity that one reservation needs. `held`: its present slots; the calendar must not include them."""

    reservation_id: str
    demand: SlotDemand  #: of one slot
    amount: int
    affinity: bool | None = None
    eligible: frozenset[int] | None = None  #: ids of hosts that match its property queries; None = all
    held: Placing = field(default_factory=dict)
    keep_held: bool = False  #: no held slot may be given up, because servers may run there
    most: int | None = None  #: take up to this many, once every reservation of the lease has its minimum

    def held_on(self, host: int) -> int:
        return len(self.held.get(host, ()))


@dataclass(frozen=True, slots=True)
class Shortage:
    """The reason why there is no plan. A result, not an error: the service decides how to react."""

    reservation_id: str
    free: int  #: slots available under the requested affinity
    reason: str


Plan: TypeAlias = Mapping[str, Placing]  #: {reservation id: where}


def plan(calendar: Calendar, asks: Sequence[CapacityRequest], start: datetime, end: datetime) -> Plan | Shortage:
    """Hosts for all of `asks` over ``[start, end)``, or the `Shortage` of the first request that does not fit.

    The least movable request is placed first: whole hosts must be empty, affinity needs one large gap, anti-affinity
    needs many hosts, and the rest fits around these. If this order fails and there are at most `MAX_PERMUTED`
    requests, all other orders are tried. This is a heuristic: it may miss a plan that exists, but a returned plan
    always fits.
    """
    first: Shortage | None = None
    best = sorted(asks, key=_movability)
    for order in permutations(best) if len(best) <= MAX_PERMUTED else [best]:
        planned = _in_order(calendar, order, start, end)
        if not isinstance(planned, Shortage):
            return planned
        first = first or planned
        if planned.reservation_id == order[0].reservation_id:
            return planned  # it does not fit even alone
    return first or {}


def _in_order(calendar: Calendar, asks: Sequence[CapacityRequest], start: datetime, end: datetime) -> Plan | Shortage:
    chosen: dict[str, Placing] = {}
    for position, ask in enumerate(asks):
        slots = query_available_hosts(calendar, ask, start, end)
        rest = asks[position + 1 :] if ask.demand.whole_host else ()
        for_others = sum((query_available_hosts(calendar, other, start, end) for other in rest), np.zeros_like(slots))
        picked = pickup_hosts(calendar.hosts, slots, ask, for_others)
        if picked is None:
            return _shortage(ask, slots)
        chosen[ask.reservation_id] = placed(calendar, ask, picked, start, end)
        calendar = calendar.with_usage(usages(chosen[ask.reservation_id], start, end))
    for ask in asks:
        if ask.most is not None and ask.most > ask.amount:
            more = _more(calendar, ask, chosen[ask.reservation_id], start, end)
            chosen[ask.reservation_id] = {**chosen[ask.reservation_id], **more}
            calendar = calendar.with_usage(usages(more, start, end))
    return chosen


def placed(calendar: Calendar, ask: CapacityRequest, picked: Picked, start: datetime, end: datetime) -> Placing:
    return {
        host: calendar.place(host, ask.demand, count, start, end, ask.held.get(host, ()))
        for host, count in picked.items()
    }


def still_fits(calendar: Calendar, planned: Plan, start: datetime, end: datetime) -> bool:
    """True if a plan that was made on another calendar fits on this one."""
    for placing in planned.values():
        if not calendar.has_capacity_for(placing, start, end):
            return False
        calendar = calendar.with_usage(usages(placing, start, end))
    return True


def query_available_hosts(calendar: Calendar, ask: CapacityRequest, start: datetime, end: datetime) -> Ints:
    """The number of slots of `ask` that fit for the whole period, for each of the calendar's hosts.

    Uses arrays instead of loops, because there may be tens of thousands of hosts.
    """
    counts = calendar.slots(ask.demand, start, end)
    if ask.eligible is not None:
        counts[~np.isin(calendar.hosts, list(ask.eligible))] = 0
    return counts


def pickup_hosts(
    hosts: Sequence[int], slots: Ints, ask: CapacityRequest, for_others: Ints | None = None
) -> Picked | None:
    """Picks `ask.amount` slots under the requested affinity; None if there are not enough.

    `hosts`: host ids, ascending; `slots`: the free slots of each. `for_others`: the slots that later requests of the
    lease could use on each host; hosts with few of these are preferred.
    """
    order = _preferred(hosts, slots, ask, for_others)
    picked: Picked | None = None
    if ask.affinity is None:
        # At least one slot fits on each host, so hosts beyond these cannot be needed.
        near = order[: ask.amount + len(ask.held)]
        picked = _spread({hosts[row]: int(slots[row]) for row in near.tolist()}, ask)
    elif ask.affinity:
        large = order[slots[order] >= ask.amount]
        picked = {hosts[large[0]]: ask.amount} if len(large) else None
    elif len(order) >= ask.amount:
        picked = {hosts[row]: 1 for row in order[: ask.amount].tolist()}
    if picked is not None and ask.keep_held and any(picked.get(host, 0) < len(n) for host, n in ask.held.items()):
        return None
    return picked


def difference(before: Iterable[tuple[int, Amounts]], after: Placing) -> tuple[list[int], list[tuple[int, Amounts]]]:
    """The changes from `before` to `after`: (positions in `before` of surplus slots, missing slots).

    A slot is (host id, {label: amount}). Equal slots are interchangeable.
    """
    missing = Counter((host, _key(amounts)) for host, slots in after.items() for amounts in slots)
    surplus = []
    for position, (host, amounts) in enumerate(before):
        if missing[host, _key(amounts)] > 0:
            missing[host, _key(amounts)] -= 1
        else:
            surplus.append(position)
    return surplus, [(host, dict(key)) for host, key in missing.elements()]


def usages(placing: Placing, start: datetime, end: datetime) -> list[HostUsage]:
    """The total usage of `placing` on each host, over ``[start, end)``."""
    return [HostUsage(host, start, end, _sum(slots)) for host, slots in placing.items()]


def _sum(slots: Iterable[Amounts]) -> Amounts:
    total: Counter[str] = Counter()
    for amounts in slots:
        total.update(amounts)
    return total


def _key(amounts: Amounts) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(amounts.items()))


def _more(calendar: Calendar, ask: CapacityRequest, has: Placing, start: datetime, end: datetime) -> Placing:
    """Slots beyond `ask.amount`, up to `ask.most`, on hosts where the reservation has none yet."""
    slots = query_available_hosts(calendar, ask, start, end)
    slots[np.isin(calendar.hosts, list(has))] = 0
    wanted = min((ask.most or 0) - ask.amount, int(slots.sum()))
    more = replace(ask, amount=wanted, keep_held=False)
    picked = pickup_hosts(calendar.hosts, slots, more) if wanted > 0 else None
    return placed(calendar, ask, picked or {}, start, end)


def _preferred(hosts: Sequence[int], slots: Ints, ask: CapacityRequest, for_others: Ints | None) -> Ints:
    """Indices of `hosts` with free slots, best first: most held slots, least use for others, fewest free slots, lowest
    id.

    The order by id makes the choice repeatable.
    """
    usable = np.flatnonzero(slots > 0)
    keys = [slots[usable]]  # `lexsort` sorts by the last key first
    if for_others is not None:
        keys.append(for_others[usable])
    if ask.held:
        held = np.zeros(len(hosts), np.int64)
        for host in ask.held:
            row = bisect_left(hosts, host)
            if row < len(hosts) and hosts[row] == host:
                held[row] = ask.held_on(host)
        keys.append(-held[usable])
    return usable[np.lexsort(keys)]


def _spread(slots: Mapping[int, int], ask: CapacityRequest) -> Picked | None:
    """Distributes `ask.amount` over the hosts of `slots` in order: held slots first, then one host after another.

    None if there are not enough slots.
    """
    missing = ask.amount
    picked: dict[int, int] = {}
    limits = [{host: min(free, ask.held_on(host)) for host, free in slots.items()}, slots]
    for limit in limits:
        for host in slots:
            taken = min(missing, limit[host] - picked.get(host, 0))
            if taken > 0:
                picked[host] = picked.get(host, 0) + taken
                missing -= taken
    return None if missing else picked


def _movability(ask: CapacityRequest) -> tuple[bool, bool, int, int, str]:
    rank = {True: 0, False: 1, None: 2}[ask.affinity]
    size = ask.amount * max(ask.demand.totals.values(), default=1)
    return (not ask.keep_held, not ask.demand.whole_host, rank, -size, ask.reservation_id)


def _shortage(ask: CapacityRequest, slots: Ints) -> Shortage:
    hosts = int(np.count_nonzero(slots))
    asked = f"{ask.amount} instance{'s' if ask.amount != 1 else ''} of {ask.demand}"
    if ask.demand.whole_host:
        asked = "1 whole host" if ask.amount == 1 else f"{ask.amount} whole hosts"
    if ask.affinity is None:
        free = int(slots.sum())
        where = f"in that period; {free} fit, on {hosts} host{'s' if hosts != 1 else ''}"
        if ask.demand.whole_host:
            where = f"in that period; {free} {'is' if free == 1 else 'are'} free throughout"
    elif ask.affinity:
        free = int(slots.max(initial=0))
        where = f"on one host (affinity); at most {free} fit on one host in that period"
    else:
        free = hosts
        where = (
            f"on different hosts (anti-affinity); {free} {'host has' if free == 1 else 'hosts have'} "
            "free capacity in that period"
        )
    if not slots.size:
        where = (
            "because no host takes leases: none is registered, or those that are registered are down or set to take "
            "none; `openstack reservation host list` shows them, and an administrator registers one with `openstack "
            "reservation host create NAME`"
        )
    kept = "; the present hosts of the reservation cannot be kept" if ask.keep_held and free >= ask.amount else ""
    return Shortage(ask.reservation_id, free, f"{asked} cannot be reserved {where}{kept}")
