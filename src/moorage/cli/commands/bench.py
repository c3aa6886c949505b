"""`moorage bench`: measures this installation, to find a slow disk or a distant database before users notice.

Not here: comparisons with other programs (`make bench`).
"""

import dataclasses
import json
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from moorage.cli.bench_clients import BenchKind, BenchWork, sampled
from moorage.cli.output import console, json_option, progress, table
from moorage.cli.services import Endpoints, endpoints, plane_endpoints
from moorage.cli.state import config_option
from moorage.config import Config, load, render
from moorage.core.errors import MoorageError, StartError, Unavailable
from moorage.wire.client import ServiceClient

#: Number of simulated hosts in the private plane.
HOSTS = 20
START_S = 120.0


@dataclass(frozen=True)
class Figure:
    """`per_s`: operations per second of all clients; `p50_ms`, `p99_ms`: per operation. `reason`: why not measured."""

    what: str
    per_s: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    reason: str = ""


@click.command()
@config_option
@click.option("--running", is_flag=True, help="Measure the running plane instead of starting a private one.")
@click.option("--seconds", type=click.FloatRange(0.1, 60), default=2.0, show_default=True, help="Seconds per figure.")
@click.option(
    "--clients", type=click.IntRange(1, 64), default=1, show_default=True, help="Number of concurrent clients."
)
@json_option
def bench(config_path: Path | None, *, running: bool, seconds: float, clients: int, as_json: bool) -> None:
    """Measure candidates, claims and leases per second, with one or several clients.

    Without --running, starts a private plane with 20 simulated hosts on SQLite, on the disk for temporary files. With
    --running, uses the plane of OS_AUTH_URL or --config, with a provider and a resource class of its own and leases that
    start in 300 days, and deletes all of them afterwards.
    """
    with _running(config_path) if running else _private() as there, progress("measuring") as show:
        figures = list(measured(there, seconds, clients, show))
    if as_json:
        rows = [dataclasses.asdict(one) for one in figures]
        click.echo(json.dumps({"clients": clients, "figures": rows}, indent=2))
        return
    shown = table("what", "per second", "p50 ms", "p99 ms", "", right=("per second", "p50 ms", "p99 ms"))
    for one in figures:
        numbers = ("-", "-", "-") if one.reason else (f"{one.per_s:,.0f}", f"{one.p50_ms:.1f}", f"{one.p99_ms:.1f}")
        shown.add_row(one.what, *numbers, one.reason)
    console().print(shown)


@contextmanager
def _running(config_path: Path | None) -> Iterator[Endpoints]:
    yield endpoints(config_path)


def measured(there: Endpoints, seconds: float, clients: int, tell: Callable[[str, int, int], None]) -> Iterator[Figure]:
    placement = there.client("placement", "1.39")
    if placement is None:
        raise StartError("there is no placement service: neither in the catalogue nor in the configuration")
    with _provider(placement) as (provider, name):
        tell("candidates", 0, 3)
        yield _timed("candidates", there, BenchWork(BenchKind.CANDIDATES, provider, name), seconds, clients)
        tell("claims", 1, 3)
        yield _timed("claims, each released", there, BenchWork(BenchKind.CLAIMS, provider, name), seconds, clients)
    tell("leases", 2, 3)
    what = "leases, each deleted"
    try:
        yield _timed(what, there, BenchWork(BenchKind.LEASES), seconds, clients)
    except MoorageError as error:
        yield Figure(what, reason=error.message)


def _timed(what: str, there: Endpoints, work: BenchWork, seconds: float, clients: int) -> Figure:
    took = sampled(there, work, seconds, clients)
    ordered = sorted(each for one in took for each in one)
    half, most = (ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3 for share in (0.5, 0.99))
    return Figure(what, sum(len(one) / sum(one) for one in took), half, most)


@contextmanager
def _provider(placement: ServiceClient) -> Iterator[tuple[str, str]]:
    """(UUID, resource class) of a provider for the benchmark only. Both are deleted afterwards."""
    mark = secrets.token_hex(6)
    name = f"CUSTOM_MOORAGE_BENCH_{mark.upper()}"
    placement.request("PUT", f"/resource_classes/{name}")
    try:
        made = placement.request("POST", "/resource_providers", json={"name": f"moorage-bench-{mark}"})
        try:
            placement.request(
                "PUT",
                f"/resource_providers/{made['uuid']}/inventories",
                json={"resource_provider_generation": made["generation"], "inventories": {name: {"total": 1_000_000}}},
            )
            yield made["uuid"], name
        finally:
            placement.request("DELETE", f"/resource_providers/{made['uuid']}")
    finally:
        placement.request("DELETE", f"/resource_classes/{name}")


@contextmanager
def _private() -> Iterator[Endpoints]:
    """A private plane in its own process, deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as directory:
        config = _config(Path(directory))
        program = "from moorage.cli.main import main; main()"
        with (Path(directory) / "out").open("w") as out:
            process = subprocess.Popen(  # noqa: S603 - runs this program again with arguments made here; no shell
                [sys.executable, "-c", program, "up", "--config", str(config.source)], stdout=out, stderr=out
            )
        try:
            _wait(process, Path(directory) / "out")
            there = plane_endpoints(config)
            _lend_hosts(there)
            yield there
        finally:
            process.terminate()
            process.wait()


def _config(directory: Path) -> Config:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (directory / "provider_config").mkdir(mode=0o700)
    made = Config()
    made = dataclasses.replace(
        made,
        plane=dataclasses.replace(made.plane, state_path=".", log_file="moorage.log"),
        server=dataclasses.replace(made.server, port=port),
        compute=dataclasses.replace(made.compute, provider_config_location=str(directory / "provider_config")),
        agent=dataclasses.replace(made.agent, simulated_hosts=HOSTS),
    )
    path = directory / "moorage.conf"
    path.write_text(render(made), encoding="utf-8")
    return load(path)


def _wait(process: "subprocess.Popen[bytes]", out: Path) -> None:
    """Waits until the plane is up."""
    deadline = time.monotonic() + START_S
    while "Moorage is up" not in out.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            raise Unavailable(f"the private plane did not start: {' '.join(out.read_text().split())[-500:]}")
        time.sleep(0.05)


def _lend_hosts(there: Endpoints) -> None:
    """Registers the plane's hosts for reservations as soon as they exist."""
    reservation, compute = there.client("reservation"), there.compute
    if reservation is None or compute is None:
        return
    deadline = time.monotonic() + START_S
    while len(hosts := compute.hosts_up()) < HOSTS:
        if time.monotonic() > deadline:
            raise Unavailable(f"the private plane has {len(hosts)} of {HOSTS} hosts")
        time.sleep(0.05)
    for name in sorted(hosts):
        reservation.request("POST", "/v1/os-hosts", json={"name": name})
