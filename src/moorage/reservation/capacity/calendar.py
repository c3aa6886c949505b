"""The capacity index: the usage of every host over time, as arrays.

For each host and resource class, usage over time is a step function. One NumPy block holds the steps of all hosts,
sorted by (host, time). The peak usage of *every* host over a period therefore takes two binary searches and one
segmented maximum: 3 ms for 10,000 hosts with 250,000 allocations, where one query per host takes seconds.

A calendar is immutable. `with_usage` returns a new calendar that shares the block and keeps the difference as a short
list. The difference may be negative, for a reservation that is about to be planned again. The hosts in the difference
get a small block of their own, built on demand. When they become many, they are merged into the large block.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
import numpy.typing as npt

from moorage.reservation.capacity.packing import Shelf, pack
from moorage.reservation.capacity.usage_profiles import (
    Ints,
    Rows,
    Segments,
    Total,
    UsageProfiles,
    number_of_used,
    total,
)
from moorage.reservation.model.limits import counted
from moorage.reservation.model.slot_demand import WHOLE_HOST, Amounts, SlotDemand, class_of

#: Upper bound of the slots counted on one host, for demands that need packing over its providers.
MAX_PACKED = 1000

#: Maximum numbers of changed hosts and of changes that are kept outside the large block. Keeping them outside costs a
#: small block for each calendar that is queried; merging them costs a new large block.
MAX_CHANGED_HOSTS = 256
MAX_CHANGES = 4096

UNBOUNDED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class HostCapacity:
    """`capacity` and `largest`: {label: amount}; `slot_demand` explains labels.

    `largest` is the maximum amount of one slot (Placement's ``max_unit``). `providers`: {label: name of its provider},
    for the labels whose provider is known. `above`: {provider's name: names of its ancestors}.
    """

    host: int
    capacity: Amounts
    largest: Amounts = field(default_factory=dict)
    providers: Mapping[str, str] = field(default_factory=dict)
    above: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def shelves(self) -> list[Shelf]:
        labels: dict[str, dict[str, str]] = {}
        for name in sorted(self.capacity):
            labels.setdefault(self.providers.get(name, ""), {})[class_of(name)] = name
        return [Shelf(name, mine, frozenset(self.above.get(name, ()))) for name, mine in labels.items()]


@dataclass(frozen=True, slots=True)
class HostUsage:
    """`host` has `amounts`, {label: amount}, in use over ``[start, end)``."""

    host: int
    start: datetime
    end: datetime
    amounts: Amounts

    def released(self) -> "HostUsage":
        return HostUsage(self.host, self.start, self.end, {name: -amount for name, amount in self.amounts.items()})


class Calendar:
    """Free capacity of hosts over time. `hosts` are ids, ascending; arrays with one row per host use this order."""

    def __init__(self, hosts: Sequence[HostCapacity], usages: Iterable[HostUsage]) -> None:
        usages = list(usages)
        ordered = sorted(hosts, key=lambda host: host.host)
        names = {name for host in ordered for name in host.capacity} | {
            name for usage in usages for name in usage.amounts
        }
        names.add(WHOLE_HOST)
        self.hosts: tuple[int, ...] = tuple(host.host for host in ordered)
        self.classes: tuple[str, ...] = tuple(sorted(names))
        self._row = {host: row for row, host in enumerate(self.hosts)}
        self._known = {host.host: host for host in ordered}
        self.capacity = self._matrix([{**host.capacity, WHOLE_HOST: 1} for host in ordered], default=0)
        self.largest = self._matrix([host.largest for host in ordered], default=UNBOUNDED)
        self._block = UsageProfiles(len(self.hosts), self._rows(usages))
        self._changes: Rows = self._rows(())
        self._anew = np.zeros(0, np.int64)  # rows of hosts whose usage is only in `_changes`, not in the block
        self._changed: tuple[Ints, UsageProfiles] | None = None

    def with_usage(self, usages: Iterable[HostUsage]) -> "Calendar":
        """This calendar plus `usages`. Ignores usages of unknown hosts, because their capacity is unknown."""
        usages = list(usages)
        if not {name for usage in usages for name in usage.amounts} <= set(self.classes):
            return Calendar(list(self._known.values()), [*self._listed(self._all_rows()), *usages])
        return self._with(self._changes.joined(self._rows(usages)), self._anew)

    def replaced(self, hosts: Sequence[HostCapacity], usages: Iterable[HostUsage]) -> "Calendar":
        """This calendar with new capacities of `hosts`, and with `usages` instead of all their earlier usages.

        The calendar must already have all of these hosts and their classes: see `knows`.
        """
        numbers = np.array([self._row[host.host] for host in hosts], np.int64)
        of_others = self._changes.of(~np.isin(self._changes.row, numbers))
        other = self._with(of_others.joined(self._rows(usages)), np.union1d(self._anew, numbers))
        known = self._known | {host.host: host for host in hosts}
        other.__dict__.update(_known=known, capacity=self.capacity.copy(), largest=self.largest.copy())
        other.capacity[numbers] = self._matrix([{**host.capacity, WHOLE_HOST: 1} for host in hosts], default=0)
        other.largest[numbers] = self._matrix([host.largest for host in hosts], default=UNBOUNDED)
        return other

    def _with(self, changes: Rows, anew: Ints) -> "Calendar":
        other = object.__new__(Calendar)
        other.__dict__.update(self.__dict__)
        other._changes, other._anew, other._changed = changes, anew, None
        if len(changes.row) > MAX_CHANGES or len(other._changed_hosts()) > MAX_CHANGED_HOSTS:
            other._block = UsageProfiles(len(self.hosts), other._all_rows())
            other._changes, other._anew = self._rows(()), np.zeros(0, np.int64)
        return other

    def _all_rows(self, column: int | None = None) -> Rows:
        """All usages, or those of the class with this column."""
        rows = self._block.rows if column is None else self._block.rows_with(column)
        rows = rows.of(~np.isin(rows.row, self._anew)) if len(self._anew) else rows
        changes = self._changes if column is None else self._changes.with_amount(column)
        return rows.joined(changes) if len(changes.row) else rows

    def _changed_hosts(self) -> Ints:
        return np.union1d(self._changes.row, self._anew)

    def _changed_block(self) -> tuple[Ints, UsageProfiles]:
        """(rows of the hosts that differ from the block, a block for these hosts)"""
        if self._changed is None:
            hosts = self._changed_hosts()
            rows = self._block.rows_of(np.setdiff1d(hosts, self._anew)).joined(self._changes)
            self._changed = hosts, UsageProfiles(len(hosts), rows.numbered(np.searchsorted(hosts, rows.row)))
        return self._changed

    def knows(self, hosts: Iterable[HostCapacity], usages: Iterable[HostUsage]) -> bool:
        """True if the calendar has all of these hosts and classes."""
        names = {name for host in hosts for name in host.capacity} | {n for usage in usages for n in usage.amounts}
        return names <= set(self.classes) and all(host.host in self._row for host in hosts)

    def segments(self, start: int | None = None, end: int | None = None) -> Segments:
        """The usage of all hosts, including changes. With bounds (seconds since 1970), only segments that overlap
        ``[start, end)``.
        """
        whole, (hosts, block) = self._block.segments(start, end), self._changed_block()
        if not len(hosts):
            return whole
        return whole.of(~np.isin(whole.row, hosts)).merged(block.segments(start, end).numbered(hosts))

    def total_usage(self, start: int, end: int, hosts: Ints | None = None) -> Total:
        """The total usage of these rows (None: all hosts) in ``[start, end)``, in seconds since 1970.

        The total of all hosts is cached with the block; only changes are added to it.
        """
        if hosts is None:
            gone = self._block.rows_of(self._anew).released()
            return self._block.total.between(start, end).plus(total(self._changes.joined(gone)).between(start, end))
        wanted = np.zeros(len(self.hosts), np.bool_)
        wanted[hosts] = True
        rows = self._all_rows()
        return total(rows.of(wanted[rows.row] & (rows.start < end) & (rows.end > start))).between(start, end)

    def capacity_of_whole(self, start: int, end: int, hosts: Ints | None = None) -> Total:
        """The total capacity of those rows (None: of all hosts) that are reserved as a whole, in ``[start, end)``.

        Their usage has one `WHOLE_HOST` and nothing of the other classes, of which nobody else can reserve anything.
        """
        whole = self.classes.index(WHOLE_HOST)
        rows = self._all_rows(whole)
        rows = rows.of((rows.start < end) & (rows.end > start))
        if hosts is not None:
            rows = rows.of(np.isin(rows.row, hosts))
        amounts = self.capacity[rows.row] * np.sign(rows.amount[:, whole : whole + 1])  # released usage is negative
        amounts[:, whole] = 0
        return total(Rows(rows.row, rows.start, rows.end, amounts)).between(start, end)

    def used_hosts(self, start: int, end: int, hosts: Ints | None = None) -> Total:
        """How many of these rows (None: all hosts) have any usage, in ``[start, end)``: a total of a single column.

        The total of all hosts is cached with the block; only the hosts that differ from it are counted again.
        """
        if hosts is not None:
            found = self.segments(start, end)
            return number_of_used(found.of(np.isin(found.row, hosts))).between(start, end)
        count, (changed, block) = self._block.used_hosts.between(start, end), self._changed_block()
        rows = self._block.rows_of(changed)
        before = UsageProfiles(len(changed), rows.numbered(np.searchsorted(changed, rows.row)))
        count = count.plus(before.used_hosts.negated().between(start, end))
        return count.plus(block.used_hosts.between(start, end))

    def peak(self, start: datetime, end: datetime) -> Ints:
        """The highest usage over ``[start, end)``. Shape: (hosts, classes)."""
        low, high = _first_second(start), _last_second(end)
        peak, (hosts, block) = self._block.peak(low, high), self._changed_block()
        peak[hosts] = block.peak(low, high)
        return peak

    def slots(self, demand: SlotDemand, start: datetime, end: datetime) -> Ints:
        """The number of slots of `demand` that fit on each host for the whole of ``[start, end)``."""
        return self.fitting(demand, self.peak(start, end), np.arange(len(self.hosts)))

    def fitting(self, demand: SlotDemand, used: Ints, rows: Ints) -> Ints:
        """The number of slots that fit on each of n hosts, given their usage.

        `rows`: n indices into `hosts`; `used`: their usage, shape (n, classes). Nothing else fits on a host that is
        reserved as a whole, and a host with any usage cannot be reserved as a whole.
        """
        if demand.whole_host:
            return np.where(used.max(axis=1, initial=0) > 0, 0, 1)
        if not demand.is_simple:
            return self._packed(demand, used, rows)
        columns = {name: self._places(name) for name in demand.totals}
        if not all(columns.values()):
            return np.zeros(len(rows), np.int64)
        counts = [
            self._slots_of(mine, demand.totals[name], used, rows, entire=name in demand.entire)
            for name, mine in columns.items()
        ]
        count: Ints = np.min(counts, axis=0)
        count[used[:, self.classes.index(WHOLE_HOST)] > 0] = 0
        return count

    def place(
        self, host: int, demand: SlotDemand, count: int, start: datetime, end: datetime, kept: Sequence[Amounts] = ()
    ) -> tuple[Amounts, ...]:
        """The amounts, {label: amount}, that each of `count` slots takes from the host. They must fit there.

        `kept`: the reservation's present slots there. They keep their amounts unless that leaves too little capacity.
        """
        if demand.whole_host:
            return ({WHOLE_HOST: 1},) * count
        if demand.is_simple and all(len(self._places(name)) == 1 for name in demand.wanted):
            return (demand.wanted,) * count
        row = self._row[host]
        free = self._free_capacity(row, self._peak_on(row, _first_second(start), _last_second(end)), demand)
        found = pack(*free, demand, count, kept)
        if len(found) < count:  # all may fit if the kept slots are placed differently
            found = pack(*free, demand, count)
        return tuple(found)

    def _places(self, resource_class: str) -> list[int]:
        return [column for column, name in enumerate(self.classes) if class_of(name) == resource_class]

    def _slots_of(self, columns: list[int], amount: int, used: Ints, rows: Ints, *, entire: bool) -> Ints:
        """The number of times that `amount` fits on each host, each time within a single one of these columns."""
        times = np.clip((self.capacity[rows][:, columns] - used[:, columns]) // amount, 0, None)
        times[self.largest[rows][:, columns] < amount] = 0
        if entire:
            times[self.capacity[rows][:, columns] != amount] = 0
        total: Ints = times.sum(axis=1)
        return total

    def _packed(self, demand: SlotDemand, used: Ints, rows: Ints) -> Ints:
        """Slots per host for demands whose groups depend on each other. Hosts with equal inputs are packed once."""
        count = np.zeros(len(rows), np.int64)
        columns = [column for name in demand.totals for column in self._places(name)]
        kinds: dict[object, int] = {}
        kind_of: dict[int, int] = {}
        seen: dict[tuple[int, bytes], int] = {}
        for index in np.flatnonzero(self._enough(demand, used, rows)).tolist():
            row = int(rows[index])
            if row not in kind_of:
                kind_of[row] = kinds.setdefault(_kind(self._known[self.hosts[row]], demand), len(kinds))
            key = kind_of[row], used[index, columns].tobytes()
            if key not in seen:
                seen[key] = len(pack(*self._free_capacity(row, used[index], demand), demand, MAX_PACKED))
            count[index] = seen[key]
        return count

    def _enough(self, demand: SlotDemand, used: Ints, rows: Ints) -> npt.NDArray[np.bool_]:
        """True for hosts worth packing: enough of each class in total, and not reserved as a whole."""
        enough = used[:, self.classes.index(WHOLE_HOST)] <= 0
        for name, amount in demand.totals.items():
            columns = self._places(name)
            free = np.clip(self.capacity[rows][:, columns] - used[:, columns], 0, None)
            enough &= free.sum(axis=1) >= amount
        return enough

    def _free_capacity(self, row: int, used: Ints, demand: SlotDemand) -> tuple[list[Shelf], Amounts, Amounts]:
        """(the host's providers, {label: free amount}, {label: maximum amount of one slot})"""
        known = self._known[self.hosts[row]]
        free = {name: int(self.capacity[row, at] - used[at]) for at, name in enumerate(self.classes)}
        for name, amount in known.capacity.items():
            if class_of(name) in demand.entire and amount != demand.totals.get(class_of(name)):
                free[name] = 0
        return known.shelves(), {name: free[name] for name in known.capacity}, known.largest

    def has_capacity_for(self, placing: Mapping[int, Sequence[Amounts]], start: datetime, end: datetime) -> bool:
        """True if all slots of `placing`, {host: amounts of each slot}, fit over ``[start, end)``."""
        peak = self.peak(start, end)
        for host, slots in placing.items():
            row = self._row.get(host)
            if row is None or not all(set(amounts) <= set(self.classes) for amounts in slots):
                return False
            each = self._matrix(slots, default=0)
            added, used = each.sum(axis=0), peak[row]
            taken = added > 0
            if ((used + added > self.capacity[row]) & taken).any() or (each > self.largest[row]).any():
                return False
            whole = self.classes.index(WHOLE_HOST)
            if used[whole] > 0 or (added[whole] > 0 and (used > 0).any()):
                return False
        return True

    def _peak_on(self, row: int, start: int, end: int) -> Ints:
        """`peak` for one host. Shape: (classes,)."""
        hosts, block = self._changed_block()
        at = int(np.searchsorted(hosts, row))
        is_changed = at < len(hosts) and hosts[at] == row
        used: Ints = (block.peak(start, end, at) if is_changed else self._block.peak(start, end, row))[0]
        return used

    def _matrix(self, rows: Sequence[Amounts], default: int) -> Ints:
        matrix = np.full((len(rows), len(self.classes)), default, np.int64)
        for index, row in enumerate(rows):
            for column, name in enumerate(self.classes):
                matrix[index, column] = row.get(name, default)
        return matrix

    def _rows(self, usages: Iterable[HostUsage]) -> Rows:
        known = [usage for usage in usages if usage.host in self._row]
        amounts = self._matrix([usage.amounts for usage in known], default=0)
        return Rows(
            np.array([self._row[usage.host] for usage in known], np.int64),
            np.array([_first_second(usage.start) for usage in known], np.int64),
            np.array([_last_second(usage.end) for usage in known], np.int64),
            amounts,
        )

    def _listed(self, rows: Rows) -> list[HostUsage]:
        return [
            HostUsage(
                self.hosts[int(row)],
                datetime.fromtimestamp(int(start), UTC),
                datetime.fromtimestamp(int(end), UTC),
                dict(zip(self.classes, amount.tolist(), strict=True)),
            )
            for row, start, end, amount in zip(rows.row, rows.start, rows.end, rows.amount, strict=True)
        ]


def _kind(host: HostCapacity, demand: SlotDemand) -> object:
    """A key that is equal for hosts with the same input to packing, apart from usage and provider names."""
    shelves = host.shelves()
    names = {shelf.name: place for place, shelf in enumerate(shelves)}
    groups = [group for group in (demand.plain, *demand.groups.values()) if group is not None]
    traits = [group.having + (() if group.allowed is None else (group.allowed,)) for group in groups]
    return tuple(
        (
            tuple((where, host.capacity[where], host.largest.get(where)) for where in shelf.labels.values()),
            tuple(sorted(names[above] for above in shelf.above if above in names)),
            tuple(shelf.name in each for sets in traits for each in sets),
        )
        for shelf in shelves
    )


def _first_second(moment: datetime) -> int:
    return math.floor(moment.timestamp())


def _last_second(moment: datetime) -> int:
    """Rounds up, so that a period is never shortened."""
    return math.ceil(moment.timestamp())


@dataclass(frozen=True, slots=True)
class Utilisation:
    """The peak usage in ``[start, end)``, by resource class."""

    start: datetime
    end: datetime
    used: Mapping[str, int]


def total_capacity(calendar: Calendar, hosts: Collection[int] | None = None) -> dict[str, int]:
    """The total capacity of these hosts (None: all) by resource class."""
    return _named(calendar, calendar.capacity[_rows(calendar, hosts)].sum(axis=0).tolist())


def _rows(calendar: Calendar, hosts: Collection[int] | None) -> Ints:
    numbers = np.arange(len(calendar.hosts))
    return numbers if hosts is None else numbers[np.isin(calendar.hosts, list(hosts))]


def utilisation(
    calendar: Calendar, start: datetime, end: datetime, step: timedelta, hosts: Collection[int] | None = None
) -> list[Utilisation]:
    """Peak usage of these hosts (None: all) in each `step`; adjacent steps with equal usage are merged.

    A host with any usage counts as used in `HOSTS`, because it cannot be reserved as a whole. A host that is reserved
    as a whole counts as used in all classes.
    """
    low, high = int(start.timestamp()), int(end.timestamp())
    bounds = np.arange(low, high, int(step.total_seconds()))
    rows = None if hosts is None else _rows(calendar, hosts)
    used = calendar.total_usage(low, high, rows).plus(calendar.capacity_of_whole(low, high, rows))
    most = used.most(bounds, high)
    most[:, calendar.classes.index(WHOLE_HOST)] = calendar.used_hosts(low, high, rows).most(bounds, high)[:, 0]
    changes = np.flatnonzero(np.r_[True, (most[1:] != most[:-1]).any(axis=1)])
    ends = [*bounds[changes[1:]].tolist(), high]
    return [
        Utilisation(_moment(int(bounds[at])), _moment(after), _named(calendar, most[at].tolist()))
        for at, after in zip(changes.tolist(), ends, strict=True)
    ]


def _named(calendar: Calendar, amounts: list[int]) -> dict[str, int]:
    counts = counted([dict(zip(calendar.classes, amounts, strict=True))])
    return {name: units for name, units in counts.items() if units}


def _moment(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)
