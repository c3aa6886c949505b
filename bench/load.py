"""The load generator: runs an operation in forked clients for some seconds, and measures its cost on the server.

An operation is a generator function ``f(connection, client, rng, tally)``; each ``next`` performs one operation. Code
before its first ``yield`` (building requests, the first connection) is not timed.
"""

import multiprocessing
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe
from typing import Any

from bench.processes import cpu_seconds, machine_cpu_seconds
from bench.wire import Connection

#: Counts answers by status.
Tally = Counter[int]


@dataclass(frozen=True)
class Client:
    number: int
    of: int


Operation = Callable[[Connection, Client, random.Random, Tally], Generator[None, None, None]]


class TimedOut(Exception):
    """A client did not get an answer within its patience."""


@dataclass
class Round:
    """One round: one server under one operation. Times in seconds; `latencies` of all clients together."""

    latencies: list[float] = field(default_factory=list)
    statuses: Tally = field(default_factory=Counter)
    wall: float = 0.0
    server_cpu: float = 0.0
    database_cpu: float = 0.0
    client_cpu: float = 0.0
    #: CPU seconds of the idle servers, and of all other processes on this machine.
    idle_cpu: float = 0.0
    strangers_cpu: float = 0.0


@dataclass(frozen=True)
class Watched:
    """Process ids by role, for CPU accounting; children are included."""

    server: tuple[int, ...]
    database: tuple[int, ...]
    idle: tuple[int, ...] = ()


def drive(
    operation: Operation,
    urls: str | Sequence[str],
    watched: Watched,
    *,
    clients: int = 1,
    seconds: float = 1e9,
    patience_s: float = 120.0,
) -> Round:
    """Runs each client for `seconds` or to the end of its operation, at least once. Raises `TimedOut`.

    With several `urls`, clients use them in turn.
    """
    urls = [urls] if isinstance(urls, str) else urls
    context = multiprocessing.get_context("fork")
    pipes, processes = [], []
    for number in range(clients):
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_client,
            args=(operation, urls[number % len(urls)], Client(number, clients), seconds, patience_s, theirs),
        )
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    try:
        for pipe in pipes:
            if (trouble := pipe.recv()) is not None:
                raise RuntimeError(f"a client does not start: {trouble}")
        before, started = _costs(watched), time.perf_counter()
        for pipe in pipes:
            pipe.send(None)
        outcomes = [pipe.recv() for pipe in pipes]
        wall, after = time.perf_counter() - started, _costs(watched)
    finally:
        for process in processes:
            process.join()
    return _merged(outcomes, wall, [late - early for early, late in zip(before, after, strict=True)])


def _costs(watched: Watched) -> list[float]:
    groups = (watched.server, watched.database, watched.idle)
    return [*(cpu_seconds(group) if group else 0.0 for group in groups), machine_cpu_seconds()]


def _merged(outcomes: list[Any], wall: float, costs: list[float]) -> Round:
    found = Round(wall=wall)
    for outcome in outcomes:
        match outcome:
            case TimedOut():
                raise outcome
            case str():
                raise RuntimeError(f"a client failed: {outcome}")
        latencies, statuses, cpu = outcome
        found.latencies += latencies
        found.statuses += statuses
        found.client_cpu += cpu
    found.server_cpu, found.database_cpu, found.idle_cpu, everybody = costs
    found.strangers_cpu = max(0.0, everybody - sum(costs[:3]) - found.client_cpu)
    return found


def _client(operation: Operation, url: str, client: Client, seconds: float, patience_s: float, pipe: Pipe) -> None:
    """The client process. Sends None when ready; then (latencies, statuses, CPU seconds), or the error."""
    try:
        tally: Tally = Counter()
        connection = Connection(url, timeout_s=patience_s)
        steps = operation(connection, client, random.Random(f"{client.number}/{time.time_ns()}"), tally)
        next(steps)
        pipe.send(None)
        pipe.recv()
        pipe.send((_timed(steps, seconds), tally, _cpu_since()))
    except TimeoutError:
        pipe.send(TimedOut(patience_s))
    except Exception as error:  # noqa: BLE001 - top of the process; the parent raises it
        pipe.send(repr(error))
    finally:
        pipe.close()
        os._exit(0)


def _timed(steps: Generator[None, None, None], seconds: float) -> list[float]:
    latencies: list[float] = []
    clock = time.perf_counter
    _cpu_since()
    end = clock() + seconds
    while True:
        started = clock()
        if started >= end and latencies:
            return latencies
        try:
            next(steps)
        except StopIteration:
            return latencies
        latencies.append(clock() - started)


_cpu_at = [0.0]


def _cpu_since() -> float:
    """CPU seconds of this process since the last call."""
    before, _cpu_at[0] = _cpu_at[0], time.process_time()
    return _cpu_at[0] - before
