"""Which hosts a lease's reservations get: how many fit where, and which of those to take.

    ask (size, amount, affinity) -> slots per host over the period -> {host: slots taken}

All reservations of one lease are planned together, each on what the ones before it leave (the peer plans each as if
it were alone and so gives the same capacity twice). Hosts that a reservation holds already are kept where possible;
beyond that the fullest hosts are taken first, so that large free hosts stay free for large requests.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from moorage.core.errors import Invalid
from moorage.reservation.calendar import Calendar, Usage

Picked = Mapping[int, int]  #: {host id: slots}, only positive numbers


@dataclass(frozen=True, slots=True)
class Ask:
    """What one reservation wants. `held` is what it has now; its usage must not be in the calendar any more."""

    reservation_id: str
    resources: Mapping[str, int]  #: what one slot takes
    amount: int
    affinity: bool | None
    eligible: frozenset[int] | None = None  #: hosts that its properties admit; None = all
    held: Picked = field(default_factory=dict)
    keep_held: bool = False  #: servers may run there: nothing held may be given up

    def __post_init__(self) -> None:
        # The peer loops for ever on such a request (D6): infinitely many instances of nothing fit anywhere.
        if not any(amount > 0 for amount in self.resources.values()):
            raise Invalid("a reservation must ask for some amount of at least one resource; all are 0")


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why there is no plan. A result, not an error: the service decides what to do about it."""

    reservation_id: str
    free: int  #: slots that could be had under the affinity asked for
    reason: str


Plan = Mapping[str, Picked]  #: {reservation id: hosts}


def plan(calendar: Calendar, asks: Sequence[Ask], start: datetime, end: datetime) -> Plan | Shortage:
    """Hosts for all of `asks` over ``[start, end)``, or the first that cannot be had.

    The least movable goes first: affinity needs one large gap, anti-affinity many hosts, the rest fits around them.
    That order is a heuristic; a plan that exists may be missed, one that is given always holds.
    """
    chosen: dict[str, Picked] = {}
    for ask in sorted(asks, key=_movability):
        slots = query_available_hosts(calendar, ask, start, end)
        picked = pickup_hosts(slots, ask)
        if picked is None:
            return _shortage(ask, slots)
        chosen[ask.reservation_id] = picked
        calendar = calendar.with_usage(usages(ask.resources, picked, start, end))
    return chosen


def holds(calendar: Calendar, asks: Sequence[Ask], planned: Plan, start: datetime, end: datetime) -> bool:
    """Does a plan that was made on another calendar fit into this one?"""
    for ask in asks:
        picked = planned[ask.reservation_id]
        slots = dict(zip(calendar.hosts, calendar.slots(ask.resources, start, end).tolist(), strict=True))
        if any(slots.get(host, 0) < count for host, count in picked.items()):
            return False
        calendar = calendar.with_usage(usages(ask.resources, picked, start, end))
    return True


def query_available_hosts(calendar: Calendar, ask: Ask, start: datetime, end: datetime) -> dict[int, int]:
    """{host: how many instances of the ask's size fit there over the whole period}; hosts with none are left out."""
    counts = calendar.slots(ask.resources, start, end).tolist()
    return {
        host: count
        for host, count in zip(calendar.hosts, counts, strict=True)
        if count > 0 and (ask.eligible is None or host in ask.eligible)
    }


def pickup_hosts(slots: Mapping[int, int], ask: Ask) -> Picked | None:
    """`ask.amount` slots out of `slots` under the ask's affinity; None when there are not enough."""
    # First what is held, then the fullest; the id makes the choice repeatable.
    order = sorted(slots, key=lambda host: (-ask.held.get(host, 0), slots[host], host))
    picked: Picked | None
    if ask.affinity is None:
        picked = _spread(slots, order, ask)
    elif ask.affinity:
        picked = next(({host: ask.amount} for host in order if slots[host] >= ask.amount), None)
    else:
        picked = dict.fromkeys(order[: ask.amount], 1) if len(order) >= ask.amount else None
    if picked is not None and ask.keep_held and any(picked.get(host, 0) < n for host, n in ask.held.items()):
        return None
    return picked


def difference(before: Picked, after: Picked) -> tuple[dict[int, int], dict[int, int]]:
    """(added, removed): the slots per host that lead from `before` to `after`."""
    hosts = before.keys() | after.keys()
    change = {host: after.get(host, 0) - before.get(host, 0) for host in sorted(hosts)}
    return (
        {host: count for host, count in change.items() if count > 0},
        {host: -count for host, count in change.items() if count < 0},
    )


def usages(resources: Mapping[str, int], picked: Picked, start: datetime, end: datetime) -> Iterable[Usage]:
    """What `picked` takes from each host."""
    return [
        Usage(host, start, end, {name: amount * count for name, amount in resources.items()})
        for host, count in picked.items()
    ]


def _spread(slots: Mapping[int, int], order: Sequence[int], ask: Ask) -> Picked | None:
    """Any spread: keep what is held as it is, then fill host after host."""
    missing = ask.amount
    picked: dict[int, int] = {}
    limits = [{host: min(slots[host], ask.held.get(host, 0)) for host in order}, slots]
    for limit in limits:
        for host in order:
            taken = min(missing, limit[host] - picked.get(host, 0))
            if taken > 0:
                picked[host] = picked.get(host, 0) + taken
                missing -= taken
    return None if missing else picked


def _movability(ask: Ask) -> tuple[bool, int, int, str]:
    rank = {True: 0, False: 1, None: 2}[ask.affinity]
    return (not ask.keep_held, rank, -ask.amount * max(ask.resources.values()), ask.reservation_id)


def _shortage(ask: Ask, slots: Mapping[int, int]) -> Shortage:
    size = ", ".join(f"{amount} {name}" for name, amount in ask.resources.items() if amount)
    asked = f"{ask.amount} instance{'s' if ask.amount != 1 else ''} of {size}"
    if ask.affinity is None:
        free = sum(slots.values())
        where = f"then; {free} fit, on {len(slots)} host{'s' if len(slots) != 1 else ''}"
    elif ask.affinity:
        free = max(slots.values(), default=0)
        where = f"on one host (affinity); the most that fit on one host then are {free}"
    else:
        free = len(slots)
        where = f"on as many hosts (anti-affinity); {free} {'host has' if free == 1 else 'hosts have'} room then"
    kept = "; the hosts that it holds now cannot be kept for that" if ask.keep_held and free >= ask.amount else ""
    return Shortage(ask.reservation_id, free, f"{asked} cannot be had {where}{kept}")
