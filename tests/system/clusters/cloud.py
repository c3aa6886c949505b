"""A whole cloud of thirteen machines on one network: the campaign of `make clusters` attacks them.

| machine | runs |
|---|---|
| db1, db2 | PostgreSQL under Patroni, with the files of packaging/patroni |
| etcd1, etcd2, etcd3 | etcd |
| mq1 | RabbitMQ, which carries hints |
| proxy1, proxy2 | HAProxy with packaging/haproxy/haproxy.cfg |
| services1, services2 | placement, compute, accelerator, reservation |
| images | the image service, which is not attacked |
| host1 | the agent of two simulated hosts: compute-1, which is reserved for leases, and compute-2 for servers |

Clients use one proxy, and the other one if it does not answer.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

import httpx
import sqlalchemy as sa

from moorage.db.engine import open_engine
from tests.clusters import Node, RabbitCluster
from tests.crash.reading import Tables, wrong_answers
from tests.crash.wire import Client
from tests.networks import Machine
from tests.patroni import PatroniCluster
from tests.servers import installed_program
from tests.system.clusters.load import document, expect
from tests.system.planes import MOORAGE, until, write_config

HAPROXY = Path(__file__).parents[3] / "packaging" / "haproxy" / "haproxy.cfg"
ADDRESSES = {
    "services1": 11, "services2": 12, "images": 13, "host1": 14, "proxy1": 15, "proxy2": 16, "mq1": 17,
    "db1": 21, "db2": 22, "etcd1": 31, "etcd2": 32, "etcd3": 33,
}  # fmt: skip
DISK_MB = {"db1": 1500, "db2": 1500}
PORT = 8778
PROXY_PORT = 8780
PATIENCE_S = 120
#: Seconds that a client waits for an answer, before it repeats the request through the other proxy.
ANSWER_S = 5.0
SERVICES = ("placement", "compute", "accelerator", "reservation")
#: {service: microversion of the requests}
VERSIONS = {"placement": "placement 1.39", "compute": "compute 2.96"}
#: Statuses of leases and jobs whose operation has not ended.
UNFINISHED_LEASES = ("CREATING", "STARTING", "UPDATING", "TERMINATING", "DELETING")
UNFINISHED_JOBS = ("ready", "claimed")


class Requests:
    """A client of one service through the proxies."""

    def __init__(self, service: str, addresses: list[str], timeout_s: float = ANSWER_S) -> None:
        headers = {"openstack-api-version": VERSIONS.get(service, ""), "x-auth-token": "admin"}
        self._clients = [
            httpx.Client(base_url=f"http://{address}/{service}", headers=headers, trust_env=False, timeout=timeout_s)
            for address in addresses
        ]

    def send(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        try:
            answer = self._clients[0].request(method, path, json=body)
        except httpx.HTTPError as error:
            self._clients.append(self._clients.pop(0))
            return 0, f"{type(error).__name__} {error}"
        return answer.status_code, answer.text


class Cloud:
    def __init__(self) -> None:
        self.machines = {
            name: Machine(name, number, disk_mb=DISK_MB.get(name, 200)) for name, number in ADDRESSES.items()
        }
        self._stack = contextlib.ExitStack()
        self.databases = PatroniCluster(self.machines.__getitem__)
        self._directory = Path(tempfile.mkdtemp(prefix="moorage-cluster-"))
        self._directory.chmod(0o755)
        self.broker = RabbitCluster([self.machines["mq1"]])
        self._haproxy = installed_program("haproxy")
        own = ("proxy1", "proxy2", "services1", "services2", "images", "host1")
        self.nodes = {name: Node(self._directory / name, "root", PORT, self.machines[name]) for name in own}
        self.nodes |= {node.directory.name: node for node in (*self.databases.machines, *self.databases.etcd)}
        self.nodes["mq1"] = self.broker.nodes[0]
        self._proxies = [f"{self.machines[name].address}:{PROXY_PORT}" for name in ("proxy1", "proxy2")]

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self._remove)
            stack.enter_context(self.databases)
            stack.enter_context(self.broker)
            self._urls = self.databases.database_urls()
            self._configure()
            for name in ("images", "services1", "services2", "proxy1", "proxy2", "host1"):
                self.start(name)
            try:
                self.wait_until_well()
                self._set_up()
            except AssertionError:
                print(self.logs(), file=sys.stderr)
                raise
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def _remove(self) -> None:
        for node in self.nodes.values():
            node.remove()
        shutil.rmtree(self._directory)

    def connect(self, service: str) -> Requests:
        return Requests(service, self._proxies)

    # ------------------------------------------------------------------------------------------- its machines

    def start(self, name: str) -> None:
        """Does not wait until it is well."""
        node = self.nodes[name]
        if name.startswith("db"):
            self.databases.start(node)
        elif name.startswith("etcd"):
            self.databases.start_etcd(node)
        elif name == "mq1":
            self.broker.launch(node)
        elif name.startswith("proxy"):
            settings = {"MOORAGE_LISTEN": f"{node.place.address}:{PROXY_PORT}"}
            settings |= {f"MOORAGE_{number}": self.nodes[of].host for number, of in PROCESSES.items()}
            words = [f"{variable}={value}" for variable, value in settings.items()]
            node.launch("/usr/bin/env", *words, self._haproxy, "-db", "-f", str(HAPROXY))
        else:
            node.launch(str(MOORAGE), "up", "--config", str(node.directory / "moorage.conf"))

    def victim(self, kind: str) -> str:
        """The machine that an attack on a database, the primary, etcd, a broker, a proxy, a service or an agent means
        now.
        """
        if kind == "database":
            standby = until(self.databases.standby, timeout_s=PATIENCE_S)
            return standby.directory.name
        if kind == "primary":
            return self.databases.primary().directory.name
        if kind == "etcd":
            return next(member for member in self.databases.etcd if member.is_leader()).directory.name
        return {"broker": "mq1", "proxy": "proxy1", "service": "services1", "agent": "host1"}[kind]

    def wait_until_well(self) -> None:
        """Starts what has ended by itself, as systemd would, and waits until every machine does its work."""
        for name, node in self.nodes.items():
            if node.has_ended():
                self.start(name)
        until(lambda: not self.ill(), timeout_s=PATIENCE_S, seen=self.ill)

    def ill(self) -> list[str]:
        """What does not do its work."""
        found = [member.directory.name for member in self.databases.etcd if not member.is_healthy()]
        if not any(machine.is_primary() for machine in self.databases.machines):
            found.append("no primary")
        if self.databases.standby() is None:
            found.append("no standby")
        if not self.broker.answers(self.nodes["mq1"]):
            found.append("mq1")
        for name, port in (("services1", PORT), ("services2", PORT), ("proxy1", PROXY_PORT), ("proxy2", PROXY_PORT)):
            for service in SERVICES:
                if not self._is_healthy(f"{self.machines[name].address}:{port}", service):
                    found.append(f"{service} on {name}")
        if not found:
            status, text = self.connect("compute").send("GET", "/v2.1/os-services")
            hosts = [row for row in json.loads(text)["services"] if row["state"] == "up"] if status == 200 else []
            found += [] if len(hosts) >= 2 else ["the hosts"]
        return found

    def logs(self) -> str:
        """The end of what each machine has printed, and of its log."""
        paths = [path for node in self.nodes.values() for path in node.directory.glob("*.*")]
        return "".join(
            f"--- {path.parent.name}/{path.name}\n{path.read_text(errors='replace')[-1500:]}\n"
            for path in paths
            if path.name in ("log.txt", "moorage.log")
        )

    @staticmethod
    def _is_healthy(address: str, service: str) -> bool:
        try:
            return httpx.get(f"http://{address}/{service}/healthcheck", trust_env=False, timeout=3).status_code == 200
        except httpx.HTTPError:
            return False

    # ------------------------------------------------------------------------------------------- what is in it

    def _configure(self) -> None:
        through = {name: f"http://{self._proxies[1]}/{name}" for name in SERVICES}
        image = {"image": f"http://{self.nodes['images'].host}/image"}
        parts = {
            "images": {"plane": {"services": "image"}, "endpoints": through},
            "host1": {
                "plane": {"services": "agent", "hints": self.broker.url()}, "endpoints": through | image,
                "agent": {"host": "compute-1", "simulated_hosts": 2, "heartbeat_period_s": 2.0},
            },
        }  # fmt: skip
        for name in ("services1", "services2"):
            urls = {service: self._urls[service] for service in SERVICES}
            parts[name] = {
                "plane": {"services": ",".join(SERVICES), "hints": self.broker.url()}, "endpoints": image,
                "database": urls, "compute": {"host_down_after_s": 10},
            }  # fmt: skip
        for name, sections in parts.items():
            sections["plane"] |= {"log_file": "moorage.log", "log_level": "warning"}
            node = self.nodes[name]
            write_config(
                node.directory, server={"address": node.place.address, "port": PORT}, identity={"mode": "none", "allow_none_beyond_loopback": True},
                **sections,
            )  # fmt: skip

    def _set_up(self) -> None:
        reservation, compute = self.connect("reservation"), self.connect("compute")
        until(lambda: reservation.send("POST", "/v1/os-hosts", {"name": "compute-1"})[0] in (200, 201))
        images = Requests("image", [self.nodes["images"].host])
        body = {"name": "image", "disk_format": "raw", "container_format": "bare"}
        self.image = json.loads(expect(images.send("POST", "/v2/images", body), 201))["id"]
        content = httpx.put(
            f"http://{self.nodes['images'].host}/image/v2/images/{self.image}/file", content=b"tiny", trust_env=False,
            headers={"x-auth-token": "admin", "content-type": "application/octet-stream"},
        )  # fmt: skip
        assert content.status_code == 204, content.text
        self.flavor = "tiny"
        body = {"flavor": {"id": "tiny", "name": "tiny", "vcpus": 1, "ram": 64, "disk": 1}}
        expect(compute.send("POST", "/v2.1/flavors", body), 200)

    # ------------------------------------------------------------------------------------------- afterwards

    def wait_for_rest(self) -> list[str]:
        """Waits until no operation is in progress; returns those that do not end."""
        with contextlib.suppress(AssertionError):
            until(lambda: not self._at_work(), timeout_s=PATIENCE_S)
        return self._at_work()

    def _at_work(self) -> list[str]:
        servers = document(self.connect("compute"), "/v2.1/servers/detail?all_tenants=1")["servers"]
        found = [
            f"server {row['id']} is {row['status']}, {row['OS-EXT-STS:task_state']}"
            for row in servers
            if row["status"] not in ("ACTIVE", "ERROR") or row["OS-EXT-STS:task_state"]
        ]
        leases = document(self.connect("reservation"), "/v1/leases")["leases"]
        found += [f"lease {row['name']} is {row['status']}" for row in leases if row["status"] in UNFINISHED_LEASES]
        with self._engine("compute") as engine, engine.connect() as connection:
            states = ", ".join(f"'{state}'" for state in UNFINISHED_JOBS)
            rows = connection.execute(sa.text(f"SELECT kind, state FROM jobs WHERE state IN ({states})")).all()
        return found + [f"job {kind} is {state}" for kind, state in rows]

    def wrong(self, own: set[str]) -> list[str]:
        """What the oracle of the crash campaign and the audit find, except about the providers `own`."""
        with self._engine("placement") as engine:
            seen, found = Tables(engine, has_empty_numbers=True).read()
        client = Client(f"http://{self._proxies[0]}/placement")
        found += wrong_answers(client, seen)
        client.close()
        return found + self._audit(own)

    def _audit(self, own: set[str]) -> list[str]:
        config = self.nodes["services2"].directory / "moorage.conf"
        done = subprocess.run(
            [str(MOORAGE), "audit", "--json", "--grace", "0s", "--config", str(config)],
            capture_output=True, text=True, check=False, timeout=PATIENCE_S,
            env={name: value for name, value in os.environ.items() if not name.startswith(("OS_", "MOORAGE_"))},
        )  # fmt: skip
        if done.returncode not in (0, 1):
            return [f"the audit could not run: {done.stdout}{done.stderr}"]
        rows = json.loads(done.stdout)["findings"]
        return [
            f"the audit finds {json.dumps(row)}" for row in rows if not any(uuid in json.dumps(row) for uuid in own)
        ]

    @contextlib.contextmanager
    def _engine(self, service: str):
        engine = open_engine(self._urls[service])
        try:
            yield engine
        finally:
            engine.dispose()


#: {name in haproxy.cfg: machine}
PROCESSES = {"ONE": "services1", "TWO": "services2"}
