"""Requests that clients send to a Compute API, ours or a real Nova's, and the CPU that they cost."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.wire import Connection

VERSION = "2.96"
#: Seconds between two polls of a server or a lease.
POLL_S = 0.01
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Cloud:
    """A Compute API with a flavor ``small`` and an image. `cpu`: seconds of the services, and of their database."""

    compute_url: str  #: up to, and with, the version
    token: str
    image: str
    cpu: Callable[[], tuple[float, float]]

    def wire(self) -> Connection:
        return Connection(self.compute_url, token=self.token, version=f"compute {VERSION}")

    def used(self, count: int, before: tuple[float, float]) -> str:
        served, stored = ((after - then) / count * 1000 for after, then in zip(self.cpu(), before, strict=True))
        return f"CPU per server {served + stored:.1f} ms, of it the database {stored:.1f} ms"


def create_flavor(post: Callable[[str, object], object]) -> None:
    """The limit of hosts is never reached, because the flavor's processors are not counted."""
    post("/flavors", {"flavor": {"id": "small", "name": "small", "vcpus": 1, "ram": 1, "disk": 0}})
    post("/flavors/small/os-extra_specs", {"extra_specs": {"resources:VCPU": "0"}})


def create_server(wire: Connection, image: str, flavor: str = "small") -> str:
    wanted = {"name": "server", "flavorRef": flavor, "imageRef": image, "networks": "none"}
    made: str = ask(wire, "POST", "/servers", {"server": wanted})["server"]["id"]
    return made


def wait_until_active(wire: Connection, server: str) -> None:
    began = time.perf_counter()
    while (status := ask(wire, "GET", f"/servers/{server}")["server"]["status"]) != "ACTIVE":
        if status != "BUILD" or time.perf_counter() - began > PATIENCE_S:
            raise SystemExit(f"error: server {server} is {status} after {time.perf_counter() - began:.1f} s")
        time.sleep(POLL_S)


def ask(wire: Connection, method: str, path: str, body: object = None) -> Any:
    status, content = wire.request(method, path, body)
    if not 200 <= status < 300:
        raise SystemExit(f"error: {method} {path} was answered {status}: {content.decode()}")
    return json.loads(content) if content else None


def wait_until(what: str, is_over: Callable[[], bool], *, pause_s: float = POLL_S) -> None:
    deadline = time.perf_counter() + PATIENCE_S
    while not is_over():
        if time.perf_counter() > deadline:
            raise SystemExit(f"error: {what}: not within {PATIENCE_S:.0f} s")
        time.sleep(pause_s)


def is_gone(wire: Connection, path: str) -> bool:
    return wire.request("GET", path)[0] == 404
