"""The period that the calendar shows, its steps, and the labels of its time axis. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import groupby
from math import ceil

from moorage.core.errors import Invalid
from moorage.dashboard.views.lease_form import field_date

#: Lengths with a name, by days.
LENGTHS: Mapping[int, str] = {1: "Day", 7: "Week", 30: "Month", 90: "Quarter"}
DEFAULT_DAYS = 7
MAX_DAYS = 366
#: How far from now the calendar goes.
_FARTHEST = timedelta(days=3650)

_DAY = timedelta(days=1)
#: {minutes per column: minutes per step of a drag}. A period has the shortest columns of which it has `_MAX_COLUMNS`.
_STEPS: Mapping[int, int] = {
    15: 5, 30: 5, 60: 15, 120: 30, 180: 60, 360: 60, 720: 180, 1440: 360, 4320: 1440, 10080: 1440, 20160: 1440
}  # fmt: skip
_MAX_COLUMNS = 31
#: Labels of the axis that fit beside each other on a phone.
_LABELS_ON_PHONE = 7
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ShownPeriod:
    """Whole columns of `step`. `days`: its length if that has a name, otherwise 0."""

    start: datetime
    end: datetime
    step: timedelta
    days: int

    @property
    def drag_minutes(self) -> int:
        return _STEPS[int(self.step / timedelta(minutes=1))]

    @property
    def address(self) -> dict[str, str]:
        """The parameters of the page's address that name this period."""
        end = {"days": str(self.days)} if self.days else {"end": field_date(self.end)}
        return {"start": field_date(self.start), **end}

    def moved(self, lengths: int) -> "ShownPeriod":
        by = lengths * (self.end - self.start)
        return ShownPeriod(self.start + by, self.end + by, self.step, self.days)

    def steps(self) -> list[datetime]:
        return [self.start + number * self.step for number in range(int((self.end - self.start) / self.step))]

    def percent(self, moment: datetime) -> float:
        """Horizontal position in percent, clamped to the period."""
        share = (moment - self.start) / (self.end - self.start)
        return round(100 * min(max(share, 0.0), 1.0), 3)


def parse_period(start: str | None, end: str | None, days: str | None, now: datetime) -> ShownPeriod:
    """The period of the page's address.

    Without an end it is `days` long, by default a week; without a start, an eighth of it lies before `now`. A start
    that is no date and a length that has no name count as missing. Raises `Invalid` for an end that is wrong.
    """
    length_days = next((each for each in LENGTHS if str(each) == days), DEFAULT_DAYS)
    begin = _moment(start)
    if not end:
        length = timedelta(days=length_days)
        return _whole_columns(_near(begin, now) if begin else _an_eighth_before(now, length), length, length_days)
    finish = _moment(end)
    if finish is None:
        raise Invalid(f"To: {end} is not a date and time; use the form 2026-12-01 08:00", field="end")
    begin = begin or _an_eighth_before(now, finish - now)
    if not timedelta(0) < finish - begin <= MAX_DAYS * _DAY:
        raise Invalid(f"To: must be after From, by at most {MAX_DAYS} days", field="end")
    return _whole_columns(_near(begin, now), finish - begin, 0)


def around_now(shown: ShownPeriod, now: datetime) -> ShownPeriod:
    """The period of the same length that begins shortly before `now`."""
    length = shown.end - shown.start
    return _whole_columns(_an_eighth_before(now, length), length, shown.days)


def _an_eighth_before(now: datetime, length: timedelta) -> datetime:
    """A start that shows a little of the past: a full hour, or a midnight if the period has more than two days."""
    start, unit = now - max(length, timedelta(0)) / 8, timedelta(hours=1) if length <= 2 * _DAY else _DAY
    return _floor(min(start + unit / 2, now), unit)


def _whole_columns(start: datetime, length: timedelta, days: int) -> ShownPeriod:
    minutes = next(each for each in _STEPS if length <= _MAX_COLUMNS * timedelta(minutes=each))
    step = timedelta(minutes=minutes)
    begin = _floor(start, min(step, _DAY))
    return ShownPeriod(begin, begin + ceil((start + length - begin) / step) * step, step, days)


def _floor(moment: datetime, unit: timedelta) -> datetime:
    return moment - (moment - _EPOCH) % unit


def _near(moment: datetime, now: datetime) -> datetime:
    return min(max(moment, now - _FARTHEST), now + _FARTHEST)


def _moment(text: str | None) -> datetime | None:
    """A date, or a date and time, in UTC; None for anything else."""
    try:
        found = datetime.fromisoformat((text or "").strip())
    except ValueError:
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else None


@dataclass(frozen=True, slots=True)
class Tick:
    """A label above `columns` columns. `is_minor`: phones leave it out."""

    text: str
    columns: int
    start: datetime
    is_minor: bool


def ticks(shown: ShownPeriod) -> list[Tick]:
    """Labels for hours, days or groups of three columns, depending on the length of the period."""
    steps = shown.steps()
    if shown.step >= _DAY:
        groups = [steps[number:number + 3] for number in range(0, len(steps), 3)]  # fmt: skip
        return _labelled(groups, lambda each: f"{each.day} {each:%b}")
    unit = timedelta(hours=1) if shown.end - shown.start <= 2 * _DAY else _DAY
    groups = [list(group) for _, group in groupby(steps, lambda each: _floor(each, unit))]
    return _labelled(groups, _hour_text if unit < _DAY else _day_text)


def _hour_text(moment: datetime) -> str:
    return f"{moment:%H}" if moment.hour else f"{moment:%a}"


def _day_text(moment: datetime) -> str:
    return f"{moment:%a} {moment.day}"


def _labelled(groups: Sequence[Sequence[datetime]], text: Callable[[datetime], str]) -> list[Tick]:
    every = ceil(len(groups) / _LABELS_ON_PHONE)
    longest = max(len(group) for group in groups)
    return [
        # A day of which only the end is shown has no room for its name.
        Tick(text(group[0]) if 2 * len(group) > longest else "", len(group), group[0], number % every != 0)
        for number, group in enumerate(groups)
    ]
