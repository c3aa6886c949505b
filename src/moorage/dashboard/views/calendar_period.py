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

_DAY = timedelta(days=1)
#: {minutes per column: minutes per step of a drag}. A period has the shortest columns of which it needs no more than
#: `_MAX_COLUMNS`.
_STEPS: Mapping[int, int] = {
    15: 5, 30: 5, 60: 15, 120: 30, 180: 60, 360: 60, 720: 180, 1440: 360, 4320: 1440, 10080: 1440, 17280: 1440
}  # fmt: skip
_MAX_COLUMNS = 31
#: The longest period, of so many columns of twelve days, and how far from now a period may begin.
MAX_DAYS, _FARTHEST_DAYS = 372, 3650
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

    Without an end it is `days` long, by default a week; without a start, an eighth of it lies before `now`. In an
    address without an end, a start that is no date and a length that has no name count as missing, and one that is far
    from now is moved. Raises `Invalid` for an end, or a start with an end, that is wrong.
    """
    length_days = next((each for each in LENGTHS if str(each) == days), DEFAULT_DAYS)
    if not end:
        begin = _moment(start)
        length = timedelta(days=length_days)
        return _of_length(_near(begin, now) if begin else _an_eighth_before(now, length), length_days)
    finish = _typed(end, "To", "end")
    begin = _typed(start, "From", "start") if start else _an_eighth_before(now, finish - now)
    if begin != _near(begin, now):
        raise Invalid(f"From: must be within {_FARTHEST_DAYS:,} days from now", field="start")
    if not (begin < finish and finish - _floor(begin, _DAY) <= MAX_DAYS * _DAY):
        raise Invalid(f"To: must be after From, by less than {MAX_DAYS} days", field="end")
    return _whole_columns(begin, finish)


def around_now(shown: ShownPeriod, now: datetime) -> ShownPeriod:
    """The period of the same length that begins shortly before `now`."""
    begin = _an_eighth_before(now, shown.end - shown.start)
    return _of_length(begin, shown.days) if shown.days else _whole_columns(begin, begin + (shown.end - shown.start))


def _an_eighth_before(now: datetime, length: timedelta) -> datetime:
    """A start that shows a little of the past: a full hour, or a midnight if the period has more than two days."""
    start, unit = now - max(length, timedelta(0)) / 8, timedelta(hours=1) if length <= 2 * _DAY else _DAY
    return _floor(min(start + unit / 2, now), unit)


def _of_length(start: datetime, days: int) -> ShownPeriod:
    """`days`: a key of `LENGTHS`."""
    length = timedelta(days=days)
    step = next(step for step in _steps() if length <= _MAX_COLUMNS * step)
    begin = _floor(start, min(step, _DAY))
    return ShownPeriod(begin, begin + length, step, days)


def _whole_columns(start: datetime, end: datetime) -> ShownPeriod:
    """The shortest period of whole columns that contains `start` to `end`."""
    begins = ((step, _floor(start, min(step, _DAY))) for step in _steps())
    step, begin = next((step, begin) for step, begin in begins if end - begin <= _MAX_COLUMNS * step)
    return ShownPeriod(begin, begin + ceil((end - begin) / step) * step, step, 0)


def _steps() -> list[timedelta]:
    return [timedelta(minutes=minutes) for minutes in _STEPS]


def _floor(moment: datetime, unit: timedelta) -> datetime:
    return moment - (moment - _EPOCH) % unit


def _near(moment: datetime, now: datetime) -> datetime:
    return min(max(moment, now - _FARTHEST_DAYS * _DAY), now + _FARTHEST_DAYS * _DAY)


def _typed(text: str, label: str, field: str) -> datetime:
    """Raises `Invalid`."""
    if (found := _moment(text)) is None:
        raise Invalid(f"{label}: {text} is not a date and time; use the form 2026-12-01 08:00", field=field)
    return found


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
    """Labels for hours, days, weeks from Monday on, or groups of three columns, depending on the period's length."""
    steps, length = shown.steps(), shown.end - shown.start
    if shown.step > _DAY:
        groups = [steps[number:number + 3] for number in range(0, len(steps), 3)]  # fmt: skip
        return _labelled(groups, _date_text)
    if shown.step == _DAY:
        return _labelled(_groups(steps, lambda each: each.isocalendar()[:2]), _date_text)
    if length > 2 * _DAY:
        return _labelled(_groups(steps, lambda each: _floor(each, _DAY)), _day_text)
    unit = timedelta(hours=4 if length > _DAY else 2 if length > _DAY / 2 else 1)
    return _labelled(_groups(steps, lambda each: _floor(each, unit)), _hour_text)


def _groups(steps: Sequence[datetime], key: Callable[[datetime], object]) -> list[list[datetime]]:
    return [list(group) for _, group in groupby(steps, key)]


def _hour_text(moment: datetime) -> str:
    return f"{moment:%H:%M}" if moment.hour else _day_text(moment)


def _date_text(moment: datetime) -> str:
    return f"{moment.day} {moment:%b}"


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
