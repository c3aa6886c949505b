"""Single SELECT statements in one round trip, without a transaction or a ping around them.

With PostgreSQL, a transaction of SQLAlchemy costs five more round trips (ping, BEGIN, the isolation level twice, ROLLBACK),
which is most of the time of a small request. A single statement does not need them: each database shows it one state, with
everything that was committed before it began.

The connections (`moorage.db.driver_connections`) use autocommit and are kept as long as the engine; a dead one is noticed by
its error.
"""

import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar, cast
from weakref import WeakKeyDictionary

from sqlalchemy import CompoundSelect, Dialect, Engine, Select, event

from moorage.core import blocking_hook
from moorage.db.driver_connections import DatabaseDriver, MariadbLink, PostgresqlLink, Rows, SqliteLink
from moorage.db.engine import dialect_name

T = TypeVar("T")

_STYLES = {"postgresql": "numeric_dollar", "mysql": "format", "mariadb": "format", "sqlite": "qmark"}

_numbers = itertools.count()

#: {statement: {dialect class: the compiled statement}}
_compiled: WeakKeyDictionary[Select[Any] | CompoundSelect[Any], dict[type[Dialect], "_CompiledSelect"]] = (
    WeakKeyDictionary()
)


class SingleReads:
    """Runs prepared SELECTs on one database and keeps the connections for them. Thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._link = _LINKS[dialect_name(engine)]
        self._driver = DatabaseDriver(engine)
        #: Idle connections, the last used last: mostly, one client after the other needs one.
        self._idle: list[_Link] = []
        event.listen(engine, "engine_disposed", lambda _: self.close())

    def prepare(self, statement: Select[Any] | CompoundSelect[Any]) -> "PreparedRead":
        return PreparedRead(self, self._engine, statement)

    def run_select(self, sql: "_CompiledSelect", parameters: Sequence[object]) -> Rows:
        """Run a SELECT. Raises as a transaction does; if an idle connection was lost, the SELECT is retried on a new one."""
        try:
            link = self._idle.pop()
        except IndexError:
            return self._ask_anew(sql, parameters)
        try:
            rows = link.run(sql, parameters)
        except self._driver.errors as error:
            lost = self._driver.is_lost(link.driver_connection, error)
            link.close()
            if not lost:
                raise self._driver.translated(sql.text, error, lost=False) from error
            self.close()  # the others are of the same age
            return self._ask_anew(sql, parameters)
        self._idle.append(link)
        return rows

    def _ask_anew(self, sql: "_CompiledSelect", parameters: Sequence[object]) -> Rows:
        link = self._open()
        try:
            rows = link.run(sql, parameters)
        except self._driver.errors as error:
            lost = self._driver.is_lost(link.driver_connection, error)
            link.close()
            raise self._driver.translated(sql.text, error, lost=lost) from error
        self._idle.append(link)
        return rows

    def _open(self) -> "_Link":
        return self._driver.connect(self._link)

    def close(self) -> None:
        """Close the idle connections; those in use are kept."""
        idle, self._idle = self._idle, []
        for link in idle:
            link.close()


class PreparedRead:
    """A prepared SELECT. Calling it with its parameters (texts and numbers) returns the rows, with values converted as by
    SQLAlchemy.
    """

    def __init__(self, asker: SingleReads, engine: Engine, statement: Select[Any] | CompoundSelect[Any]) -> None:
        self._asker = asker
        self._sql = _sql_of(statement, engine.dialect)
        self._processors = self._sql.processors

    def __call__(self, **parameters: object) -> Rows:
        rows = self._asker.run_select(self._sql, self._sql.bind_values(parameters))
        return [self._processed(row) for row in rows] if self._processors else rows

    def scalar(self, **parameters: object) -> int:
        """The only column of the only row, as an int."""
        return int(self._asker.run_select(self._sql, self._sql.bind_values(parameters))[0][0])

    def _processed(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        values = list(row)
        for index, process in self._processors:
            values[index] = process(values[index])
        return tuple(values)


def _sql_of(statement: Select[Any] | CompoundSelect[Any], dialect: Dialect) -> "_CompiledSelect":
    """The compiled statement, cached per process, since statements are module constants."""
    kept = _compiled.setdefault(statement, {})
    if type(dialect) not in kept:
        kept[type(dialect)] = _CompiledSelect(statement, dialect)
    return kept[type(dialect)]


class _CompiledSelect:
    """A SELECT compiled for one driver, with positional parameters."""

    def __init__(self, statement: Select[Any] | CompoundSelect[Any], dialect: Dialect) -> None:
        own = cast(Any, type(dialect))(paramstyle=_STYLES[dialect.name])
        compiled = statement.compile(dialect=own)
        self.text = str(compiled)
        #: (name, value if the statement itself has one) by position.
        self._parameters = [(name, compiled.params[name]) for name in compiled.positiontup or ()]
        self.encoded = self.text.encode()
        self.name = f"question_{next(_numbers)}".encode()
        processors = [
            column.type.dialect_impl(own).result_processor(own, None) for column in statement.selected_columns
        ]
        #: (index, conversion) of the columns whose values the driver does not convert.
        self.processors = [(index, process) for index, process in enumerate(processors) if process is not None]

    def bind_values(self, given: Mapping[str, object]) -> list[object]:
        return [given.get(name, fixed) for name, fixed in self._parameters]


class SharedReader(Generic[T]):
    """Combines the same read of many threads: threads that wait while one reads share the result of the next read.

    A read answers only the threads that called before it began, so a result is never older than the call.
    """

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._asking = threading.Lock()
        self._next = _SharedRead[T]()

    def __call__(self) -> T:
        blocking_hook.about_to_block()
        mine = self._next
        with mine.lock:
            if mine.answers:
                return mine.answers[0]
            with self._asking:
                # Later callers take part in the next read. If this read fails, each of its callers reads for itself.
                self._next = _SharedRead()
                answer = self._ask()
            mine.answers.append(answer)
            return answer


class _SharedRead(Generic[T]):
    __slots__ = ("answers", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.answers: list[T] = []


class _Link(Protocol):
    """One connection. Errors are the driver's."""

    driver_connection: Any

    def run(self, sql: _CompiledSelect, parameters: Sequence[object]) -> Rows: ...

    def close(self) -> None: ...


class _PostgresqlLink(PostgresqlLink):
    def run(self, sql: _CompiledSelect, parameters: Sequence[object]) -> Rows:
        self._prepare(sql.name, sql.encoded)
        self._pg.send_query_prepared(sql.name, [str(value).encode() for value in parameters])
        self._answers.flush()
        return self._rows(self._checked(self._result()))


class _MariadbLink(MariadbLink):
    def run(self, sql: _CompiledSelect, parameters: Sequence[object]) -> Rows:
        self._cursor.execute(sql.text, tuple(parameters) or None)
        return list(self._cursor.fetchall())


class _SqliteLink(SqliteLink):
    def run(self, sql: _CompiledSelect, parameters: Sequence[object]) -> Rows:
        rows: Rows = self.driver_connection.execute(sql.text, tuple(parameters)).fetchall()
        return rows


_LINKS: dict[str, Callable[[Any], _Link]] = {
    "postgresql": _PostgresqlLink,
    "mariadb": _MariadbLink,
    "sqlite": _SqliteLink,
}
