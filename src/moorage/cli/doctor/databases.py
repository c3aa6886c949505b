"""Checks the databases: whether they answer, their versions, schemas and clocks, and whether writes are durable."""

import sqlite3
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection, Engine, make_url

from moorage.cli.doctor.finding import CheckFinding, broken, compare_clocks, fine, warning
from moorage.config import Config
from moorage.core.clock import Clock
from moorage.core.errors import MoorageError
from moorage.db import migrations
from moorage.db.engine import dialect_name, open_engine
from moorage.db.migrations import SchemaState
from moorage.db.transactions import read

#: The oldest versions that the tests' SQL runs on: SKIP LOCKED, and RETURNING where available.
LEAST = {"postgresql": (12,), "mariadb": (10, 6)}

#: {PostgreSQL setting: (required value, or "not VALUE"; consequence of a wrong value)}
_POSTGRESQL = {
    "fsync": ("on", "a power cut destroys the database"),
    "full_page_writes": ("on", "a power cut may destroy pages"),
    "synchronous_commit": ("not off", "a crash loses acknowledged writes"),
    "server_encoding": ("UTF8", "names in other scripts are refused"),
}
_MARIADB = {
    "innodb_flush_log_at_trx_commit": ("1", "a crash loses acknowledged writes"),
    "character_set_database": ("utf8mb4", "names in other scripts are refused or mangled"),
    "innodb_doublewrite": ("not OFF", "a power cut may destroy pages"),
}


def check(config: Config, clock: Clock) -> Iterator[CheckFinding]:
    for service, url in config.database_urls().items():
        yield from _database(service, url, clock)


def _database(service: str, url: str, clock: Clock) -> Iterator[CheckFinding]:
    name, shown = f"database:{service}", make_url(url).render_as_string(hide_password=True)
    path = Path(make_url(url).database or "")
    if url.startswith("sqlite") and not path.exists():
        yield fine(name, "not created yet; the first start creates it", shown)
        return
    try:
        engine = open_engine(url)
    except MoorageError as error:
        yield broken(name, error.message, shown, f"correct [database] {service}")
        return
    try:
        with read(engine) as connection:
            yield from _sound(name, shown, connection)
            if dialect_name(engine) != "sqlite":
                yield from _server_clock(name, shown, connection, clock)
        yield _schema(name, shown, engine, service)
    except MoorageError as error:
        yield broken(name, error.message, shown, f"start it, or correct [database] {service}")
    finally:
        engine.dispose()


def _sound(name: str, shown: str, connection: Connection) -> Iterator[CheckFinding]:
    match dialect_name(connection):
        case "sqlite":
            mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
            if mode != "wal":
                remedy = "put the file on a local disk; network file systems have no shared memory"
                yield warning(name, f"the journal mode is {mode}: readers wait for writers", shown, remedy)
            yield fine(name, f"SQLite {sqlite3.sqlite_version}, journal {mode}", shown)
        case "postgresql":
            version = str(connection.exec_driver_sql("SHOW server_version").scalar_one())
            settings = {one: str(connection.exec_driver_sql(f"SHOW {one}").scalar_one()) for one in _POSTGRESQL}
            isolation = str(connection.exec_driver_sql("SHOW transaction_isolation").scalar_one())
            yield from _server(name, shown, "postgresql", "PostgreSQL", version)
            yield from _isolated(name, shown, isolation)
            yield from _settings(name, shown, _POSTGRESQL, settings)
        case _:
            version = str(connection.exec_driver_sql("SELECT version()").scalar_one())
            rows = connection.exec_driver_sql("SHOW VARIABLES").all()
            settings = {row[0]: str(row[1]) for row in rows}
            is_mariadb = "mariadb" in version.lower()
            isolation = settings.get("tx_isolation") or settings.get("transaction_isolation", "")
            # MySQL has its own version numbers; 8 supports everything needed.
            yield from _server(
                name, shown, "mariadb" if is_mariadb else "", "MariaDB" if is_mariadb else "MySQL", version
            )
            yield from _isolated(name, shown, isolation)
            yield from _settings(name, shown, _MARIADB, settings)


def _server(name: str, shown: str, kind: str, label: str, version: str) -> Iterator[CheckFinding]:
    least = LEAST.get(kind, (8,))
    numbers = tuple(
        int(part) for part in version.split("-", maxsplit=1)[0].split(" ", maxsplit=1)[0].split(".") if part.isdigit()
    )
    if numbers < least:
        wanted = ".".join(map(str, least))
        yield broken(name, f"{label} {version} is too old", shown, f"upgrade the server to {wanted} or newer")
    else:
        yield fine(name, f"{label} {version}", shown)


def _isolated(name: str, shown: str, isolation: str) -> Iterator[CheckFinding]:
    """Connections request READ COMMITTED; a proxy in between may change that."""
    if isolation.replace("-", " ").lower() != "read committed":
        remedy = "do not let a proxy change it: conditional writes need READ COMMITTED"
        yield broken(name, f"the isolation level is {isolation}", shown, remedy)


def _settings(
    name: str, shown: str, wanted: dict[str, tuple[str, str]], there: dict[str, str]
) -> Iterator[CheckFinding]:
    for setting, (value, what_follows) in wanted.items():
        found = there.get(setting)
        if found is None:
            continue
        is_right = found.lower() != value[4:].lower() if value.startswith("not ") else found.lower() == value.lower()
        if not is_right:
            yield warning(
                name, f"{setting} is {found}: {what_follows}", shown, f"set {setting} to {value} on the server"
            )


def _server_clock(name: str, shown: str, connection: Connection, clock: Clock) -> Iterator[CheckFinding]:
    ask = "SELECT clock_timestamp()" if dialect_name(connection) == "postgresql" else "SELECT UTC_TIMESTAMP(6)"
    before = clock.now()
    there: datetime = connection.exec_driver_sql(ask).scalar_one()
    there = there.astimezone(UTC) if there.tzinfo else there.replace(tzinfo=UTC)
    yield compare_clocks(name, shown, there, before, clock.now(), precision_s=0.0)


def _schema(name: str, shown: str, engine: Engine, service: str) -> CheckFinding:
    now, newest = migrations.current_revision(engine, service), migrations.head_revision(service)
    match migrations.schema_state(engine, service):
        case SchemaState.EMPTY:
            return fine(name, "the database is empty; the first start creates its tables", shown)
        case SchemaState.CURRENT:
            return fine(name, f"schema {now} is current", shown)
        case SchemaState.AHEAD:
            return fine(name, f"schema {now} is newer than this program's {newest}, but compatible", shown)
        case SchemaState.BEHIND:
            remedy = "run `moorage db upgrade --plan` to see the steps; the next start runs them"
            return warning(name, f"schema {now} is behind this program's {newest}", shown, remedy)
    remedy = "use the version of Moorage that wrote it, or a newer one"
    return broken(name, f"schema {now} is newer than this program's {newest}", shown, remedy)
