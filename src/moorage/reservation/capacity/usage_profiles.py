"""Usage profiles: the usage of many hosts over time, in one NumPy block sorted by (host, time). Contains no rules.

`Rows` has usages as columns, `Segments` periods of constant usage, `Total` the sum over hosts, `UsageProfiles` the
index.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Segments:
    """Periods ``[start, end)`` in which a host's usage is constant, sorted by host and time.

    `row` is the host's index. A host has no usage outside its segments.
    """

    row: Ints
    start: Ints  #: seconds since 1970, as `end`
    end: Ints
    use: Ints  #: one column per class

    def of(self, mask: npt.NDArray[np.bool_]) -> "Segments":
        return Segments(self.row[mask], self.start[mask], self.end[mask], self.use[mask])

    def numbered(self, rows: Ints) -> "Segments":
        """Renumbers the hosts: index i becomes ``rows[i]``. `rows` must be ascending."""
        return Segments(rows[self.row], self.start, self.end, self.use)

    def merged(self, other: "Segments") -> "Segments":
        """These segments together with `other`, which must be of other hosts."""
        order = np.argsort(np.concatenate([self.row, other.row]), kind="stable")
        return Segments(
            np.concatenate([self.row, other.row])[order],
            np.concatenate([self.start, other.start])[order],
            np.concatenate([self.end, other.end])[order],
            np.concatenate([self.use, other.use])[order],
        )


@dataclass(frozen=True, slots=True)
class Rows:
    """Usages as columns: `row` is the host's index, `amount` has one column per class."""

    row: Ints
    start: Ints
    end: Ints
    amount: Ints

    def joined(self, other: "Rows") -> "Rows":
        return Rows(
            np.concatenate([self.row, other.row]),
            np.concatenate([self.start, other.start]),
            np.concatenate([self.end, other.end]),
            np.concatenate([self.amount, other.amount]),
        )

    def of(self, mask: npt.NDArray[np.bool_] | Ints) -> "Rows":
        """The rows where the mask is true, or at these indices."""
        return Rows(self.row[mask], self.start[mask], self.end[mask], self.amount[mask])

    def numbered(self, rows: Ints) -> "Rows":
        return Rows(rows, self.start, self.end, self.amount)

    def with_amount(self, column: int) -> "Rows":
        return self.of(self.amount[:, column] != 0)

    def released(self) -> "Rows":
        return Rows(self.row, self.start, self.end, -self.amount)


@dataclass(frozen=True, slots=True)
class Total:
    """The total usage of several hosts: ``use[0]`` before ``time[0]``, and ``use[i + 1]`` from ``time[i]`` on."""

    time: Ints  #: seconds since 1970, ascending, each once
    use: Ints  #: one column per class

    def at(self, times: Ints) -> Ints:
        use: Ints = self.use[np.searchsorted(self.time, times, side="right")]
        return use

    def between(self, start: int, end: int) -> "Total":
        """This total restricted to the times in ``[start, end)``."""
        low, high = np.searchsorted(self.time, (start, end))
        return Total(self.time[low:high], self.use[low : high + 1])

    def plus(self, other: "Total") -> "Total":
        if not other.use.any():
            return self
        time = _distinct(np.concatenate([self.time, other.time]))
        return Total(time, np.vstack([self.use[:1] + other.use[:1], self.at(time) + other.at(time)]))

    def negated(self) -> "Total":
        return Total(self.time, -self.use)

    def most(self, bounds: Ints, end: int) -> Ints:
        """The peak in each ``[bound, next bound)``; the last period ends at `end`. Shape: (periods, classes)."""
        first = np.searchsorted(self.time, bounds, side="right")
        last = np.searchsorted(self.time, [*bounds[1:], end])
        places = np.column_stack([first, last + 1]).ravel()
        beyond = np.zeros((1, self.use.shape[1]), np.int64)  # `reduceat` accepts no index beyond the last row
        most: Ints = np.maximum.reduceat(np.vstack([self.use, beyond]), places, axis=0)[0::2]
        return most


def total(rows: Rows) -> Total:
    """The total of all rows, over all hosts."""
    time = _distinct(np.concatenate([rows.start, rows.end]))
    first, last = np.searchsorted(time, rows.start), np.searchsorted(time, rows.end)
    delta = np.zeros((len(time) + 1, rows.amount.shape[1]), np.int64)
    # `np.bincount`, because `np.add.at` takes ten times as long. It sums floats, which are exact up to 2**53.
    for column in np.flatnonzero(rows.amount.any(axis=0)):
        gained, lost = (np.bincount(at, weights=rows.amount[:, column], minlength=len(time)) for at in (first, last))
        delta[1:, column] = gained - lost
    return Total(time, delta.cumsum(axis=0))


def number_of_used(segments: Segments) -> Total:
    """How many hosts have any usage, as a total of a single column."""
    used = segments.of(segments.use.max(axis=1, initial=0) > 0)
    return total(Rows(used.row, used.start, used.end, np.ones((len(used.row), 1), np.int64)))


def _distinct(times: Ints) -> Ints:
    """The distinct times, ascending. `np.unique` takes ten times as long for a million times."""
    times = np.sort(times)
    return times[np.r_[True, times[1:] != times[:-1]]] if len(times) else times


class UsageProfiles:
    """The usage of each host as a step function of time; immutable. `rows`: the usages, sorted by host."""

    def __init__(self, hosts: int, rows: Rows) -> None:
        rows = rows.of(np.argsort(rows.row, kind="stable"))
        self.rows = rows
        self._with: dict[int, Rows] = {}
        self._first_row = np.searchsorted(rows.row, np.arange(hosts + 1))
        classes = rows.amount.shape[1]
        times = np.concatenate([rows.start, rows.end])
        self._t0 = int(times.min()) - 1 if len(times) else 0
        self._span = int(times.max()) - self._t0 + 2 if len(times) else 2
        key = np.concatenate([rows.row, rows.row]) * self._span + (times - self._t0)
        delta = np.concatenate([rows.amount, -rows.amount])
        order = np.argsort(key, kind="stable")
        key, delta = key[order], delta[order]
        first = np.flatnonzero(np.r_[True, key[1:] != key[:-1]]) if len(key) else np.zeros(0, np.int64)
        self._key = key[first]
        # The differences of a host sum to 0, so one running sum over all hosts gives the usage of each host.
        use = np.add.reduceat(delta, first, axis=0).cumsum(axis=0) if len(key) else delta
        zero = np.zeros((1, classes), np.int64)
        self._padded = np.vstack([zero, use, zero])  # row i+1 is in force from breakpoint i on
        self._base = np.arange(hosts, dtype=np.int64) * self._span
        self._first = np.searchsorted(self._key, self._base)  # first breakpoint of each host

    def rows_of(self, hosts: Ints) -> Rows:
        """The rows of these hosts, sorted by host. Does not scan the rows of other hosts."""
        first = self._first_row[hosts]
        return self.rows.of(_runs(first, self._first_row[hosts + 1] - first)[1])

    def rows_with(self, column: int) -> Rows:
        """The rows with an amount in this column, found on first use."""
        if column not in self._with:
            self._with[column] = self.rows.with_amount(column)
        return self._with[column]

    def peak(self, start: int, end: int, host: int | None = None) -> Ints:
        """The highest usage over ``[start, end)``, of all hosts or of one. Shape: (hosts, classes)."""
        only = slice(None) if host is None else slice(host, host + 1)
        base, first = self._base[only], self._first[only]
        low = np.searchsorted(self._key, base + self._clip(start), side="right")
        high = np.searchsorted(self._key, base + self._clip(end), side="left")
        peak = np.where((low > first)[:, None], self._padded[low], 0)
        inside = high > low
        if inside.any():
            bounds = np.empty(2 * int(inside.sum()), np.int64)
            bounds[0::2], bounds[1::2] = low[inside], high[inside]
            highest = np.maximum.reduceat(self._padded[1:], bounds, axis=0)[0::2]
            peak[inside] = np.maximum(peak[inside], highest)
        return peak

    def segments(self, start: int | None = None, end: int | None = None) -> Segments:
        """The segments of all hosts, or those that overlap ``[start, end)``. Omits the unused time after the last
        breakpoint of each host.
        """
        first, last = self._first, np.append(self._first[1:], len(self._key)) - 1
        if start is not None:
            in_force = np.searchsorted(self._key, self._base + self._clip(start), side="right") - 1
            first = np.maximum(first, in_force)
        if end is not None:
            last = np.minimum(last, np.searchsorted(self._key, self._base + self._clip(end), side="left"))
        row, at = _runs(first, np.maximum(last - first, 0))
        shift = self._t0 - self._base[row]
        return Segments(row, self._key[at] + shift, self._key[at + 1] + shift, self._padded[at + 1])

    @cached_property
    def total(self) -> Total:
        """The total of all hosts, computed on first use."""
        return total(self.rows)

    @cached_property
    def used_hosts(self) -> Total:
        """How many hosts have any usage, computed on first use; a single column."""
        return number_of_used(self.segments())

    def _clip(self, moment: int) -> int:
        return min(max(moment - self._t0, 0), self._span - 1)


def _runs(first: Ints, count: Ints) -> tuple[Ints, Ints]:
    """(index of the run, the number) for all numbers in runs of `count` numbers, each starting at `first`.

    >>> _runs(np.array([5, 7]), np.array([2, 3]))
    (array([0, 0, 1, 1, 1]), array([5, 6, 7, 8, 9]))
    """
    run = np.repeat(np.arange(len(first)), count)
    return run, np.repeat(first - (np.cumsum(count) - count), count) + np.arange(len(run))
