"""What the clients of `moorage bench` do: one in this process, or several in a process each, which begin together.

Processes, not threads: those of one Python process would take turns, and be measured instead of the plane.
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

#: Leases are made so far ahead that nothing of them happens, and taken back.
AHEAD = timedelta(days=300)

#: Beyond the time that was asked for, where another client has failed.
_LAST_ROUND_S = 90.0

_PROGRAM = "from moorage.cli.bench_clients import main; main()"


class BenchKind(StrEnum):
    CANDIDATES = "candidates"
    CLAIMS = "claims"
    LEASES = "leases"


@dataclass(frozen=True)
class BenchWork:
    """What is done again and again; of leases neither provider nor class."""

    kind: BenchKind
    provider: str = ""
    resource_class: str = ""


class _Token:
    """One that somebody else has fetched."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    def headers(self, *, renew: bool = False) -> Mapping[str, str]:
        return self._headers


def sampled(there: Endpoints, work: BenchWork, seconds: float, clients: int) -> list[list[float]]:
    """Of each client how long each round took, in seconds. Raises `MoorageError`."""
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
            _tell(process, json.dumps(order))
        for process in processes:
            _told(process)
        for process in processes:
            _tell(process, "begin")
        return [_told(process) for process in processes]


def main() -> None:
    """A client in a process of its own: takes its order, says when it is ready, begins when it is told, says how long each
    round took. The order comes by a pipe, for it has a token.
    """
    order = json.loads(sys.stdin.readline())
    try:
        work = BenchWork(**order["work"] | {"kind": BenchKind(order["work"]["kind"])})
        act = _ready(Endpoints(order["urls"], _Token(order["headers"])), work)
        _say([])
        if sys.stdin.readline():
            _say(_sample(act, order["seconds"]))
    except MoorageError as error:
        _say(error.message)


@contextmanager
def _processes(clients: int) -> "Iterator[Sequence[subprocess.Popen[str]]]":
    processes = [
        subprocess.Popen(  # noqa: S603 - this very program
            [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(clients)
    ]
    try:
        yield processes
    finally:
        for process in processes:
            try:  # what it has made in its last round it takes back
                process.communicate(timeout=_LAST_ROUND_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def _tell(process: "subprocess.Popen[str]", line: str) -> None:
    """One that has ended says so by `_told`."""
    with suppress(BrokenPipeError):
        _pipe(process.stdin).write(f"{line}\n")
        _pipe(process.stdin).flush()


def _told(process: "subprocess.Popen[str]") -> list[float]:
    """The next that it says. Raises `Unavailable` where that is a refusal, or nothing."""
    line = _pipe(process.stdout).readline()
    said: list[float] | str = json.loads(line) if line else "a client ended before it was done"
    if isinstance(said, str):
        raise Unavailable(said)
    return said


def _say(what: list[float] | str) -> None:
    sys.stdout.write(f"{json.dumps(what)}\n")
    sys.stdout.flush()


def _pipe(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise ValueError("it was not opened as a pipe")
    return stream


def _ready(there: Endpoints, work: BenchWork) -> Callable[[], object]:
    """One round of it, done once: what is made at the first time is no measure."""
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
