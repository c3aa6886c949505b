"""Private database servers that tests may kill, stop, stall and fill; as durable as in production."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from bench.processes import tree
from tests.ports import free_port
from tests.servers import SERVERS, install, program

START_TIMEOUT_S = 60


class DatabaseServer:
    """PostgreSQL or MariaDB on its own directory and port; it can be restarted after any end."""

    def __init__(self, kind: str, directory: Path, log: Path, *, wal: Path | None = None, **settings: object) -> None:
        """`log`: its log file. `wal`: the directory of PostgreSQL's write-ahead log, if not with the data."""
        self.kind = kind
        self.directory = directory
        self._user = SERVERS[kind].user if os.geteuid() == 0 else None
        for place in (directory, *([wal] if wal else [])):
            place.mkdir(parents=True)
            if self._user:
                shutil.chown(place, self._user, self._user)
        self.port = free_port()
        prepare, self._command = _COMMANDS[kind](directory / "data", self.port, wal, settings)
        self._log = log
        self._run(prepare).wait()
        self._process: subprocess.Popen | None = None
        self._members: list[int] = []
        self.url = {
            "postgresql": f"postgresql://postgres@127.0.0.1:{self.port}/postgres?sslmode=disable&gssencmode=disable",
            "mariadb": f"mariadb://root@127.0.0.1:{self.port}/moorage",
        }[kind]

    def start(self) -> None:
        """Does not wait until it answers; `wait` does."""
        self._process = self._run(self._command)

    def wait(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self.answers():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise RuntimeError(f"{self.kind} did not start:\n{self._log.read_text()[-3000:]}")
            time.sleep(0.02)

    def answers(self) -> bool:
        try:
            self.execute("SELECT 1", database=False)
        except Exception:  # noqa: BLE001 - each driver has its own errors; any error means no
            return False
        return True

    def kill(self) -> None:
        """Kills all its processes at once, and waits until they are gone."""
        self._signal(signal.SIGKILL)
        self._ended()

    def has_ended(self) -> bool:
        """Whether it has ended by itself."""
        return self._process.poll() is not None

    def ends_by_itself(self) -> bool:
        """Waits until it ends by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(START_TIMEOUT_S)
        return self.has_ended()

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def stop(self) -> None:
        """Stops it in order, but does not wait for its clients."""
        self._members = tree_below(self._process.pid)
        self._process.send_signal(signal.SIGINT if self.kind == "postgresql" else signal.SIGTERM)
        self._ended()

    def stall(self) -> None:
        """Stops its processes with SIGSTOP; the kernel still accepts connections and bytes for them."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def close(self) -> None:
        if self._process is not None:
            self._signal(signal.SIGKILL)
            self._ended()

    def backends(self) -> list[int]:
        """Processes that serve a client, PostgreSQL only."""
        rows = self.execute(
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        return [pid for (pid,) in rows]

    def empty(self) -> None:
        """Deletes all written data."""
        if self.kind == "postgresql":
            self.execute("DROP SCHEMA public CASCADE")
            self.execute("CREATE SCHEMA public")
        else:
            self.execute("DROP DATABASE moorage")
            self.execute("CREATE DATABASE moorage CHARACTER SET utf8mb4", database=False)

    def starts(self) -> int:
        """The number of PostgreSQL's starts: it restarts by itself when one of its processes is killed."""
        return self.log.count("database system is ready to accept connections")

    def execute(self, statement: str, *, database: bool = True) -> list[tuple]:
        """Uses a new connection. Raises the driver's errors."""
        with self.connect(database=database) as connection:
            cursor = connection.cursor()
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def connect(self, *, database: bool = True):
        at = urlsplit(self.url)
        if self.kind == "postgresql":
            import psycopg

            return psycopg.connect(self.url, connect_timeout=3, autocommit=True)
        import pymysql

        name = "moorage" if database else None
        return pymysql.connect(
            host=at.hostname, port=at.port, user="root", database=name, connect_timeout=3, autocommit=True
        )

    def _run(self, command: list[str]) -> subprocess.Popen:
        identity = {"user": self._user, "group": self._user, "extra_groups": []} if self._user else {}
        with self._log.open("a") as log:
            return subprocess.Popen(
                command, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "HOME": str(self.directory)}, **identity,
            )  # fmt: skip

    def _signal(self, number: signal.Signals) -> None:
        # Collected first: PostgreSQL's processes lead their own groups, and have another parent once the first one is
        # dead.
        self._members = [self._process.pid, *tree_below(self._process.pid)]
        for pid in self._members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _ended(self) -> None:
        """Whether no process of it is left; otherwise the next start would find their shared memory."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while self._process.poll() is None or any(_lives(pid) for pid in self._members):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.kind} does not end:\n{self._log.read_text()[-3000:]}")
            time.sleep(0.002)
        self._process = None


def tree_below(pid: int) -> list[int]:
    """All processes that descend from `pid`."""
    return [one for one in tree([pid]) if one != pid]


def _lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@contextlib.contextmanager
def database_server(
    kind: str, *, place: Path | None = None, wal_elsewhere: bool = False, **settings: object
) -> Iterator[DatabaseServer]:
    """A running and empty server, killed at the end. Installs it if necessary.

    Its files are in `place`, or in a directory of their own under /var/tmp: that is a disk, while /tmp may be in
    memory, and the database's user can read it, unlike a directory of pytest's. `wal_elsewhere`: PostgreSQL's
    write-ahead log is under /var/tmp even if there is a `place`.
    """
    install(kind)
    with tempfile.TemporaryDirectory(prefix="moorage-crash-", dir="/var/tmp") as own:
        Path(own).chmod(0o755)
        wal = Path(own) / "wal" if wal_elsewhere and kind == "postgresql" else None
        server = DatabaseServer(kind, (place or Path(own)) / kind, Path(own) / "log", wal=wal, **settings)
        try:
            server.start()
            server.wait()
            if kind == "mariadb":
                server.execute("CREATE DATABASE moorage CHARACTER SET utf8mb4", database=False)
            yield server
        finally:
            server.close()


def _postgresql(data: Path, port: int, wal: Path | None, settings: dict) -> tuple[list[str], list[str]]:
    programs = Path(program("initdb")).parent
    settings = {"port": port, "listen_addresses": "127.0.0.1", "unix_socket_directories": ""} | settings
    prepare = [f"{programs}/initdb", "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]
    # Small segments, so that a full disk shows after 1 MB of log.
    prepare += ["-X", str(wal)] if wal is not None else ["--wal-segsize=1"]
    return prepare, [
        f"{programs}/postgres",
        "-D",
        str(data),
        *(f"--{name}={value}" for name, value in settings.items()),
    ]


def _mariadb(data: Path, port: int, wal: Path | None, settings: dict) -> tuple[list[str], list[str]]:
    prepare = [
        program("mariadb-install-db"), "--no-defaults", f"--datadir={data}", "--auth-root-authentication-method=normal",
        "--skip-test-db", "--skip-name-resolve", f"--tmpdir={data.parent}",
    ]  # fmt: skip
    command = [
        program("mariadbd"), "--no-defaults", f"--datadir={data}", f"--port={port}", "--bind-address=127.0.0.1",
        f"--socket={data}/socket", f"--tmpdir={data.parent}", "--skip-name-resolve", "--innodb-buffer-pool-size=32M",
    ]  # fmt: skip
    return prepare, [*command, *(f"--{name.replace('_', '-')}={value}" for name, value in settings.items())]


_COMMANDS = {"postgresql": _postgresql, "mariadb": _mariadb}
