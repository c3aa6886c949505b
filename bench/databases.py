"""A separate, temporary database server for each server under test, as durable as in production.

PostgreSQL and MariaDB run with their defaults: an acknowledged commit is on disk (``fsync``,
``innodb_flush_log_at_trx_commit=1``). Separate servers keep one side's vacuum out of the other's figures.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

KINDS = ("postgresql", "sqlite", "mariadb")
_USERS = {"postgresql": "postgres", "mariadb": "mysql"}


@dataclass(frozen=True)
class DatabaseServer:
    kind: str
    directory: Path
    #: URL prefix; append a database name. For SQLite, no server listens.
    url: str
    pid: int | None = None

    @property
    def pids(self) -> tuple[int, ...]:
        return () if self.pid is None else (self.pid,)

    def create(self, name: str) -> str:
        """URL of a new, empty database."""
        if self.kind != "sqlite":
            self._execute(f"CREATE DATABASE {name}" + (" CHARACTER SET utf8mb4" if self.kind == "mariadb" else ""))
        return self.url_of(name)

    def url_of(self, name: str) -> str:
        return f"sqlite:///{self.directory}/{name}.sqlite" if self.kind == "sqlite" else f"{self.url}/{name}"

    def version(self) -> str:
        if self.kind == "sqlite":
            import sqlite3

            return sqlite3.sqlite_version
        return str(self._execute("SELECT version()")).split("-MariaDB")[0]

    def _execute(self, statement: str) -> object:
        at = urlsplit(self.url)
        if self.kind == "postgresql":
            import psycopg

            with psycopg.connect(f"{self.url}/postgres", connect_timeout=3, autocommit=True) as connection:
                found = connection.execute(statement)
                row = found.fetchone() if found.description else None
                return row[0].split()[1] if row else None
        import pymysql

        with pymysql.connect(host=at.hostname, port=at.port or 0, user="root", autocommit=True) as connection:
            cursor = connection.cursor()
            cursor.execute(statement)
            row = cursor.fetchone()
            return row[0] if row else None

    def settle(self, name: str) -> None:
        """Updates statistics and visibility maps, so that no vacuum runs during a measurement."""
        if self.kind == "postgresql":
            import psycopg

            with psycopg.connect(f"{self.url}/{name}", autocommit=True) as connection:
                connection.execute("VACUUM ANALYZE")
                connection.execute("CHECKPOINT")


@contextlib.contextmanager
def database_server(kind: str) -> Iterator[DatabaseServer]:
    """A directory under /var/tmp, which is on disk where /tmp may be in memory."""
    directory = Path(tempfile.mkdtemp(prefix="moorage-bench-", dir="/var/tmp"))
    try:
        if kind == "sqlite":
            yield DatabaseServer(kind, directory, "sqlite://")
            return
        identity: dict[str, Any] = {}
        if os.geteuid() == 0:
            shutil.chown(directory, _USERS[kind], _USERS[kind])
            identity = {"user": _USERS[kind], "group": _USERS[kind], "extra_groups": []}
        port = free_port()
        prepare, command, url = {"postgresql": _postgresql, "mariadb": _mariadb}[kind](directory, port)
        environment = {**os.environ, "HOME": str(directory)}
        with (directory / "log").open("w") as log:
            run: dict[str, Any] = {"cwd": directory, "env": environment, "stdout": log, "stderr": log, **identity}
            subprocess.run(prepare, check=True, **run)
            process = subprocess.Popen(command, start_new_session=True, **run)
        try:
            yield _answering(DatabaseServer(kind, directory, url, process.pid), process)
        finally:
            _end(process)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Stops the server. SIGINT makes PostgreSQL stop without waiting for clients; MariaDB ignores it."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20 if number == signal.SIGTERM else 5)
            return


def free_port() -> int:
    return free_ports(1)[0]


def free_ports(number: int) -> tuple[int, ...]:
    """Free ports, all different."""
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(number)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return tuple(int(probe.getsockname()[1]) for probe in probes)


def _answering(server: DatabaseServer, process: subprocess.Popen[bytes]) -> DatabaseServer:
    deadline = time.monotonic() + 60
    while True:
        try:
            server.version()
        except Exception as error:  # the two drivers' errors have no common base; the server may still be starting
            if process.poll() is not None or time.monotonic() > deadline:
                log = (server.directory / "log").read_text()[-2000:]
                raise RuntimeError(f"{server.kind} did not start:\n{log}") from error
            time.sleep(0.2)
        else:
            return server


def _postgresql(directory: Path, port: int) -> tuple[list[str], list[str], str]:
    newest = max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name), default=Path())
    initdb, postgres = _program("initdb", newest, "postgresql"), _program("postgres", newest, "postgresql")
    data = str(directory / "data")
    settings = {"port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "max_connections": 200}
    return (
        [initdb, "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"],
        [postgres, "-D", data, *(f"--{name}={value}" for name, value in settings.items())],
        f"postgresql://postgres@127.0.0.1:{port}",
    )


def _mariadb(directory: Path, port: int) -> tuple[list[str], list[str], str]:
    install, mariadbd = _program("mariadb-install-db", Path(), "mariadb-server"), "/usr/sbin/mariadbd"
    data = f"--datadir={directory}/data"
    return (
        [install, "--no-defaults", data, "--auth-root-authentication-method=normal", "--skip-test-db",
         "--skip-name-resolve"],
        [shutil.which("mariadbd") or mariadbd, "--no-defaults", data, f"--port={port}", "--bind-address=127.0.0.1",
         f"--socket={directory}/socket", f"--pid-file={directory}/pid", "--skip-name-resolve",
         "--max-connections=200"],
        f"mariadb://root@127.0.0.1:{port}",
    )  # fmt: skip


def _program(name: str, directory: Path, package: str) -> str:
    found = shutil.which(name, path=str(directory)) or shutil.which(name)
    if found is None:
        raise RuntimeError(
            f"{name} is not here; install it (Debian: apt-get install {package}), or use another --database"
        )
    return found
