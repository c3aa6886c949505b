"""The floors of issue 17 for its headline rows, in the order of the issue.

They hold on PostgreSQL. A factor compares the CPU per request of upstream and of our server in one run: on a shared
machine p50 changes much, and CPU little.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Unit(StrEnum):
    TIMES = "x"  #: the minimum of upstream's CPU per request, divided by ours
    MS = " ms"  #: the maximum p50 of our server


@dataclass(frozen=True)
class Floor:
    value: float
    unit: Unit = Unit.TIMES

    def is_reached(self, value: float) -> bool:
        return value >= self.value if self.unit is Unit.TIMES else value <= self.value

    def __str__(self) -> str:
        return f"{self.value:,.0f}{self.unit}"


@dataclass(frozen=True)
class Headline:
    """A headline of the issue, and the rows of `bench.plan` that it stands for, at one size of one kind of cloud."""

    name: str
    floor: Floor
    rows: tuple[str, ...]
    profile: str = "flat"
    hosts: int = 1000


@dataclass(frozen=True)
class OtherHeadline:
    """A headline that another command of the bench measures."""

    name: str
    floor: str
    command: str  #: the argument of `make bench`


_LIMIT_1000, _LIMIT_10 = ("candidates, limit 1,000",), ("candidates, limit 10",)
LOADING = "loading a host (4 requests and more), 8 clients"

HEADLINES = (
    Headline("candidates, limit 1,000", Floor(100), _LIMIT_1000),
    Headline("candidates, limit 10", Floor(300), _LIMIT_10),
    Headline("candidates, rare or none", Floor(75), ("candidates, rare class", "no candidate (all full)")),
    Headline("candidates, limit 1,000", Floor(1000), _LIMIT_1000, hosts=10_000),
    Headline("candidates, limit 10", Floor(2000), _LIMIT_10, hosts=10_000),
    Headline(
        "nested",
        Floor(100),
        (
            "nested: root group",
            "nested: root + NUMA + GPU, isolate, same_subtree",
            "nested: two NUMA groups, isolate",
            "nested: three GPU groups, isolate",
        ),
        "nested",
    ),
    Headline(
        "sharing",
        Floor(100),
        ("sharing, limit 1,000", "sharing, limit 10", "sharing with traits and aggregates"),
        "sharing",
    ),
    Headline(
        "wide trees",
        Floor(20, Unit.MS),
        ("wide: 6 groups, 1 host", "wide: 8 groups, 1 host", "wide: 6 groups, 1,000 hosts", "wide: 8 groups, 1,000 hosts"),
        "wide",
    ),
    Headline("claim, 1 client", Floor(18), ("claim, 1 client",)),
    Headline("claim, 32 clients", Floor(45), ("claim, 32 clients",)),
    Headline("claims on one host", Floor(100), ("32 clients on one host",)),
    Headline("schedule loop", Floor(60), ("schedule: candidates of 1,000 + claim",)),
    Headline("small reads", Floor(18), ("small reads, mixed", "small reads, mixed, 8 clients")),
    Headline("lists", Floor(35), ("list of all providers", "filtered list")),
    Headline("loading", Floor(15), (LOADING,)),
)  # fmt: skip

MILLION = OtherHeadline("a million claims over 5,000 hosts", "under 8 minutes", "million")
SCHEDULER = OtherHeadline("servers placed at 10,000 hosts", "500 per second, p99 under 50 ms", "scheduler")
SLOTS = OtherHeadline("slots on every host", "p99 15 ms at most", "reservations")
LEASES = OtherHeadline("lease create beside 100,000 reservations", "p50 50 ms at most", "reservations")
ARQS = OtherHeadline("an accelerator request's cycle", "p50 30 ms at most, flat to 100,000", "arqs")
START = OtherHeadline("start at 10,000 hosts", "under 1 s", "growth")

OTHER_HEADLINES = (MILLION, SCHEDULER, SLOTS, LEASES, ARQS, START)


def floor_of(database: str, profile: str, hosts: int, row: str) -> Floor | None:
    """The floor of a row of `bench.plan`; None if it is in no headline."""
    if database != "postgresql":
        return None
    return next((one.floor for one in _headlines(profile, hosts) if row in one.rows), None)


def _headlines(profile: str, hosts: int) -> Iterator[Headline]:
    return (one for one in HEADLINES if (one.profile, one.hosts) == (profile, hosts))
