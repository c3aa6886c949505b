"""When does it fit? The first start at which all reservations of a lease find room for the whole of its length.

    segments with room for fewer than n  ->  starts that they forbid, per host  ->  merged  ->  one sweep over all hosts

A time in which a host has room for fewer than n slots forbids every start from which the lease would reach it. The
forbidden starts of a host are merged, those of all hosts counted in one sweep; the first minute at which enough hosts
are left is the answer. No policy asks for a sum of slots over hosts, so there the counts for 1, 2, 3 ... slots add up.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from moorage.reservation.capacity.calendar import Calendar
from moorage.reservation.capacity.host_selection import CapacityRequest, Shortage, plan
from moorage.reservation.capacity.step_blocks import Ints

#: How many different numbers of slots are told apart where there is no policy. With more, numbers are rounded down: an
#: answer still holds, but an earlier start may have been passed by. No request for that many or fewer is rounded.
MAX_LEVELS = 256

#: Starts at which several reservations are tried together; each fits alone there.
MAX_TRIES = 100

#: Most answers lie near: looked at first, for a day holds a hundredth of the changes of a quarter.
_NEAR = (timedelta(days=1), timedelta(days=7))


def first_fit(
    calendar: Calendar, asks: Sequence[CapacityRequest], earliest: datetime, latest: datetime, length: timedelta
) -> datetime | None:
    """The first whole minute from `earliest` to `latest`, both included, at which all of `asks` fit for `length`.

    None when there is none. For one ask that is exact where a host has each class in one place. Several asks, and one
    whose class lies in several providers of a host (they may be full at different times), are planned at each start
    that seems to do and where something has just become free, `MAX_TRIES` times at most: what is found holds.
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
    """The first start at which each ask fits, were it the only one."""
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
    """Segments with room for fewer slots than their host has otherwise, as far as the ask needs them."""

    row: Ints
    start: Ints
    end: Ints
    fitting: Ints


class _Search:
    """One ask against one calendar. Only what lies near a start is looked at, until that is not enough."""

    def __init__(self, calendar: Calendar, ask: CapacityRequest, length: timedelta) -> None:
        everywhere = np.arange(len(calendar.hosts))
        empty = calendar.fitting(ask.demand, np.zeros_like(calendar.capacity), everywhere)
        if ask.eligible is not None:
            empty = np.where(np.isin(calendar.hosts, list(ask.eligible)), empty, 0)
        self._calendar, self._ask, self._empty = calendar, ask, empty
        self._length_s = int(length.total_seconds())
        self._to_the_last: _Tight | None = None  # of the first start that was far from an answer; others come later

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
        """What a lease can reach that starts from `low` to `high`, in minutes."""
        segments = self._calendar.segments(low * 60, high * 60 + self._length_s)
        empty = self._empty[segments.row]
        fitting = np.minimum(self._calendar.fitting(self._ask.demand, segments.use, segments.row), empty)
        less = fitting < np.minimum(empty, self._ask.amount)  # others forbid nothing
        return _Tight(segments.row[less], segments.start[less], segments.end[less], fitting[less])

    def _first_between(self, low: int, high: int, tight: _Tight) -> int | None:
        """As `first`, in minutes since 1970, both included."""
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
        """The starts ``[first, after)``, in minutes, from which a lease would reach ``[start, end)``."""
        first = -(-(start - self._length_s + 1) // 60)
        return np.maximum(first, low), -(-end // 60)


def _merged(row: Ints, first: Ints, after: Ints) -> tuple[Ints, Ints]:
    """Periods of each row that meet become one. They come in order, and end in order."""
    some = after > first
    row, first, after = row[some], first[some], after[some]
    if not len(row):
        return first, after
    begins = np.flatnonzero(np.r_[True, (row[1:] != row[:-1]) | (first[1:] > after[:-1])])
    return first[begins], after[np.r_[begins[1:] - 1, len(row) - 1]]


def _levels(ask: CapacityRequest, empty: Ints, fitting: Ints) -> tuple[list[tuple[int, int]], int]:
    """([(slots that a host must have room for, what it counts then), ...], the count that is needed)."""
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
