"""`moorage bench`: what this installation does in a second, so that a slow disk or a far database is seen before users see it.

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
from datetime import timedelta
from pathlib import Path

import click

from moorage.cli.output import console, json_option, progress, table
from moorage.cli.services import Endpoints, endpoints, plane_endpoints
from moorage.cli.state import config_option
from moorage.config import Config, load, render
from moorage.core.clock import SystemClock
from moorage.core.errors import MoorageError, StartError, Unavailable
from moorage.wire.client import ServiceClient

#: Of the private plane.
HOSTS = 20
START_S = 120.0
#: Leases are made so far ahead that nothing of them happens, and taken back.
AHEAD = timedelta(days=300)


@dataclass(frozen=True)
class Figure:
    """`per_s` operations; `p50_ms` and `p99_ms` of one, by one client. `reason`: why it was not measured."""

    what: str
    per_s: float = 0.0
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    reason: str = ""


@click.command()
@config_option
@click.option(
    "--running", is_flag=True, help="Measure the running plane, instead of a private one that is made for it."
)
@click.option("--seconds", type=click.FloatRange(0.1, 60), default=2.0, show_default=True, help="How long, per figure.")
@json_option
def bench(config_path: Path | None, *, running: bool, seconds: float, as_json: bool) -> None:
    """Measure candidates, claims and leases per second, one after the other by one client.

    Without --running in a private plane of 20 simulated hosts on SQLite, on the disk for temporary files. With it, in the
    plane of OS_AUTH_URL or --config: with a provider and a resource class of its own, and leases in 300 days; all of it is
    taken back.
    """
    with endpoints_of(config_path) if running else _private() as there, progress("measuring") as show:
        figures = list(measured(there, seconds, show))
    if as_json:
        click.echo(json.dumps({"figures": [dataclasses.asdict(one) for one in figures]}, indent=2))
        return
    rows = table("what", "per second", "p50 ms", "p99 ms", "", right=("per second", "p50 ms", "p99 ms"))
    for one in figures:
        numbers = ("-", "-", "-") if one.reason else (f"{one.per_s:,.0f}", f"{one.p50_ms:.1f}", f"{one.p99_ms:.1f}")
        rows.add_row(one.what, *numbers, one.reason)
    console().print(rows)


@contextmanager
def endpoints_of(config_path: Path | None) -> Iterator[Endpoints]:
    yield endpoints(config_path)


def measured(there: Endpoints, seconds: float, tell: Callable[[str, int, int], None]) -> Iterator[Figure]:
    placement = there.client("placement", "1.39")
    if placement is None:
        raise StartError("there is no placement service: neither in the catalogue nor in the configuration")
    with _provider(placement) as (provider, name):
        tell("candidates", 0, 3)
        query = f"/allocation_candidates?resources={name}:1&limit=10"
        yield _timed("candidates", seconds, lambda: placement.get(query))
        tell("claims", 1, 3)
        yield _timed("claims, each released", seconds, lambda: _claim(placement, provider, name))
    tell("leases", 2, 3)
    yield _leases(there.client("reservation"), seconds)


def _timed(what: str, seconds: float, act: Callable[[], object]) -> Figure:
    act()  # what is made at the first time is no measure
    took: list[float] = []
    end = time.perf_counter() + seconds
    while not took or time.perf_counter() < end:
        began = time.perf_counter()
        act()
        took.append(time.perf_counter() - began)
    ordered = sorted(took)
    half, most = (ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e3 for share in (0.5, 0.99))
    return Figure(what, len(took) / sum(took), half, most)


@contextmanager
def _provider(placement: ServiceClient) -> Iterator[tuple[str, str]]:
    """(uuid, resource class) of a provider that nobody else asks for; both are gone afterwards."""
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


def _leases(reservation: ServiceClient | None, seconds: float) -> Figure:
    what = "leases, each deleted"
    if reservation is None:
        return Figure(what, reason="there is no reservation service")
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

    def act() -> None:
        made = reservation.request("POST", "/v1/leases", json=lease)["lease"]["id"]
        reservation.request("DELETE", f"/v1/leases/{made}")

    try:
        return _timed(what, seconds, act)
    except MoorageError as error:
        return Figure(what, reason=error.message)


@contextmanager
def _private() -> Iterator[Endpoints]:
    """A plane of its own, in a process of its own, that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as directory:
        config = _config(Path(directory))
        program = "from moorage.cli.main import main; main()"
        with (Path(directory) / "out").open("w") as out:
            process = subprocess.Popen(  # noqa: S603 - this very program
                [sys.executable, "-c", program, "up", "--config", str(config.source)], stdout=out, stderr=out
            )
        try:
            there = plane_endpoints(_up(config, process, Path(directory) / "out"))
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


def _up(config: Config, process: "subprocess.Popen[bytes]", out: Path) -> Config:
    deadline = time.monotonic() + START_S
    while "Moorage is up" not in out.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            raise Unavailable(f"the private plane did not start: {' '.join(out.read_text().split())[-500:]}")
        time.sleep(0.05)
    return config


def _lend_hosts(there: Endpoints) -> None:
    """Its hosts are for leases, as soon as they are there."""
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
