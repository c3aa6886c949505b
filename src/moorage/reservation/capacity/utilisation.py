"""How busy the hosts are over time, all together: what may be shown to everybody. Values only."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from moorage.reservation.capacity.calendar import Calendar
from moorage.reservation.capacity.step_blocks import Ints
from moorage.reservation.model.limits import counted


@dataclass(frozen=True, slots=True)
class Utilisation:
    """The most that is used at one time in ``[start, end)``, by resource class."""

    start: datetime
    end: datetime
    used: Mapping[str, int]


def capacity(calendar: Calendar, hosts: Collection[int] | None = None) -> dict[str, int]:
    """What there is on these hosts together; None: on all."""
    return _named(calendar, calendar.capacity[_rows(calendar, hosts)].sum(axis=0).tolist())


def _rows(calendar: Calendar, hosts: Collection[int] | None) -> Ints:
    numbers = np.arange(len(calendar.hosts))
    return numbers if hosts is None else numbers[np.isin(calendar.hosts, list(hosts))]


def busy(
    calendar: Calendar, start: datetime, end: datetime, step: timedelta, hosts: Collection[int] | None = None
) -> list[Utilisation]:
    """One after another; neighbours in which the same is used are one. Of these hosts; None: of all."""
    low, high = int(start.timestamp()), int(end.timestamp())
    bounds = np.arange(low, high, int(step.total_seconds()))
    rows = None if hosts is None else _rows(calendar, hosts)
    most = calendar.together(low, high, rows).most(bounds, high)
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
