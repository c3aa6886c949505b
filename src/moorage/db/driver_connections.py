"""Connections on which SQL is sent by the driver itself, shared by `single_reads`, `statement_pipelines` and
`prepared_transactions`.

They are opened through the engine's pool and never returned to it: the pool would ping them and begin transactions.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from moorage.db.timeouts import PostgresqlResults
from moorage.db.transactions import translate_error, translating_errors

Rows = Sequence[tuple[Any, ...]]
L = TypeVar("L")


class DatabaseDriver:
    """The driver of an engine: opens connections and translates the driver's errors."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.errors: type[Exception] = engine.dialect.loaded_dbapi.Error

    def connect(self, link: Callable[[Any], L]) -> L:
        """A link on a new connection, with the engine's timeouts and settings. Raises as a transaction does, also if the
        connection is lost while the link is set up.
        """
        with translating_errors():
            pooled = self._engine.connect()
            pooled.detach()
        connection = pooled.connection.dbapi_connection
        try:
            return link(connection)
        except self.errors as error:
            lost = self.is_lost(connection, error)
            with suppress(Exception):
                cast(Any, connection).close()
            raise self.translated("to set up a connection", error, lost=lost) from error

    def is_lost(self, connection: Any, error: Exception) -> bool:
        return self._engine.dialect.is_disconnect(cast(Any, error), connection, None)

    def translated(self, words: str, error: Exception, *, lost: bool) -> Exception:
        """The driver's error, wrapped as SQLAlchemy does and then translated to an error of `moorage.core.errors`."""
        dialect = self._engine.dialect
        wrapped = DBAPIError.instance(
            words, None, cast(Any, error), cast(Any, self.errors), connection_invalidated=lost, dialect=dialect
        )
        return (translate_error(wrapped) if isinstance(wrapped, DBAPIError) else None) or wrapped


class PostgresqlLink:
    """Uses libpq's calls directly: half the cost of psycopg's cursor, a sixth of its pipeline mode (measured)."""

    #: A statement is planned once, perhaps on empty tables, but its plan must suit full ones. All our statements go from a
    #: few rows to related rows by an index, so other plans are disabled.
    _SETTINGS = (
        *(f"enable_{method} = off" for method in ("seqscan", "hashjoin", "mergejoin", "bitmapscan")),
        "jit = off",
        "plan_cache_mode = force_generic_plan",
        "default_transaction_isolation = 'read committed'",
    )
    #: If a table was empty at its last VACUUM ANALYZE, the server scans all of it until the next one, about a minute later.
    #: So plans are discarded after this many transactions, then after four times as many, and so on.
    FIRST_REPLAN = 32

    def __init__(self, connection: Any) -> None:
        from psycopg import errors, pq
        from psycopg.adapt import Transformer

        self.driver_connection = connection
        connection.autocommit = True
        self._pg = connection.pgconn
        self._pq = pq
        self._answers = PostgresqlResults(connection)
        self._prepared: set[bytes] = set()
        self._transformer = Transformer(connection)
        self._error_of = errors.error_from_result
        self._done = (pq.ExecStatus.COMMAND_OK, pq.ExecStatus.TUPLES_OK)

    def plan_for_full_tables(self) -> None:
        """Apply `_SETTINGS` to the connection."""
        self._transactions = 0
        self._replan_at = self.FIRST_REPLAN
        for setting in self._SETTINGS:
            self.driver_connection.execute(f"SET {setting}")

    def replan_now_and_then(self) -> None:
        """Discard plans if it is time. Call it once before each transaction."""
        self._transactions += 1
        if self._transactions == self._replan_at:
            self._replan_at *= 4
            self.driver_connection.execute("DISCARD PLANS")

    def _prepare(self, name: bytes, words: bytes) -> None:
        if name in self._prepared:
            return
        self._pg.send_prepare(name, words)
        self._answers.flush()
        self._checked(self._result())
        if name:  # an unnamed statement is replaced by the next
            self._prepared.add(name)

    def _result(self) -> Any:
        """The next result; raises only if the connection is lost."""
        result = self._answers.next()
        if self._pg.status == self._pq.ConnStatus.BAD:
            raise self._error_of(result)
        self._answers.next()  # None: the end of this result
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

    def close(self) -> None:
        self.driver_connection.close()


class MariadbLink:
    def __init__(self, connection: Any) -> None:
        self.driver_connection = connection
        connection.autocommit(True)
        self._cursor = connection.cursor()

    def close(self) -> None:
        with suppress(Exception):  # PyMySQL raises various exceptions if the connection is already lost
            self.driver_connection.close()


class SqliteLink:
    def __init__(self, connection: Any) -> None:
        self.driver_connection = connection

    def close(self) -> None:
        self.driver_connection.close()
