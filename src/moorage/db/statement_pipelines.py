"""Write transactions in as few round trips as they have decisions: independent statements are sent together.

All rows of a statement are sent as one JSON parameter, so each statement is prepared once for any number of rows. `{rows}`
in its SQL becomes each database's way to read JSON as a table (`json_to_recordset`, `JSON_TABLE`, `json_each`). All other
differences between the three databases are handled here, too.

The connection (`moorage.db.driver_connections`) is never pinged; a dead one is noticed by its error, and if that is the
first statement of a transaction, the transaction begins again on a new connection.
"""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol, Self

import orjson
from sqlalchemy import Engine, event

from moorage.core import blocking_hook
from moorage.core.errors import Unavailable
from moorage.db.driver_connections import DatabaseDriver, MariadbLink, PostgresqlLink, Rows, SqliteLink
from moorage.db.engine import dialect_name, is_in_process
from moorage.db.timeouts import OUTCOME_UNKNOWN, connection_has_ended

#: {column: value} with values of `TYPES`; None is NULL.
Row = Mapping[str, object]

#: The column types of a parameter, by their names in `Statement`, in each database. `time` is the result of `moment`.
TYPES: Mapping[str, Mapping[str, str]] = {
    "postgresql": {"int": "bigint", "float": "float8", "text": "text", "time": "timestamp"},
    "mariadb": {"int": "bigint", "float": "double", "text": "longtext", "time": "datetime(6)"},
    "sqlite": {"int": "", "float": "", "text": "", "time": ""},
}

_numbers = itertools.count()

#: SQLSTATEs by which a statement signals that its precondition failed: division by zero, a signal.
_PRECONDITION_SQLSTATES = {"22012", "45000"}


class PreconditionFailed(Exception):
    """A statement of the batch found its precondition violated; nothing was written."""


def _raise(error: Exception) -> NoReturn:
    raise error


class Statement:
    """SQL in which ``{rows}`` stands for the rows of the parameter, as a table named `v` with these columns.

    `words` is the SQL, or {database: its SQL}; `returns_rows`: the statement returns rows.
    """

    def __init__(
        self, words: str | Mapping[str, str], columns: Mapping[str, str] | None = None, *, returns_rows: bool = False
    ) -> None:
        self.name = f"batch_{next(_numbers)}".encode()
        self.returns_rows = returns_rows
        self._sql = words
        self._columns = columns or {}
        self._worded: dict[str, str] = {}

    def sql_for(self, database: str) -> str:
        if database not in self._worded:
            words = self._sql if isinstance(self._sql, str) else self._sql[database]
            self._worded[database] = words.replace("{rows}", _ROWS[database](self._columns, TYPES[database]))
        return self._worded[database]


def insert(table: str, columns: Mapping[str, str], *, returning: str = "") -> Statement:
    names = ", ".join(columns)
    values = ", ".join(f"v.{name}" for name in columns)
    tail = f" RETURNING {returning}" if returning else ""
    words = f"INSERT INTO {table} ({names}) SELECT {values} FROM {{rows}} WHERE true{tail}"
    return Statement(words, columns, returns_rows=bool(returning))


def update(table: str, keys: Mapping[str, str], changed: Mapping[str, str]) -> Statement:
    here = " AND ".join(f"{table}.{key} = v.{key}" for key in keys)
    values = ", ".join(f"{name} = v.{name}" for name in changed)
    joined = f"UPDATE {table} JOIN {{rows}} ON {here} SET " + ", ".join(f"{table}.{n} = v.{n}" for n in changed)
    from_rows = f"UPDATE {table} SET {values} FROM {{rows}} WHERE {here}"
    return Statement({"postgresql": from_rows, "sqlite": from_rows, "mariadb": joined}, {**keys, **changed})


def delete(table: str, keys: Mapping[str, str]) -> Statement:
    here = " AND ".join(f"{table}.{key} = v.{key}" for key in keys)
    names, values = ", ".join(keys), ", ".join(f"v.{key}" for key in keys)
    words = {
        "postgresql": f"DELETE FROM {table} USING {{rows}} WHERE {here}",
        "sqlite": f"DELETE FROM {table} WHERE ({names}) IN (SELECT {values} FROM {{rows}})",
        "mariadb": f"DELETE {table} FROM {table} JOIN {{rows}} ON {here}",
    }
    return Statement(words, keys)


def _postgresql_rows(columns: Mapping[str, str], types: Mapping[str, str]) -> str:
    return f"json_to_recordset($1::json) AS v({', '.join(f'{name} {types[kind]}' for name, kind in columns.items())})"


def _mariadb_rows(columns: Mapping[str, str], types: Mapping[str, str]) -> str:
    listed = ", ".join(f"{name} {types[kind]} PATH '$.{name}'" for name, kind in columns.items())
    return f"JSON_TABLE(%s, '$[*]' COLUMNS ({listed})) AS v"


def _sqlite_rows(columns: Mapping[str, str], _types: Mapping[str, str]) -> str:
    listed = ", ".join(f"value ->> '$.{name}' AS {name}" for name in columns)
    return f"(SELECT {listed} FROM json_each(?)) AS v"


_ROWS: Mapping[str, Callable[[Mapping[str, str], Mapping[str, str]], str]] = {
    "postgresql": _postgresql_rows,
    "mariadb": _mariadb_rows,
    "sqlite": _sqlite_rows,
}

#: A statement and its rows; None for a statement without a parameter.
Command = tuple[Statement, Sequence[Row] | None]


class StatementPipeline:
    """The connection for write transactions, used by one thread at a time."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._driver = DatabaseDriver(engine)
        self._open_link = _LINKS[dialect_name(engine)]
        self._link: _Link | None = None
        event.listen(engine, "engine_disposed", lambda _: self.close())

    def transaction(self) -> "PipelinedTransaction":
        """A transaction, as a context manager that rolls back unless committed. Raises as `moorage.db.transactions`."""
        return PipelinedTransaction(self)

    @property
    def is_far(self) -> bool:
        """Whether a round trip costs anything: the database is in another process."""
        return not is_in_process(self._engine)

    @property
    def is_open(self) -> bool:
        """Whether there is a connection that the server is not known to have closed."""
        return self._link is not None and not self._link.has_ended()

    def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def run(self, commands: Sequence[Command], *, begin: bool, commit: bool) -> list[Rows]:
        """The rows that each command returns. After any error except `PreconditionFailed`, the connection is closed."""
        return self.start(commands, begin=begin, commit=commit)()

    def start(self, commands: Sequence[Command], *, begin: bool, commit: bool) -> Callable[[], list[Rows]]:
        """`run` in two parts: sends the commands, and returns a function that waits for the results, in any thread, and
        raises all errors of the database. Run nothing else before that function has been called.
        """
        sent = [(statement, None if rows is None else orjson.dumps(rows)) for statement, rows in commands]
        # Do not retry a batch with a commit, which may have been carried out.
        again = begin and not commit and self._link is not None
        if begin and self._link is not None and self._link.has_ended():
            self.close()
        link = self._linked()
        try:
            answers = link.start(sent, begin=begin, commit=commit)
        except self._driver.errors as error:
            answers = functools.partial(_raise, error)

        def finish() -> list[Rows]:
            try:
                return answers()
            except self._driver.errors as error:
                if getattr(error, "sqlstate", None) in _PRECONDITION_SQLSTATES:
                    raise PreconditionFailed from error
                lost = self._driver.is_lost(link.driver_connection, error)
                self.close()
                if lost and commit:
                    raise Unavailable(OUTCOME_UNKNOWN) from error
                if not (lost and again):
                    raise self._driver.translated(self._sql_of(commands), error, lost=lost) from error
            return self.run(commands, begin=begin, commit=commit)

        return finish

    def _linked(self) -> "_Link":
        if self._link is None:
            self._link = self._driver.connect(self._open_link)
        return self._link

    def roll_back(self) -> None:
        if self._link is not None:
            try:
                self._link.roll_back()
            except self._driver.errors:
                self.close()

    def _sql_of(self, commands: Sequence[Command]) -> str:
        return "; ".join(statement.sql_for(dialect_name(self._engine)) for statement, _ in commands)


class PipelinedTransaction:
    """A transaction of a `StatementPipeline`. `send` and `commit` return the rows of each command.

    Pass commands whose results are not needed earlier to `commit`. A command with an empty list of rows is not sent.
    """

    def __init__(self, batches: StatementPipeline) -> None:
        self._batches = batches
        self._has_begun = False
        self.is_open = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.is_open:
            self._batches.roll_back()

    def send(self, *commands: Command) -> list[Rows]:
        return self._start(commands, commit=False)()

    def commit(self, *commands: Command) -> list[Rows]:
        return self.start_commit(*commands)()

    def start_commit(self, *commands: Command) -> Callable[[], list[Rows]]:
        """As `commit`, in the two parts of `Batches.start`."""
        finish = self._start(commands, commit=True)

        def committed() -> list[Rows]:
            answers = finish()
            self.is_open = False
            return answers

        return committed

    def _start(self, commands: Sequence[Command], *, commit: bool) -> Callable[[], list[Rows]]:
        begin, self._has_begun, self.is_open = not self._has_begun, True, True
        useful = [command for command in commands if command[1] or command[1] is None]
        finish = self._batches.start(useful, begin=begin, commit=commit)

        def finished() -> list[Rows]:
            answers = iter(finish())
            return [next(answers) if rows or rows is None else () for _, rows in commands]

        return finished


_Sent = Sequence[tuple[Statement, bytes | None]]


class _Link(Protocol):
    """One connection. Errors are the driver's."""

    driver_connection: Any

    def start(self, sent: _Sent, *, begin: bool, commit: bool) -> Callable[[], list[Rows]]:
        """Send the commands, if that does not block; returns a function that waits for the results."""
        ...

    def has_ended(self) -> bool:
        """Whether the server closed the connection while it was idle."""
        ...

    def roll_back(self) -> None: ...

    def close(self) -> None: ...


class _PostgresqlLink(PostgresqlLink):
    """Uses pipeline mode, for one round trip. A transaction that begins and commits within one pipeline uses the pipeline's
    implicit transaction, which saves two messages.
    """

    def __init__(self, connection: Any) -> None:
        super().__init__(connection)
        self.plan_for_full_tables()

    def start(self, sent: _Sent, *, begin: bool, commit: bool) -> Callable[[], list[Rows]]:
        pg = self._pg
        if begin:
            self.replan_now_and_then()
        for statement, _ in sent:
            self._prepare(statement.name, statement.sql_for("postgresql").encode())
        pg.enter_pipeline_mode()
        if begin and not commit:
            pg.send_query_params(b"BEGIN", None)
        for statement, parameter in sent:
            pg.send_query_prepared(statement.name, None if parameter is None else [parameter])
        if commit and not begin:
            pg.send_query_params(b"COMMIT", None)
        pg.pipeline_sync()
        self._answers.flush()
        return functools.partial(self._finish, sent, begin=begin, commit=commit)

    def _finish(self, sent: _Sent, *, begin: bool, commit: bool) -> list[Rows]:
        results = [self._result() for _ in range(len(sent) + (begin != commit))]
        end = self._answers.next()
        if end.status != self._pq.ExecStatus.PIPELINE_SYNC:
            raise self._error_of(end)  # an error that only the commit detects
        self._pg.exit_pipeline_mode()
        for result in results:
            self._checked(result)
        first = begin and not commit
        return [
            self._rows(result) if statement.returns_rows else []
            for (statement, _), result in zip(sent, results[first : first + len(sent)], strict=True)
        ]

    def has_ended(self) -> bool:
        return self.driver_connection.closed or connection_has_ended(self._pg.socket)

    def roll_back(self) -> None:
        if self._pg.pipeline_status != self._pq.PipelineStatus.OFF:
            self.close()  # results are still outstanding
            return
        if self._pg.transaction_status == self._pq.TransactionStatus.IDLE:
            return  # an implicit transaction ended with its pipeline
        # Not through psycopg, which answers a ROLLBACK with DEALLOCATE ALL.
        self._pg.send_query_params(b"ROLLBACK", None)
        self._answers.flush()
        if self._result().status != self._pq.ExecStatus.COMMAND_OK:
            self.close()


class _MariadbLink(MariadbLink):
    def start(self, sent: _Sent, *, begin: bool, commit: bool) -> Callable[[], list[Rows]]:
        return functools.partial(self._run, sent, begin=begin, commit=commit)

    def _run(self, sent: _Sent, *, begin: bool, commit: bool) -> list[Rows]:
        """Run one compound statement, in one round trip, with a result set for each statement that returns rows."""
        words = [statement.sql_for("mariadb") for statement, _ in sent]
        block = [*(["START TRANSACTION"] if begin else []), *words, *(["COMMIT"] if commit else [])]
        parameters = tuple(parameter.decode() for _, parameter in sent if parameter is not None)
        self._cursor.execute(f"BEGIN NOT ATOMIC {'; '.join(block)}; END", parameters)
        answers = [self._answer() if statement.returns_rows else () for statement, _ in sent]
        while self._cursor.nextset():
            pass
        return answers

    def _answer(self) -> Rows:
        rows: Rows = self._cursor.fetchall()
        self._cursor.nextset()
        return rows

    def has_ended(self) -> bool:
        connection = self.driver_connection
        return not connection.open or connection_has_ended(connection._sock.fileno())  # noqa: SLF001 - PyMySQL does not publish its socket

    def roll_back(self) -> None:
        self.driver_connection.rollback()


class _SqliteLink(SqliteLink):
    def start(self, sent: _Sent, *, begin: bool, commit: bool) -> Callable[[], list[Rows]]:
        return functools.partial(self._run, sent, begin=begin, commit=commit)

    def _run(self, sent: _Sent, *, begin: bool, commit: bool) -> list[Rows]:
        blocking_hook.about_to_block()  # for other writers, and for the disk
        if begin:
            self.driver_connection.execute("BEGIN IMMEDIATE")
        answers = [self._run_one(statement, parameter) for statement, parameter in sent]
        if commit:
            self.driver_connection.execute("COMMIT")
        return answers

    def _run_one(self, statement: Statement, parameter: bytes | None) -> Rows:
        words = statement.sql_for("sqlite")
        parameters = () if parameter is None else (parameter.decode(),)
        rows: Rows = self.driver_connection.execute(words, parameters).fetchall()
        return rows

    def has_ended(self) -> bool:
        return False

    def roll_back(self) -> None:
        self.driver_connection.execute("ROLLBACK")


_LINKS: dict[str, Callable[[Any], _Link]] = {
    "postgresql": _PostgresqlLink,
    "mariadb": _MariadbLink,
    "sqlite": _SqliteLink,
}
