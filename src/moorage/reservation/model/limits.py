"""Limits on the reservations of a project: units at any one time, and unit-hours in a sliding period. No I/O.

The limit in hours applies to every window of length `period`, wherever it begins.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt

from moorage.reservation.model.slot_demand import WHOLE_HOST, Amounts, class_of

#: The name under which limits count whole hosts.
HOSTS = "HOSTS"

#: The name under which limits count floating IP addresses, of all networks together.
FLOATING_IPS = "FLOATING_IPS"


@dataclass(frozen=True, slots=True)
class ProjectLimits:
    """`now`: {resource class: units at any one time}; `hours`: {resource class: unit-hours in a period}.

    A class without an entry is unlimited.
    """

    now: Mapping[str, int] = field(default_factory=dict)
    hours: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reserved:
    """The amounts of one present or past reservation over ``[start, end)``."""

    reservation_id: str
    start: datetime
    end: datetime
    amounts: Amounts


def counted(slots: Iterable[Amounts]) -> dict[str, int]:
    """The amounts of these slots as limits count them: whole hosts as `HOSTS`, and each class over all providers."""
    total: dict[str, int] = {}
    for amounts in slots:
        for name, amount in amounts.items():
            key = HOSTS if name == WHOLE_HOST else class_of(name)
            total[key] = total.get(key, 0) + amount
    return total


def refusal(
    limits: ProjectLimits, period: timedelta, reserved: Sequence[Reserved], start: datetime, end: datetime
) -> str | None:
    """The reason if `reserved` exceeds a limit in ``[start, end)``; None if it does not.

    `reserved` must include all reservations of the project from `period` before `start` to `period` after `end`.
    """
    for name, most in limits.now.items():
        if (peak := _peak(_of(reserved, name), start, end)) > most:
            return f"the project may reserve {most} {name} at any one time, and this would make it {peak}"
    for name, most in limits.hours.items():
        if (hours := _most_hours(_of(reserved, name), period)) > most:
            return (
                f"the project may reserve {most} hours of {name} in {period.days} days, "
                f"and this would make it {hours:.1f}"
            )
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
    """The maximum unit-hours in any window of length `period`.

    The sum is linear between changes of usage, so a maximum is at a window that begins or ends at a change.
    """
    times, use = _steps(periods)
    if not len(times):
        return 0.0
    until = np.concatenate([[0.0], np.cumsum(use[:-1] * np.diff(times))])
    length = period.total_seconds()
    begins = np.concatenate([times, times - length])
    taken = np.interp(begins + length, times, until) - np.interp(begins, times, until)
    return float(taken.max()) / 3600


def _steps(periods: _Periods) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """(times, ascending; the usage from each of them on)"""
    if not periods:
        return np.zeros(0), np.zeros(0, np.int64)
    starts, ends, amounts = (np.array(column) for column in zip(*periods, strict=True))
    times, where = np.unique(np.concatenate([starts, ends]), return_inverse=True)
    delta = np.zeros(len(times), np.int64)
    np.add.at(delta, where, np.concatenate([amounts, -amounts]))
    return times, delta.cumsum()
