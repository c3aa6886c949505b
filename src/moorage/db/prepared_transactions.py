"""Transactions whose statements are sent by the driver itself, each compiled and prepared once.

    database = Database(engine)
    with database.read() as connection: ...
    database.in_transaction(lambda connection: connection.execute(statement, values))

SQLAlchemy's work around a statement (a ping, BEGIN, its own contexts and results, the pool's ROLLBACK) costs several times
what PostgreSQL needs to answer it. Stores whose statements are constants with a `bindparam` for each value need no changes: a
connection of this module offers as much of SQLAlchemy's `Connection` as they use. A statement that is built for each call
works too, but is compiled each time.

The connections come from `moorage.db.driver_connections`; one that was lost while idle is detected before its next use.
Not here: compiling statements (`moorage.db.driver_statements`), single SELECTs (`moorage.db.single_reads`), and writing many
rows at once (`moorage.db.statement_pipelines`).
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import NoResultFound
from sqlalchemy.sql import Executable

from moorage.core import blocking_hook
from moorage.core.errors import RetryableConflict, Unavailable
from moorage.db.driver_connections import DatabaseDriver, MariadbLink, PostgresqlLink, Rows, SqliteLink
from moorage.db.driver_statements import Compiler, DriverStatement, Values
from moorage.db.engine import dialect_name
from moorage.db.timeouts import OUTCOME_UNKNOWN, connection_has_ended
from moorage.db.transactions import retry_time_is_over

T = TypeVar("T")

#: {engine: factory of the context managers that its statements run in}
_WRAPPERS: WeakKeyDictionary[Engine, Callable[[str], AbstractContextManager[None]]] = WeakKeyDictionary()


def wrap_statements(engine: Engine, around: Callable[[str], AbstractContextManager[None]]) -> None:
    """From now on, run each prepared statement of this engine within ``around(its SQL)``; the SQL contains no values."""
    _WRAPPERS[engine] = around


class PreparedDatabase:
    """The transactions on one engine. Thread-safe. Raises as `moorage.db.transactions`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._sql = Compiler(engine)
        self._open_link = _LINKS[dialect_name(engine)]
        self._driver = DatabaseDriver(engine)
        #: Idle connections, the last used last.
        self._idle: list[_Link] = []
        #: Numbers of statements and transactions so far, which tests assert for use cases.
        self.statements = self.transactions = 0
        event.listen(engine, "engine_disposed", lambda _: self.close())

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A read transaction, with the isolation of `moorage.db.transactions.read`."""
        with self._session() as session:
            session.begin(writes=False)
            yield cast(Connection, session)
            session.end()

    def in_transaction(self, work: Callable[[Connection], T], *, attempts: int = 8) -> T:
        """Same as `moorage.db.transactions.in_transaction`."""
        began = time.monotonic()
        for attempt in range(1, attempts + 1):
            try:
                with self._session() as session:
                    session.begin(writes=True)
                    answer = work(cast(Connection, session))
                    session.commit()
                    self.transactions += 1
                    return answer
            except RetryableConflict:
                if attempt == attempts or retry_time_is_over(began):
                    raise
        raise AssertionError("unreachable")

    def statement_context(self, words: str) -> AbstractContextManager[None]:
        """The context manager that a statement runs in; see `wrap_statements`."""
        around = _WRAPPERS.get(self._engine)
        return nullcontext() if around is None else around(words)

    @contextmanager
    def _session(self) -> Iterator["_Session"]:
        session = _Session(self, self._link(), self._sql, self._driver)
        try:
            yield session
        except BaseException:
            session.roll_back()
            raise
        finally:
            if session.is_sound:
                self._idle.append(session.link)

    def _link(self) -> "_Link":
        try:
            link = self._idle.pop()
        except IndexError:
            return self._driver.connect(self._open_link)
        if not link.has_ended():
            return link
        link.close()
        self.close()  # the others are of the same age
        return self._driver.connect(self._open_link)

    def close(self) -> None:
        """Close the idle connections; those in use are kept."""
        idle, self._idle = self._idle, []
        for link in idle:
            link.close()


class StatementResult:
    """The result of a statement, with the part of SQLAlchemy's interface that stores use."""

    def __init__(self, rows: Sequence[Any], rowcount: int) -> None:
        self._rows = rows
        self.rowcount = rowcount  #: rows that were written

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    def all(self) -> Sequence[Any]:
        return self._rows

    def mappings(self) -> Sequence[Mapping[str, Any]]:
        return [row._asdict() for row in self._rows]

    def one_or_none(self) -> Any:
        return self._rows[0] if self._rows else None

    def one(self) -> Any:
        if not self._rows:
            raise NoResultFound("the statement found no row")
        return self._rows[0]

    def scalar(self) -> Any:
        return self._rows[0][0] if self._rows else None


class _Session:
    """One transaction on one link."""

    def __init__(self, database: PreparedDatabase, link: "_Link", sql: Compiler, driver: DatabaseDriver) -> None:
        self.link = link
        self.is_sound = True
        self.dialect = sql.dialect
        self._database = database
        self._sql = sql
        self._driver = driver
        self._is_open = False

    def begin(self, *, writes: bool) -> None:
        self._is_open = self.link.needs_begin(writes=writes)
        if self._is_open:
            self._do("BEGIN", lambda: self.link.begin(writes=writes))

    def execute(self, statement: Executable, values: Values | Sequence[Values] | None = None) -> StatementResult:
        """Run the statement, once for each of several `values`."""
        if isinstance(values, Sequence):
            return StatementResult((), sum(self._execute(statement, one).rowcount for one in values))
        return self._execute(statement, values or {})

    def _execute(self, statement: Executable, values: Values) -> StatementResult:
        words = self._sql.compile_statement(statement, values)
        self._database.statements += 1
        with self._database.statement_context(words.text):
            rows, count = self._do(words.text, lambda: self.link.run(words, words.bind_values(values)))
        return StatementResult(words.named_rows(rows), count)

    def commit(self) -> None:
        try:
            self._do("COMMIT", self.link.commit)
        except Unavailable as error:
            if self.is_sound:
                raise
            raise Unavailable(OUTCOME_UNKNOWN) from error
        self._is_open = False

    def end(self) -> None:
        """End a read transaction."""
        if self._is_open:
            self._do("ROLLBACK", self.link.roll_back)
            self._is_open = False

    def roll_back(self) -> None:
        if not (self._is_open and self.is_sound):
            return
        try:
            self.link.roll_back()
        except self._driver.errors:
            self._give_up()

    def _do(self, text: str, what: Callable[[], T]) -> T:
        try:
            return what()
        except self._driver.errors as error:
            lost = self._driver.is_lost(self.link.driver_connection, error)
            if lost:
                self._give_up()
            raise self._driver.translated(text, error, lost=lost) from error

    def _give_up(self) -> None:
        self.is_sound = False
        self._database.close()
        with suppress(*(self._driver.errors,)):
            self.link.close()


class _Link(Protocol):
    """One connection. Errors are the driver's."""

    driver_connection: Any

    def needs_begin(self, *, writes: bool) -> bool:
        """Whether an explicit transaction is needed; a single statement sees one state anyway."""
        ...

    def begin(self, *, writes: bool) -> None: ...

    def run(self, words: DriverStatement, values: Sequence[object]) -> tuple[Rows, int]:
        """(rows found, number of rows written)."""
        ...

    def commit(self) -> None: ...

    def roll_back(self) -> None: ...

    def has_ended(self) -> bool:
        """Whether the server closed the connection while it was idle."""
        ...

    def close(self) -> None: ...


class _PostgresqlLink(PostgresqlLink):
    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self.plan_for_full_tables()
        self._begun = False

    def needs_begin(self, *, writes: bool) -> bool:
        return writes

    def begin(self, *, writes: bool) -> None:
        self.replan_now_and_then()
        self._begun = True  # with the first statement: no round trip of its own

    def run(self, words: DriverStatement, values: Sequence[object]) -> tuple[Rows, int]:
        self._prepare(words.name, words.encoded)
        given = [None if value is None else str(value).encode() for value in values]
        if not self._begun:
            self._pg.send_query_prepared(words.name, given)
            self._answers.flush()
            return self._answer(self._checked(self._result()))
        self._begun = False
        self._pg.enter_pipeline_mode()
        self._pg.send_query_params(b"BEGIN", None)
        self._pg.send_query_prepared(words.name, given)
        self._pg.pipeline_sync()
        self._answers.flush()
        begun, result = self._result(), self._result()
        self._answers.next()  # the end of the pipeline
        self._pg.exit_pipeline_mode()
        self._checked(begun)
        return self._answer(self._checked(result))

    def _answer(self, result: Any) -> tuple[Rows, int]:
        return self._rows(result), result.command_tuples or 0

    def commit(self) -> None:
        self._end(b"COMMIT")

    def roll_back(self) -> None:
        self._end(b"ROLLBACK")

    def _end(self, how: bytes) -> None:
        if self._begun:  # nothing was run
            self._begun = False
            return
        self._pg.send_query_params(how, None)
        self._answers.flush()
        self._checked(self._result())

    def has_ended(self) -> bool:
        return bool(self.driver_connection.closed) or connection_has_ended(self._pg.socket)


class _MariadbLink(MariadbLink):
    def needs_begin(self, *, writes: bool) -> bool:
        return writes

    def begin(self, *, writes: bool) -> None:
        self._cursor.execute("START TRANSACTION")

    def run(self, words: DriverStatement, values: Sequence[object]) -> tuple[Rows, int]:
        self._cursor.execute(words.text, tuple(values) or None)
        return list(self._cursor.fetchall()), self._cursor.rowcount

    def commit(self) -> None:
        self.driver_connection.commit()

    def roll_back(self) -> None:
        self.driver_connection.rollback()

    def has_ended(self) -> bool:
        connection = self.driver_connection
        return not connection.open or connection_has_ended(connection._sock.fileno())  # noqa: SLF001 - PyMySQL does not publish its socket


class _SqliteLink(SqliteLink):
    def needs_begin(self, *, writes: bool) -> bool:
        return True

    def begin(self, *, writes: bool) -> None:
        if writes:
            blocking_hook.about_to_block()  # for other writers, and for the disk
        self.driver_connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")

    def run(self, words: DriverStatement, values: Sequence[object]) -> tuple[Rows, int]:
        cursor = self.driver_connection.execute(words.text, values)
        rows: Rows = cursor.fetchall()
        return rows, cursor.rowcount

    def commit(self) -> None:
        self.driver_connection.execute("COMMIT")

    def roll_back(self) -> None:
        self.driver_connection.execute("ROLLBACK")

    def has_ended(self) -> bool:
        return False


_LINKS: dict[str, Callable[[Any], _Link]] = {
    "postgresql": _PostgresqlLink,
    "mariadb": _MariadbLink,
    "sqlite": _SqliteLink,
}
