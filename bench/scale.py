"""Moorage alone, at sizes that upstream cannot handle: a million claims, a million allocations, a hundred thousand
hosts.

Clouds are filled directly (`bench.fill_ours`). Each command uses its own temporary database.
"""

import contextlib
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from bench import fill_ours, invariants, operations, servers
from bench.cloud import Cloud
from bench.databases import DatabaseServer, database_server, free_port, free_ports
from bench.floors import MILLION, START
from bench.load import Round, Watched, drive
from bench.processes import cpu_seconds, memory_mib
from bench.servers import Server
from bench.table import Figure
from bench.wire import Connection

Say = Callable[[Figure], None]

#: Claims per line of progress.
PORTION = 100_000
#: Rounds of an explanation and of its query, which alternate.
ROUNDS = 5
NAME = "scale"


class Filled(NamedTuple):
    server: Server
    url: str
    database: DatabaseServer
    seconds: float  #: duration of the filling


@contextlib.contextmanager
def filled_cloud(kind: str, cloud: Cloud) -> Iterator[Filled]:
    """A server of ours, not running, on a database with `cloud`."""
    with database_server(kind) as database:
        server = servers.ours(database, NAME, free_port())
        with servers.running(server):
            operations.names(Connection(server.url))
        url = database.url_of(NAME)
        seconds = fill_ours.fill(url, cloud)
        database.settle(NAME)
        try:
            yield Filled(server, url, database, seconds)
        finally:
            server.stop()


def million(kind: str, say: Say, *, claims: int, hosts: int, clients: int) -> None:
    """Durable claims, one request each; then checks all invariants on the tables and on a new forest."""
    cloud = Cloud("flat", hosts, 0)
    with filled_cloud(kind, cloud) as filled:
        server = filled.server
        server.start()
        total = Round()
        started = time.perf_counter()
        while sum(total.statuses.values()) < claims:
            portion = min(PORTION, claims - sum(total.statuses.values()))
            found = _drive(filled, operations.claiming(cloud, portion), clients)
            total.statuses += found.statuses
            total.latencies += found.latencies
            total.server_cpu += found.server_cpu
            total.database_cpu += found.database_cpu
            say(Figure(f"  {sum(total.statuses.values()):,} claims", f"{portion / found.wall:,.0f} per s"))
        wall = time.perf_counter() - started
        acknowledged = total.statuses[204]
        answers = ", ".join(f"{status}: {count:,}" for status, count in sorted(total.statuses.items()))
        say(
            Figure(
                f"{claims:,} durable claims over {hosts:,} hosts, {clients} clients",
                f"{wall:.0f} s",
                f"{claims / wall:,.0f} per s; {_quantiles(total)}; {_cpu(total)}; answers {answers}",
                MILLION.floor,
            )
        )
        say(_memory(filled, f"memory after {claims:,} claims"))
        server.stop()
        _check(filled, say, acknowledged)


def _check(filled: Filled, say: Say, acknowledged: int) -> None:
    started = time.perf_counter()
    wrong = invariants.violations(filled.url)
    kept = invariants.count(filled.url, "consumers")
    if kept != acknowledged:
        wrong["acknowledged claims that are not there, or others"] = abs(kept - acknowledged)
    text = ", ".join(f"{what}: {count:,}" for what, count in wrong.items()) or "every acknowledged claim is there"
    seconds = f"checked in {time.perf_counter() - started:.0f} s"
    say(
        Figure(
            "violations of any invariant, from SQL and from the forest",
            f"{sum(wrong.values()):,}",
            f"{text}; {seconds}",
            "0",
        )
    )


def large(kind: str, say: Say, *, hosts: int, servers_per_host: int) -> None:
    """Memory, and the time from start to the first answer with candidates."""
    cloud = Cloud("flat", hosts, servers_per_host)
    with filled_cloud(kind, cloud) as filled:
        size = f"{invariants.count(filled.url, 'providers'):,} providers, "
        size += f"{invariants.count(filled.url, 'allocations'):,} allocations"
        say(Figure(f"{size}: filled", f"{filled.seconds:.0f} s"))
        starts = sorted(_start(filled, cloud) for _ in range(3))
        say(Figure(f"{size}: start to serving", f"{starts[1][0]:.2f} s", _startings(starts), "3 s / 1 s"))
        say(_memory(filled, f"{size}: memory, just started", "1024 / 600 MiB"))
        _drive(filled, operations.candidates(cloud.queries()["plain"], 1000), 1, 3)
        _drive(filled, operations.claiming(cloud), 8, 3)
        say(_memory(filled, f"{size}: memory, after queries and claims", "1024 / 600 MiB"))
        filled.server.stop()
        wrong = invariants.violations(filled.url)
        text = ", ".join(f"{what}: {count:,}" for what, count in wrong.items())
        say(Figure("violations of any invariant", f"{sum(wrong.values()):,}", text, "0"))


def growth(kind: str, say: Say, *, hosts: list[int], seconds: float) -> None:
    for number in hosts:
        cloud = Cloud("flat", number, 2)
        with filled_cloud(kind, cloud) as filled:
            start = _start(filled, cloud)
            note = f"{_startings([start])}; filled in {filled.seconds:.0f} s"
            floor = START.floor if number == 10_000 else ""
            say(Figure(f"{number:,} hosts: start to serving", f"{start[0]:.2f} s", note, floor))
            for limit in (10, 1000):
                operation = operations.candidates(cloud.queries()["plain"], limit)
                _say_round(say, f"{number:,} hosts: candidates, limit {limit:,}", _drive(filled, operation, 1, seconds))
            operation = operations.scheduling(cloud.queries()["plain"])
            _say_round(say, f"{number:,} hosts: candidates + claim", _drive(filled, operation, 1, seconds))
            operation = operations.claiming(cloud)
            _say_round(say, f"{number:,} hosts: claim, 1 client", _drive(filled, operation, 1, seconds), "")
            say(_memory(filled, f"{number:,} hosts: memory"))


def explain(kind: str, say: Say, *, hosts: list[int], profiles: Sequence[str], seconds: float) -> None:
    """An explanation and the query that it explains, alternately: CPU of all processes per request.

    First without changes; then each request follows a claim, and the cost of the claims alone is subtracted.
    """
    for profile, number in itertools.product(profiles, hosts):
        cloud = Cloud(profile, number, 2)
        with filled_cloud(kind, cloud) as filled:
            filled.server.start()
            for name, query, limit in _explained(cloud):
                asked = (operations.candidates(query, limit), operations.explaining(query, limit))
                claims = operations.claiming(cloud)
                after = [operations.in_turn(claims, one) for one in asked]
                rounds = [
                    [_cpu_ms(_drive(filled, one, 1, seconds / ROUNDS)) for one in (*asked, claims, *after)]
                    for _ in range(ROUNDS)
                ]
                plain, explained, claim, *both = map(statistics.median, zip(*rounds, strict=True))
                row = f"{profile}, {number:,} hosts: {name}, limit {limit:,}: explained"
                _say_explained(say, row, explained, plain)
                _say_explained(say, f"{row} after a claim", both[1] - claim, both[0] - claim)


def _explained(cloud: Cloud) -> Iterator[tuple[str, str, int]]:
    """(name, query, limit)"""
    for name, query in cloud.queries().items():
        if name in ("plain", "filtered"):
            yield name, query, 10
        yield name, query, 1000
    yield "more than anybody has", "resources=VCPU:9999", 1000


def _say_explained(say: Say, name: str, explained: float, plain: float) -> None:
    note = f"CPU {explained:.2f} ms, the query {plain:.2f} ms"
    say(Figure(name, f"{explained / plain:.1f} times", note, "at most 2 times"))


def processes(kind: str, say: Say, *, hosts: int, number: int, seconds: float) -> None:
    """Several API processes on one database: their throughput while all of them read and write."""
    cloud = Cloud("flat", hosts, 2)
    with filled_cloud(kind, cloud) as filled, contextlib.ExitStack() as stack:
        beside = [servers.ours(filled.database, NAME, port, beside=True) for port in free_ports(number)]
        for count in (1, number):
            for one in beside[:count]:
                if one.process is None:
                    stack.enter_context(servers.running(one))
            watched = Watched(tuple(pid for one in beside for pid in one.pids), filled.database.pids)
            urls = [one.url for one in beside[:count]]
            for name, operation, clients in (
                ("candidates, limit 10", operations.candidates(cloud.queries()["plain"], 10), 8),
                ("claims", operations.claiming(cloud), 16),
                # Enough for groups of 16 in each of four processes, if each client waits for its answer.
                ("claims", operations.claiming(cloud), 64),
                ("candidates + claim", operations.scheduling(cloud.queries()["plain"]), 4),
            ):
                found = drive(operation, urls, watched, clients=clients, seconds=seconds)
                _say_round(say, f"{count} processes, {name}, {clients} clients", found, "")
        for one in beside:
            one.stop()
        wrong = invariants.violations(filled.url)
        text = ", ".join(f"{what}: {count:,}" for what, count in wrong.items())
        say(Figure("violations of any invariant", f"{sum(wrong.values()):,}", text, "0"))


def _start(filled: Filled, cloud: Cloud) -> tuple[float, float]:
    """Seconds until the first answer with candidates, and CPU seconds of the server and the database."""
    filled.server.stop()
    before, started = cpu_seconds(filled.database.pids), time.perf_counter()
    filled.server.start()
    path = f"/allocation_candidates?{cloud.queries()['plain']}&limit=10"
    status, answer = Connection(filled.server.url).request("GET", path)
    if status != 200 or answer.count(b'"mappings"') != 10:
        raise RuntimeError(f"not the ten candidates that are there: {status} {answer[:300]!r}")
    wall = time.perf_counter() - started
    return wall, cpu_seconds(filled.server.pids) + cpu_seconds(filled.database.pids) - before


def _startings(starts: list[tuple[float, float]]) -> str:
    cpu = statistics.median(cpu for _, cpu in starts)
    every = ", ".join(f"{wall:.2f}" for wall, _ in starts)
    return f"to the first candidates; CPU {cpu:.2f} s, the database's included; each start: {every} s"


def _drive(filled: Filled, operation: operations.Operation, clients: int, seconds: float = 1e9) -> Round:
    watched = Watched(filled.server.pids, filled.database.pids)
    return drive(operation, filled.server.url, watched, clients=clients, seconds=seconds, patience_s=300)


def _say_round(say: Say, name: str, found: Round, goal: str = "p99 at most 10 x p50") -> None:
    bad = {status: count for status, count in found.statuses.items() if status not in (200, 204)}
    note = f"{len(found.latencies) / found.wall:,.0f} per s; {_cpu(found)}; {_quantiles(found)}"
    say(
        Figure(
            name,
            f"p50 {statistics.median(found.latencies) * 1e3:.2f} ms",
            note + (f"; answers {bad}" if bad else ""),
            goal,
        )
    )


def _quantiles(found: Round) -> str:
    middle = statistics.median(found.latencies)
    high = statistics.quantiles(found.latencies, n=100)[98] if len(found.latencies) > 1 else middle
    return f"p99 {high * 1e3:.2f} ms = {high / middle:.1f} x p50"


def _cpu_ms(found: Round) -> float:
    return (found.server_cpu + found.database_cpu) / len(found.latencies) * 1e3


def _cpu(found: Round) -> str:
    done = len(found.latencies)
    return f"CPU {_cpu_ms(found):.2f} ms each ({found.database_cpu / done * 1e3:.2f} of it the database's)"


def _memory(filled: Filled, name: str, goal: str = "") -> Figure:
    alone = memory_mib(filled.server.pids)
    together = memory_mib((*filled.server.pids, *filled.database.pids))
    return Figure(name, f"{together:,.0f} MiB", f"all processes; {alone:,.0f} MiB without the database", goal)
