"""Reading and writing transactions, and the one retryable error of three databases.

Rule of the house: no call to another service inside a transaction, and a service function that is retried
here must have no other effect than its SQL.
"""

import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from moorage.core import blocking_hook
from moorage.core.errors import Invalid, RetryableConflict, Unavailable
from moorage.db import timeouts
from moorage.db.engine import WRITE_OPTION

T = TypeVar("T")

#: PostgreSQL: serialization_failure, deadlock_detected, lock_not_available. MariaDB: lock wait timeout, deadlock, record
#: changed since last read (snapshot isolation).
_RETRYABLE = {"40001", "40P01", "55P03", 1205, 1213, 1020}
#: PostgreSQL: numeric_value_out_of_range, string_data_right_truncation, datetime_field_overflow. MariaDB: the same.
_TOO_LARGE = {"22003", "22001", "22008", 1264, 1406, 1292}
#: MariaDB: server gone, lost connection, cannot connect, shutting down, not (yet) part of its cluster.
_GONE_MARIADB = {2002, 2003, 2006, 2013, 1053, 1047}
#: What psycopg calls a server that is gone, going, not yet there, or that ended a transaction whose owner hung.
_GONE_POSTGRESQL = {
    "OperationalError",
    "AdminShutdown",
    "CannotConnectNow",
    "CrashShutdown",
    "ConnectionTimeout",
    "IdleInTransactionSessionTimeout",
}

_FULL = """the disk of the database {place} is full ({detail}): make room there; nothing was written, and the request \
can be repeated then"""
_ONLY_READS = """the database {place} only reads now ({detail}): look whether it is a standby, or was set so; the request \
can be repeated when it writes again"""
_NO_MORE_CONNECTIONS = """the database {place} takes no more connections ({detail}): raise its limit, or run fewer \
processes; the request can be repeated"""

#: Of a refused connection psycopg tells only the text (of a server that speaks English).
_NO_SLOT = re.compile("too many clients|connection slots are reserved|too many connections")

#: What psycopg puts before the server's words. Tenants and callers of /healthcheck read the words, not the address.
_ADDRESS = re.compile(r"^.*connection to server .*? failed: ")

#: SQLSTATEs of PostgreSQL and numbers of MariaDB: what to say.
_REASONS: list[tuple[set[str | int], str]] = [
    # disk_full; disk full, table full, error writing file, "Got error 28" (ENOSPC) from a storage engine, temporary file
    ({"53100", 1021, 1114, 3, 1030, 1026}, _FULL),
    ({"25006", 1290, 1836}, _ONLY_READS),  # read_only_sql_transaction; --read-only, InnoDB read-only
    ({"53300", 1040, 1203}, _NO_MORE_CONNECTIONS),  # too_many_connections; the same, of all and of this user
]


@contextmanager
def read(engine: Engine) -> Iterator[Connection]:
    """A transaction that only reads: all its statements see one state on SQLite."""
    with translating_errors(), engine.connect() as connection, connection.begin():
        yield connection


@contextmanager
def read_one_state(engine: Engine) -> Iterator[Connection]:
    """Like `read`, and all its statements see one state on every database: for reading many tables into memory."""
    options = {} if engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    with translating_errors(), engine.connect().execution_options(**options) as connection, connection.begin():
        yield connection


@contextmanager
def write(engine: Engine) -> Iterator[Connection]:
    """A transaction that may write. Raises `RetryableConflict` when the database gave it up."""
    blocking_hook.about_to_block()
    with (
        translating_errors(),
        engine.connect().execution_options(**{WRITE_OPTION: True}) as connection,
        connection.begin(),
    ):
        yield connection


def in_transaction(engine: Engine, work: Callable[[Connection], T], *, attempts: int = 8) -> T:
    """`work` in a writing transaction, run again when the database gave it up, at most `attempts` times.

    No pause in between: the database has already made us wait for the lock. Whoever waited long for it in vain does
    not wait again: its holder hangs.
    """
    began = time.monotonic()
    for attempt in range(1, attempts + 1):
        try:
            with write(engine) as connection:
                return work(connection)
        except RetryableConflict:
            if attempt == attempts or retry_time_is_over(began):
                raise
    raise AssertionError("unreachable")


def retry_time_is_over(began: float) -> bool:
    """Whether a transaction that was `began` at this monotonic time is not to be begun again."""
    return time.monotonic() - began >= timeouts.LOCK_TIMEOUT_S


@contextmanager
def translating_errors() -> Iterator[None]:
    """For what `read` and `write` do not wrap: errors of the driver leave as the house's, where there is one."""
    try:
        yield
    except DBAPIError as error:
        if ours := translate_error(error):
            raise ours from error
        raise
    except OverflowError as error:  # of the sqlite3 module; SQLAlchemy passes it on as it is
        if "SQLite" not in str(error):
            raise
        raise _too_large() from error
    except PoolTimeoutError as error:
        raise Unavailable("all connections to the database are in use; the request can be repeated") from error


def translate_error(error: DBAPIError) -> Unavailable | Invalid | None:
    """The house's error for a failed transaction, a lost database, or a value that no column keeps; None where it is ours
    (a bug, a constraint).
    """
    original = error.orig
    if isinstance(original, sqlite3.OperationalError):
        return _translate_sqlite(str(original))
    codes = {getattr(original, "sqlstate", None), *(original.args[:1] if original is not None else ())}
    if codes & _RETRYABLE:
        return RetryableConflict("the database gave up this transaction for another one; repeat the request")
    detail = _ADDRESS.sub("", str(original).partition("\n")[0])
    if codes & _TOO_LARGE:
        return _too_large()
    reason = next((reason for listed, reason in _REASONS if codes & listed), None)
    if reason or _NO_SLOT.search(detail):
        return Unavailable((reason or _NO_MORE_CONNECTIONS).format(place="server", detail=detail))
    if error.connection_invalidated or codes & _GONE_MARIADB or _is_lost_postgresql(original):
        return Unavailable(timeouts.NO_ANSWER)
    return None


def _too_large() -> Invalid:
    """Schemas bound what is written; what a request only asks for may be beyond that."""
    return Invalid(
        "a number, a time or a text in the request is larger than any that is kept", code="moorage.too_large"
    )


def _translate_sqlite(text: str) -> Unavailable | None:
    if "locked" in text or "busy" in text:
        return RetryableConflict("the database file is locked by another writer; repeat the request")
    if "is full" in text:
        return Unavailable(_FULL.format(place="file", detail=text))
    if "unable to open" in text or "readonly" in text or "I/O error" in text:
        return Unavailable(
            f"the database file cannot be used ({text}): look at its disk and its permissions; the request can be "
            "repeated then"
        )
    return None


def _is_lost_postgresql(original: BaseException | None) -> bool:
    return type(original).__module__.startswith("psycopg") and type(original).__name__ in _GONE_POSTGRESQL
