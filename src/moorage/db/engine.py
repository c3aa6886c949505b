"""Turns a database URL into an engine with the settings that each database needs.

Accepts `sqlite:///path`, `postgresql://...` (psycopg 3) and `mysql://...` or `mariadb://...` (PyMySQL). All but the
first may name several hosts (`moorage.db.database_hosts`).
Also here: SQL expressions that differ between the databases (`in_list`, `ListStatement`).
"""

import re
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Generic, TypeVar

from sqlalchemy import (
    ARRAY,
    URL,
    Column,
    ColumnElement,
    Connection,
    CursorResult,
    Engine,
    any_,
    bindparam,
    create_engine,
    event,
    make_url,
)
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor, ExceptionContext
from sqlalchemy.exc import ArgumentError, InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from moorage.core.errors import DamagedDatabase, StartError
from moorage.db import timeouts
from moorage.db.database_hosts import hosts_of

C = TypeVar("C")
K = TypeVar("K")
V = TypeVar("V")
S = TypeVar("S")

_DRIVERS = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
}

#: The extra of our package that installs the driver.
_EXTRAS = {"postgresql": "postgres", "postgres": "postgres", "mysql": "mysql", "mariadb": "mysql"}

#: Execution option of connections that will write. SQLite must know it before the first statement.
WRITE_OPTION = "moorage_write"


#: Keeps values of statements, which may be passwords or keys, out of exceptions and logs.
_HIDE_VALUES: dict[str, object] = {"hide_parameters": True}


def open_engine(url_text: str, *, pool_size: int = 10) -> Engine:
    """An engine for `url_text`; it does not connect yet. Raises `StartError` for a malformed URL."""
    url = _with_driver(url_text)
    options: dict[str, object] = {
        **_HIDE_VALUES,
        "pool_size": pool_size,
        "max_overflow": pool_size,
        "pool_timeout": timeouts.ANSWER_TIMEOUT_S,
    }
    if url.get_backend_name() == "sqlite":
        return _open_sqlite(url, options)
    # With READ COMMITTED, a conditional UPDATE sees other transactions' commits; with MariaDB's default it would not.
    is_postgresql = url.get_backend_name() == "postgresql"
    options |= {"isolation_level": "READ COMMITTED", "pool_pre_ping": not is_postgresql, "pool_recycle": 1800}
    engine = create_engine(url, connect_args=timeouts.connect_arguments(url.get_backend_name()), **options)
    timeouts.set_timeouts(engine)
    if is_postgresql:
        event.listen(engine, "checkout", _check_connection)
    return engine


def _check_connection(connection: DBAPIConnection, entry: ConnectionPoolEntry, _pooled: object) -> None:
    """Replaces a pooled connection that the server has closed; the pool's own check is a round trip."""
    if entry.info.get("was_used") and connection.has_ended():
        raise InvalidatePoolError("the server has closed an idle connection")
    entry.info["was_used"] = True


def pool_limit(pool: QueuePool) -> int:
    """The most connections that a pool of `open_engine` opens: its size, and as many again."""
    return 2 * pool.size()


def open_read_only_engine(url_text: str) -> Engine:
    """An engine for another system's database: each transaction sees one state, and nothing can be written or created.

    Raises `StartError` for a malformed URL and for a SQLite file that does not exist.
    """
    url = _with_driver(url_text)
    if url.get_backend_name() != "sqlite":
        return _open_server_to_read(url)
    path = Path(url.database or "")
    if not path.is_file():
        raise StartError(f"there is no SQLite file {path}; name an existing one: sqlite:////DIRECTORY/FILE")
    engine = create_engine(
        url, creator=lambda: sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True), **_HIDE_VALUES
    )

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN")  # the driver itself would begin a transaction only before the first write

    return engine


def _open_server_to_read(url: URL) -> Engine:
    """Of several hosts, reads from the first."""
    for host, port in hosts_of(url)[:1]:
        url = url.set(host=host, port=port).difference_update_query(["host"])
    engine = create_engine(url, isolation_level="REPEATABLE READ", **_HIDE_VALUES)

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # On PostgreSQL this is the first statement of the transaction; on MariaDB it applies to the transaction that
        # begins with the next statement.
        connection.exec_driver_sql("SET TRANSACTION READ ONLY")

    return engine


def _with_driver(url_text: str) -> URL:
    try:
        url = make_url(url_text)
        backend = url.get_backend_name()
    except (ArgumentError, ValueError) as error:  # a port that is not a number is a ValueError
        shown = re.sub(r":[^:@/]*@", ":***@", url_text)
        raise StartError(f"database URL {shown!r} cannot be read: {error}") from error
    if backend not in _DRIVERS:
        raise StartError(
            f"database URL names {backend!r}; use sqlite:///FILE, postgresql://USER@HOST/DB or mariadb://USER@HOST/DB"
        )
    url = url.set(drivername=_DRIVERS[backend])
    hosts_of(url)  # verifies them
    try:
        url.get_dialect().import_dbapi()
    except ModuleNotFoundError as error:
        raise StartError(
            f"the driver for {backend} is not installed ({error.name}); pip install 'moorage[{_EXTRAS[backend]}]'"
        ) from error
    if backend in ("mysql", "mariadb"):
        url = url.update_query_dict({"charset": "utf8mb4"})
    return url


def _open_sqlite(url: URL, options: dict[str, object]) -> Engine:
    if not url.database or url.database == ":memory:":
        raise StartError("SQLite needs a file, because several threads share the database: sqlite:///FILE")
    Path(url.database).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(
        url,
        connect_args={"timeout": timeouts.LOCK_TIMEOUT_S, "check_same_thread": False},
        pool_pre_ping=False,
        **options,
    )

    @event.listens_for(engine, "connect")
    def _configure(connection: DBAPIConnection, _record: object) -> None:
        connection.isolation_level = None  # we send BEGIN ourselves, see _begin
        cursor = connection.cursor()
        # FULL: acknowledged commits are on the disk, as with the other databases; with NORMAL, a power cut would lose
        # the last ones. Costs one fsync per commit; placement's writers share theirs (group commit).
        _use_write_ahead_log(cursor)
        for pragma in ("synchronous=FULL", "foreign_keys=ON"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "handle_error")
    def _name_damaged_file(context: ExceptionContext) -> DamagedDatabase | None:
        return damaged_database(url.database, context.original_exception)

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        # A reader that becomes a writer later fails at once if another one wrote meanwhile, so writers lock first.
        writes = connection.get_execution_options().get(WRITE_OPTION)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def damaged_database(file: str | None, error: BaseException) -> DamagedDatabase | None:
    """The error for a SQLite `file` that is damaged or no database at all; None for every other error of a driver."""
    primary_code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if primary_code not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return None
    return DamagedDatabase(
        f"the database {file} is damaged ({error}): stop Moorage and keep a copy of the file; then put a backup back "
        f"with `moorage restore DIRECTORY`, or, without one, save what can be read with `sqlite3 {file} .recover`",
        file=file,
    )


def _use_write_ahead_log(cursor: DBAPICursor) -> None:
    """Set the file's journal mode, which is persistent. SQLite rejects the change at once, without the busy timeout,
    while other connections open the file; so retry.
    """
    give_up = time.monotonic() + timeouts.LOCK_TIMEOUT_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
            time.sleep(0.005)


def is_in_process(engine: Engine) -> bool:
    """Whether the database runs in this process (SQLite), so that a query costs no round trip."""
    return engine.dialect.name == "sqlite"


def dialect_name(engine: Engine | Connection) -> str:
    """``sqlite``, ``postgresql`` or ``mariadb`` (also for MySQL: we speak the same SQL to both)."""
    name = engine.dialect.name
    return "mariadb" if name == "mysql" else name


def inserted_id(result: CursorResult[*tuple[object, ...]]) -> int:
    """The number that the database assigned to the inserted row."""
    if result.inserted_primary_key is None:
        raise ValueError("the database gave no id")
    return int(result.inserted_primary_key[0])


def in_list(connection: Connection, column: Column[C], values: Collection[object]) -> ColumnElement[bool]:
    """``column IN values``, for lists of any length.

    On PostgreSQL the list is one parameter, so the SQL is the same for any length and is compiled, sent and planned
    once. With a placeholder per value, this takes longer than finding the rows.
    """
    if dialect_name(connection) == "postgresql":
        return column == any_(bindparam(None, list(values), ARRAY(column.type)))
    return column.in_(values)


class ListStatement(Generic[S]):
    """A statement with ``column IN ids``, as `in_list` makes it, built once: building takes longer than running it."""

    def __init__(self, column: Column[C], build: Callable[[ColumnElement[bool]], S]) -> None:
        """`build` makes the statement from the condition on `column`. Its parameter ``ids`` is a list."""
        self._of_postgresql = build(column == any_(bindparam("ids", type_=ARRAY(column.type))))
        self._of_others = build(column.in_(bindparam("ids", expanding=True)))

    def on(self, connection: Connection) -> S:
        return self._of_postgresql if dialect_name(connection) == "postgresql" else self._of_others


def keys_by_value(items: Iterable[tuple[K, V]]) -> list[tuple[V, list[K]]]:
    """The keys of each value, in order: one run of a `ListStatement` per value, in place of one statement per key.

    Values are compared, not hashed, so there should be few different ones.
    """
    found: list[tuple[V, list[K]]] = []
    for key, value in items:
        keys = next((keys for seen, keys in found if seen == value), None)
        if keys is None:
            found.append((value, [key]))
        else:
            keys.append(key)
    return found
