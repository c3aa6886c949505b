"""The plan: rows to measure, on which clouds, and the goals of issue 3."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from bench import operations
from bench.cloud import LIST_FILTER, Cloud
from bench.load import Operation


class Unit(StrEnum):
    """The unit of a row's minimum and goal."""

    TIMES = "times"  #: how many times faster than upstream, in both p50 and server CPU
    MS = "ms"  #: the maximum p50 of our server
    PER_SECOND = "per second"  #: the minimum of our server
    MIB = "MiB"  #: the maximum of our server


@dataclass(frozen=True)
class Goal:
    least: float
    goal: float
    unit: Unit = Unit.TIMES


@dataclass(frozen=True)
class Measure:
    name: str
    operation: Callable[[Cloud], Operation]
    goal: Goal | None = None
    clients: int = 1
    #: Claims per operation.
    size: int = 1
    #: Upstream's answer would take too long: it is requested once, for up to --patience, and then upstream is
    #: restarted.
    explosive: bool = False
    full_only: bool = False


@dataclass(frozen=True)
class Stage:
    """One cloud on two new databases. `load` and `memory` are the goals of figures measured along the way."""

    cloud: Cloud
    measures: tuple[Measure, ...]
    load: Goal | None = None
    memory: Goal | None = None
    #: Hosts that upstream loads over HTTP; our server loads some more. The other hosts are written into the tables.
    loaded: int = field(default=40)


def stages(hosts: list[int], *, full: bool) -> list[Stage]:
    loaded = 300 if full else 40
    found = [_flat(number, loaded) for number in hosts]
    size = min(hosts[0], 1000)
    found += [_nested(size, loaded // 4), _sharing(size, loaded // 4), _wide(size, loaded // 8)]
    if full:
        return found
    return [
        Stage(one.cloud, tuple(row for row in one.measures if not row.full_only), one.load, one.memory, one.loaded)
        for one in found
    ]


def _asking(query: str, limit: int) -> Callable[[Cloud], Operation]:
    return lambda cloud: operations.candidates(cloud.queries()[query], limit)


def _flat(hosts: int, loaded: int) -> Stage:
    many = hosts >= 10_000
    searches = (
        Measure("candidates, limit 1,000", _asking("plain", 1000), Goal(400, 1000) if many else Goal(40, 80)),
        Measure("candidates, limit 10", _asking("plain", 10), Goal(2000, 4000) if many else Goal(200, 600)),
        Measure("candidates with traits and aggregates, limit 1,000", _asking("filtered", 1000)),
        Measure("candidates, rare class", _asking("rare", 1000), Goal(400, 1500) if many else Goal(75, 200)),
        Measure("no candidate (all full)", _asking("none", 1000), Goal(400, 1500) if many else Goal(75, 200)),
    )
    schedule = Measure(
        "schedule: candidates of 1,000 + claim",
        lambda cloud: operations.scheduling(cloud.queries()["plain"]),
        Goal(250, 500) if many else Goal(40, 80),
    )
    writes = (
        Measure("claim, 1 client", operations.claiming, Goal(25, 45)),
        Measure("claim, 32 clients", operations.claiming, Goal(60, 100), clients=32),
    )
    cloud = Cloud("flat", hosts, 2)
    if many:
        return Stage(cloud, (*searches, *writes, schedule), Goal(25, 50), Goal(300, 180, Unit.MIB), loaded)
    return Stage(
        cloud,
        (
            *searches,
            *_reads(),
            *writes,
            Measure("32 clients on one host", lambda cloud: operations.contending(), Goal(120, 250), clients=32),
            schedule,
            Measure("schedule, 8 clients", schedule.operation, clients=8, full_only=True),
            Measure(
                "POST /allocations of 50 claims, 2 clients",
                lambda cloud: operations.claiming_many(cloud, 50),
                Goal(10_000, 25_000, Unit.PER_SECOND),
                clients=2,
                size=50,
            ),
        ),
        Goal(25, 50),
        None,
        loaded,
    )


def _reads() -> tuple[Measure, ...]:
    def mixed(cloud: Cloud) -> Operation:
        kinds = operations.small_reads(cloud).values()
        return operations.reading([path for paths in zip(*kinds, strict=True) for path in paths])

    def one(kind: str) -> Callable[[Cloud], Operation]:
        return lambda cloud: operations.reading(operations.small_reads(cloud)[kind])

    goal = Goal(25, 80)
    return (
        Measure("small reads, mixed", mixed, goal),
        Measure("small reads, mixed, 8 clients", mixed, goal, clients=8),
        *(
            Measure(f"read: {kind}", one(kind), goal, full_only=True)
            for kind in operations.small_reads(Cloud("flat", 1, 0))
        ),
        Measure("list of all providers", lambda cloud: operations.reading(["/resource_providers"]), Goal(15, 40)),
        Measure(
            "filtered list", lambda cloud: operations.reading([f"/resource_providers?{LIST_FILTER}"]), Goal(40, 100)
        ),
    )


def _nested(hosts: int, loaded: int) -> Stage:
    goal = Goal(60, 150)
    rows = {
        "root group": "plain",
        "root + NUMA + GPU, isolate, same_subtree": "subtree",
        "two NUMA groups, isolate": "two_nodes",
        "three GPU groups, isolate": "three_gpus",
    }
    measures = tuple(Measure(f"nested: {name}", _asking(query, 1000), goal) for name, query in rows.items())
    return Stage(Cloud("nested", hosts, 1), measures, loaded=loaded)


def _sharing(hosts: int, loaded: int) -> Stage:
    measures = (
        Measure("sharing, limit 1,000", _asking("plain", 1000), Goal(40, 100)),
        Measure("sharing, limit 10", _asking("plain", 10), Goal(40, 100)),
        Measure("sharing with traits and aggregates", _asking("filtered", 1000), Goal(40, 100)),
    )
    return Stage(Cloud("sharing", hosts, 2), measures, loaded=loaded)


def _wide(hosts: int, loaded: int) -> Stage:
    def wide(groups: int, *, one_host: bool) -> Callable[[Cloud], Operation]:
        return lambda cloud: operations.candidates(cloud.wide_query(groups, one_host=one_host), 1000)

    one = Goal(20, 5, Unit.MS)
    all_of_them = Goal(100, 20, Unit.MS) if hosts >= 1000 else None
    measures = (
        Measure("wide: 2 groups, 1 host", wide(2, one_host=True)),
        Measure("wide: 6 groups, 1 host", wide(6, one_host=True), one, explosive=True),
        Measure("wide: 8 groups, 1 host", wide(8, one_host=True), one, explosive=True),
        Measure(f"wide: 6 groups, {hosts:,} hosts", wide(6, one_host=False), all_of_them, explosive=True),
        Measure(f"wide: 8 groups, {hosts:,} hosts", wide(8, one_host=False), all_of_them, explosive=True),
    )
    return Stage(Cloud("wide", hosts, 0), measures, loaded=loaded)
