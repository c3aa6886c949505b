"""Translates the errors of the three drivers to those of `moorage.core.errors`."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from moorage.core.errors import Invalid, RetryableConflict, Unavailable
from moorage.db.timeouts import NO_ANSWER

#: PostgreSQL: serialization_failure, deadlock_detected, lock_not_available. MariaDB: lock wait timeout, deadlock,
#: record changed since last read (snapshot isolation).
_RETRYABLE = {"40001", "40P01", "55P03", 1205, 1213, 1020}
#: PostgreSQL: numeric_value_out_of_range, string_data_right_truncation, datetime_field_overflow. MariaDB: the same.
_TOO_LARGE = {"22003", "22001", "22008", 1264, 1406, 1292}
#: MariaDB: server gone, lost connection, cannot connect, shutting down, not (yet) part of its cluster.
_GONE_MARIADB = {2002, 2003, 2006, 2013, 1053, 1047}
#: psycopg's errors for a server that is down, stopping, starting, or that ended a transaction whose client hung.
_GONE_POSTGRESQL = {
    "OperationalError",
    "AdminShutdown",
    "CannotConnectNow",
    "CrashShutdown",
    "ConnectionTimeout",
    "IdleInTransactionSessionTimeout",
}

_FULL = (
    "the disk of the database {place} is full ({detail}): free some space there, then repeat the request; nothing was "
    "written"
)
_ONLY_READS = (
    "the database {place} is read-only ({detail}): check whether it is a standby or was set read-only; repeat the "
    "request when it can be written"
)
_NO_MORE_CONNECTIONS = (
    "the database {place} accepts no more connections ({detail}): raise its limit or run fewer processes; the request "
    "can be repeated"
)

#: For a refused connection psycopg has only the text, which is English if the server is configured so.
_NO_SLOT = re.compile("too many clients|connection slots are reserved|too many connections")

#: Psycopg's prefix of the server's message. Tenants and callers of /healthcheck may read the message, not the address.
_ADDRESS = re.compile(r"^.*connection to server .*? failed: ")

#: (SQLSTATEs of PostgreSQL and error numbers of MariaDB, message)
_REASONS: list[tuple[set[str | int], str]] = [
    # disk_full; disk full, table full, error writing file, "Got error 28" (ENOSPC) from a storage engine, temporary
    # file
    ({"53100", 1021, 1114, 3, 1030, 1026}, _FULL),
    ({"25006", 1290, 1836}, _ONLY_READS),  # read_only_sql_transaction; --read-only, InnoDB read-only
    ({"53300", 1040, 1203}, _NO_MORE_CONNECTIONS),  # too_many_connections; the same, of all and of this user
]


@contextmanager
def translating_errors() -> Iterator[None]:
    """Translates errors of the driver to those of `moorage.core.errors`."""
    try:
        yield
    except DBAPIError as error:
        if ours := translate_error(error):
            raise ours from error
        raise
    except OverflowError as error:  # raised by the sqlite3 module; SQLAlchemy does not wrap it
        if "SQLite" not in str(error):
            raise
        raise _too_large() from error
    except PoolTimeoutError as error:
        raise Unavailable("all connections to the database are in use; the request can be repeated") from error


def translate_error(error: DBAPIError) -> Unavailable | Invalid | None:
    """Our error for an aborted transaction, a lost database, or a value out of range; None for our own faults (a bug, a
    violated constraint).
    """
    original = error.orig
    if isinstance(original, sqlite3.OperationalError):
        return _translate_sqlite(str(original))
    codes = {getattr(original, "sqlstate", None), *(original.args[:1] if original is not None else ())}
    if codes & _RETRYABLE:
        return RetryableConflict("the database aborted this transaction because of another one; repeat the request")
    detail = _ADDRESS.sub("", str(original).partition("\n")[0])
    if codes & _TOO_LARGE:
        return _too_large()
    reason = next((reason for listed, reason in _REASONS if codes & listed), None)
    if reason or _NO_SLOT.search(detail):
        return Unavailable((reason or _NO_MORE_CONNECTIONS).format(place="server", detail=detail))
    if error.connection_invalidated or codes & _GONE_MARIADB or _is_lost_postgresql(original):
        return Unavailable(NO_ANSWER)
    return None


def _too_large() -> Invalid:
    """The error for a value that no column can hold.

    Schemas bound the values to write, but not all values in queries.
    """
    return Invalid(
        "a number, a time or a text in the request exceeds the range of stored values", code="moorage.too_large"
    )


def _translate_sqlite(text: str) -> Unavailable | None:
    if "locked" in text or "busy" in text:
        return RetryableConflict("the database file is locked by another writer; repeat the request")
    if "is full" in text:
        return Unavailable(_FULL.format(place="file", detail=text))
    if "unable to open" in text or "readonly" in text or "I/O error" in text:
        return Unavailable(
            f"the database file cannot be used ({text}): check its disk and its permissions, then repeat the request"
        )
    return None


def _is_lost_postgresql(original: BaseException | None) -> bool:
    return type(original).__module__.startswith("psycopg") and type(original).__name__ in _GONE_POSTGRESQL
