"""Packs slots into one host whose resources are on several providers: the number that fits, and the amounts of each.

    shelves: providers with free amounts      demand: groups, each on one provider, and classes on any provider

Each slot goes to the shelf with the least free, so that large gaps remain; its groups are placed by backtracking. The
result always fits. If different groups compete for the same shelves, packing may find fewer slots than would fit: it
may underestimate a host, but never overestimates it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from moorage.reservation.model.slot_demand import Amounts, DemandGroup, SlotDemand

#: Maximum number of choices tried for one slot. Beyond it, the slot counts as one that does not fit.
MAX_CHOICES = 2000


@dataclass(frozen=True, slots=True)
class Shelf:
    """One provider of a host. `labels`: {resource class: its label on this provider}; `above`: names of ancestors."""

    name: str
    labels: Mapping[str, str]
    above: frozenset[str] = field(default=frozenset())


def pack(
    shelves: Sequence[Shelf],
    free: Amounts,
    largest: Amounts,
    demand: SlotDemand,
    most: int,
    kept: Sequence[Amounts] = (),
) -> list[Amounts]:
    """The amounts, {label: amount}, of each slot that fits, at most `most` slots.

    `free`: {label: free amount}; `largest`: {label: maximum amount of one slot}. Slots of `kept` come first, if they
    fit and match the demand.
    """
    left = dict(free)
    found: list[Amounts] = []
    for slot in kept[:most]:
        if _by_class(slot) == demand.totals and all(left.get(name, 0) >= amount for name, amount in slot.items()):
            _take(left, slot)
            found.append(slot)
    while len(found) < most:
        new = _Slot(shelves, left, largest, demand).found()
        if new is None:
            break
        _take(left, new)
        found.append(new)
    return found


class _Slot:
    """The search for one slot."""

    def __init__(self, shelves: Sequence[Shelf], left: Amounts, largest: Amounts, demand: SlotDemand) -> None:
        self._left, self._largest, self._demand = left, largest, demand
        self._shelves = sorted(shelves, key=lambda shelf: sum(left.get(name, 0) for name in shelf.labels.values()))
        self._groups = list(demand.groups.items())
        self._choices = MAX_CHOICES

    def found(self) -> Amounts | None:
        return next(self._place(0, {}, {}), None)

    def _place(self, index: int, chosen: dict[str, Shelf], taken: dict[str, int]) -> Iterator[Amounts]:
        if index == len(self._groups):
            if self._is_near(chosen):
                yield from self._anywhere(list(self._demand.wanted.items()), frozenset(), taken)
            return
        suffix, group = self._groups[index]
        for shelf in self._shelves:
            if self._demand.isolate and shelf in chosen.values():
                continue
            if _admits(group, shelf) and (more := self._taken(shelf, group.wanted, taken)) is not None:
                yield from self._place(index + 1, {**chosen, suffix: shelf}, more)

    def _anywhere(
        self, wanted: list[tuple[str, int]], names: frozenset[str], taken: dict[str, int]
    ) -> Iterator[Amounts]:
        """Places each class of the unsuffixed group on any shelf. The chosen shelves together have its traits."""
        plain = self._demand.plain
        if not wanted:
            if plain is None or all(names & having for having in plain.having):
                yield taken
            return
        (name, amount), rest = wanted[0], wanted[1:]
        for shelf in self._shelves:
            if plain is not None and plain.allowed is not None and shelf.name not in plain.allowed:
                continue
            if (more := self._taken(shelf, {name: amount}, taken)) is not None:
                yield from self._anywhere(rest, names | {shelf.name}, more)

    def _taken(self, shelf: Shelf, wanted: Amounts, taken: Mapping[str, int]) -> dict[str, int] | None:
        """`taken` plus `wanted` on this shelf; None if it does not fit or the choices are used up."""
        self._choices -= 1
        if self._choices < 0:
            return None
        more = dict(taken)
        for name, amount in wanted.items():
            place = shelf.labels.get(name)
            if place is None or amount > self._largest.get(place, amount):
                return None
            more[place] = more.get(place, 0) + amount
            if more[place] > self._left.get(place, 0):
                return None
        return more

    def _is_near(self, chosen: Mapping[str, Shelf]) -> bool:
        """True if, in each set of `same_subtree`, one group's provider equals or is an ancestor of all the others."""
        for suffixes in self._demand.same_subtree:
            together = [chosen[suffix] for suffix in suffixes]
            if not any(all(top.name == each.name or top.name in each.above for each in together) for top in together):
                return False
        return True


def _admits(group: DemandGroup, shelf: Shelf) -> bool:
    allowed = group.allowed is None or shelf.name in group.allowed
    return allowed and all(shelf.name in having for having in group.having)


def _take(left: dict[str, int], slot: Amounts) -> None:
    for name, amount in slot.items():
        left[name] = left.get(name, 0) - amount


def _by_class(slot: Amounts) -> dict[str, int]:
    totals: dict[str, int] = {}
    for name, amount in slot.items():
        resource_class = name.partition("#")[0]
        totals[resource_class] = totals.get(resource_class, 0) + amount
    return totals
