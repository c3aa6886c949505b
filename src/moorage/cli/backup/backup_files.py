"""The contents of a backup: which files of a state directory are copied, and how each kind of database is dumped and
restored.

Not here: the commands and the manifest (`moorage.cli.backup.command`).
"""

import hashlib
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import DBAPIError

from moorage.core.errors import StartError
from moorage.db.database_hosts import Host, HostOrder, host_text, hosts_of
from moorage.db.engine import damaged_database, open_engine
from moorage.durable import sync_directory

#: Order of the dumps. Placement is last, so resources claimed during the backup may be left without an owner, which
#: `moorage audit --fix` releases. In any other order, servers could be left without an allocation, and their resources
#: would be given to others. For the same reason ports come after servers.
ORDER = ("identity", "reservation", "compute", "network", "accelerator", "placement")

#: Files that are not copied: not needed by a new process, or caches. The audit trail is append-only and must not be
#: replaced by an older one.
_LEFT_OUT = (
    "lock", "running.conf", "failed", "moorage.log", "trail.jsonl", "trail.jsonl.*", "*.sock", "*.lock", ".lock",
    "*.db", "*.db-*", "*.new",
)  # fmt: skip
_CACHES = ("accelerators/bitstreams", "host/instances")

#: State of the machine itself; an older version is restored only with --with-host.
HOST = ("host", "hosts", "accelerators")

#: Prefix of the temporary directories for dumps in the state directory.
DRAFTS = ".backup-"

#: Pages of a SQLite file copied at a time; writers continue in between.
_PAGES = 1000

ReportProgress = Callable[[int, int], None]


def dump_database(url_text: str, path: Path, report: ReportProgress) -> None:
    """Dumps a consistent state of the database while others write. Raises `StartError` without the dump program."""
    url = make_url(url_text)
    match _kind(url):
        case "sqlite":
            if not Path(url.database or "").is_file():
                raise StartError(f"no SQLite file {url.database}; start the plane once, or correct [database]")
            _copy_sqlite(url.database or "", path, report)
        case "postgresql":
            _run(
                ["pg_dump", "--format=custom", f"--file={path}", "--no-owner", *_to_postgresql(url)], _environment(url)
            )
        case _:
            tool = _tool("mariadb-dump", "mysqldump")
            options = ["--single-transaction", "--routines", "--skip-lock-tables", f"--result-file={path}"]
            _run([tool, *_to_mariadb(url), *options, url.database or ""], _environment(url))
    path.chmod(0o600)


def _copy_sqlite(file: str, path: Path, report: ReportProgress) -> None:
    try:
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(path)) as target:
            source.backup(target, pages=_PAGES, progress=lambda _, left, total: report(total - left, total))
            target.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.DatabaseError as error:
        if damaged := damaged_database(file, error):
            raise damaged from error
        raise


def restore_database(url_text: str, path: Path) -> None:
    """Replaces the database with the dump `path`. No other process may use it meanwhile."""
    url = make_url(url_text)
    match _kind(url):
        case "sqlite":
            target = Path(url.database or "")
            draft = target.with_name(f"{target.name}.restored")
            shutil.copyfile(path, draft)
            draft.chmod(0o600)
            for journal in (f"{target}-wal", f"{target}-shm"):
                Path(journal).unlink(missing_ok=True)
            draft.rename(target)
            sync_directory(target.parent)
        case "postgresql":
            options = ["--clean", "--if-exists", "--no-owner", "--single-transaction"]
            _run(["pg_restore", *options, *_to_postgresql(url), str(path)], _environment(url))
        case _:
            _run([_tool("mariadb", "mysql"), *_to_mariadb(url), url.database or ""], _environment(url), stdin=path)


def state_files(state: Path) -> Iterator[Path]:
    """Paths relative to `state`, sorted."""
    for path in sorted(state.rglob("*")):
        inner = path.relative_to(state)
        if path.is_symlink() or not path.is_file() or any(inner.match(pattern) for pattern in _LEFT_OUT):
            continue
        if not (inner.parts[0].startswith(DRAFTS) or any(inner.is_relative_to(cache) for cache in _CACHES)):
            yield inner


def copy_file(source: Path, target: Path) -> None:
    """Copies a file with its permissions, readable only by its owner at first. A file that disappears is skipped."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        shutil.copy2(source, target)
    except FileNotFoundError:
        return


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _kind(url: URL) -> str:
    name = url.get_backend_name()
    return {"postgres": "postgresql", "mysql": "mariadb"}.get(name, name)


def _to_postgresql(url: URL) -> Sequence[str]:
    """Of several hosts, libpq takes the first that answers and can be written (see `_environment`)."""
    hosts = hosts_of(url) or [(url.host, url.port)]
    names, ports = (",".join(str(part or "") for part in parts) for parts in zip(*hosts, strict=True))
    options = {"--host": names, "--port": ports, "--username": url.username, "--dbname": url.database}
    return [f"{option}={value}" for option, value in options.items() if value and set(value) != {","}]


def _to_mariadb(url: URL) -> Sequence[str]:
    """Options for a TCP connection, which the plane uses on this machine, too."""
    host, port = _writable_host(url) if hosts_of(url) else (url.host, url.port)
    parts = {"--host": host, "--port": port, "--user": url.username}
    return [*(f"{option}={value}" for option, value in parts.items() if value), "--protocol=tcp"]


def _writable_host(url: URL) -> Host:
    """The first of several hosts of MariaDB that answers, is synchronised and can be written to.

    Raises `StartError` with the reason of each host if there is none.
    """
    refusals: list[str] = []

    def connect_to(host: Host | None) -> None:
        shown = host_text(host or (None, None))
        engine = open_engine(url.update_query_dict({"host": shown}).render_as_string(hide_password=False))
        try:
            engine.connect().close()
        except DBAPIError as error:
            refusals.append(f"{shown}: {error.orig.args[-1] if error.orig else error}")
            raise
        finally:
            engine.dispose()

    try:
        _, host = HostOrder(hosts_of(url)).connect(connect_to, DBAPIError)
    except DBAPIError as error:
        raise StartError(
            f"no host of the database {url.database} can be used ({'; '.join(refusals)}): start one of them, or name "
            "another one in [database]"
        ) from error
    return host or (None, None)


def _environment(url: URL) -> Mapping[str, str]:
    """Variables of the connection. Arguments with the password would be visible to every user of the machine."""
    secret = {"PGPASSWORD": str(url.password), "MYSQL_PWD": str(url.password)} if url.password else {}
    return secret | ({"PGTARGETSESSIONATTRS": "read-write"} if hosts_of(url) else {})


def _tool(*names: str) -> str:
    return next((name for name in names if shutil.which(name)), names[0])


def _run(command: Sequence[str], environment: Mapping[str, str], *, stdin: Path | None = None) -> None:
    if not shutil.which(command[0]):
        raise StartError(f"{command[0]} is not in PATH; install the client programs of the database server")
    with (stdin or Path(os.devnull)).open("rb") as given:
        done = subprocess.run(  # noqa: S603 - no shell; a dump program, with the operator's database URL in parts
            command, env={**os.environ, **environment}, stdin=given, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise StartError(f"{command[0]} failed: {' '.join(done.stderr.split())[-500:] or done.returncode}")
