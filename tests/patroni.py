"""PostgreSQL under Patroni on loopback: two machines with a server each, and three members of etcd.

    with PatroniCluster() as cluster:
        primary = cluster.primary()
        primary.kill(), cluster.start(primary), primary.pause(), primary.resume()
    with PatroniCluster() as first, PatroniCluster(follows=first) as second:  a second site
        first.kill(), second.run("patronictl ... edit-config ..."), second.primary()

It runs the files of packaging/patroni, in which only names, addresses and directories are replaced. Patroni comes from
.venv-patroni, etcd from Debian's package, unpacked and not installed (`tests.debian`).
"""

import configparser
import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Self

import psycopg

from tests.clusters import Node
from tests.debian import unpacked
from tests.networks import LOOPBACK, Place
from tests.ports import free_port
from tests.processes import python_of
from tests.servers import ServerMissing, install, program

FILES = Path(__file__).parents[1] / "packaging" / "patroni"
#: The user that runs all of them if the tests run as root.
USER = "postgres"
#: Of the superuser, in patroni.yml.
PASSWORD = "SUPERUSER_PASSWORD"
ETCD_MEMBERS = 3
#: A second address of this machine, for db2.
_SECOND = Place("127.0.0.2")


class Member(Node):
    """One member of etcd."""

    def __init__(self, directory: Path, number: int, place: Place) -> None:
        super().__init__(directory / f"etcd{number}", USER, free_port(), place)
        self.number = number
        self.peer_port = free_port()

    def is_healthy(self) -> bool:
        return _json(self.host, "GET", "/health").get("health") == "true"

    def is_leader(self) -> bool:
        status = _json(self.host, "POST", "/v3/maintenance/status")
        return bool(status) and status["header"]["member_id"] == status.get("leader")


class Machine(Node):
    """Patroni and the server that it starts, which live and die together."""

    def __init__(self, directory: Path, number: int, place: Place, port: int) -> None:
        super().__init__(directory / f"db{number}", USER, port, place)
        self.number = number
        self.rest = f"{place.address}:{free_port()}"

    def kill(self) -> None:
        """Like a loss of power: Patroni and all processes of the server at once."""
        self._signal_server(signal.SIGKILL)
        super().kill()

    def pause(self) -> None:
        self.signal(signal.SIGSTOP)
        self._signal_server(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_server(signal.SIGCONT)
        self.signal(signal.SIGCONT)

    def is_primary(self) -> bool:
        """In Patroni's opinion."""
        return self.role() in ("master", "primary")

    def role(self) -> str | None:
        """Patroni's word for it; None if Patroni does not answer."""
        return _json(self.rest, "GET", "/patroni").get("role")

    def is_streaming(self) -> bool:
        """Whether it receives the journal of another server."""
        return _json(self.rest, "GET", "/patroni").get("replication_state") == "streaming"

    def connection(self, **options: object) -> psycopg.Connection:
        """Raises `psycopg.OperationalError` if the server does not answer."""
        where = f"host={self.place.address} port={self.port} user=postgres password={PASSWORD} dbname=postgres"
        return psycopg.connect(where, connect_timeout=2, **options)

    def administer(self, sql: str) -> list[tuple]:
        """The rows."""
        with self.connection(autocommit=True) as connection:
            cursor = connection.execute(sql)
            return cursor.fetchall() if cursor.description else []

    def _signal_server(self, number: signal.Signals) -> None:
        """The postmaster first, so that it starts no further process. Each of its processes has its own group."""
        for pid in self._server_pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _server_pids(self) -> list[int]:
        try:
            postmaster = int((self.directory / "data" / "postmaster.pid").read_text().partition("\n")[0])
            if Path(f"/proc/{postmaster}/exe").resolve().name != "postgres":
                return []
            children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        except FileNotFoundError:
            return []
        return [postmaster, *map(int, children)]


class PatroniCluster:
    """Raises `ServerMissing` if PostgreSQL or etcd cannot be had."""

    def __init__(
        self,
        place: Callable[[str], Place] = lambda name: _SECOND if name == "db2" else LOOPBACK,
        follows: "PatroniCluster | None" = None,
    ) -> None:
        """`place`: the machine for a server of this name (db1, db2, etcd1, etcd2, etcd3); db1 and db2 must have different
        addresses, since Patroni knows one port for both. `follows`: the first site, if this is a second one.
        """
        #: the cluster of the other site
        self.other = follows
        if follows:
            follows.other = self
        self._is_second = follows is not None
        install("postgresql")
        packages = next(python_of(".venv-patroni").parents[1].glob("lib/python3*/site-packages"))
        self._python = _python_for_user(packages.parent.name)
        self._etcd = unpacked("etcd", "etcd-server") / "usr/bin/etcd"
        # A new one that the user of the servers can enter, unlike pytest's.
        self._directory = Path(tempfile.mkdtemp(prefix="moorage-cluster-"))
        self._directory.chmod(0o755)
        # The user of the servers may be unable to enter the checkout.
        self._packages = shutil.copytree(packages, self._directory / "packages")
        port = free_port()
        self.machines = [Machine(self._directory, number, place(f"db{number}"), port) for number in (1, 2)]
        self.etcd = [Member(self._directory, number, place(f"etcd{number}")) for number in range(1, ETCD_MEMBERS + 1)]

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self._kill)
            self.start_all_etcd()
            self.start_all()
            statements = [] if self._is_second else self._file("databases.sql", 1).split(";\n")
            for statement in filter(str.strip, statements):
                self.primary().administer(statement)
            stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._kill()

    def database_urls(self) -> dict[str, str]:
        """{service: URL} of moorage.conf."""
        config = configparser.ConfigParser(interpolation=None)
        config.read_string(self._file("moorage.conf", 1))
        return dict(config["database"])

    def start(self, machine: Machine) -> None:
        """Does not wait until it is a primary or standby."""
        config = machine.directory / "patroni.yml"
        name = "standby-site.yml" if self._is_second else "patroni.yml"
        config.write_text(self._file(name, machine.number))
        machine.launch("/usr/bin/env", f"PYTHONPATH={self._packages}", self._python, "-m", "patroni", str(config))

    def start_all(self) -> None:
        """Both machines; returns when one of them is the primary or follows the other site, and the other one follows
        it.
        """
        for machine in self.machines:
            self.start(machine)
        self.machines[0].wait(lambda: self.standby() is not None or self.is_standby_site())

    def start_all_etcd(self) -> None:
        for member in self.etcd:
            self.start_etcd(member)
        for member in self.etcd:
            # Patroni rests for 5 s if it finds none.
            member.wait(member.is_healthy)

    def is_standby_site(self) -> bool:
        """Whether one machine follows the other site, and the other machine follows it."""
        roles = {machine.role() for machine in self.machines if machine.is_streaming()}
        return roles == {"standby_leader", "replica"}

    def kill(self) -> None:
        """Like a loss of power of all machines and of etcd."""
        for node in (*self.machines, *self.etcd):
            node.kill()

    def destroy_data(self) -> None:
        """Kills both machines and removes their directories of data; etcd goes on."""
        for machine in self.machines:
            machine.kill()
            shutil.rmtree(machine.directory / "data")

    def run(self, command: str) -> str:
        """Runs a command of a page with this cluster's addresses and files, and returns its output. psql connects to
        the primary.
        """
        programs = (str(python_of(".venv-patroni").parent), str(Path(program("initdb") or "initdb").parent))
        (self._directory / "databases.sql").write_text(self._file("databases.sql", 1))
        environment = {
            **os.environ,
            "PATH": os.pathsep.join([*programs, os.environ["PATH"]]),
            "PGPASSWORD": PASSWORD,
            "PGPORT": str(self.machines[0].port),
        }
        text = command.replace("/etc/patroni/config.yml", str(self.machines[0].directory / "patroni.yml"))
        if command.startswith("psql"):
            text = re.sub(r"-h \S+", f"-h {self.primary().place.address}", text)
        done = subprocess.run(
            ["bash", "-c", self._with_addresses(text, 1)],
            cwd=self._directory, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def start_etcd(self, member: Member) -> None:
        """Does not wait: the first member answers when there is a second one."""
        lines = self._file("etcd", member.number).splitlines()
        settings = [line for line in lines if line.startswith("ETCD_")]
        member.launch("/usr/bin/env", *settings, str(self._etcd))

    def primary(self) -> Machine:
        """The one that Patroni calls so; raises `StopIteration` while there is none."""
        return next(machine for machine in self.machines if machine.is_primary())

    def standby(self) -> Machine | None:
        """The one that has every commit that the primary acknowledges; None while there is none."""
        for machine in self.machines:
            if _json(machine.rest, "GET", "/sync").get("sync_standby"):
                return machine
        return None

    def _file(self, name: str, number: int) -> str:
        """A file of packaging/patroni for the machine or member of this number, with this cluster's addresses."""
        text = (FILES / name).read_text()
        if self._is_second and name != "standby-site.yml":
            text = text.replace("10.0.0.", "10.0.1.")
        # Lines with several addresses are the same everywhere.
        own = re.compile(rf"^(?!.*,.*10\.)(.*{re.escape(self._network)}\.[23])1:", re.MULTILINE)
        is_of_machine = name in ("patroni.yml", "standby-site.yml", "etcd")
        text = own.sub(rf"\g<1>{number}:", text) if is_of_machine else text
        text = re.sub(
            r"^(name: db|ETCD_NAME=etcd)(\d)\b",
            lambda found: f"{found[1]}{int(found[2]) + number - 1}",
            text,
            flags=re.MULTILINE,
        )
        text = self._with_addresses(text, number)
        settings = re.sub(r"^ *(#|--).*", "", text, flags=re.MULTILINE)
        assert not re.search(r"10\.0\.[01]\.|/var/", settings), f"{name} has an address or a directory of its own"
        return text

    @property
    def _network(self) -> str:
        return "10.0.1" if self._is_second else "10.0.0"

    def _with_addresses(self, text: str, number: int) -> str:
        """With the addresses of this cluster and of the other site, and the directories of the machine of this
        number.
        """
        changes = self._directories(number)
        for cluster in filter(None, (self, self.other)):
            changes |= cluster._addresses()
            if f"{cluster._network}.21,{cluster._network}.22" in text:  # followed by the port of both
                text = re.sub(r"(\bport(?:: |=))5432\b", rf"\g<1>{cluster.machines[0].port}", text)
        for old, new in changes.items():
            text = text.replace(old, new)
        return text

    def _directories(self, number: int) -> dict[str, str]:
        machine, member = self.machines[min(number, len(self.machines)) - 1], self.etcd[number - 1]
        return {
            "10.0.0.0/24": f"{machine.place.address}/8",
            "10.0.0.0/23": f"{machine.place.address}/8",
            "/usr/lib/postgresql/15/bin": str(Path(program("initdb") or "initdb").parent),
            "/var/lib/postgresql/15/moorage": f"{machine.directory}/data",
            "/var/lib/postgresql/patroni.pgpass": f"{machine.directory}/pgpass",
            "/var/run/postgresql": str(machine.directory),
            "/var/lib/etcd/moorage": f"{member.directory}/data",
        }

    def _addresses(self) -> dict[str, str]:
        """{address in the files: that of this cluster}, those with a port first."""
        changes = {}
        for one in self.etcd:
            changes[f"{self._network}.3{one.number}:2379"] = one.host
            changes[f"{self._network}.3{one.number}:2380"] = f"{one.place.address}:{one.peer_port}"
        for one in self.machines:
            changes[f"{self._network}.2{one.number}:5432"] = one.host
            changes[f"{self._network}.2{one.number}:8008"] = one.rest
        for one in self.machines:
            changes[f"{self._network}.2{one.number}"] = one.place.address
        return changes

    def _kill(self) -> None:
        for node in (*self.machines, *self.etcd):
            node.remove()
        shutil.rmtree(self._directory)


def _python_for_user(name: str) -> str:
    """An interpreter of this name that the user of the servers can run: ours may lie in the home directory of root."""
    identity = {"user": USER, "group": USER, "extra_groups": []} if os.geteuid() == 0 else {}
    for python in (f"{sys.base_prefix}/bin/{name}", f"/usr/bin/{name}"):
        with contextlib.suppress(OSError):
            if subprocess.run([python, "-c", ""], cwd="/", check=False, **identity).returncode == 0:
                return python
    raise ServerMissing(f"the user {USER} can run neither {sys.base_prefix}/bin/{name} nor /usr/bin/{name}")


def _json(host: str, method: str, path: str) -> dict:
    """The document that a server answers with, whatever the status; empty if it does not answer."""
    connection = http.client.HTTPConnection(host, timeout=1)
    try:
        connection.request(method, path, "{}" if method == "POST" else None)
        return json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError):
        return {}
    finally:
        connection.close()
