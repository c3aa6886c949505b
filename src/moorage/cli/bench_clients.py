"""Clients for `moorage bench`: one in this process, or several in a process each, which start together.

They are processes, not threads: threads of one Python process take turns, so they would measure themselves.
"""

import json
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import StrEnum
from typing import IO

from moorage.cli.services import Endpoints
from moorage.core.clock import SystemClock
from moorage.core.errors import MoorageError, StartError, Unavailable
from moorage.wire.client import ServiceClient

#: Benchmark leases start this far in the future, so nothing happens to them before they are deleted.
AHEAD = timedelta(days=300)

#: Extra seconds to wait for a client's last round after another client failed.
_LAST_ROUND_S = 90.0

_PROGRAM = "from moorage.cli.bench_clients import main; main()"


class BenchKind(StrEnum):
    CANDIDATES = "candidates"
    CLAIMS = "claims"
    LEASES = "leases"


@dataclass(frozen=True)
class BenchWork:
    """The operation to repeat. Leases need neither provider nor resource class."""

    kind: BenchKind
    provider: str = ""
    resource_class: str = ""


class _Token:
    """A token that another process has fetched."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    def headers(self, *, renew: bool = False) -> Mapping[str, str]:
        return self._headers


def sampled(there: Endpoints, work: BenchWork, seconds: float, clients: int) -> list[list[float]]:
    """[[seconds per round] per client]. Raises `MoorageError`."""
    if clients == 1:
        return [_sample(_ready(there, work), seconds)]
    order = {
        "urls": dict(there.urls),
        "headers": dict(there.tokens.headers()),
        "work": asdict(work),
        "seconds": seconds,
    }
    with _processes(clients) as processes:
        for process in processes:
            _write_line(process, json.dumps(order))
        for process in processes:
            _read_line(process)
        for process in processes:
            _write_line(process, "begin")
        return [_read_line(process) for process in processes]


def main() -> None:
    """The program of a client process: reads the order, prints a line when it is ready, waits for a line, then prints the
    seconds of each round. The order contains a token, so it comes through a pipe.
    """
    order = json.loads(sys.stdin.readline())
    try:
        work = BenchWork(**order["work"] | {"kind": BenchKind(order["work"]["kind"])})
        act = _ready(Endpoints(order["urls"], _Token(order["headers"])), work)
        _print_json([])
        if sys.stdin.readline():
            _print_json(_sample(act, order["seconds"]))
    except MoorageError as error:
        _print_json(error.message)


@contextmanager
def _processes(clients: int) -> "Iterator[Sequence[subprocess.Popen[str]]]":
    processes = [
        subprocess.Popen(  # noqa: S603 - runs this program again with arguments made here; no shell
            [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(clients)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            try:  # the client cleans up after its last round
                process.communicate(timeout=_LAST_ROUND_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def _write_line(process: "subprocess.Popen[str]", line: str) -> None:
    """Writes a line. A client that has exited is noticed by the next `_read_line`."""
    with suppress(BrokenPipeError):
        _pipe(process.stdin).write(f"{line}\n")
        _pipe(process.stdin).flush()


def _read_line(process: "subprocess.Popen[str]") -> list[float]:
    """The client's next line. Raises `Unavailable` for an error, or if the client has exited."""
    line = _pipe(process.stdout).readline()
    said: list[float] | str = json.loads(line) if line else "a benchmark client exited too early"
    if isinstance(said, str):
        raise Unavailable(said)
    return said


def _print_json(what: list[float] | str) -> None:
    sys.stdout.write(f"{json.dumps(what)}\n")
    sys.stdout.flush()


def _pipe(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise ValueError("not opened as a pipe")
    return stream


def _ready(there: Endpoints, work: BenchWork) -> Callable[[], object]:
    """A function that runs one round. Runs it once first, so that one-time work is not measured."""
    act = _act(there, work)
    act()
    return act


def _act(there: Endpoints, work: BenchWork) -> Callable[[], object]:
    if work.kind is BenchKind.LEASES:
        reservation = there.client("reservation")
        if reservation is None:
            raise StartError("there is no reservation service")
        return lambda: _lease(reservation)
    placement = there.client("placement", "1.39")
    if placement is None:
        raise StartError("there is no placement service: neither in the catalogue nor in the configuration")
    if work.kind is BenchKind.CANDIDATES:
        return lambda: placement.get(f"/allocation_candidates?resources={work.resource_class}:1&limit=10")
    return lambda: _claim(placement, work.provider, work.resource_class)


def _sample(act: Callable[[], object], seconds: float) -> list[float]:
    took: list[float] = []
    end = time.perf_counter() + seconds
    while not took or time.perf_counter() < end:
        began = time.perf_counter()
        act()
        took.append(time.perf_counter() - began)
    return took


def _claim(placement: ServiceClient, provider: str, name: str) -> None:
    words = secrets.token_hex(16)
    consumer = f"/allocations/{words[:8]}-{words[8:12]}-{words[12:16]}-{words[16:20]}-{words[20:]}"
    held = {
        "allocations": {provider: {"resources": {name: 1}}},
        "project_id": "moorage-bench",
        "user_id": "moorage-bench",
        "consumer_type": "BENCH",
        "consumer_generation": None,
    }
    placement.request("PUT", consumer, json=held)
    placement.request("DELETE", consumer)


def _lease(reservation: ServiceClient) -> None:
    start = SystemClock().now() + AHEAD
    lease = {
        "name": f"moorage-bench-{secrets.token_hex(6)}",
        "start_date": f"{start:%Y-%m-%d %H:%M}",
        "end_date": f"{start + timedelta(hours=1):%Y-%m-%d %H:%M}",
        "events": [],
        "before_end_date": None,
        "reservations": [
            {
                "resource_type": "virtual:instance", "vcpus": 1, "memory_mb": 64, "disk_gb": 1, "amount": 1,
                "affinity": None, "resource_properties": "",
            }
        ],
    }  # fmt: skip
    made = reservation.request("POST", "/v1/leases", json=lease)["lease"]["id"]
    reservation.request("DELETE", f"/v1/leases/{made}")
