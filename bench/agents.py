"""Measures the load of a thousand hosts' agents on the services: heartbeats, polls, reports, comparisons with Placement.

Uses two processes, as in a distributed plane: the services with their own database, and all agents in one process of
simulated hosts, with hints through the database (NOTIFY) if it supports them. Counts only the services and the
database, since the agents run on the hosts.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.databases import DatabaseServer, database_server, free_ports
from bench.planes import client, moorage, state
from bench.processes import cpu_seconds, machine_cpu_seconds
from bench.servers import Server, running
from bench.table import Figure
from moorage.config import Config, load_config
from moorage.core.clock import SystemClock
from moorage.identity.host_credential import enrol_host
from moorage.wire.client import ServiceClient
from moorage.wire.transports import SocketTransport

Say = Callable[[Figure], None]

SERVICES = ("identity", "placement", "compute", "accelerator", "image")
#: Seconds until all requests of the first round, and what they cause, are over.
SETTLE_S = 20.0
#: The limit of servers for one project.
SERVERS = 10
GOAL = "under 10 % of a core"


def figures(kind: str, say: Say, *, hosts: int, seconds: float) -> None:
    with database_server(kind) as database, _services(database) as services:
        started = time.monotonic()
        with _agents(database, services, hosts) as agents:
            say(Figure(f"{hosts} hosts known, from an empty database", f"{time.monotonic() - started:.1f} s"))
            time.sleep(SETTLE_S)
            _measure(f"{hosts} agents at rest", services, database, agents, seconds, say)
            _jobs(services, database, agents, seconds, say)


def _measure(
    what: str, services: Server, database: DatabaseServer, agents: Server, seconds: float, say: Say
) -> tuple[float, float]:
    """CPU cores used by the services and the database."""
    before = _cpu(services, database, agents)
    time.sleep(seconds)
    cores = [
        (later - earlier) / seconds for earlier, later in zip(before, _cpu(services, database, agents), strict=True)
    ]
    served, stored, simulated, machine = cores
    others = machine - served - stored - simulated
    note = (
        f"of these the database {stored * 100:.1f} %; the agents {simulated * 100:.0f} %, others {others * 100:.0f} %"
    )
    say(Figure(f"{what}: services and database", f"{(served + stored) * 100:.1f} % of a core", note, GOAL))
    return served, stored


def _cpu(services: Server, database: DatabaseServer, agents: Server) -> tuple[float, float, float, float]:
    return cpu_seconds(services.pids), cpu_seconds(database.pids), cpu_seconds(agents.pids), machine_cpu_seconds()


def _jobs(services: Server, database: DatabaseServer, agents: Server, seconds: float, say: Say) -> None:
    """Restarts servers one after the other: the cost of a job from the request to its report."""
    compute, image = client(services, "compute"), client(services, "image")
    body = {"name": "image", "disk_format": "raw", "container_format": "bare"}
    image_id = image.request("POST", "/v2/images", json=body)["id"]
    image.upload(
        "PUT", f"/v2/images/{image_id}/file", [b"x"], "application/octet-stream", {"x-openstack-image-size": "1"}
    )
    flavor = {"id": "small", "name": "small", "vcpus": 1, "ram": 64, "disk": 1}
    compute.request("POST", "/v2.1/flavors", json={"flavor": flavor})
    wanted = {"name": "server", "flavorRef": "small", "imageRef": image_id, "networks": "none"}
    servers = [
        compute.request("POST", "/v2.1/servers", json={"server": wanted}, version="2.37")["server"]["id"]
        for _ in range(SERVERS)
    ]
    _wait_until_rested(compute, len(servers))
    rest = _cpu(services, database, agents)
    time.sleep(seconds / 3)
    at_rest = [
        (later - earlier) / (seconds / 3) for earlier, later in zip(rest, _cpu(services, database, agents), strict=True)
    ]
    before, began, count = _cpu(services, database, agents), time.monotonic(), 0
    while time.monotonic() - began < seconds:
        compute.request(
            "POST", f"/v2.1/servers/{servers[count % len(servers)]}/action", json={"reboot": {"type": "HARD"}}
        )
        count += 1
        time.sleep(0.1)
    _wait_until_rested(compute, len(servers))
    passed = time.monotonic() - began
    used = [
        later - earlier - resting * passed
        for earlier, later, resting in zip(before, _cpu(services, database, agents), at_rest, strict=True)
    ]
    note = f"request, job, hint, claim, report; {count / passed:.1f} a second; of it the database {used[1] / count * 1000:.2f} ms"
    say(
        Figure("a server restarted: CPU of services and database", f"{(used[0] + used[1]) / count * 1000:.2f} ms", note)
    )


def _wait_until_rested(compute: ServiceClient, number: int) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        rows = compute.get("/v2.1/servers/detail")["servers"]
        if len(rows) == number and all(row["status"] == "ACTIVE" for row in rows):
            return
        time.sleep(0.5)
    raise RuntimeError(f"the servers are not all ACTIVE: {sorted({row['status'] for row in rows})}")


@contextmanager
def _services(database: DatabaseServer) -> Iterator[Server]:
    databases = {name: database.create(f"agents_{name}") for name in ("placement", "compute", "accelerator")}
    (port,) = free_ports(1)
    server = moorage(
        database,
        "services",
        port,
        plane={"services": ",".join(SERVICES), "hints": _hints(database)},
        database=databases,
    )
    with running(server):
        yield server


@contextmanager
def _agents(database: DatabaseServer, services: Server, hosts: int) -> Iterator[Server]:
    (port,) = free_ports(1)
    server = moorage(
        database,
        "agents",
        port,
        plane={"services": "agent", "hints": _hints(database)},
        endpoints={name: f"{services.url}/{name}" for name in SERVICES},
        agent={"simulated_hosts": hosts},
    )
    _let_in(load_config(state(server) / "moorage.conf"), services)
    with running(server):
        compute = client(services, "compute")
        deadline = time.monotonic() + 300
        while len(compute.get("/v2.1/os-services")["services"]) < hosts:
            if time.monotonic() > deadline:
                raise RuntimeError(f"not {hosts} hosts within 300 s:\n{server.log.read_text()[-2000:]}")
            time.sleep(0.5)
        yield server


def _let_in(agents: Config, services: Server) -> None:
    identity = client(services, "identity")
    for host in agents.hosts:
        made = identity.request("POST", f"/moorage/v1/hosts/{host}/enrolment", json={"expires_s": 600})
        enrol_host(
            agents.credential_of(host), host, made["token"], SocketTransport(f"{services.url}/identity"), SystemClock()
        )


def _hints(database: DatabaseServer) -> str:
    return database.url_of("agents_compute") if database.kind == "postgresql" else ""
