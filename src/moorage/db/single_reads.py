"""Questions to the database that one statement answers: one round trip, no transaction around it, no ping before it.

A transaction of SQLAlchemy's costs a PostgreSQL client five more round trips (ping, BEGIN, the isolation level twice,
ROLLBACK), which is most of the time of a small request. A single statement needs none of that: each database shows it
one state by itself, with everything that was committed before it began.

The connections are of their own (`moorage.db.driver_connections`), autocommit, kept as long as the engine; a dead one is noticed by its error.
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

#: {statement: {kind of dialect: it in the words of that}}
_compiled: WeakKeyDictionary[Select[Any] | CompoundSelect[Any], dict[type[Dialect], "_CompiledSelect"]] = (
    WeakKeyDictionary()
)


class SingleReads:
    """Keeps the connections on which the questions to one database are asked. Thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._link = _LINKS[dialect_name(engine)]
        self._driver = DatabaseDriver(engine)
        #: Idle ones, the last used last: one client after the other needs one.
        self._idle: list[_Link] = []
        event.listen(engine, "engine_disposed", lambda _: self.close())

    def prepare(self, statement: Select[Any] | CompoundSelect[Any]) -> "PreparedRead":
        return PreparedRead(self, self._engine, statement)

    def run_select(self, sql: "_CompiledSelect", parameters: Sequence[object]) -> Rows:
        """Raises what a transaction raises; a connection that was lost while it was idle only costs a second try."""
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
        """Those that are asking now are kept."""
        idle, self._idle = self._idle, []
        for link in idle:
            link.close()


class PreparedRead:
    """One prepared SELECT; ``question(wanted=...)`` are its rows, with values as SQLAlchemy gives them.

    Its parameters are texts and numbers.
    """

    def __init__(self, asker: SingleReads, engine: Engine, statement: Select[Any] | CompoundSelect[Any]) -> None:
        self._asker = asker
        self._sql = _sql_of(statement, engine.dialect)
        self._processors = self._sql.processors

    def __call__(self, **parameters: object) -> Rows:
        rows = self._asker.run_select(self._sql, self._sql.placed(parameters))
        return [self._processed(row) for row in rows] if self._processors else rows

    def scalar(self, **parameters: object) -> int:
        """The only column of the only row."""
        return int(self._asker.run_select(self._sql, self._sql.placed(parameters))[0][0])

    def _processed(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        values = list(row)
        for index, process in self._processors:
            values[index] = process(values[index])
        return tuple(values)


def _sql_of(statement: Select[Any] | CompoundSelect[Any], dialect: Dialect) -> "_CompiledSelect":
    """Compiled once per process: statements are constants of modules, and each service asks those of its store."""
    kept = _compiled.setdefault(statement, {})
    if type(dialect) not in kept:
        kept[type(dialect)] = _CompiledSelect(statement, dialect)
    return kept[type(dialect)]


class _CompiledSelect:
    """A statement in the words of one driver, its parameters by position."""

    def __init__(self, statement: Select[Any] | CompoundSelect[Any], dialect: Dialect) -> None:
        own = cast(Any, type(dialect))(paramstyle=_STYLES[dialect.name])
        compiled = statement.compile(dialect=own)
        self.text = str(compiled)
        #: (name, value where the statement itself says it) by position.
        self._parameters = [(name, compiled.params[name]) for name in compiled.positiontup or ()]
        self.encoded = self.text.encode()
        self.name = f"question_{next(_numbers)}".encode()
        processors = [
            column.type.dialect_impl(own).result_processor(own, None) for column in statement.selected_columns
        ]
        #: (index, conversion) of the columns that the driver does not give as we want them.
        self.processors = [(index, process) for index, process in enumerate(processors) if process is not None]

    def placed(self, given: Mapping[str, object]) -> list[object]:
        return [given.get(name, fixed) for name, fixed in self._parameters]


class SharedReader(Generic[T]):
    """One question of many threads: those that wait for their turn to ask are answered by one asking.

    An asking answers whoever came before it began, never anybody who came later: so the answer is always at least as
    new as the question.
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
                # Whoever comes from here on takes part in the next round. Where asking fails, each of this round asks.
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
