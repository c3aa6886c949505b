"""Measures whole lives of leases over HTTP, one after the other: created, started, a server launched on it, ended.

The lease starts at once, with capacity for one server. It is deleted while its server runs, and its life ends when both are
gone.
"""

import statistics
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from bench.compute_api import Cloud, ask, create_server, is_gone, wait_until, wait_until_active
from bench.planes import client
from bench.servers import Server
from bench.table import Figure
from bench.wire import Connection

PHASES = ("created", "started", "server ACTIVE", "ended")


def register(plane: Server, host: str) -> None:
    """Gives a host without servers to the reservation service."""
    client(plane, "reservation").request("POST", "/v1/os-hosts", json={"name": host})


def figure(plane: Server, cloud: Cloud, seconds: float) -> Figure:
    leases, servers = Connection(f"{plane.url}/reservation", token=cloud.token), cloud.wire()
    lives: list[list[float]] = []

    def live() -> None:
        moments = [time.perf_counter()]
        lease = ask(leases, "POST", "/v1/leases", _lease())["lease"]
        path, flavor = f"/v1/leases/{lease['id']}", lease["reservations"][0]["id"]
        moments.append(time.perf_counter())
        wait_until("the start of a lease", lambda: ask(leases, "GET", path)["lease"]["status"] == "ACTIVE")
        moments.append(time.perf_counter())
        server = create_server(servers, cloud.image, flavor)
        wait_until_active(servers, server)
        moments.append(time.perf_counter())
        ask(leases, "DELETE", path)
        wait_until("the end of a lease", lambda: is_gone(leases, path) and is_gone(servers, f"/servers/{server}"))
        moments.append(time.perf_counter())
        lives.append([after - before for before, after in pairwise(moments)])

    live()
    lives.clear()
    before, end = cloud.cpu(), time.perf_counter() + seconds
    while time.perf_counter() < end:
        live()
    used = cloud.used(len(lives), before).replace("server", "lease")
    phases = ", ".join(
        f"{name} after {statistics.median(life[at] for life in lives) * 1000:.0f} ms" for at, name in enumerate(PHASES)
    )
    whole = statistics.median(map(sum, lives)) * 1000
    return Figure("a lease's whole life, one after the other, p50", f"{whole:.0f} ms", f"{phases}; {used}")


def _lease() -> dict[str, Any]:
    slot = {"resource_type": "virtual:instance", "vcpus": 1, "memory_mb": 64, "disk_gb": 0, "amount": 1}
    slot |= {"affinity": None, "resource_properties": ""}
    end = datetime.now(UTC) + timedelta(days=1)
    dates = {"start_date": "now", "end_date": f"{end:%Y-%m-%d %H:%M}"}
    return {"name": "bench", "reservations": [slot], "events": [], **dates}
