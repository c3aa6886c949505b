"""The one way to run SQL: transactions, single reads, and pipelines of statements.

    with read(engine) as connection: ...                      a read transaction; `read_one_state` for many tables
    in_transaction(engine, lambda connection: ...)            a write transaction, repeated if the database aborts it
    SingleReads(engine).prepare(select(...))(name=value)      one SELECT in one round trip
    with StatementPipeline(engine).transaction() as t: ...    a write transaction with one round trip per decision

`SharedRead` answers concurrent callers of a read together, and `GroupedWrites` writes the items of concurrent callers
together.

The first two are SQLAlchemy's, with its cache of compiled statements. Such a transaction takes some 0.3 ms of CPU and
0.1 ms per statement, more than a whole small read or claim of Placement needs. Those use the other two, on
connections of `moorage.db.driver_connections`; a lost connection is noticed by its error.

Before each of these waits for a database, this module calls `moorage.core.blocking_hook`, so that the HTTP server lets
another thread take up requests. No other module outside the server does.

Rules: make no request to another service inside a transaction, and let a function that is retried here have no effect
other than its SQL.
"""

import functools
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, NoReturn, Self, TypeVar

import orjson
from sqlalchemy import Connection, Engine, SelectBase, event
from sqlalchemy.exc import IntegrityError

from moorage.core import blocking_hook
from moorage.core.backoff import Backoff
from moorage.core.errors import RetryableConflict, Unavailable
from moorage.db import timeouts
from moorage.db.database_hosts import refuses_writes
from moorage.db.driver_connections import DriverConnection, DriverConnections
from moorage.db.engine import WRITE_OPTION, dialect_name, is_in_process
from moorage.db.errors import translating_errors
from moorage.db.group_commit import GroupCommit, run_in_turn
from moorage.db.statements import Command, CompiledSelect, PreparedSql, Rows, compiled_select

T = TypeVar("T")
R = TypeVar("R")

#: Repetitions of an aborted transaction without a pause, and the pauses after them.
_WITHOUT_PAUSE, _PAUSES = 3, Backoff(0.001, 0.1)


def _announce_read(engine: Engine) -> None:
    """Call it before a read. SQLite answers in this process, faster than another thread could take over."""
    if not is_in_process(engine):
        blocking_hook.about_to_block()


# --- transactions ---------------------------------------------------------------------------------------------------


@contextmanager
def read(engine: Engine) -> Iterator[Connection]:
    """A connection to read from. Only on SQLite do all its statements see one state; see `read_one_state`.

    On the others each statement sees all commits before its own start, in a transaction as well. So PostgreSQL runs
    them without one, which saves two round trips.
    """
    _announce_read(engine)
    options = {"isolation_level": "AUTOCOMMIT"} if engine.dialect.name == "postgresql" else {}
    with translating_errors(), engine.connect().execution_options(**options) as connection, connection.begin():
        yield connection


@contextmanager
def read_one_state(engine: Engine) -> Iterator[Connection]:
    """Like `read`, but all its statements see one state on every database. For reading many tables into memory."""
    _announce_read(engine)
    options = {} if engine.dialect.name == "sqlite" else {"isolation_level": "REPEATABLE READ"}
    with translating_errors(), engine.connect().execution_options(**options) as connection, connection.begin():
        if engine.dialect.name == "postgresql":
            connection.exec_driver_sql(timeouts.LONG_READ)
        yield connection


@contextmanager
def write(engine: Engine) -> Iterator[Connection]:
    """A write transaction. Raises `RetryableConflict` if the database aborted it."""
    blocking_hook.about_to_block()
    with (
        translating_errors(),
        engine.connect().execution_options(**{WRITE_OPTION: True}) as connection,
        connection.begin(),
    ):
        yield connection


def in_transaction(engine: Engine, work: Callable[[Connection], T]) -> T:
    """Runs `work` in a write transaction; repeats it while the database aborts it (`repeat_aborted`).

    On SQLite, the transaction may contain the work of other threads, and another thread may run `work`
    (`group_commit`).
    """
    blocking_hook.about_to_block()
    if is_in_process(engine):
        return run_in_turn(
            engine,
            work,
            functools.partial(write, engine),
            lambda one: _in_own_transaction(engine, one),
        )
    return _in_own_transaction(engine, work)


def _in_own_transaction(engine: Engine, work: Callable[[Connection], T]) -> T:
    def attempt() -> T:
        with write(engine) as connection:
            return work(connection)

    return repeat_aborted(attempt)


def repeat_aborted(attempt: Callable[[], T], on_repeat: Callable[[], object] = lambda: None) -> T:
    """Runs `attempt`, a transaction, until the database does not abort it, or the timeout of a lock has passed.

    The first repetitions follow at once, because the database has waited for the other transaction already. Galera does
    not wait, so there are pauses later. After a wait of the whole timeout there is no repetition, because the holder of
    the lock hangs.
    """
    began = time.monotonic()
    for failures in itertools.count(1):
        try:
            return attempt()
        except RetryableConflict:
            if time.monotonic() - began >= timeouts.LOCK_TIMEOUT_S:
                raise
        on_repeat()
        time.sleep(_PAUSES.pause_s(failures - _WITHOUT_PAUSE, os.urandom(1)[0] / 256))
    raise AssertionError("unreachable")


# --- single reads ---------------------------------------------------------------------------------------------------


class SingleReads:
    """Runs prepared SELECTs on one database and keeps the connections for them. Thread-safe.

    A single statement needs no transaction: each database shows it one state, with everything that was committed before
    it began.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connections = DriverConnections(engine)
        #: Idle connections, the last used last: mostly, one client after the other needs one.
        self._idle: list[DriverConnection] = []
        event.listen(engine, "engine_disposed", lambda _: self.close())

    def prepare(self, statement: SelectBase) -> "PreparedRead":
        return PreparedRead(self, compiled_select(statement, self._engine.dialect))

    def query(self, command: Command) -> Rows:
        """The rows of a `Statement`, as the driver returns them."""
        statement, rows = command
        values = () if rows is None else (orjson.dumps(rows).decode(),)
        return self.run_select(statement.prepared_for(dialect_name(self._engine)), values)

    def run_select(self, sql: PreparedSql, values: Sequence[object]) -> Rows:
        """Run a SELECT.

        Raises as a transaction does; if an idle connection was lost, the SELECT is retried on a new one.
        """
        _announce_read(self._engine)
        try:
            connection = self._idle.pop()
        except IndexError:
            return self._run_on_new(sql, values)
        try:
            rows = connection.select(sql, values)
        except self._connections.errors as error:
            lost = self._connections.is_lost(connection, error)
            connection.close()
            if not lost:
                raise self._connections.translated(sql.text, error, lost=False) from error
            self.close()  # the others are of the same age
            return self._run_on_new(sql, values)
        self._idle.append(connection)
        return rows

    def _run_on_new(self, sql: PreparedSql, values: Sequence[object]) -> Rows:
        connection = self._connections.open()
        try:
            rows = connection.select(sql, values)
        except self._connections.errors as error:
            lost = self._connections.is_lost(connection, error)
            connection.close()
            raise self._connections.translated(sql.text, error, lost=lost) from error
        self._idle.append(connection)
        return rows

    def close(self) -> None:
        """Close the idle connections; those in use are kept."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


class PreparedRead:
    """A prepared SELECT. Calling it with its parameters (texts, numbers and times) returns the rows, with values
    converted as by SQLAlchemy.
    """

    def __init__(self, reads: SingleReads, select: CompiledSelect) -> None:
        self._reads = reads
        self._select = select

    def __call__(self, **parameters: object) -> Rows:
        return self._select.converted(self._reads.run_select(self._select.sql, self._select.bind_values(parameters)))

    def scalar(self, **parameters: object) -> int:
        """The only column of the only row, as an int."""
        return int(self._reads.run_select(self._select.sql, self._select.bind_values(parameters))[0][0])


class SharedRead(Generic[T]):
    """A read that threads share: threads that wait while another one reads get the result of the next read.

    A read answers only the threads that called before it began, so a result is never older than the call.
    """

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._asking = threading.Lock()
        self._next = _NextRead[T]()

    def __call__(self) -> T:
        blocking_hook.about_to_block()
        mine = self._next
        with mine.lock:
            if mine.answers:
                return mine.answers[0]
            with self._asking:
                # Later callers take part in the next read. If this read fails, each of its callers reads for itself.
                self._next = _NextRead()
                answer = self._ask()
            mine.answers.append(answer)
            return answer


class _NextRead(Generic[T]):
    __slots__ = ("answers", "lock")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.answers: list[T] = []


# --- pipelines ------------------------------------------------------------------------------------------------------


class StatementPipeline:
    """The connection for write transactions in which independent statements are sent together.

    Used by one thread at a time.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connections = DriverConnections(engine)
        self._connection: DriverConnection | None = None
        event.listen(engine, "engine_disposed", lambda _: self.close())

    def transaction(self) -> "PipelinedTransaction":
        """A transaction, as a context manager that rolls back unless committed. Raises as `in_transaction`, but does
        not repeat anything.
        """
        return PipelinedTransaction(self)

    @property
    def is_far(self) -> bool:
        """Whether a round trip costs anything: the database is in another process."""
        return not is_in_process(self._engine)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def run(self, commands: Sequence[Command], *, begin: bool, commit: bool) -> list[Rows]:
        """The rows that each command returns. After any error except `IntegrityError`, the connection is closed."""
        return self.start(commands, begin=begin, commit=commit)()

    def start(self, commands: Sequence[Command], *, begin: bool, commit: bool) -> Callable[[], list[Rows]]:
        """`run` in two parts: sends the commands, and returns a function that waits for the results, in any thread, and
        raises all errors of the database. Run nothing else before that function has been called.
        """
        database = dialect_name(self._engine)
        sent = [
            (statement.prepared_for(database), None if rows is None else orjson.dumps(rows))
            for statement, rows in commands
        ]
        if begin and self._connection is not None and self._connection.has_ended():
            self.close()
        # Do not retry a batch with a commit, which may have been carried out.
        again = begin and not commit and self._connection is not None
        connection = self._connection = self._connection or self._connections.open()
        try:
            results = connection.start(sent, begin=begin, commit=commit)
        except self._connections.errors as error:
            results = functools.partial(_raise, error)

        def finish() -> list[Rows]:
            blocking_hook.about_to_block()
            try:
                return results()
            except self._connections.errors as error:
                lost = self._connections.is_lost(connection, error)
                sql = "; ".join(prepared.text for prepared, _ in sent)
                translated = self._connections.translated(sql, error, lost=lost)
                if not isinstance(translated, IntegrityError):
                    self.close()
                if lost and commit and not refuses_writes(error):
                    raise Unavailable(timeouts.OUTCOME_UNKNOWN) from error
                if not (lost and again):
                    raise translated from error
            return self.run(commands, begin=begin, commit=commit)

        return finish

    def roll_back(self) -> None:
        if self._connection is not None:
            try:
                self._connection.roll_back()
            except self._connections.errors:
                self.close()


def _raise(error: Exception) -> NoReturn:
    raise error


class PipelinedTransaction:
    """A transaction of a `StatementPipeline`. `send` and `commit` return the rows of each command.

    Pass commands whose results are not needed earlier to `commit`. A command with an empty list of rows is not sent.
    """

    def __init__(self, pipeline: StatementPipeline) -> None:
        self._pipeline = pipeline
        self._has_begun = False
        self.is_open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.is_open:
            self.is_open = False
            self._pipeline.roll_back()

    def send(self, *commands: Command) -> list[Rows]:
        return self._start(commands, commit=False)()

    def commit(self, *commands: Command) -> list[Rows]:
        return self.start_commit(*commands)()

    def start_commit(self, *commands: Command) -> Callable[[], list[Rows]]:
        """As `commit`, in the two parts of `StatementPipeline.start`."""
        finish = self._start(commands, commit=True)

        def committed() -> list[Rows]:
            rows = finish()
            self.is_open = False
            return rows

        return committed

    def _start(self, commands: Sequence[Command], *, commit: bool) -> Callable[[], list[Rows]]:
        begin, self._has_begun, self.is_open = not self._has_begun, True, True
        useful = [command for command in commands if command[1] or command[1] is None]
        if not (useful or begin or commit):
            return lambda: [() for _ in commands]
        finish = self._pipeline.start(useful, begin=begin, commit=commit)

        def finished() -> list[Rows]:
            rows_found = iter(finish())
            return [next(rows_found) if rows or rows is None else () for _, rows in commands]

        return finished


class GroupedWrites(GroupCommit[T, R]):
    """A `GroupCommit` whose groups are written to a database."""

    def submit(self, item: T) -> R:
        blocking_hook.about_to_block()
        return super().submit(item)
