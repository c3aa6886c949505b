"""Measures the minimum cost of a durable write on this machine, as a lower bound for the rows of writes.

Measures each part separately: an empty request through the server of `moorage up` with the load generator's share, a
synced transaction of one row over libpq, and prepared rows of claims in one transaction. Their sum is the best possible
figure for a row of the plan: no routing, no checks, no decision, no waiting.
"""

import statistics
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import NamedTuple

from bench import operations, scale
from bench.cloud import Cloud
from bench.databases import DatabaseServer, free_port
from bench.load import Operation, Watched, drive
from bench.processes import cpu_seconds
from bench.servers import ROOT, Server, running
from bench.table import Figure
from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from moorage.db.engine import open_engine
from moorage.db.session import StatementPipeline
from moorage.db.statements import Command
from moorage.placement.forest.forest import Forest
from moorage.placement.rules.allocation_writes import AllocationWrite, claim
from moorage.placement.rules.write_set import WriteSet
from moorage.placement.service.service import PlacementService
from moorage.placement.store import write_set_sql

Say = Callable[[Figure], None]

#: Number of CPU cores for the plan's rows, including the load generator.
CORES = 2


class Part(NamedTuple):
    """Milliseconds: until the answer, CPU here and in the database, and CPU of the client."""

    p50: float
    here: float
    database: float = 0.0
    client: float = 0.0

    def share(self, of: int) -> "Part":
        return Part(*(value / of for value in self))


def figures(say: Say, *, hosts: int, seconds: float) -> None:
    cloud = Cloud("flat", hosts, 0)
    with scale.filled_cloud("postgresql", cloud) as filled:
        empty = _empty(filled.database, cloud, seconds)
        for name, part in empty.items():
            _say(say, f"empty request, {name}", part)
        synced = _committed(filled, cloud, [0], seconds)[0]
        _say(say, "transaction of one row, over libpq, synced", synced)
        claims = _committed(filled, cloud, [1, 16, 50], seconds)
        for size, part in claims.items():
            _say(say, f"rows of {size} claims in a transaction, each", part.share(size))
    alone, many, post = empty["PUT, 1 client"], empty["PUT, 32 clients"], empty["POST of 50, 2 clients"]
    say(_at_best("claim, 1 client", 1, [alone, claims[1]]))
    say(_at_best("claim, 32 clients; on one host", 32, [many, claims[16].share(16)]))
    say(_at_best("loading a host: 4 writes in groups of 4, 8 clients", 8, [*[empty["PUT, 8 clients"]] * 4, claims[1]]))
    say(_at_best("POST of 50 claims, 2 clients", 2, [post, claims[50]], 50))


def _at_best(name: str, clients: int, parts: Sequence[Part], size: int = 1) -> Figure:
    """The lower bound: one client waits for the parts in sequence; many clients share the cores with the load
    generator.
    """
    cpu = sum(part.here + part.database for part in parts)
    together = cpu + sum(part.client for part in parts)
    p50 = sum(part.p50 for part in parts) if clients == 1 else clients * together / CORES
    note = f"CPU {cpu:.3f} ms; at most {clients / p50 * size * 1e3:,.0f} per s"
    return Figure(f"at best: {name}", f"p50 {p50:.2f} ms", note)


def _say(say: Say, name: str, part: Part) -> None:
    note = f"CPU {part.here:.3f} ms here, {part.database:.3f} in the database, {part.client:.3f} of the client"
    say(Figure(name, f"p50 {part.p50:.3f} ms", note))


# --- an empty request -----------------------------------------------------------------------------------------------


def _empty(database: DatabaseServer, cloud: Cloud, seconds: float) -> dict[str, Part]:
    port = free_port()
    command = [sys.executable, "-m", "bench.empty", str(port)]
    server = Server(
        "empty",
        f"http://127.0.0.1:{port}",
        database,
        command,
        database.directory / "empty.log",
        {"PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
    )
    asked: dict[str, tuple[Operation, int]] = {
        "PUT, 1 client": (operations.claiming(cloud), 1),
        "PUT, 8 clients": (operations.claiming(cloud), 8),
        "PUT, 32 clients": (operations.claiming(cloud), 32),
        "POST of 50, 2 clients": (operations.claiming_many(cloud, 50), 2),
    }
    with running(server):
        return {name: _driven(server, operation, clients, seconds) for name, (operation, clients) in asked.items()}


def _driven(server: Server, operation: Operation, clients: int, seconds: float) -> Part:
    found = drive(operation, server.url, Watched(server.pids, ()), clients=clients, seconds=seconds)
    done = len(found.latencies) / 1e3
    return Part(statistics.median(found.latencies) * 1e3, found.server_cpu / done, client=found.client_cpu / done)


# --- a transaction --------------------------------------------------------------------------------------------------


def _committed(filled: scale.Filled, cloud: Cloud, sizes: Sequence[int], seconds: float) -> dict[int, Part]:
    """{claims per transaction: its cost}. With 0 claims, only the row with the sequence number is written."""
    engine, database = open_engine(filled.url), filled.database
    service = PlacementService(engine, SystemClock(), RandomIds())
    service.start()
    forest, pipeline = service.providers.forest(), StatementPipeline(engine)
    found = {}
    with closing(pipeline):
        last = forest.sequence
        for size in sizes:
            found[size], last = _transactions(pipeline, database, forest, cloud, size, last, seconds)
    engine.dispose()
    return found


def _transactions(
    pipeline: StatementPipeline,
    database: DatabaseServer,
    forest: Forest,
    cloud: Cloud,
    size: int,
    last: int,
    seconds: float,
) -> tuple[Part, int]:
    """The commands, and the sequence number of the last one."""
    _commit(pipeline, _commands(forest, cloud, size, last, 0))  # prepares the statements
    times: list[float] = []
    here, before, end = 0.0, cpu_seconds(database.pids), time.perf_counter() + seconds
    while time.perf_counter() < end:
        commands = _commands(forest, cloud, size, last + 1 + len(times), len(times))
        cpu, started = time.process_time(), time.perf_counter()
        _commit(pipeline, commands)
        times.append((time.perf_counter() - started) * 1e3)
        here += time.process_time() - cpu
    done = len(times)
    database_ms = (cpu_seconds(database.pids) - before) / done * 1e3
    return Part(statistics.median(times), here / done * 1e3, database_ms), last + 1 + done


def _commit(pipeline: StatementPipeline, commands: Sequence[Command]) -> None:
    with pipeline.transaction() as transaction:
        transaction.commit(*commands)


def _commands(forest: Forest, cloud: Cloud, size: int, last: int, number: int) -> list[Command]:
    """The commands for a group of claims by new consumers, always decided on the same forest."""
    draft = WriteSet(forest.with_changes({}, sequence=last), datetime.now(UTC))
    held = {"VCPU": 1, "MEMORY_MB": 64, "DISK_GB": 1}
    for one in range(size):
        host = cloud.root((number * size + one) * 7919 % cloud.hosts)
        claim(draft, [AllocationWrite(str(uuid.uuid4()), {host: held}, "red", "alice", "INSTANCE")], single=True)
    return [write_set_sql.take_number_after(last), *write_set_sql.write_commands(draft)]
