"""Finds the first start at which all reservations of a lease fit for the lease's whole length.

    segments in which fewer than n fit  ->  starts that they forbid, per host  ->  merged  ->  one sweep over all hosts

A segment in which fewer than n slots fit on a host forbids every start from which the lease would reach it. The
forbidden starts of each host are merged, and one sweep counts them over all hosts. The answer is the first minute at
which enough hosts are left. Without an affinity policy the request needs a sum of slots over hosts; there the counts
for 1, 2, 3 ... slots add up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from moorage.reservation.capacity.calendar import Calendar
from moorage.reservation.capacity.host_selection import CapacityRequest, Shortage, plan
from moorage.reservation.capacity.usage_profiles import Ints

#: Without an affinity policy, the maximum number of different slot counts that are distinguished. Beyond it, counts are
#: rounded down: an answer still fits, but an earlier start may be missed. Requests of at most this amount are exact.
MAX_LEVELS = 256

#: Maximum number of starts at which all reservations are planned together. Each of them fits alone there.
MAX_TRIES = 100

#: Search spans that are tried first: most answers are near, and a day has a hundredth of the changes of a quarter.
_NEAR = (timedelta(days=1), timedelta(days=7))


def first_fit(
    calendar: Calendar, asks: Sequence[CapacityRequest], earliest: datetime, latest: datetime, length: timedelta
) -> datetime | None:
    """The first whole minute from `earliest` to `latest`, both included, at which all of `asks` fit for `length`.

    None if there is none. The answer is exact for one request if each host has each class on one provider. Otherwise
    (several requests, or several providers of a class, which may be full at different times) a plan is tried at the
    first start where each request fits alone, then after each release of capacity, at most `MAX_TRIES` times. An answer
    then fits, but an earlier one may be missed.
    """
    searches = [_Search(calendar, ask, length) for ask in asks]
    start: datetime | None = earliest
    for _ in range(MAX_TRIES):
        start = _all_alone(searches, start, latest)
        if start is None or not isinstance(plan(calendar, asks, start, start + length), Shortage):
            return start
        start = _next_release(calendar, start)
    return None


def _all_alone(searches: Sequence["_Search"], start: datetime | None, latest: datetime) -> datetime | None:
    """The first start at or after `start` at which each request, taken alone, fits."""
    before = None
    while start is not None and start != before:
        before = start
        for search in searches:
            start = None if start is None else search.first(start, latest)
    return start


def _next_release(calendar: Calendar, after: datetime) -> datetime | None:
    low = _minute(after) * 60
    for span in (*_NEAR, None):
        high = None if span is None else low + int(span.total_seconds())
        ends = calendar.segments(low, high).end
        later = ends[ends > low]
        if len(later) and (high is None or later.min() <= high):
            return _moment(-(-int(later.min()) // 60))
    return None


@dataclass(frozen=True, slots=True)
class _Tight:
    """Segments in which fewer slots fit on the host than when it is empty, and fewer than the request needs."""

    row: Ints
    start: Ints
    end: Ints
    fitting: Ints


class _Search:
    """The search for one request on one calendar. Reads segments near a start first, and all others only if needed."""

    def __init__(self, calendar: Calendar, ask: CapacityRequest, length: timedelta) -> None:
        everywhere = np.arange(len(calendar.hosts))
        empty = calendar.fitting(ask.demand, np.zeros_like(calendar.capacity), everywhere)
        if ask.eligible is not None:
            empty = np.where(np.isin(calendar.hosts, list(ask.eligible)), empty, 0)
        self._calendar, self._ask, self._empty = calendar, ask, empty
        self._length_s = int(length.total_seconds())
        self._to_the_last: _Tight | None = None  # read once: later starts need a part of it

    def first(self, earliest: datetime, latest: datetime) -> datetime | None:
        """The first whole minute from `earliest` to `latest` at which the ask fits."""
        low, last = _minute(earliest), _minute(latest, up=False)
        for span in (*_NEAR, latest - earliest):
            high = min(last, low + int(span.total_seconds()) // 60)
            if high < low:
                return None
            tight = self._tight(low, high) if high < last else self._up_to_the_last(low, high)
            if (found := self._first_between(low, high, tight)) is not None:
                return _moment(found)
            if high == last:
                return None
        return None

    def _up_to_the_last(self, low: int, last: int) -> _Tight:
        if self._to_the_last is None:
            self._to_the_last = self._tight(low, last)
        return self._to_the_last

    def _tight(self, low: int, high: int) -> _Tight:
        """The tight segments that a lease may overlap if it starts from `low` to `high` (minutes since 1970)."""
        segments = self._calendar.segments(low * 60, high * 60 + self._length_s)
        empty = self._empty[segments.row]
        fitting = np.minimum(self._calendar.fitting(self._ask.demand, segments.use, segments.row), empty)
        less = fitting < np.minimum(empty, self._ask.amount)  # other segments forbid no start
        return _Tight(segments.row[less], segments.start[less], segments.end[less], fitting[less])

    def _first_between(self, low: int, high: int, tight: _Tight) -> int | None:
        """Like `first`; `low`, `high` (both included) and the result are minutes since 1970."""
        near = (tight.end > low * 60) & (tight.start < high * 60 + self._length_s)
        row, start, end, fitting = tight.row[near], tight.start[near], tight.end[near], tight.fitting[near]
        times, changes, have = [np.array([low])], [np.array([0])], 0
        levels, needed = _levels(self._ask, self._empty, fitting)
        for level, weight in levels:
            have += weight * int((self._empty >= level).sum())
            bad = (fitting < level) & (self._empty[row] >= level)
            first, after = _merged(row[bad], *self._forbidden(start[bad], end[bad], low))
            times += [first, after]
            changes += [np.full(len(first), -weight), np.full(len(after), weight)]
        moments, where = np.unique(np.concatenate(times), return_inverse=True)
        delta = np.zeros(len(moments), np.int64)
        np.add.at(delta, where, np.concatenate(changes))
        enough = moments[(have + delta.cumsum() >= needed) & (moments <= high)]
        return int(enough[0]) if len(enough) else None

    def _forbidden(self, start: Ints, end: Ints, low: int) -> tuple[Ints, Ints]:
        """(first, after): a lease that starts in ``[first, after)`` overlaps ``[start, end)``.

        `start` and `end` are in seconds, the results in minutes since 1970; `first` is at least `low`.
        """
        first = -(-(start - self._length_s + 1) // 60)
        return np.maximum(first, low), -(-end // 60)


def _merged(row: Ints, first: Ints, after: Ints) -> tuple[Ints, Ints]:
    """Merges the adjacent and overlapping periods of each row. Both bounds must be ascending within a row."""
    some = after > first
    row, first, after = row[some], first[some], after[some]
    if not len(row):
        return first, after
    begins = np.flatnonzero(np.r_[True, (row[1:] != row[:-1]) | (first[1:] > after[:-1])])
    return first[begins], after[np.r_[begins[1:] - 1, len(row) - 1]]


def _levels(ask: CapacityRequest, empty: Ints, fitting: Ints) -> tuple[list[tuple[int, int]], int]:
    """([(level, weight), ...], needed)

    Each host on which `level` slots fit counts `weight`. A start fits if the sum over hosts and levels is at least
    `needed`.
    """
    if ask.affinity:
        return [(ask.amount, 1)], 1
    if ask.affinity is False:
        return [(1, 1)], ask.amount
    numbers = np.unique(np.minimum(np.concatenate([empty, fitting]), ask.amount))
    numbers = numbers[numbers > 0]
    if len(numbers) > MAX_LEVELS:
        numbers = numbers[np.linspace(0, len(numbers) - 1, MAX_LEVELS).astype(np.int64)]
    steps = np.diff(numbers, prepend=0)
    return list(zip(numbers.tolist(), steps.tolist(), strict=True)), ask.amount


def _minute(moment: datetime, *, up: bool = True) -> int:
    seconds = int(moment.timestamp())
    return -(-seconds // 60) if up else seconds // 60


def _moment(minute: int) -> datetime:
    return datetime.fromtimestamp(minute * 60, UTC)
