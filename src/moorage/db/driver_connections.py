"""One connection of each of the three drivers, on which `moorage.db.session` sends SQL without SQLAlchemy.

They are opened through the engine's pool and never returned to it: the pool would check them and begin transactions.
They use autocommit, and a statement or a pipeline is one round trip.
"""

import functools
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol, cast

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from moorage.db.database_hosts import is_unwritable
from moorage.db.engine import damaged_database, dialect_name
from moorage.db.errors import translate_error, translating_errors
from moorage.db.statements import PreparedSql, Rows
from moorage.db.timeouts import PostgresqlResults

#: SQL and its parameter, a JSON document; None for SQL without a parameter.
SentCommand = tuple[PreparedSql, bytes | None]


class DriverConnection(Protocol):
    """One connection, used by one thread at a time. Errors are the driver's."""

    #: The driver's own object.
    driver_connection: Any

    def select(self, sql: PreparedSql, values: Sequence[object]) -> Rows:
        """Run a SELECT by itself, outside of a transaction."""
        ...

    def start(self, commands: Sequence[SentCommand], *, begin: bool, commit: bool) -> Callable[[], list[Rows]]:
        """Sends commands of one transaction, if that does not block; returns a function that waits for their rows."""
        ...

    def has_ended(self) -> bool:
        """Whether the server is known to have closed the connection while it was idle."""
        ...

    def roll_back(self) -> None: ...

    def close(self) -> None: ...


class DriverConnections:
    """Opens the connections of one engine and translates their errors."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._make = _CONNECTIONS[dialect_name(engine)]
        self.errors: type[Exception] = engine.dialect.loaded_dbapi.Error

    def open(self) -> DriverConnection:
        """A new connection, with the engine's timeouts and settings. Raises as a transaction does, also if the
        connection is lost while it is set up.
        """
        with translating_errors():
            pooled = self._engine.connect()
            pooled.detach()
        driver_connection = pooled.connection.dbapi_connection
        try:
            return self._make(driver_connection)
        except self.errors as error:
            lost = self._is_disconnect(driver_connection, error)
            with suppress(Exception):
                cast(Any, driver_connection).close()
            raise self.translated("to set up a connection", error, lost=lost) from error

    def is_lost(self, connection: DriverConnection, error: Exception) -> bool:
        """Whether `error` means that the connection cannot be used any more.

        If the server takes no writes any more, the engine's idle connections are dropped, too.
        """
        if is_unwritable(error):
            self._engine.dispose()
            return True
        return self._is_disconnect(connection.driver_connection, error)

    def translated(self, sql: str, error: Exception, *, lost: bool) -> Exception:
        """The driver's error, wrapped as SQLAlchemy does and then translated to an error of `moorage.core.errors`."""
        if damaged := damaged_database(self._engine.url.database, error):
            return damaged
        dialect = self._engine.dialect
        wrapped = DBAPIError.instance(
            sql, None, cast(Any, error), cast(Any, self.errors), connection_invalidated=lost, dialect=dialect
        )
        return (translate_error(wrapped) if isinstance(wrapped, DBAPIError) else None) or wrapped

    def _is_disconnect(self, driver_connection: Any, error: Exception) -> bool:
        return self._engine.dialect.is_disconnect(cast(Any, error), driver_connection, None)


class PostgresqlConnection:
    """Uses psycopg's interface to libpq: half the cost of its cursor, a sixth of its pipeline mode (measured).

    A transaction that begins and commits within one pipeline uses the pipeline's implicit transaction, which saves two
    messages.
    """

    #: If a table was empty at its last VACUUM ANALYZE, the server scans all of it until the next one, about a minute
    #: later. So plans are discarded after this many transactions, then after four times as many, and so on.
    FIRST_REPLAN = 32

    def __init__(self, connection: Any) -> None:
        from psycopg import errors, pq
        from psycopg.adapt import Transformer

        self.driver_connection = connection
        connection.autocommit = True
        self._pg = connection.pgconn
        self._pq = pq
        self._results = PostgresqlResults(connection)
        self._prepared: set[bytes] = set()
        self._transformer = Transformer(connection)
        self._error_of = errors.error_from_result
        self._done = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)
        self._transactions = 0
        self._replan_at = self.FIRST_REPLAN

    def select(self, sql: PreparedSql, values: Sequence[object]) -> Rows:
        self._prepare(sql)
        self._pg.send_query_prepared(sql.name, [str(value).encode() for value in values])
        self._results.flush()
        return self._rows(self._checked(self._result()))

    def start(self, commands: Sequence[SentCommand], *, begin: bool, commit: bool) -> Callable[[], list[Rows]]:
        pg = self._pg
        if begin:
            self._replan_now_and_then()
        for sql, _ in commands:
            self._prepare(sql)
        pg.enter_pipeline_mode()
        if begin and not commit:
            pg.send_query_params(b"BEGIN", None)
        for sql, parameter in commands:
            pg.send_query_prepared(sql.name, None if parameter is None else [parameter])
        if commit and not begin:
            pg.send_query_params(b"COMMIT", None)
        pg.pipeline_sync()
        self._results.flush()
        return functools.partial(self._finish, commands, begin=begin, commit=commit)

    def _finish(self, commands: Sequence[SentCommand], *, begin: bool, commit: bool) -> list[Rows]:
        results = [self._result() for _ in range(len(commands) + (begin != commit))]
        end = self._results.next()
        if end.status != self._pq.ExecStatus.PIPELINE_SYNC:
            raise self._error_of(end)  # an error that only the commit detects
        self._pg.exit_pipeline_mode()
        for result in results:
            self._checked(result)
        first = begin and not commit
        return [
            self._rows(result) if sql.returns_rows else []
            for (sql, _), result in zip(commands, results[first : first + len(commands)], strict=True)
        ]

    def has_ended(self) -> bool:
        ended: bool = self.driver_connection.has_ended()
        return ended

    def roll_back(self) -> None:
        if self._pg.pipeline_status != self._pq.PipelineStatus.OFF:
            self.close()  # results are still outstanding
            return
        if self._pg.transaction_status == self._pq.TransactionStatus.IDLE:
            return  # an implicit transaction ended with its pipeline
        # Not through psycopg, which answers a ROLLBACK with DEALLOCATE ALL.
        self._pg.send_query_params(b"ROLLBACK", None)
        self._results.flush()
        if self._result().status != self._pq.ExecStatus.COMMAND_OK:
            self.close()

    def close(self) -> None:
        self.driver_connection.close()

    def _replan_now_and_then(self) -> None:
        self._transactions += 1
        if self._transactions == self._replan_at:
            self._replan_at *= 4
            self.driver_connection.execute("DISCARD PLANS")

    def _prepare(self, sql: PreparedSql) -> None:
        if sql.name in self._prepared:
            return
        self._pg.send_prepare(sql.name, sql.encoded)
        self._results.flush()
        self._checked(self._result())
        self._prepared.add(sql.name)

    def _result(self) -> Any:
        """The next result; raises only if the connection is lost."""
        result = self._results.next()
        if self._pg.status == self._pq.ConnStatus.BAD:
            raise self._error_of(result)
        self._results.next()  # None: the end of this result
        return result

    def _checked(self, result: Any) -> Any:
        if result.status not in self._done:
            raise self._error_of(result)
        return result

    def _rows(self, result: Any) -> Rows:
        if not result.ntuples:
            return []
        self._transformer.set_pgresult(result)
        rows: Rows = self._transformer.load_rows(0, result.ntuples, tuple)
        return rows


class MariadbConnection:
    def __init__(self, connection: Any) -> None:
        self.driver_connection = connection
        connection.autocommit(True)
        self._cursor = connection.cursor()

    def select(self, sql: PreparedSql, values: Sequence[object]) -> Rows:
        self._cursor.execute(sql.text, tuple(values) or None)
        return list(self._cursor.fetchall())

    def start(self, commands: Sequence[SentCommand], *, begin: bool, commit: bool) -> Callable[[], list[Rows]]:
        return functools.partial(self._run, commands, begin=begin, commit=commit)

    def _run(self, commands: Sequence[SentCommand], *, begin: bool, commit: bool) -> list[Rows]:
        """Run one compound statement, in one round trip, with a result set for each statement that returns rows."""
        block = [
            *(["START TRANSACTION"] if begin else []),
            *(sql.text for sql, _ in commands),
            *(["COMMIT"] if commit else []),
        ]
        parameters = tuple(parameter.decode() for _, parameter in commands if parameter is not None)
        self._cursor.execute(f"BEGIN NOT ATOMIC {'; '.join(block)}; END", parameters)
        rows = [self._next_rows() if sql.returns_rows else () for sql, _ in commands]
        while self._cursor.nextset():
            pass
        return rows

    def _next_rows(self) -> Rows:
        rows: Rows = self._cursor.fetchall()
        self._cursor.nextset()
        return rows

    def has_ended(self) -> bool:
        ended: bool = self.driver_connection.has_ended()
        return ended

    def roll_back(self) -> None:
        self.driver_connection.rollback()

    def close(self) -> None:
        with suppress(Exception):  # PyMySQL raises various exceptions if the connection is already lost
            self.driver_connection.close()


class SqliteConnection:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.driver_connection = connection

    def select(self, sql: PreparedSql, values: Sequence[object]) -> Rows:
        rows: Rows = self.driver_connection.execute(sql.text, tuple(values)).fetchall()
        return rows

    def start(self, commands: Sequence[SentCommand], *, begin: bool, commit: bool) -> Callable[[], list[Rows]]:
        return functools.partial(self._run, commands, begin=begin, commit=commit)

    def _run(self, commands: Sequence[SentCommand], *, begin: bool, commit: bool) -> list[Rows]:
        if begin:
            self.driver_connection.execute("BEGIN IMMEDIATE")
        rows = [self.select(sql, () if parameter is None else (parameter.decode(),)) for sql, parameter in commands]
        if commit:
            self.driver_connection.execute("COMMIT")
        return rows

    def has_ended(self) -> bool:
        return False

    def roll_back(self) -> None:
        if self.driver_connection.in_transaction:
            self.driver_connection.execute("ROLLBACK")

    def close(self) -> None:
        self.driver_connection.close()


_CONNECTIONS: dict[str, Callable[[Any], DriverConnection]] = {
    "postgresql": PostgresqlConnection,
    "mariadb": MariadbConnection,
    "sqlite": SqliteConnection,
}
