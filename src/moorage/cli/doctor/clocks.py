"""Clocks against each other: leases, claims and tokens say "until" by the clock of whoever wrote them."""

from datetime import datetime

from moorage.cli.doctor.finding import CheckFinding, broken, fine, warning

#: So far apart, heartbeats and job leases begin to be judged wrongly; and here tokens and leases of a minute are void.
APART_S, FAR_APART_S = 2.0, 20.0


def judged(
    check: str, where: str, there: datetime, before: datetime, after: datetime, *, precision_s: float
) -> CheckFinding:
    """`there` was read between `before` and `after` of our own clock, and is cut off to `precision_s`."""
    ahead = max(0.0, (there - after).total_seconds())
    behind = max(0.0, (before - there).total_seconds() - precision_s)
    apart = ahead or behind
    said = f"its clock is {apart:.0f} s {'ahead of' if ahead else 'behind'} this machine's"
    remedy = "let both follow NTP (timedatectl, chronyc tracking)"
    if apart > FAR_APART_S:
        return broken(check, said, where, remedy)
    if apart > APART_S:
        return warning(check, said, where, remedy)
    return fine(check, "its clock agrees with this machine's", where)
