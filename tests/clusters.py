"""Clusters of servers on loopback: three Galera nodes, a PostgreSQL primary with a synchronous standby, or three nodes
of RabbitMQ.

    with GaleraCluster() as cluster:  cluster.url(), cluster.nodes[0].kill(), cluster.start(cluster.nodes[0])
    with PostgresqlPair() as pair:    pair.url, pair.primary.kill(), pair.promote()
    with RabbitCluster() as cluster:  cluster.url(), cluster.nodes[0].kill()

Not here: election. `PostgresqlPair.promote` is the decision of an operator.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

from tests.networks import LOOPBACK, Place
from tests.ports import free_port
from tests.servers import install, program

START_TIMEOUT_S = 120
_GALERA = Path("/usr/lib/galera/libgalera_smm.so")


class Node:
    """One server process, which runs as an unprivileged user if the tests run as root."""

    def __init__(self, directory: Path, user: str, port: int, place: Place = LOOPBACK) -> None:
        self.directory, self.port, self.place, self._user = directory, port, place, user
        #: in addition to the tests' own
        self.environment: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(mode=0o755)
        place.add_disk(directory)
        if os.geteuid() == 0:
            shutil.chown(directory, user, user)

    @property
    def host(self) -> str:
        return f"{self.place.address}:{self.port}"

    def run(self, *command: str) -> None:
        with (self.directory / "log.txt").open("a") as log:
            subprocess.run(command, stdout=log, stderr=log, check=True, **self._identity())

    def launch(self, *command: str) -> None:
        with (self.directory / "log.txt").open("a") as log, self.place.entered():
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, **self._identity()
            )

    def signal(self, number: signal.Signals) -> None:
        """To the server and its children."""
        assert self._process is not None
        os.killpg(self._process.pid, number)

    def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def remove(self) -> None:
        self.kill()
        self.place.remove_disk(self.directory)

    def has_ended(self) -> bool:
        """Whether it was killed or has ended by itself."""
        return self._process is None or self._process.poll() is not None

    def wait(self, is_ready: Callable[[], bool]) -> None:
        give_up = time.monotonic() + START_TIMEOUT_S
        while not is_ready():
            ended = self.has_ended()
            if ended or time.monotonic() > give_up:
                tail = (self.directory / "log.txt").read_text(errors="replace")[-3000:]
                raise RuntimeError(f"{self.directory.name} {'ended' if ended else 'is not ready'}:\n{tail}")
            time.sleep(0.1)

    def _identity(self) -> dict:
        identity = {"user": self._user, "group": self._user, "extra_groups": []} if os.geteuid() == 0 else {}
        # The tests' own directory for temporary files may be one that other users cannot write to.
        environment = {**os.environ, "HOME": str(self.directory), "TMPDIR": str(self.directory), **self.environment}
        return {"cwd": self.directory, "env": environment, **identity}


def _directory() -> Path:
    """A new one that the users of the servers can enter, unlike pytest's."""
    directory = Path(tempfile.mkdtemp(prefix="moorage-cluster-"))
    directory.chmod(0o755)
    return directory


class GaleraCluster:
    """Three nodes with a database ``moorage`` and a user ``moorage`` without administrators' rights."""

    def __init__(self) -> None:
        install("mariadb")
        if not _GALERA.exists():
            subprocess.run(["apt-get", "install", "-y", "-qq", "galera-4", "rsync"], check=True, capture_output=True)
        self._directory = _directory()
        self.nodes = [Node(self._directory / f"n{number}", "mysql", free_port()) for number in range(1, 4)]
        self._group_ports = [free_port() for _ in self.nodes]

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self._kill)
            self.bootstrap()
            self.administer(self.nodes[0], "CREATE USER moorage@'127.0.0.1'")
            self.add_database("moorage")
            stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._kill()

    def bootstrap(self) -> None:
        """Starts a new cluster without users and databases: the first node, from which the others copy everything."""
        first, *others = self.nodes
        first.run(
            program("mariadb-install-db") or "mariadb-install-db", "--no-defaults",
            f"--datadir={first.directory}/data", "--auth-root-authentication-method=normal", "--skip-test-db",
            "--skip-name-resolve",
        )  # fmt: skip
        self.start(first, is_new=True)
        for node in others:
            data = node.directory / "data"
            data.mkdir()
            if os.geteuid() == 0:
                shutil.chown(data, "mysql", "mysql")
            self.start(node)

    def destroy_data(self) -> None:
        """Kills all nodes and removes their directories of data."""
        for node in self.nodes:
            node.kill()
            shutil.rmtree(node.directory / "data")

    def add_database(self, name: str) -> None:
        self.administer(self.nodes[0], f"CREATE DATABASE {name}")
        self.administer(self.nodes[0], f"GRANT ALL ON {name}.* TO moorage@'127.0.0.1'")

    def url(self, first: int = 0, database: str = "moorage") -> str:
        """Names all nodes, beginning with the node of this index."""
        nodes = [*self.nodes[first:], *self.nodes[:first]]
        return f"mariadb://moorage@/{database}?{'&'.join(f'host={node.host}' for node in nodes)}"

    def start(self, node: Node, *, is_new: bool = False) -> None:
        """Returns when the node is synchronised. `is_new`: it is the first node of a new cluster."""
        group = self._group_ports[self.nodes.index(node)]
        address = "gcomm://" + ",".join(f"127.0.0.1:{port}" for port in self._group_ports)
        listen = f"gmcast.listen_addr=tcp://127.0.0.1:{group};ist.recv_addr=127.0.0.1:{free_port()}"
        settings = {
            "datadir": node.directory / "data", "port": node.port, "bind-address": "127.0.0.1",
            "socket": node.directory / "socket", "pid-file": node.directory / "pid", "skip-name-resolve": "ON",
            "binlog-format": "ROW", "innodb-autoinc-lock-mode": 2, "innodb-log-file-size": "8M",
            "innodb-buffer-pool-size": "64M", "innodb-flush-log-at-trx-commit": 0, "wsrep-on": "ON",
            "wsrep-provider": _GALERA, "wsrep-cluster-name": "moorage", "wsrep-cluster-address": address,
            "wsrep-node-address": f"127.0.0.1:{group}", "wsrep-node-name": node.directory.name,
            "wsrep-sst-receive-address": f"127.0.0.1:{free_port()}", "wsrep-sst-method": "rsync",
            "wsrep-provider-options": f"gcache.size=32M;{listen}",
        }  # fmt: skip
        options = [f"--{name}={value}" for name, value in settings.items()]
        if is_new:
            options.append("--wsrep-new-cluster")
        node.launch(program("mariadbd") or "mariadbd", "--no-defaults", *options)
        node.wait(lambda: self.state(node) == "Synced")

    def state(self, node: Node) -> str:
        """Galera's word for it; empty if the node does not answer."""
        import pymysql

        try:
            rows = self.administer(node, "SHOW GLOBAL STATUS LIKE 'wsrep_local_state_comment'")
        except pymysql.err.Error:
            return ""
        return rows[0][1] if rows else ""

    def administer(self, node: Node, sql: str) -> Sequence[tuple]:
        with self.connection(node) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall()

    def connection(self, node: Node, **options: object):
        """As an administrator, of PyMySQL."""
        import pymysql

        return pymysql.connect(
            host="127.0.0.1", port=node.port, user="root", connect_timeout=5, autocommit=True, **options
        )

    def _kill(self) -> None:
        for node in self.nodes:
            node.remove()
        shutil.rmtree(self._directory)


class PostgresqlPair:
    """A primary, and a standby without which no commit is acknowledged; the database is ``postgres``."""

    def __init__(self) -> None:
        install("postgresql")
        self._directory = _directory()
        self.primary = Node(self._directory / "first", "postgres", free_port())
        self.standby = Node(self._directory / "second", "postgres", free_port())
        self.url = f"postgresql://postgres@/postgres?host={self.primary.host}&host={self.standby.host}"

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self._kill)
            first, second = self.primary, self.standby
            data = f"{first.directory}/data"
            first.run(self._program("initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "-N")
            self.start(first)
            where = f"host=127.0.0.1 port={first.port} user=postgres application_name=second"
            second.run(
                self._program("pg_basebackup"), "-D", f"{second.directory}/data", "-d", where, "-R", "-X", "stream"
            )
            self.start(second)
            first.wait(lambda: self.administer(first, "SELECT state FROM pg_stat_replication") == [("streaming",)])
            self.administer(first, "ALTER SYSTEM SET synchronous_standby_names = 'second'")
            self.administer(first, "SELECT pg_reload_conf()")
            stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._kill()

    def start(self, node: Node) -> None:
        settings = {
            "port": node.port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off",
            "hot_standby": "on",
        }  # fmt: skip
        options = [f"--{name}={value}" for name, value in settings.items()]
        node.launch(self._program("postgres"), "-D", f"{node.directory}/data", *options)
        node.wait(lambda: bool(self.administer(node, "SELECT 1")))

    def promote(self) -> None:
        """The standby becomes the primary, which waits for no standby."""
        self.administer(self.standby, "SELECT pg_promote(true, 60)")
        self.administer(self.standby, "ALTER SYSTEM SET synchronous_standby_names = ''")
        self.administer(self.standby, "SELECT pg_reload_conf()")

    def administer(self, node: Node, sql: str) -> list[tuple]:
        """The rows; empty if the server does not answer."""
        import psycopg

        where = f"host=127.0.0.1 port={node.port} user=postgres dbname=postgres connect_timeout=5"
        try:
            with psycopg.connect(where, autocommit=True) as connection:
                cursor = connection.execute(sql)
                return cursor.fetchall() if cursor.description else []
        except psycopg.OperationalError:
            return []

    def _program(self, name: str) -> str:
        return str(Path(program("initdb") or "initdb").with_name(name))

    def _kill(self) -> None:
        for node in (self.primary, self.standby):
            node.kill()
        shutil.rmtree(self._directory)


class RabbitCluster:
    """Nodes that find each other by their configuration; the virtual host is ``/``."""

    def __init__(self, places: Sequence[Place] = (LOOPBACK,) * 3) -> None:
        """`places`: of the nodes. More than one can only be on one machine."""
        install("rabbit")
        self._directory = _directory()
        self._mapper = Node(self._directory / "epmd", "rabbitmq", free_port(), places[0])
        self.nodes = [
            Node(self._directory / f"n{number}", "rabbitmq", free_port(), place)
            for number, place in enumerate(places, start=1)
        ]
        self._names = [f"moorage{node.port}@localhost" for node in self.nodes]

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            stack.callback(self._kill)
            # Erlang's port mapper would otherwise be started by the first node and die with it.
            self._mapper.launch("epmd", "-port", str(self._mapper.port), "-address", "127.0.0.1")
            for node in self.nodes:
                self._configure(node)
                self.start(node)
            stack.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._kill()

    def url(self, first: int = 0) -> str:
        """Names all nodes, beginning with the node of this index."""
        nodes = [*self.nodes[first:], *self.nodes[:first]]
        return f"amqp://guest:guest@/%2F?{'&'.join(f'host={node.host}' for node in nodes)}"

    def start(self, node: Node) -> None:
        """Returns when clients can use it."""
        self.launch(node)
        node.wait(lambda: self.answers(node))

    def launch(self, node: Node) -> None:
        """Does not wait until it can be used."""
        server = "/usr/lib/rabbitmq/bin/rabbitmq-server"
        environment = [f"{name}={value}" for name, value in self._environment(node).items()]
        node.launch("env", *environment, server if Path(server).exists() else program("rabbitmq-server") or server)

    def _configure(self, node: Node) -> None:
        names = "".join(
            f"cluster_formation.classic_config.nodes.{number} = {name}\n"
            for number, name in enumerate(self._names, start=1)
        )
        (node.directory / "rabbitmq.conf").write_text(
            f"loopback_users = none\ncluster_formation.peer_discovery_backend = classic_config\n{names}"
        )
        cookie = node.directory / ".erlang.cookie"
        cookie.write_text("moorage")
        if os.geteuid() == 0:
            shutil.chown(cookie, "rabbitmq", "rabbitmq")
        cookie.chmod(0o400)

    def _environment(self, node: Node) -> dict[str, str]:
        directory = node.directory
        return {
            "RABBITMQ_NODENAME": self._names[self.nodes.index(node)],
            "RABBITMQ_NODE_IP_ADDRESS": node.place.address,
            "RABBITMQ_NODE_PORT": str(node.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._mapper.port),
            "RABBITMQ_MNESIA_BASE": f"{directory}/mnesia",
            "RABBITMQ_LOG_BASE": f"{directory}/log",
            "RABBITMQ_GENERATED_CONFIG_DIR": f"{directory}/generated",
            "RABBITMQ_SCHEMA_DIR": f"{directory}/schema",
            "RABBITMQ_CONFIG_FILE": f"{directory}/rabbitmq.conf",
            "RABBITMQ_CONF_ENV_FILE": f"{directory}/none.env",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{directory}/plugins",
            "RABBITMQ_PID_FILE": f"{directory}/pid",
        }

    @staticmethod
    def answers(node: Node) -> bool:
        import pika

        parameters = pika.URLParameters(f"amqp://guest:guest@{node.host}/%2F")
        parameters.socket_timeout = parameters.stack_timeout = 3
        try:
            pika.BlockingConnection(parameters).close()
        except (pika.exceptions.AMQPError, OSError):
            return False
        return True

    def _kill(self) -> None:
        for node in (*self.nodes, self._mapper):
            node.remove()
        shutil.rmtree(self._directory)
