"""Reading and writing transactions, and the one retryable error of three databases.

Rule of the house: no call to another service inside a transaction, and a service function that is retried
here must have no other effect than its SQL.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from moorage.core.errors import RetryableConflict, Unavailable
from moorage.db.engine import WRITE_OPTION

T = TypeVar("T")

#: PostgreSQL: serialization_failure, deadlock_detected, lock_not_available.
_RETRYABLE_SQLSTATES = {"40001", "40P01", "55P03"}
#: MariaDB: lock wait timeout, deadlock, record changed since last read (snapshot isolation).
_RETRYABLE_MARIADB = {1205, 1213, 1020}
#: MariaDB: server gone, lost connection, cannot connect.
_GONE_MARIADB = {2002, 2003, 2006, 2013}


@contextmanager
def read(engine: Engine) -> Iterator[Connection]:
    """A transaction that only reads: all its statements see one state on SQLite."""
    with translated(), engine.connect() as connection, connection.begin():
        yield connection


@contextmanager
def read_one_state(engine: Engine) -> Iterator[Connection]:
    """Like `read`, and all its statements see one state on every database: for reading many tables into memory."""
    options = {} if engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    with translated(), engine.connect().execution_options(**options) as connection, connection.begin():
        yield connection


@contextmanager
def write(engine: Engine) -> Iterator[Connection]:
    """A transaction that may write. Raises `RetryableConflict` when the database gave it up."""
    with translated(), engine.connect().execution_options(**{WRITE_OPTION: True}) as connection, connection.begin():
        yield connection


def in_transaction(engine: Engine, work: Callable[[Connection], T], *, attempts: int = 8) -> T:
    """`work` in a writing transaction, run again when the database gave it up, at most `attempts` times.

    No pause in between: the database has already made us wait for the lock.
    """
    for attempt in range(1, attempts + 1):
        try:
            with write(engine) as connection:
                return work(connection)
        except RetryableConflict:
            if attempt == attempts:
                raise
    raise AssertionError("unreachable")


@contextmanager
def translated() -> Iterator[None]:
    """For what `read` and `write` do not wrap: errors of the driver leave as the house's, where there is one."""
    try:
        yield
    except DBAPIError as error:
        if ours := translate(error):
            raise ours from error
        raise
    except PoolTimeoutError as error:
        raise Unavailable("all connections to the database are in use; the request can be repeated") from error


def translate(error: DBAPIError) -> Unavailable | None:
    """The house's error for a failed transaction or a lost database; None where it is ours (a bug, a constraint)."""
    original = error.orig
    if isinstance(original, sqlite3.OperationalError):
        return _translate_sqlite(str(original))
    number = original.args[0] if original is not None and original.args else None
    if getattr(original, "sqlstate", None) in _RETRYABLE_SQLSTATES or number in _RETRYABLE_MARIADB:
        return RetryableConflict("the database gave up this transaction for another one; repeat the request")
    if error.connection_invalidated or number in _GONE_MARIADB or _is_lost_postgresql(original):
        return Unavailable("the database does not answer; the request can be repeated when it is back")
    return None


def _translate_sqlite(text: str) -> Unavailable | None:
    if "locked" in text or "busy" in text:
        return RetryableConflict("the database file is locked by another writer; repeat the request")
    if "unable to open" in text or "disk is full" in text or "readonly" in text or "I/O error" in text:
        return Unavailable(f"the database cannot be used: {text}")
    return None


def _is_lost_postgresql(original: BaseException | None) -> bool:
    return type(original).__module__.startswith("psycopg") and type(original).__name__ in (
        "OperationalError",
        "AdminShutdown",
        "CannotConnectNow",
        "ConnectionTimeout",
    )
