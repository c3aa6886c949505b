"""The plan: rows to measure, on which clouds. `bench.floors` has the floors of the headline rows."""

from collections.abc import Callable
from dataclasses import dataclass, field

from bench import operations
from bench.cloud import LIST_FILTER, Cloud
from bench.load import Operation


@dataclass(frozen=True)
class Measure:
    name: str
    operation: Callable[[Cloud], Operation]
    clients: int = 1
    #: Claims per operation.
    size: int = 1
    #: Upstream's answer would take too long: it is requested once, for up to --patience, and then upstream is
    #: restarted.
    explosive: bool = False
    full_only: bool = False


@dataclass(frozen=True)
class Stage:
    """One cloud on two new databases."""

    cloud: Cloud
    measures: tuple[Measure, ...]
    #: Hosts that upstream loads over HTTP; our server loads some more. The other hosts are written into the tables.
    loaded: int = field(default=40)


def stages(hosts: list[int], *, full: bool) -> list[Stage]:
    loaded = 300 if full else 40
    found = [_flat(number, loaded) for number in hosts]
    size = min(hosts[0], 1000)
    found += [_nested(size, loaded // 4), _sharing(size, loaded // 4), _wide(size, loaded // 8)]
    if full:
        return found
    return [Stage(one.cloud, tuple(row for row in one.measures if not row.full_only), one.loaded) for one in found]


def _asking(query: str, limit: int) -> Callable[[Cloud], Operation]:
    return lambda cloud: operations.candidates(cloud.queries()[query], limit)


def _flat(hosts: int, loaded: int) -> Stage:
    searches = (
        Measure("candidates, limit 1,000", _asking("plain", 1000)),
        Measure("candidates, limit 10", _asking("plain", 10)),
        Measure("candidates with traits and aggregates, limit 1,000", _asking("filtered", 1000)),
        Measure("candidates, rare class", _asking("rare", 1000)),
        Measure("no candidate (all full)", _asking("none", 1000)),
    )
    schedule = Measure(
        "schedule: candidates of 1,000 + claim",
        lambda cloud: operations.scheduling(cloud.queries()["plain"]),
    )
    writes = (
        Measure("claim, 1 client", operations.claiming),
        Measure("claim, 32 clients", operations.claiming, clients=32),
    )
    cloud = Cloud("flat", hosts, 2)
    if hosts >= 10_000:
        return Stage(cloud, (*searches, *writes, schedule), loaded)
    return Stage(
        cloud,
        (
            *searches,
            *_reads(),
            *writes,
            Measure("32 clients on one host", lambda cloud: operations.contending(), clients=32),
            schedule,
            Measure("schedule, 8 clients", schedule.operation, clients=8, full_only=True),
            Measure(
                "POST /allocations of 50 claims, 2 clients",
                lambda cloud: operations.claiming_many(cloud, 50),
                clients=2,
                size=50,
            ),
        ),
        loaded,
    )


def _reads() -> tuple[Measure, ...]:
    def mixed(cloud: Cloud) -> Operation:
        kinds = operations.small_reads(cloud).values()
        return operations.reading([path for paths in zip(*kinds, strict=True) for path in paths])

    def one(kind: str) -> Callable[[Cloud], Operation]:
        return lambda cloud: operations.reading(operations.small_reads(cloud)[kind])

    return (
        Measure("small reads, mixed", mixed),
        Measure("small reads, mixed, 8 clients", mixed, clients=8),
        *(Measure(f"read: {kind}", one(kind), full_only=True) for kind in operations.small_reads(Cloud("flat", 1, 0))),
        Measure("list of all providers", lambda cloud: operations.reading(["/resource_providers"])),
        Measure("filtered list", lambda cloud: operations.reading([f"/resource_providers?{LIST_FILTER}"])),
    )


def _nested(hosts: int, loaded: int) -> Stage:
    rows = {
        "root group": "plain",
        "root + NUMA + GPU, isolate, same_subtree": "subtree",
        "two NUMA groups, isolate": "two_nodes",
        "three GPU groups, isolate": "three_gpus",
    }
    measures = tuple(Measure(f"nested: {name}", _asking(query, 1000)) for name, query in rows.items())
    return Stage(Cloud("nested", hosts, 1), measures, loaded=loaded)


def _sharing(hosts: int, loaded: int) -> Stage:
    measures = (
        Measure("sharing, limit 1,000", _asking("plain", 1000)),
        Measure("sharing, limit 10", _asking("plain", 10)),
        Measure("sharing with traits and aggregates", _asking("filtered", 1000)),
    )
    return Stage(Cloud("sharing", hosts, 2), measures, loaded=loaded)


def _wide(hosts: int, loaded: int) -> Stage:
    def wide(groups: int, *, one_host: bool) -> Callable[[Cloud], Operation]:
        return lambda cloud: operations.candidates(cloud.wide_query(groups, one_host=one_host), 1000)

    measures = (
        Measure("wide: 2 groups, 1 host", wide(2, one_host=True)),
        Measure("wide: 6 groups, 1 host", wide(6, one_host=True), explosive=True),
        Measure("wide: 8 groups, 1 host", wide(8, one_host=True), explosive=True),
        Measure(f"wide: 6 groups, {hosts:,} hosts", wide(6, one_host=False), explosive=True),
        Measure(f"wide: 8 groups, {hosts:,} hosts", wide(8, one_host=False), explosive=True),
    )
    return Stage(Cloud("wide", hosts, 0), measures, loaded=loaded)
