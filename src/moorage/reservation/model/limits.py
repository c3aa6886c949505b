"""Limits on the reservations of a project or user: units at any one time, and unit-hours in a sliding period. No I/O.

The limit in hours applies to every window of length `period`, wherever it begins.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from moorage.reservation.model.slot_demand import WHOLE_HOST, Amounts, class_of

#: The name under which limits count whole hosts.
HOSTS = "HOSTS"

#: The name under which limits count floating IP addresses, of all networks together.
FLOATING_IPS = "FLOATING_IPS"

#: The name under which `Limits.now` counts leases that have not ended, and holds, whenever they begin.
LEASES = "LEASES"

#: The end of every refusal.
REMEDY = "Ask for less or for another time, end or shrink other leases, or ask an administrator for a higher limit."


class AccountKind(StrEnum):
    PROJECT = "project"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Account:
    """A project, or a user with leases and holds of all projects. A lease or hold counts for both of its accounts."""

    kind: AccountKind
    id: str


def accounts_of(project_id: str, user_id: str) -> tuple[Account, Account]:
    """In the order in which they are locked."""
    return Account(AccountKind.PROJECT, project_id), Account(AccountKind.USER, user_id)


@dataclass(frozen=True, slots=True)
class Limits:
    """`now`: {resource class: units at any one time}; `hours`: {resource class: unit-hours in a period}.

    A class without an entry is unlimited.
    """

    now: Mapping[str, int] = field(default_factory=dict)
    hours: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reserved:
    """The amounts of one present or past reservation, or of one hold, over ``[start, end)``."""

    reservation_id: str
    start: datetime
    end: datetime
    amounts: Amounts


@dataclass(frozen=True, slots=True)
class Exceeded:
    """A limit that a request exceeds. `used`, `asked`: units or unit-hours, where and when they are the most."""

    name: str
    limit: int
    used: float
    asked: float
    reason: str


def counted(slots: Iterable[Amounts]) -> dict[str, int]:
    """The amounts of these slots: whole hosts as `HOSTS`, and each class over all providers."""
    total: dict[str, int] = {}
    for amounts in slots:
        for name, amount in amounts.items():
            key = HOSTS if name == WHOLE_HOST else class_of(name)
            total[key] = total.get(key, 0) + amount
    return total


def charged(placing: Mapping[int, Sequence[Amounts]], whole: Mapping[int, Amounts]) -> dict[str, int]:
    """The amounts that limits count of these slots, {host id: amounts of each slot}.

    A whole host counts as one of `HOSTS` and as all that it has: `whole` is {host id: {label: units}}.
    """
    slots = [amounts for some in placing.values() for amounts in some]
    return counted([*slots, *(whole.get(host, {}) for host in whole_hosts(placing))])


def whole_hosts(placing: Mapping[int, Sequence[Amounts]]) -> list[int]:
    """The hosts of which a slot takes the whole."""
    return [host for host, some in placing.items() if any(WHOLE_HOST in amounts for amounts in some)]


@dataclass(frozen=True, slots=True)
class Window:
    """Usage that ended before `now` counts only in hours. `period`: the length of time over which hours are counted."""

    now: datetime
    period: timedelta


def first_exceeded(
    limits: Limits,
    window: Window,
    others: Sequence[Reserved],
    asked: Sequence[Reserved],
    before: Sequence[Reserved] = (),
) -> Exceeded | None:
    """The first limit that `asked` exceeds; None if it exceeds none.

    `others`: all other usage of the account, at least from `window.period` before the start of `asked` to that long
    after its end. `before`: the usage that `asked` replaces. A request that adds nothing to a class is within its
    limit, even if an administrator has lowered the limit.
    """
    present = [each for each in others if each.end > window.now]
    for name, most in limits.now.items():
        if name == LEASES:
            continue
        found = _Profiles.of(name, present, asked, before)
        if (peak := _peak(found.times, found.used, found.added)) and peak.total > most:
            reason = (
                f"at most {most} {name} may be reserved at any one time; from {peak.at:%Y-%m-%d %H:%M} on "
                f"{peak.used:.0f} are in use, and this request adds {peak.added:.0f}"
            )
            return Exceeded(name, most, peak.used, peak.added, reason)
    for name, most in limits.hours.items():
        if (peak := _most_hours(_Profiles.of(name, others, asked, before), window.period)) and peak.total > most:
            reason = (
                f"at most {most} hours of {name} may be reserved in {window.period.days} days; in those from "
                f"{peak.at:%Y-%m-%d %H:%M} on {peak.used:.1f} are in use, and this request adds {peak.added:.1f}"
            )
            return Exceeded(name, most, peak.used, peak.added, reason)
    return None


@dataclass(frozen=True, slots=True)
class _Peak:
    at: datetime
    used: float
    added: float

    @property
    def total(self) -> float:
        return self.used + self.added


@dataclass(frozen=True, slots=True)
class _Profiles:
    """Step functions: from each of `times` (ascending, seconds) on, `used` is in use, and the request adds `added`."""

    times: npt.NDArray[np.float64]
    used: npt.NDArray[np.int64]
    added: npt.NDArray[np.int64]

    @classmethod
    def of(
        cls, name: str, others: Sequence[Reserved], asked: Sequence[Reserved], before: Sequence[Reserved]
    ) -> "_Profiles":
        used, new, old = (_periods(name, each) for each in ([*others, *before], asked, before))
        times = np.unique(np.array([moment for start, end, _ in (*used, *new) for moment in (start, end)]))
        return cls(times, _steps(times, used), _steps(times, new) - _steps(times, old))


_Periods = list[tuple[float, float, int]]


def _periods(name: str, reserved: Iterable[Reserved]) -> _Periods:
    found = ((each.start.timestamp(), each.end.timestamp(), each.amounts.get(name, 0)) for each in reserved)
    return [each for each in found if each[2] and each[1] > each[0]]


def _steps(times: npt.NDArray[np.float64], periods: _Periods) -> npt.NDArray[np.int64]:
    delta = np.zeros(len(times), np.int64)
    if periods:
        starts, ends, amounts = (np.array(column) for column in zip(*periods, strict=True))
        np.add.at(delta, np.searchsorted(times, starts), amounts)
        np.add.at(delta, np.searchsorted(times, ends), -amounts)
    return delta.cumsum()


def _most_hours(found: _Profiles, period: timedelta) -> _Peak | None:
    """The most unit-hours in a window of length `period` to which the request adds; None if it adds to none.

    The sum is linear between changes of usage, so a maximum is at a window that begins or ends at a change.
    """
    times, length = found.times, period.total_seconds()
    if not len(times):
        return None
    begins = np.concatenate([times, times - length])

    def hours(use: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        until = np.concatenate([[0.0], np.cumsum(use[:-1] * np.diff(times))])
        taken: npt.NDArray[np.float64] = np.interp(begins + length, times, until) - np.interp(begins, times, until)
        return taken / 3600

    return _peak(begins, hours(found.used), hours(found.added))


def _peak(
    times: npt.NDArray[np.float64],
    used: npt.NDArray[np.float64] | npt.NDArray[np.int64],
    added: npt.NDArray[np.float64] | npt.NDArray[np.int64],
) -> _Peak | None:
    """The highest use at a time to which the request adds; None if it adds nowhere."""
    grows = np.flatnonzero(added > 0)
    if not len(grows):
        return None
    at = grows[np.argmax((used + added)[grows])]
    return _Peak(datetime.fromtimestamp(float(times[at]), UTC), float(used[at]), float(added[at]))
