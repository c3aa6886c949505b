"""How much a project may reserve: at any one time, and in hours over a period. Values only.

A period slides: in no `period` of the calendar, wherever it begins, may there be more than so many hours of a class.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt

from moorage.reservation.model.slot_demand import WHOLE_HOST, Amounts, class_of

#: What whole hosts count as.
HOSTS = "HOSTS"

#: What addresses of floating IPs count as, of whatever network.
FLOATING_IPS = "FLOATING_IPS"


@dataclass(frozen=True, slots=True)
class ProjectLimits:
    """{resource class: units}, {resource class: units times hours in a period}; a class without a limit has none."""

    now: Mapping[str, int] = field(default_factory=dict)
    hours: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reserved:
    """What one reservation takes, or took."""

    reservation_id: str
    start: datetime
    end: datetime
    amounts: Amounts


def counted(slots: Iterable[Amounts]) -> dict[str, int]:
    """What these slots count as: whole hosts by their number, a class wherever on a host it lies."""
    total: dict[str, int] = {}
    for amounts in slots:
        for name, amount in amounts.items():
            key = HOSTS if name == WHOLE_HOST else class_of(name)
            total[key] = total.get(key, 0) + amount
    return total


def refusal(
    limits: ProjectLimits, period: timedelta, reserved: Sequence[Reserved], start: datetime, end: datetime
) -> str | None:
    """Why `reserved` is too much somewhere in ``[start, end)``; None where it is not.

    `reserved` must hold all of the project from `period` before `start` to `period` after `end`.
    """
    for name, most in limits.now.items():
        if (peak := _peak(_of(reserved, name), start, end)) > most:
            return f"the project may reserve {most} {name} at one time, this would make {peak}"
    for name, most in limits.hours.items():
        if (hours := _most_hours(_of(reserved, name), period)) > most:
            return f"the project may reserve {most} hours of {name} in {period.days} days, this would make {hours:.1f}"
    return None


_Periods = list[tuple[float, float, int]]


def _of(reserved: Iterable[Reserved], name: str) -> _Periods:
    found = ((each.start.timestamp(), each.end.timestamp(), each.amounts.get(name, 0)) for each in reserved)
    return [each for each in found if each[2] and each[1] > each[0]]


def _peak(periods: _Periods, start: datetime, end: datetime) -> int:
    low, high = start.timestamp(), end.timestamp()
    times, use = _steps([(max(a, low), min(b, high), n) for a, b, n in periods if a < high and b > low])
    return int(use.max()) if len(times) else 0


def _most_hours(periods: _Periods, period: timedelta) -> float:
    """The most in any period. It changes evenly in between, so it is most where one begins or ends with a change."""
    times, use = _steps(periods)
    if not len(times):
        return 0.0
    until = np.concatenate([[0.0], np.cumsum(use[:-1] * np.diff(times))])
    length = period.total_seconds()
    begins = np.concatenate([times, times - length])
    taken = np.interp(begins + length, times, until) - np.interp(begins, times, until)
    return float(taken.max()) / 3600


def _steps(periods: _Periods) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """(times, what is taken from each of them on)"""
    if not periods:
        return np.zeros(0), np.zeros(0, np.int64)
    starts, ends, amounts = (np.array(column) for column in zip(*periods, strict=True))
    times, where = np.unique(np.concatenate([starts, ends]), return_inverse=True)
    delta = np.zeros(len(times), np.int64)
    np.add.at(delta, where, np.concatenate([amounts, -amounts]))
    return times, delta.cumsum()
