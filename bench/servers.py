"""The two servers under test, each run as operators do.

upstream  openstack-placement from PyPI under gunicorn: 2 processes of 8 threads; on SQLite 1 of 1, because with more its
          writes fail ("database is locked"); ``noauth2``, other options at their defaults
ours      ``moorage up`` with placement alone, ``identity = none``, other options at their defaults

Both validate requests and check policy; neither asks Keystone.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from bench.databases import DatabaseServer
from bench.processes import is_taken, listens, refuse_taken, tree
from bench.wire import Connection

ROOT = Path(__file__).parents[1]
UPSTREAM = ROOT / ".venv-bench" / "bin"
START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 8


@dataclass
class Server:
    """A process tree that can be restarted on the same database."""

    name: str
    url: str
    database: DatabaseServer
    command: list[str]
    log: Path
    environment: dict[str, str] = field(default_factory=dict)
    #: Text in the log that shows it is up; without it, its URL must answer.
    says: str = ""
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def pids(self) -> tuple[int, ...]:
        return () if self.process is None else (self.process.pid,)

    def start(self) -> float:
        """Starts it; returns the seconds until it answered. Raises `RuntimeError` if its port is taken."""
        port = urlsplit(self.url).port or 0
        refuse_taken(port)
        started = time.perf_counter()
        own = {name: value for name, value in os.environ.items() if not name.startswith(("OS_", "PYTHON", "MOORAGE"))}
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                self.command, cwd=ROOT, env=own | self.environment, stdout=log, stderr=log, start_new_session=True
            )
        while not self._is_up():
            if self.process.poll() is not None or time.perf_counter() - started > START_TIMEOUT_S:
                self.stop()
                raise RuntimeError(f"{self.name} did not start:\n{self.log.read_text()[-3000:]}")
            time.sleep(0.02)
        seconds = time.perf_counter() - started
        if not listens(self.process.pid, port):
            raise RuntimeError(f"port {port} is not served by {self.name}: another server would be measured")
        return seconds

    def _is_up(self) -> bool:
        return self.says in self.log.read_text() if self.says else _answers(self.url)

    def stop(self) -> None:
        """Stops it with SIGTERM, or with SIGKILL if it still works on abandoned requests."""
        if self.process is None:
            return
        everybody = tree([self.process.pid])
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_TIMEOUT_S)
        for pid in everybody:  # workers sometimes outlive their parent and keep its port
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        deadline = time.monotonic() + 10
        while is_taken(urlsplit(self.url).port or 0) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.process = None

    def restart(self) -> float:
        self.stop()
        return self.start()


@contextlib.contextmanager
def running(server: Server) -> Iterator[Server]:
    try:
        server.start()
        yield server
    finally:
        server.stop()


def upstream(database: DatabaseServer, name: str, port: int) -> Server:
    url = database.create(name)
    directory = database.directory / f"conf-{name}"
    directory.mkdir()
    drivers = {"postgresql": "postgresql+psycopg2", "mariadb": "mysql+pymysql", "sqlite": "sqlite"}
    connection = url.replace(database.kind, drivers[database.kind], 1)
    (directory / "placement.conf").write_text(
        f"[api]\nauth_strategy = noauth2\n[placement_database]\nconnection = {connection}\n"
        f"max_pool_size = 25\n[oslo_concurrency]\nlock_path = {directory}\n"
    )
    _run([str(UPSTREAM / "placement-manage"), "--config-file", str(directory / "placement.conf"), "db", "sync"])
    processes, threads = (1, 1) if database.kind == "sqlite" else (2, 8)
    return Server(
        "upstream",
        f"http://127.0.0.1:{port}",
        database,
        [
            str(UPSTREAM / "gunicorn"), "-w", str(processes), "--threads", str(threads), "-k", "gthread", "--keep-alive",
            "60", "-b", f"127.0.0.1:{port}", "--backlog", "512", "--timeout", "600", "--log-level", "error",
            "placement.wsgi.api:application",
        ],
        directory / "server.log",
        {"OS_PLACEMENT_CONFIG_DIR": str(directory)},
    )  # fmt: skip


def ours(database: DatabaseServer, name: str, port: int, *, beside: bool = False) -> Server:
    """`beside`: another process on an existing database."""
    url = database.url_of(name) if beside else database.create(name)
    directory = database.directory / f"conf-{name}-{port}"
    directory.mkdir()
    file = directory / "moorage.conf"
    file.write_text(
        f"[plane]\nservices = placement\nlog_level = warning\n[server]\nport = {port}\n"
        f"[identity]\nmode = none\n[database]\nplacement = {url}\n"
    )
    command, source = our_command("up", "--config", str(file))
    log = directory / "server.log"
    return Server("ours", f"http://127.0.0.1:{port}/placement", database, command, log, source)


def our_command(*words: str) -> tuple[list[str], dict[str, str]]:
    """(the command `moorage` with these words, its environment): of this checkout, even if another version is
    installed.
    """
    command = [sys.executable, "-c", "from moorage.cli.main import main; main()", *words]
    return command, {"PYTHONPATH": str(ROOT / "src")}


def upstream_version(package: str = "openstack-placement") -> str:
    code = f"from importlib.metadata import version; print(version({package!r}))"
    return _run([str(UPSTREAM / "python"), "-c", code]).strip()


def _run(command: list[str]) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
    return done.stdout


def _answers(url: str) -> bool:
    try:
        return Connection(url, timeout_s=5).request("GET", "/")[0] == 200
    except (OSError, EOFError):
        return False
