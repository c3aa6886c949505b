"""A writing transaction in as few round trips as it has decisions: statements that wait for nothing are sent together.

The rows of a statement travel as one JSON parameter, however many they are: so each statement is prepared once, and
`{rows}` in its words becomes what each database has to read JSON as a table (`json_to_recordset`, `JSON_TABLE`,
`json_each`). Whatever else differs between the three databases is here, too.

The connection is of its own, as in `moorage.db.questions`: out of the pool, never pinged; a dead one is noticed by
its error, and where that is the first statement of a transaction, it is begun again on a new connection.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

import orjson
from sqlalchemy import Engine, event
from sqlalchemy.exc import DBAPIError

from moorage.core.errors import Unavailable
from moorage.db.bounds import OUTCOME_UNKNOWN, Answers, has_ended
from moorage.db.engine import dialect_name
from moorage.db.transactions import translate, translated

#: {column: value} with values of `TYPES`; None is NULL.
Row = Mapping[str, object]
Answer = Sequence[tuple[Any, ...]]

#: How columns of a parameter are called in `Statement`, and their types in each database. `time` is what `moment` gives.
TYPES: Mapping[str, Mapping[str, str]] = {
    "postgresql": {"int": "bigint", "float": "float8", "text": "text", "time": "timestamp"},
    "mariadb": {"int": "bigint", "float": "double", "text": "longtext", "time": "datetime(6)"},
    "sqlite": {"int": "", "float": "", "text": "", "time": ""},
}

_numbers = itertools.count()

#: SQLSTATEs with which a statement says that it has found something otherwise than expected: division by zero, a signal.
_OTHERWISE = {"22012", "45000"}


class FoundOtherwise(Exception):
    """What a statement of the batch checks is not so; nothing was written."""


class Statement:
    """SQL in which ``{rows}`` stands for the rows of the parameter, as a table named `v` with these columns.

    `words` is the same for all databases, or {database: its own}; `answers`: rows come back.
    """

    def __init__(
        self, words: str | Mapping[str, str], columns: Mapping[str, str] | None = None, *, answers: bool = False
    ) -> None:
        self.name = f"batch_{next(_numbers)}".encode()
        self.answers = answers
        self._words = words
        self._columns = columns or {}
        self._worded: dict[str, str] = {}

    def words(self, database: str) -> str:
        if database not in self._worded:
            words = self._words if isinstance(self._words, str) else self._words[database]
            self._worded[database] = words.replace("{rows}", _ROWS[database](self._columns, TYPES[database]))
        return self._worded[database]


def insert(table: str, columns: Mapping[str, str], *, returning: str = "") -> Statement:
    names = ", ".join(columns)
    values = ", ".join(f"v.{name}" for name in columns)
    tail = f" RETURNING {returning}" if returning else ""
    words = f"INSERT INTO {table} ({names}) SELECT {values} FROM {{rows}} WHERE true{tail}"
    return Statement(words, columns, answers=bool(returning))


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

#: A statement and its rows; None where it has no parameter.
Command = tuple[Statement, Sequence[Row] | None]


class Batches:
    """The connection on which one thread at a time writes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._errors: type[Exception] = engine.dialect.loaded_dbapi.Error
        self._open_link = _LINKS[dialect_name(engine)]
        self._link: _Link | None = None
        event.listen(engine, "engine_disposed", lambda _: self.close())

    @contextmanager
    def transaction(self) -> Iterator["Transaction"]:
        """Rolled back where it was not committed. Raises what `moorage.db.transactions` raises."""
        transaction = Transaction(self)
        try:
            yield transaction
        finally:
            if transaction.is_open:
                self._roll_back()

    @property
    def is_far(self) -> bool:
        """Does a round trip cost anything?"""
        return dialect_name(self._engine) != "sqlite"

    def close(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def run(self, commands: Sequence[Command], *, begin: bool, commit: bool) -> list[Answer]:
        """The rows of each command's answer. After any error but `FoundOtherwise` the connection is given up."""
        sent = [(statement, None if rows is None else orjson.dumps(rows)) for statement, rows in commands]
        # Never with its commit in it: that may have been carried out.
        again = begin and not commit and self._link is not None
        if begin and self._link is not None and self._link.has_ended():
            self.close()
        try:
            return self._linked().run(sent, begin=begin, commit=commit)
        except self._errors as error:
            if getattr(error, "sqlstate", None) in _OTHERWISE:
                raise FoundOtherwise from error
            lost = self._link is not None and self._is_lost(self._link, error)
            self.close()
            if lost and commit:
                raise Unavailable(OUTCOME_UNKNOWN) from error
            if not (lost and again):
                raise self._translated(commands, error, lost=lost) from error
        return self.run(commands, begin=begin, commit=commit)

    def _linked(self) -> "_Link":
        if self._link is None:
            with translated():
                connection = self._engine.connect()
                connection.detach()
            self._link = self._open_link(connection.connection.dbapi_connection)
        return self._link

    def _roll_back(self) -> None:
        if self._link is not None:
            try:
                self._link.roll_back()
            except self._errors:
                self.close()

    def _is_lost(self, link: "_Link", error: Any) -> bool:
        return self._engine.dialect.is_disconnect(error, link.driver_connection, None)

    def _translated(self, commands: Sequence[Command], error: Exception, *, lost: bool) -> Exception:
        """As SQLAlchemy would have wrapped it, and then as the house does."""
        texts = "; ".join(statement.words(dialect_name(self._engine)) for statement, _ in commands)
        dialect = self._engine.dialect
        wrapped = DBAPIError.instance(texts, None, error, self._errors, connection_invalidated=lost, dialect=dialect)
        return (translate(wrapped) if isinstance(wrapped, DBAPIError) else None) or wrapped


class Transaction:
    """`send` and `commit` answer the rows of each command; what need not be known before the end goes with `commit`.

    A command of no rows is not sent: it would do nothing.
    """

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._has_begun = False
        self.is_open = False

    def send(self, *commands: Command) -> list[Answer]:
        return self._run(commands, commit=False)

    def commit(self, *commands: Command) -> list[Answer]:
        answers = self._run(commands, commit=True)
        self.is_open = False
        return answers

    def _run(self, commands: Sequence[Command], *, commit: bool) -> list[Answer]:
        begin, self._has_begun, self.is_open = not self._has_begun, True, True
        useful = [command for command in commands if command[1] or command[1] is None]
        answers = iter(self._batches.run(useful, begin=begin, commit=commit))
        return [next(answers) if rows or rows is None else () for _, rows in commands]


_Sent = Sequence[tuple[Statement, bytes | None]]


class _Link(Protocol):
    """One connection. Errors are the driver's."""

    driver_connection: Any

    def run(self, sent: _Sent, *, begin: bool, commit: bool) -> list[Answer]: ...

    def has_ended(self) -> bool:
        """Whether the server has ended it, while nobody used it."""
        ...

    def roll_back(self) -> None: ...

    def close(self) -> None: ...


class _PostgresqlLink:
    """libpq's own calls, in its pipeline mode: one round trip, and a sixth of what psycopg's pipeline costs (measured)."""

    #: A plan is made once, perhaps on empty tables: it must be the one that is right for full ones. All our statements
    #: go from a few rows to their neighbours by an index. Who hangs with the number taken is thrown out.
    _SETTINGS = (
        *(f"enable_{method} = off" for method in ("seqscan", "hashjoin", "mergejoin", "bitmapscan")),
        "jit = off",
        "plan_cache_mode = force_generic_plan",
        "idle_in_transaction_session_timeout = '60s'",
    )

    def __init__(self, connection: Any) -> None:
        from psycopg import errors, pq
        from psycopg.adapt import Transformer

        self.driver_connection = connection
        connection.autocommit = True
        for setting in self._SETTINGS:
            connection.execute(f"SET {setting}")
        self._pg = connection.pgconn
        self._pq = pq
        self._answers = Answers(connection)
        self._prepared: set[bytes] = set()
        self._transformer = Transformer(connection)
        self._error_of = errors.error_from_result

    def run(self, sent: _Sent, *, begin: bool, commit: bool) -> list[Answer]:
        for statement, _ in sent:
            self._prepare(statement)
        self._pg.enter_pipeline_mode()
        if begin:
            self._pg.send_query_params(b"BEGIN ISOLATION LEVEL READ COMMITTED", None)
        for statement, parameter in sent:
            self._pg.send_query_prepared(statement.name, None if parameter is None else [parameter])
        if commit:
            self._pg.send_query_params(b"COMMIT", None)
        self._pg.pipeline_sync()
        self._answers.flush()
        results = [self._result() for _ in range(begin + len(sent) + commit)]
        self._answers.next()  # the end of the pipeline
        self._pg.exit_pipeline_mode()
        for result in results:
            if result.status == self._pq.ExecStatus.FATAL_ERROR:
                raise self._error_of(result)
        return [self._rows(result) for result in results[begin : begin + len(sent)]]

    def _result(self) -> Any:
        result = self._answers.next()
        if self._pg.status == self._pq.ConnStatus.BAD:
            raise self._error_of(result)
        self._answers.next()  # None: the end of this one
        return result

    def _rows(self, result: Any) -> Answer:
        if not result.ntuples:
            return ()
        self._transformer.set_pgresult(result)
        rows: Answer = self._transformer.load_rows(0, result.ntuples, tuple)
        return rows

    def _prepare(self, statement: Statement) -> None:
        if statement.name in self._prepared:
            return
        self._pg.send_prepare(statement.name, statement.words("postgresql").encode())
        self._answers.flush()
        result = self._result()
        if result.status != self._pq.ExecStatus.COMMAND_OK:
            raise self._error_of(result)
        self._prepared.add(statement.name)

    def has_ended(self) -> bool:
        return self.driver_connection.closed or has_ended(self._pg.socket)

    def roll_back(self) -> None:
        # Not through psycopg, which answers a ROLLBACK with DEALLOCATE ALL.
        self._pg.send_query_params(b"ROLLBACK", None)
        self._answers.flush()
        if self._result().status != self._pq.ExecStatus.COMMAND_OK:
            self.close()

    def close(self) -> None:
        self.driver_connection.close()


class _MariadbLink:
    def __init__(self, connection: Any) -> None:
        self.driver_connection = connection
        connection.autocommit(True)
        self._cursor = connection.cursor()

    def run(self, sent: _Sent, *, begin: bool, commit: bool) -> list[Answer]:
        """One compound statement: one round trip, a result set for each statement in it that answers rows."""
        words = [statement.words("mariadb") for statement, _ in sent]
        block = [*(["START TRANSACTION"] if begin else []), *words, *(["COMMIT"] if commit else [])]
        parameters = tuple(parameter.decode() for _, parameter in sent if parameter is not None)
        self._cursor.execute(f"BEGIN NOT ATOMIC {'; '.join(block)}; END", parameters)
        answers = [self._answer() if statement.answers else () for statement, _ in sent]
        while self._cursor.nextset():
            pass
        return answers

    def _answer(self) -> Answer:
        rows: Answer = self._cursor.fetchall()
        self._cursor.nextset()
        return rows

    def has_ended(self) -> bool:
        connection = self.driver_connection
        return not connection.open or has_ended(connection._sock.fileno())  # noqa: SLF001 - shown nowhere else

    def roll_back(self) -> None:
        self.driver_connection.rollback()

    def close(self) -> None:
        with suppress(Exception):  # PyMySQL raises various things for a connection that is gone already
            self.driver_connection.close()


class _SqliteLink:
    def __init__(self, connection: Any) -> None:
        self.driver_connection = connection

    def run(self, sent: _Sent, *, begin: bool, commit: bool) -> list[Answer]:
        if begin:
            self.driver_connection.execute("BEGIN IMMEDIATE")
        answers = [self._run_one(statement, parameter) for statement, parameter in sent]
        if commit:
            self.driver_connection.execute("COMMIT")
        return answers

    def _run_one(self, statement: Statement, parameter: bytes | None) -> Answer:
        words = statement.words("sqlite")
        parameters = () if parameter is None else (parameter.decode(),)
        rows: Answer = self.driver_connection.execute(words, parameters).fetchall()
        return rows

    def has_ended(self) -> bool:
        return False

    def roll_back(self) -> None:
        self.driver_connection.execute("ROLLBACK")

    def close(self) -> None:
        self.driver_connection.close()


_LINKS: dict[str, Callable[[Any], _Link]] = {
    "postgresql": _PostgresqlLink,
    "mariadb": _MariadbLink,
    "sqlite": _SqliteLink,
}
