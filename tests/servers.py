"""PostgreSQL, MariaDB and RabbitMQ for the tests: uses running servers, otherwise installs, starts and stops them.

    with temporary_database("postgresql") as url: ...      # also "mariadb" and "sqlite"
    with temporary_vhost() as url: ...
    python -m tests.servers pytest -n 2                     # all three around a command
    python -m tests.servers --only=postgresql,mariadb pytest -n 2

It tries in this order: the URL in the environment (``MOORAGE_TEST_POSTGRESQL``, ``_MARIADB``, ``_RABBIT``); the usual
port of this machine; a private instance below the directory for temporary files, which all test processes of this user
share. The first process that needs the private instance starts it, and the last one stops it: each holds a shared lock
on one file, so a killed process no longer counts. ``MOORAGE_TEST_PRIVATE=1`` skips the usual ports, to test this on a
machine that has the servers.

Not here: Keystone and Glance, which their tests start from separate virtual environments.
"""

import atexit
import contextlib
import fcntl
import functools
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from urllib.parse import quote, urlsplit

from moorage.db.engine import open_engine
from tests.databases import Databases, Schema, run
from tests.memory import use_memory
from tests.ports import free_port

START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 30


class ServerMissing(RuntimeError):
    """A server neither runs nor can be started; the message says what to install."""


@dataclass(frozen=True)
class Launch:
    """How to run a private instance: ``prepare`` first, then ``command`` until it is stopped."""

    url: str
    prepare: list[list[str]]
    command: list[str]
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Server:
    kind: str
    label: str
    #: Where it usually is, tried in this order.
    usual_urls: tuple[str, ...]
    #: The Debian package, and a program that exists if the package is installed.
    package: str
    program: str
    #: The user that runs it when the tests run as root (the database servers refuse root, or should not use it).
    user: str
    #: Raises the driver's error if the server does not answer.
    connect: Callable[[str], None]
    launch: Callable[[Path], Launch]


# ------------------------------------------------------------------------------------------- what tests use


def postgres_url() -> str:
    """URL of a database of a superuser, for example ``postgresql://postgres@127.0.0.1:5432/postgres``."""
    return url_of("postgresql")


def mariadb_url() -> str:
    """URL of a server (no database named), for example ``mariadb://root@127.0.0.1:3306/``."""
    return url_of("mariadb")


def rabbit_url() -> str:
    """URL of the default virtual host, for example ``amqp://guest:guest@127.0.0.1:5672/%2F``."""
    return url_of("rabbit")


@contextlib.contextmanager
def temporary_database(kind: str, schema: Schema | None = None) -> Iterator[str]:
    """URL of a database of one's own, ``sqlite``, ``postgresql`` or ``mariadb``: empty, or as `schema` makes it.

    The databases of a server are reused by later tests of this process with the same schema (`tests.databases`).
    """
    if kind != "sqlite":
        with _databases(kind).lent(schema) as url:
            yield url
        return
    with tempfile.TemporaryDirectory(prefix=f"moorage_test_{os.getpid()}_") as directory:
        path = Path(directory, "moorage.sqlite")
        if schema:
            shutil.copy(sqlite_template(schema), path)
        yield f"sqlite:///{path}"


@functools.cache
def _databases(kind: str) -> Databases:
    return Databases(kind, url_of(kind))


@functools.cache
def sqlite_template(schema: Schema) -> Path:
    """A file with `schema` to copy; created once per process."""
    directory = Path(tempfile.mkdtemp(prefix="moorage-tests-"))
    atexit.register(shutil.rmtree, directory)
    path = directory / f"{schema.name}.sqlite"
    engine = open_engine(f"sqlite:///{path}")
    schema.make(engine)
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    engine.dispose()
    return path


@contextlib.contextmanager
def temporary_vhost() -> Iterator[str]:
    """URL of a new virtual host, deleted at the end.

    If the broker was already running and ``rabbitmqctl`` may not control it, this is the default virtual host. So give
    queues and exchanges names that no other test uses.
    """
    url = rabbit_url()
    name = f"moorage-test-{os.getpid()}-{secrets.token_hex(4)}"
    user = urlsplit(url).username or "guest"
    if not _rabbitmqctl("add_vhost", name):
        yield url
        return
    try:
        if not _rabbitmqctl("set_permissions", "-p", name, user, ".*", ".*", ".*"):
            raise ServerMissing(f"RabbitMQ made the virtual host {name} but does not give {user} access to it")
        yield urlsplit(url)._replace(path=f"/{quote(name, safe='')}").geturl()
    finally:
        _rabbitmqctl("delete_vhost", name)


@functools.cache
def url_of(kind: str) -> str:
    """URL of the server of this kind, which is started if necessary (once per process, seconds)."""
    server = SERVERS[kind]
    if given := os.environ.get(_variable(kind)):
        return given
    if not os.environ.get("MOORAGE_TEST_PRIVATE"):
        for url in server.usual_urls:
            if _answers(server, url):
                return url
    return _join(server)


@functools.cache
def place() -> Path:
    """The directory of the private instances of this user."""
    found = Path(tempfile.gettempdir()) / f"moorage-test-servers-{os.getuid()}"
    found.mkdir(mode=0o711, exist_ok=True)
    return found


def install(kind: str) -> None:
    """Installs a server, for tests that start it with other settings. Raises `ServerMissing`."""
    with _locked(place() / f"{kind}.starting"):
        _install(SERVERS[kind])


#: {program: the Debian package that has it}
_PACKAGES = {"haproxy": "haproxy", "nginx": "nginx-light", "promtool": "prometheus", "lintian": "lintian"}


def installed_program(name: str) -> str:
    """Path of a program of `_PACKAGES`, installed if necessary. Raises `ServerMissing`."""
    package = _PACKAGES[name]
    with _locked(place() / f"{package}.starting"):
        _install_package(name, package, name, f"install it (Debian: apt-get install {package})")
    return str(program(name))


# ------------------------------------------------------------------------------- the shared private instance


def _join(server: Server) -> str:
    """Becomes a user of the private instance; starts it if it does not run."""
    if place().stat().st_uid != os.getuid():
        raise ServerMissing(f"{place()} belongs to somebody else; set TMPDIR to a directory of your own")
    state = place() / server.kind
    with _locked(place() / f"{server.kind}.starting"):
        users = (place() / f"{server.kind}.users").open("w")
        # This does not block: `_leave` is the only one that takes the exclusive lock, and releases it under `starting`.
        fcntl.flock(users, fcntl.LOCK_SH)
        url = _recorded(state).get("url", "")
        if not url or not _answers(server, url):
            _install(server)
            url = _start(server, state)
        atexit.register(_leave, server, state, users, os.getpid())
    return url


def _leave(server: Server, state: Path, users: IO[str], pid: int) -> None:
    """Stops the private instance unless another process uses it."""
    if os.getpid() != pid:  # a forked child of the process that joined
        return
    with users, _locked(place() / f"{server.kind}.starting"):
        try:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        _stop(server, state)


def _start(server: Server, state: Path) -> str:
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir(mode=0o755)
    identity = {}
    if os.geteuid() == 0:
        shutil.chown(state, server.user, server.user)
        identity = {"user": server.user, "group": server.user, "extra_groups": []}
    launch = server.launch(state)
    env = {**os.environ, "HOME": str(state), **launch.env}
    log = state / "log.txt"
    with log.open("w") as out:
        for command in launch.prepare:
            if subprocess.run(command, stdout=out, stderr=out, cwd=state, env=env, check=False, **identity).returncode:
                raise ServerMissing(f"{server.label} could not be prepared:\n{_tail(log)}")
        # A session of its own: Ctrl-C in the terminal is for the tests, which then stop it in order.
        process = subprocess.Popen(
            launch.command, stdout=out, stderr=out, cwd=state, env=env, start_new_session=True, **identity
        )
    (state / "instance.json").write_text(json.dumps({"url": launch.url, "pid": process.pid, "env": dict(launch.env)}))
    deadline = time.monotonic() + START_TIMEOUT_S
    while not _answers(server, launch.url):
        if process.poll() is not None or time.monotonic() > deadline:
            _stop_group(process.pid)
            raise ServerMissing(f"{server.label} did not start:\n{_tail(log)}")
        time.sleep(0.2)
    return launch.url


def _stop(server: Server, state: Path) -> None:
    if pid := _recorded(state).get("pid"):
        _stop_group(pid)
    shutil.rmtree(state, ignore_errors=True)


def _stop_group(pid: int) -> None:
    """Stops a server and its children: by request, after `STOP_TIMEOUT_S` by force."""
    for number, patience_s in ((signal.SIGTERM, STOP_TIMEOUT_S), (signal.SIGKILL, 5)):
        deadline = time.monotonic() + patience_s
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, number)
            while time.monotonic() < deadline and _group_lives(pid):
                time.sleep(0.1)


def _group_lives(group: int) -> bool:
    with contextlib.suppress(ChildProcessError):  # reaps the process if it is our child
        os.waitpid(group, os.WNOHANG)
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, its_group = status.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                return True
    return False


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _recorded(state: Path) -> dict:
    """The record of the running instance from `_start`: ``{"url": ..., "pid": ..., "env": {...}}``; may be empty."""
    try:
        return json.loads((state / "instance.json").read_text())
    except (OSError, ValueError):
        return {}


def _answers(server: Server, url: str) -> bool:
    try:
        server.connect(url)
    except Exception:  # noqa: BLE001 - each driver has its own errors; any error means no
        return False
    return True


def _install(server: Server) -> None:
    remedy = f"install it (Debian: apt-get install {server.package}) or set {_variable(server.kind)} to a URL"
    _install_package(server.label, server.package, server.program, remedy)


def _install_package(label: str, package: str, wanted: str, remedy: str) -> None:
    """The Debian `package` with the program `wanted`. `remedy`: what to do if it cannot be installed."""
    if program(wanted):
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise ServerMissing(f"{label} is not here and only root can install it: {remedy}")
    say(f"{label}: installing the package {package} ...")
    # RUNLEVEL=1 keeps the package from starting its own server, which would never be stopped.
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    with _locked(place() / "apt"):
        subprocess.run(["apt-get", "update", "-qq"], env=env, check=False, stdout=subprocess.DEVNULL)
        command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"]
        done = subprocess.run([*command, package], env=env, check=False, capture_output=True, text=True)
    if not program(wanted):
        raise ServerMissing(f"{label} could not be installed; {remedy}\n{done.stdout}{done.stderr}")


def program(name: str) -> str | None:
    """Path of a program, also where Debian keeps it outside of PATH; the newest version first."""
    places = ["/usr/sbin", "/usr/lib/rabbitmq/bin"]
    places += sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), key=_version, reverse=True)
    for place in places:
        if found := shutil.which(name, path=place):
            return found
    return shutil.which(name)


def _version(path: str) -> list[int]:
    return [int(part) for part in path.split("/") if part.isdigit()]


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-20:])


def _variable(kind: str) -> str:
    return f"MOORAGE_TEST_{kind.upper()}"


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# ----------------------------------------------------------------------------------------------- PostgreSQL


def _launch_postgresql(state: Path) -> Launch:
    port = free_port()
    settings = {
        "port": port,
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "max_connections": 200,
        # No data outlives the tests.
        "fsync": "off",
        "synchronous_commit": "off",
        "full_page_writes": "off",
        "wal_level": "minimal",
        "max_wal_senders": 0,
        "max_wal_size": "256MB",
    }
    programs = Path(program("initdb") or "initdb").parent
    data = str(state / "data")
    return Launch(
        url=f"postgresql://postgres@127.0.0.1:{port}/postgres",
        prepare=[[f"{programs}/initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"]],
        command=[f"{programs}/postgres", "-D", data, *(f"--{name}={value}" for name, value in settings.items())],
    )


# -------------------------------------------------------------------------------------------------- MariaDB


def _launch_mariadb(state: Path) -> Launch:
    port = free_port()
    data = f"--datadir={state}/data"
    return Launch(
        url=f"mariadb://root@127.0.0.1:{port}/",
        prepare=[
            [
                program("mariadb-install-db") or "mariadb-install-db",
                "--no-defaults",
                data,
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--skip-name-resolve",
            ]
        ],
        command=[
            program("mariadbd") or "mariadbd",
            "--no-defaults",
            data,
            f"--port={port}",
            "--bind-address=127.0.0.1",
            f"--socket={state}/socket",
            f"--pid-file={state}/pid",
            "--skip-name-resolve",
            "--max-connections=200",
            # No data outlives the tests.
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-doublewrite=0",
            "--sync-frm=0",
            "--innodb-log-file-size=32M",
            "--innodb-buffer-pool-size=64M",
        ],
    )


# ------------------------------------------------------------------------------------------------- RabbitMQ


def _connect_rabbit(url: str) -> None:
    import pika

    parameters = pika.URLParameters(url)
    parameters.socket_timeout = parameters.stack_timeout = parameters.blocked_connection_timeout = 3
    pika.BlockingConnection(parameters).close()


def _launch_rabbit(state: Path) -> Launch:
    port = free_port()
    env = {
        "RABBITMQ_NODENAME": f"moorage{port}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": f"{state}/mnesia",
        "RABBITMQ_LOG_BASE": f"{state}/log",
        "RABBITMQ_GENERATED_CONFIG_DIR": f"{state}/generated",
        "RABBITMQ_SCHEMA_DIR": f"{state}/schema",
        "RABBITMQ_CONFIG_FILE": f"{state}/none",
        "RABBITMQ_CONF_ENV_FILE": f"{state}/none.env",
        "RABBITMQ_ENABLED_PLUGINS_FILE": f"{state}/plugins",
        "RABBITMQ_PID_FILE": f"{state}/pid",
        # The Erlang cookie lies in the home directory; the scripts of Debian ask for it by this name.
        "HOME": str(state),
    }
    # Erlang would start its port mapper as a daemon that outlives the broker: start it in our process group first.
    script = 'epmd -port "$ERL_EPMD_PORT" & exec "$0"'
    server = "/usr/lib/rabbitmq/bin/rabbitmq-server"
    if not Path(server).exists():
        server = program("rabbitmq-server") or "rabbitmq-server"
    return Launch(
        url=f"amqp://guest:guest@127.0.0.1:{port}/%2F", prepare=[], command=["sh", "-c", script, server], env=env
    )


def _rabbitmqctl(*arguments: str) -> bool:
    """Sends a command to the broker of `rabbit_url`; returns whether it succeeded."""
    state = place() / "rabbit"
    instance = _recorded(state)
    identity = {}
    env = dict(os.environ)
    program = shutil.which("rabbitmqctl")
    if instance.get("url") == rabbit_url():
        env |= instance["env"]
        program = "/usr/lib/rabbitmq/bin/rabbitmqctl"
        if os.geteuid() == 0:
            identity = {"user": "rabbitmq", "group": "rabbitmq", "extra_groups": []}
    if not program or not Path(program).exists():
        return False
    done = subprocess.run(
        [program, "-q", *arguments], env=env, cwd="/", check=False, capture_output=True, timeout=60, **identity
    )
    return done.returncode == 0


SERVERS = {
    server.kind: server
    for server in (
        Server(
            kind="postgresql",
            label="PostgreSQL",
            usual_urls=("postgresql://postgres@127.0.0.1:5432/postgres", "postgresql://root@127.0.0.1:5432/postgres"),
            package="postgresql",
            program="initdb",
            user="postgres",
            connect=functools.partial(run, "postgresql", statement="SELECT 1"),
            launch=_launch_postgresql,
        ),
        Server(
            kind="mariadb",
            label="MariaDB",
            usual_urls=("mariadb://root@127.0.0.1:3306/",),
            package="mariadb-server",
            program="mariadbd",
            user="mysql",
            connect=functools.partial(run, "mariadb", statement="SELECT 1"),
            launch=_launch_mariadb,
        ),
        Server(
            kind="rabbit",
            label="RabbitMQ",
            usual_urls=("amqp://guest:guest@127.0.0.1:5672/%2F",),
            package="rabbitmq-server",
            program="rabbitmq-server",
            user="rabbitmq",
            connect=_connect_rabbit,
            launch=_launch_rabbit,
        ),
    )
}


# ------------------------------------------------------------------------------------------------ a command


def main(command: list[str]) -> int:
    """Runs a command with these servers, and their URLs in its environment."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    use_memory()
    kinds = list(SERVERS)
    if command[0].startswith("--only="):
        kinds = command.pop(0).removeprefix("--only=").split(",")
    with ThreadPoolExecutor(len(kinds)) as pool:
        urls = dict(zip(kinds, pool.map(url_of, kinds), strict=True))
    for kind, url in urls.items():
        say(f"{SERVERS[kind].label}: {urlsplit(url).hostname}:{urlsplit(url).port}")
    child = subprocess.Popen(command, env={**os.environ, **{_variable(kind): url for kind, url in urls.items()}})
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:  # the child gets the signal, too, and ends by itself
            continue
        except SystemExit:
            child.terminate()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except ServerMissing as missing:
        sys.exit(f"error: {missing}")
