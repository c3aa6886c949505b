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
from moorage.db.session import read

#: The oldest versions that the tests' SQL runs on: SKIP LOCKED, and RETURNING where available.
MIN_VERSIONS = {"postgresql": (12,), "mariadb": (10, 6)}

_TORN_PAGES = "a power cut may destroy pages"
_LOST_WRITES = "a crash loses acknowledged writes"
#: {PostgreSQL setting: (required value, or "not VALUE"; consequence of a wrong value)}
_POSTGRESQL = {
    "fsync": ("on", "a power cut destroys the database"),
    "full_page_writes": ("on", _TORN_PAGES),
    "synchronous_commit": ("not off", _LOST_WRITES),
    "server_encoding": ("UTF8", "names in other scripts are rejected"),
}
_MARIADB = {
    "innodb_flush_log_at_trx_commit": ("1", _LOST_WRITES),
    "character_set_database": ("utf8mb4", "names in other scripts are rejected or mangled"),
    "innodb_doublewrite": ("not OFF", _TORN_PAGES),
}


def check_databases(config: Config, clock: Clock) -> Iterator[CheckFinding]:
    for service, url in config.database_urls().items():
        yield from _database(service, url, clock)


def _database(service: str, url: str, clock: Clock) -> Iterator[CheckFinding]:
    name, shown = f"database:{service}", make_url(url).render_as_string(hide_password=True)
    remedy = f"correct [database] {service}"
    path = Path(make_url(url).database or "")
    if url.startswith("sqlite") and not path.exists():
        yield fine(name, "not created yet; the first start creates it", shown)
        return
    try:
        engine = open_engine(url)
    except MoorageError as error:
        yield broken(name, error.message, shown, remedy)
        return
    try:
        with read(engine) as connection:
            yield from _server_checks(name, shown, connection)
            if dialect_name(engine) != "sqlite":
                yield from _server_clock(name, shown, connection, clock)
        yield _schema(name, shown, engine, service)
    except MoorageError as error:
        yield broken(name, error.message, shown, f"start it, or {remedy}")
    finally:
        engine.dispose()


def _server_checks(name: str, shown: str, connection: Connection) -> Iterator[CheckFinding]:
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
            yield from _version_check(name, shown, "postgresql", "PostgreSQL", version)
            yield from _isolation_check(name, shown, isolation)
            yield from _setting_checks(name, shown, _POSTGRESQL, settings)
        case _:
            version = str(connection.exec_driver_sql("SELECT version()").scalar_one())
            rows = connection.exec_driver_sql("SHOW VARIABLES").all()
            settings = {row[0]: str(row[1]) for row in rows}
            is_mariadb = "mariadb" in version.lower()
            isolation = settings.get("tx_isolation") or settings.get("transaction_isolation", "")
            # MySQL has its own version numbers; 8 supports everything needed.
            yield from _version_check(
                name, shown, "mariadb" if is_mariadb else "", "MariaDB" if is_mariadb else "MySQL", version
            )
            yield from _isolation_check(name, shown, isolation)
            yield from _setting_checks(name, shown, _MARIADB, settings)


def _version_check(name: str, shown: str, kind: str, label: str, version: str) -> Iterator[CheckFinding]:
    least = MIN_VERSIONS.get(kind, (8,))
    numbers = tuple(
        int(part) for part in version.split("-", maxsplit=1)[0].split(" ", maxsplit=1)[0].split(".") if part.isdigit()
    )
    if numbers < least:
        wanted = ".".join(map(str, least))
        yield broken(name, f"{label} {version} is too old", shown, f"upgrade the server to {wanted} or newer")
    else:
        yield fine(name, f"{label} {version}", shown)


def _isolation_check(name: str, shown: str, isolation: str) -> Iterator[CheckFinding]:
    """Connections request READ COMMITTED; a proxy in between may change that."""
    if isolation.replace("-", " ").lower() != "read committed":
        remedy = "do not let a proxy change it: conditional writes need READ COMMITTED"
        yield broken(name, f"the isolation level is {isolation}", shown, remedy)


def _setting_checks(
    name: str, shown: str, required: dict[str, tuple[str, str]], actual: dict[str, str]
) -> Iterator[CheckFinding]:
    for setting, (value, consequence) in required.items():
        found = actual.get(setting)
        if found is None:
            continue
        is_right = found.lower() != value[4:].lower() if value.startswith("not ") else found.lower() == value.lower()
        if not is_right:
            yield warning(
                name, f"{setting} is {found}: {consequence}", shown, f"set {setting} to {value} on the server"
            )


def _server_clock(name: str, shown: str, connection: Connection, clock: Clock) -> Iterator[CheckFinding]:
    query = "SELECT clock_timestamp()" if dialect_name(connection) == "postgresql" else "SELECT UTC_TIMESTAMP(6)"
    before = clock.now()
    server_time: datetime = connection.exec_driver_sql(query).scalar_one()
    server_time = server_time.astimezone(UTC) if server_time.tzinfo else server_time.replace(tzinfo=UTC)
    yield compare_clocks(name, shown, server_time, before, clock.now(), precision_s=0.0)


def _schema(name: str, shown: str, engine: Engine, service: str) -> CheckFinding:
    now, newest = migrations.current_revision(engine, service), migrations.head_revision(service)
    newer = f"schema {now} is newer than this program's {newest}"
    match migrations.schema_state(engine, service):
        case SchemaState.EMPTY:
            return fine(name, "the database is empty; the first start creates its tables", shown)
        case SchemaState.CURRENT:
            return fine(name, f"schema {now} is current", shown)
        case SchemaState.AHEAD:
            return fine(name, f"{newer}, but compatible", shown)
        case SchemaState.BEHIND:
            remedy = "run `moorage db upgrade --plan` to see the steps; the next start runs them"
            return warning(name, f"schema {now} is behind this program's {newest}", shown, remedy)
        case SchemaState.OLDER:
            first = migrations.revisions(service)[0]
            remedy = f"first start a version of Moorage that upgrades it to {first}"
            return broken(name, f"schema {now} is older than this program's first migration, {first}", shown, remedy)
    remedy = "use the version of Moorage that wrote it, or a newer one"
    return broken(name, newer, shown, remedy)
