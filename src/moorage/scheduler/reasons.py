"""The reasons why no host was found: counts without host names for users, names for administrators.

    No valid host was found. 12 hosts considered; resources:CUSTOM_GOLD=1 left 3; 3 hosts: its compute service is down.

The first sentence is Nova's; clients search for it. Then come the counts: first those of Placement, constraint by
constraint, then those of the scheduler's filters, then the claims that others overtook.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from moorage.scheduler.filters import FILTERS
from moorage.scheduler.host_ranking import count_reasons

NO_VALID_HOST = "No valid host was found."


@dataclass(frozen=True)
class RejectionCount:
    """The number of hosts before and after one condition."""

    condition: str
    before: int
    after: int
    examples: tuple[str, ...] = ()  #: sentences that name hosts


@dataclass(frozen=True)
class Reasons:
    """`query`: the query to Placement. `rejected`: {host: (filter, reason)}. `refused_claims`: {host: number}."""

    query: str
    counts: tuple[RejectionCount, ...] = ()
    note: str = ""  #: a reason without a count
    closest: tuple[str, ...] = ()  #: the hosts that lack least, with what each of them lacks
    change: str = ""  #: the smallest change that would make the request fit
    rejected: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    refused_claims: Mapping[str, int] = field(default_factory=dict)

    def user_message(self) -> str:
        """Conditions and counts, without host names."""
        parts = []
        if self.counts:
            considered = self.counts[0].before
            funnel = [f"{considered} {'host' if considered == 1 else 'hosts'} considered"]
            funnel += [f"{one.condition} left {one.after}" for one in self.counts if one.after < one.before]
            parts.append("; ".join(funnel))
        if self.rejected:
            reasons = {host: why for host, (_, why) in self.rejected.items()}
            parts.append(f"Placement has capacity, but: {count_reasons(reasons)}")
        if self.refused_claims:
            claims = sum(self.refused_claims.values())
            parts.append(f"all of {claims} claims were overtaken by others; try again")
        return ". ".join([*parts, *([self.note] if self.note else [])]).rstrip(".") + "."

    def admin_details(self) -> str:
        """One line per fact, with host names."""
        lines = [self.query] if self.query else []
        for one in self.counts:
            lines += [f"{one.condition}: {one.before} -> {one.after}", *(f"  {why}" for why in one.examples)]
        lines += [f"{name}: {before} -> {after}" for name, before, after in self.filter_counts()]
        lines += [f"{host}: {reason}" for host, (_, reason) in sorted(self.rejected.items())]
        lines += [f"{host}: {count} claims refused" for host, count in sorted(self.refused_claims.items())]
        lines += [f"closest: {text}" for text in self.closest]
        return "\n".join([*lines, *([f"would fit: {self.change}"] if self.change else [])])

    def rejected_counts(self) -> dict[str, int]:
        """{reason: hosts}"""
        return dict(Counter(why for _, why in self.rejected.values()))

    def filter_counts(self) -> Sequence[tuple[str, int, int]]:
        """(filter, hosts before it, hosts after it) for filters that rejected some hosts."""
        left, found = len(self.rejected) + len(self.refused_claims), []
        ours, given = (passes.__name__ for passes in FILTERS), (by for by, _ in self.rejected.values())
        for name in dict.fromkeys(("is_known", *ours, *sorted(given))):
            removed = sum(1 for by, _ in self.rejected.values() if by == name)
            if removed:
                found.append((name, left, left - removed))
                left -= removed
        return found
