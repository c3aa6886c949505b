"""A finding of a check: severity, problem, place and remedy. Also the comparison of clocks that checks share."""

from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum


class Severity(IntEnum):
    """Ordered; the worst one decides the exit status."""

    FINE = 0
    WARNING = 1
    BROKEN = 2


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """`check`: a stable name for programs. `remedy`: empty if there is nothing to do."""

    severity: Severity
    check: str
    what: str
    where: str = ""
    remedy: str = ""


def fine(check: str, what: str, where: object = "") -> CheckFinding:
    return CheckFinding(Severity.FINE, check, what, str(where))


def warning(check: str, what: str, where: object, remedy: str) -> CheckFinding:
    return CheckFinding(Severity.WARNING, check, what, str(where), remedy)


def broken(check: str, what: str, where: object, remedy: str) -> CheckFinding:
    return CheckFinding(Severity.BROKEN, check, what, str(where), remedy)


#: From APART_S on, heartbeats and job leases are misjudged; from FAR_APART_S on, short-lived tokens and leases fail.
APART_S, FAR_APART_S = 2.0, 20.0


def compare_clocks(
    check: str, where: str, their_time: datetime, before: datetime, after: datetime, *, precision_s: float
) -> CheckFinding:
    """`their_time` was read between `before` and `after` on our own clock, and is truncated to `precision_s`."""
    ahead = max(0.0, (their_time - after).total_seconds())
    behind = max(0.0, (before - their_time).total_seconds() - precision_s)
    apart = ahead or behind
    said = f"its clock is {apart:.0f} s {'ahead of' if ahead else 'behind'} this machine's"
    remedy = "synchronise both clocks with NTP (timedatectl, chronyc tracking)"
    if apart > FAR_APART_S:
        return broken(check, said, where, remedy)
    if apart > APART_S:
        return warning(check, said, where, remedy)
    return fine(check, "its clock agrees with this machine's", where)
