"""The two servers under test, each as its operators run it.

upstream  openstack-placement from PyPI under gunicorn: 2 processes of 8 threads; on SQLite 1 of 1, for with more its
          writes fail ("database is locked"); ``noauth2``, all other options as they come
ours      ``moorage up`` with placement alone, ``identity = none``, all other options as they come

Both check a request's shape and policy; neither asks Keystone.
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
    """One process tree, which can be started again on the same database."""

    name: str
    url: str
    database: DatabaseServer
    command: list[str]
    log: Path
    environment: dict[str, str] = field(default_factory=dict)
    #: It is up when its log has this; without it, when its URL answers.
    says: str = ""
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def pids(self) -> tuple[int, ...]:
        return () if self.process is None else (self.process.pid,)

    def start(self) -> float:
        """Seconds until it answered. Raises `RuntimeError` where its port is taken."""
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
            raise RuntimeError(f"port {port} is not {self.name}'s: somebody else would be measured")
        return seconds

    def _is_up(self) -> bool:
        return self.says in self.log.read_text() if self.says else _answers(self.url)

    def stop(self) -> None:
        """By request; by force where it still works on what nobody waits for any more."""
        if self.process is None:
            return
        everybody = tree([self.process.pid])
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(STOP_TIMEOUT_S)
        for pid in everybody:  # workers outlive their parent now and then, and hold its port
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
    """`beside`: one more process on a database that is there already."""
    url = database.url_of(name) if beside else database.create(name)
    directory = database.directory / f"conf-{name}-{port}"
    directory.mkdir()
    file = directory / "moorage.conf"
    file.write_text(
        f"[plane]\nservices = placement\nlog_level = warning\n[server]\nport = {port}\n"
        f"[identity]\nmode = none\n[database]\nplacement = {url}\n"
    )
    # This checkout, whatever is installed.
    command = [sys.executable, "-c", "from moorage.cli.main import main; main()", "up", "--config", str(file)]
    log = directory / "server.log"
    source = {"PYTHONPATH": str(ROOT / "src")}
    return Server("ours", f"http://127.0.0.1:{port}/placement", database, command, log, source)


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
