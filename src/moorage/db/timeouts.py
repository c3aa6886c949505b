"""Timeouts for databases: for connecting, for an answer, and for another transaction's lock.

A database that is down refuses connections at once; one that hangs (a stopped process, a dead line, a full journal)
does not answer, and a client without a timeout waits forever. A statement may take long although its server is well;
so a connection that waits for an answer asks the server after a second whether it still opens connections, and gives
up only if it does not (`ServerCheck`). The timeout for locks is shorter and is kept by the database itself, so that a
statement that we gave up is not executed later. SQLite has no server; its busy timeout is its bound.
"""

import functools
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, NullPool, create_engine, event
from sqlalchemy.engine.interfaces import ExceptionContext

from moorage.core.errors import Unavailable
from moorage.db.database_hosts import HUNG_S, Host, HostOrder, hosts_of, is_unwritable, require_writable_mariadb
from moorage.db.server_check import AnswerWait, ServerCheck

CONNECT_TIMEOUT_S = 5
#: The same if the URL has several hosts, of which another one may answer.
CONNECT_TIMEOUT_OF_SEVERAL_S = 3
#: A connection without an answer for this long during a statement is closed.
ANSWER_TIMEOUT_S = 15
#: Timeout for a row that another transaction has locked; also the time that SQLite's writers wait for each other.
LOCK_TIMEOUT_S = 10
#: The server ends a transaction whose client is idle for this long: it hangs, is suspended or cut off, and others wait
#: for its rows. Less than the time in which others take over its claims (`moorage.jobs.worker_watch`). MariaDB applies
#: it once the transaction has written something.
IDLE_WRITE_TIMEOUT_S = 3
#: The same for transactions that only read, and for migrations: they may compute for a while between two statements.
IDLE_READ_TIMEOUT_S = 60
#: PostgreSQL has one setting for both kinds, which this statement changes for one transaction.
LONG_READ = f"SET LOCAL idle_in_transaction_session_timeout = '{IDLE_READ_TIMEOUT_S}s'"

#: After a failed connect that took at least `HUNG_S`, other connects fail at once for this long.
RETRY_AFTER_S = 1.0

#: A MariaDB connection that answered within this time is taken to be alive; otherwise it is asked, which is a round
#: trip.
PING_AFTER_S = 0.5


def connect_arguments(backend: str) -> dict[str, object]:
    """The value of `create_engine`'s ``connect_args``."""
    if backend == "postgresql":
        return {"connect_timeout": CONNECT_TIMEOUT_S}
    return {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "read_timeout": ANSWER_TIMEOUT_S,
        "write_timeout": ANSWER_TIMEOUT_S,
        # MySQL does not have the last setting and reads it as a comment.
        "init_command": f"SET SESSION innodb_lock_wait_timeout={LOCK_TIMEOUT_S}, lock_wait_timeout={LOCK_TIMEOUT_S} "
        f"/*M!100300 , idle_transaction_timeout={IDLE_READ_TIMEOUT_S}, "
        f"idle_write_transaction_timeout={IDLE_WRITE_TIMEOUT_S} */",
    }


def set_timeouts(engine: Engine) -> None:
    """Apply the timeouts to every connection that `engine` opens from now on, and try the hosts of its URL in turn.

    A connection whose server can no longer be written to is dropped, and so are the idle ones.
    """
    gate = _ConnectGate(engine.dispose)
    order = HostOrder(hosts_of(engine.url))
    connect_to = _connect_postgresql if engine.dialect.name == "postgresql" else _connect_mariadb
    errors = engine.dialect.loaded_dbapi.Error
    checks: dict[Host | None, ServerCheck] = {}

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: Any, _record: object, _given: object, named: dict[str, Any]) -> Any:
        connect = functools.partial(connect_to, named)
        connection, host = gate.pass_through(lambda: order.connect(connect, errors))

        def report_no_answer() -> None:
            gate.shut()
            if host is not None:
                order.leave_out(host)

        connection.report_no_answer = report_no_answer
        connection.server_check = checks.setdefault(host, ServerCheck(functools.partial(connect, host), errors))
        return connection

    @event.listens_for(engine, "handle_error")
    def _drop(context: ExceptionContext) -> None:
        if is_unwritable(context.original_exception):
            context.is_disconnect = True
            engine.dispose()


def _connect_postgresql(arguments: dict[str, Any], host: Host | None) -> Any:
    """`host`: one of several, which must accept writes; None: the host in `arguments`."""
    if host is not None:
        arguments = {
            **arguments,
            "host": host[0],
            "port": host[1],
            "target_session_attrs": "read-write",
            "connect_timeout": _connect_timeout_s(host),
        }
    return _bounded_postgresql()(**arguments)


def _connect_mariadb(arguments: dict[str, Any], host: Host | None) -> Any:
    """As `_connect_postgresql`."""
    from pymysql.err import OperationalError

    # PyMySQL's own timeout ends when the kernel of the server has accepted the connection.
    timeout_s = _connect_timeout_s(host)
    arguments = {**arguments, "connect_timeout": timeout_s}
    if host is not None:
        arguments |= {"host": host[0], "port": host[1] or 0}
    connection = _bounded_mariadb()(**{**arguments, "read_timeout": timeout_s})
    try:
        if host is not None:
            require_writable_mariadb(connection, OperationalError)
    except Exception:  # the pool closes a connection only if it gets one
        connection.close()
        raise
    connection.set_answer_timeout(arguments["read_timeout"])
    return connection


def _connect_timeout_s(host: Host | None) -> int:
    return CONNECT_TIMEOUT_S if host is None else min(CONNECT_TIMEOUT_S, CONNECT_TIMEOUT_OF_SEVERAL_S)


class _ConnectGate:
    """Lets only one thread at a time try to connect to a hanging database, since each attempt costs seconds.

    `forget` drops idle connections, each of which would cost its next user the same time.
    """

    def __init__(self, forget: Callable[[], object]) -> None:
        self._forget = forget
        self._lock = threading.Lock()
        self._hung_until = 0.0
        self._connected_at = float("-inf")
        self._somebody_tries = False
        self._is_hung = False

    def pass_through(self, connect: Callable[[], Any]) -> Any:
        began = time.monotonic()
        with self._lock:
            if self._is_hung and (self._somebody_tries or began < self._hung_until):
                raise Unavailable(NO_ANSWER)
            self._somebody_tries = self._is_hung
        hangs = is_connected = False
        try:
            connection = connect()
            is_connected = True
        except Exception:  # raised again: for any error, only its duration counts
            hangs = time.monotonic() - began >= HUNG_S
            raise
        else:
            return connection
        finally:
            with self._lock:
                if is_connected:
                    self._connected_at = time.monotonic()
                # A connect that began before another one succeeded, and failed after it, says nothing about the
                # present.
                self._is_hung, self._somebody_tries = hangs and began >= self._connected_at, False
                self._hung_until = time.monotonic() + RETRY_AFTER_S

    def shut(self) -> None:
        """Records that a connection waited for an answer and got none."""
        with self._lock:
            self._is_hung = True
            self._hung_until = time.monotonic() + RETRY_AFTER_S
        self._forget()


NO_ANSWER = "the database does not answer; the request can be repeated when it is back"
#: For a database that was lost between our COMMIT and its answer.
OUTCOME_UNKNOWN = (
    "the database does not answer; it was lost during the commit, so the request was carried out completely or not at "
    "all: read the present state before you repeat it"
)


@functools.cache
def _bounded_postgresql() -> Callable[..., Any]:
    """Opens psycopg connections with a timeout for every wait. psycopg is an extra, so it is imported here."""
    import psycopg
    from psycopg.pq import TransactionStatus

    class BoundedConnection(psycopg.Connection[Any]):
        #: None: no timeout.
        answer_timeout_s: float | None = ANSWER_TIMEOUT_S
        report_no_answer: Callable[[], None] | None = None  #: once it is connected
        server_check: ServerCheck | None = None  #: once it is connected

        def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
            if timeout is None and self.answer_timeout_s is not None:
                timeout, gen = self.answer_timeout_s, _checking(self, gen, psycopg.OperationalError)
            try:
                return super().wait(gen, interval, timeout)
            except psycopg.OperationalError:
                if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                    self.give_up()
                raise

        def give_up(self) -> None:
            """Close the connection, because a late answer could not be matched to a statement."""
            self.close()
            if self.report_no_answer is not None:
                self.report_no_answer()

        def has_ended(self) -> bool:
            """Whether the server has closed the idle connection, which makes its socket readable. Costs a microsecond
            and no round trip. A server that vanished silently is only detected by a timeout.
            """
            if self.closed:
                return True
            poll = select.poll()
            poll.register(self.pgconn.socket, select.POLLIN)
            return bool(poll.poll(0))

    def connect(*given: Any, **named: Any) -> Any:
        connection = BoundedConnection.connect(*given, **named)
        connection.autocommit = True
        connection.execute(
            f"SET lock_timeout = '{LOCK_TIMEOUT_S}s'; "
            f"SET idle_in_transaction_session_timeout = '{IDLE_WRITE_TIMEOUT_S}s'; "
            "SET default_transaction_isolation = 'read committed'"
        )
        connection.autocommit = False
        return connection

    return connect


def _checking(connection: Any, gen: Any, gone: type[Exception]) -> Any:
    """Psycopg's generator `gen` for `connection`, which raises `gone` if the server does not live."""
    try:
        wanted, waiting = next(gen), None
        while True:
            ready = yield wanted
            if not ready:  # after each interval without an answer
                waiting = waiting or AnswerWait(connection.pgconn.socket, connection.server_check)
                if waiting.is_hopeless():
                    raise gone(NO_ANSWER)
            wanted = gen.send(ready)
    except StopIteration as end:
        return end.value


class _MariadbWaits:
    """The part of a bounded PyMySQL connection that needs no driver."""

    report_no_answer: Callable[[], None] | None = None  #: once it is connected
    server_check: ServerCheck | None = None  #: once it is connected
    _answered_at = float("-inf")

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Enter it around each call that waits for the server. Reports a timeout."""
        began = time.monotonic()
        try:
            yield
        except Exception:  # raised again: for any error, only its duration counts
            if self.report_no_answer is not None and time.monotonic() - began >= ANSWER_TIMEOUT_S:
                self.report_no_answer()
            raise
        self._answered_at = time.monotonic()

    def is_answered(self, socket: Any, timeout_s: float | None) -> bool:
        """Waits for an answer to what was sent; False if the server does not live. Reports that."""
        if timeout_s is None or self.server_check is None:
            return True
        is_answered = AnswerWait(socket.fileno(), self.server_check).wait(timeout_s)
        if not is_answered and self.report_no_answer is not None:
            self.report_no_answer()
        return is_answered

    def has_answered_lately(self) -> bool:
        return time.monotonic() - self._answered_at < PING_AFTER_S


@functools.cache
def _bounded_mariadb() -> Callable[..., Any]:
    """Opens PyMySQL connections that report a timeout. The timeouts are set by `connect_arguments`."""
    import pymysql
    from pymysql.constants import CR

    # PyMySQL has no type hints.
    class BoundedConnection(_MariadbWaits, pymysql.connections.Connection):  # type: ignore[misc]
        def set_answer_timeout(self, timeout_s: float | None) -> None:
            self._read_timeout = timeout_s

        def _execute_command(self, command: int, sql: Any) -> None:
            """Sends any command. Nothing can be read until the server has carried it out or hung up."""
            super()._execute_command(command, sql)
            if not self.is_answered(self._sock, self._read_timeout):
                self._force_close()
                raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, NO_ANSWER)

        def commit(self) -> None:
            with self.waiting():
                super().commit()

        def rollback(self) -> None:
            with self.waiting():
                super().rollback()

        def ping(self, reconnect: bool = False) -> None:
            with self.waiting():
                super().ping(reconnect)

        def has_ended(self) -> bool:
            """Whether the server has closed the connection. Asks the server unless it has answered lately."""
            if self.open and self.has_answered_lately():
                return False
            try:
                self.ping()
            except pymysql.err.Error:
                return True
            return False

    class BoundedCursor(pymysql.cursors.Cursor):  # type: ignore[misc]  # PyMySQL has no type hints
        def execute(self, query: str, args: Any = None) -> int:
            with self.connection.waiting():
                written: int = super().execute(query, args)
            return written

        def nextset(self) -> bool | None:
            with self.connection.waiting():
                more: bool | None = super().nextset()
            return more

    return functools.partial(BoundedConnection, cursorclass=BoundedCursor)


class PostgresqlResults:
    """Waits for results of direct libpq calls, with the timeout and without holding the interpreter's lock.

    Raises psycopg's errors; a connection that times out is closed.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._pg = connection.pgconn

    def flush(self) -> None:
        """Wait until everything is sent."""
        while self._pg.flush():
            self._wait(select.POLLIN | select.POLLOUT)

    def next(self) -> Any:
        """The next result; None at the end of each."""
        while self._pg.is_busy():
            self._wait(select.POLLIN)
        return self._pg.get_result()

    def _wait(self, for_what: int) -> None:
        waiting = AnswerWait(self._pg.socket, self._connection.server_check, for_what)
        if not waiting.wait(ANSWER_TIMEOUT_S):
            from psycopg import OperationalError

            self._connection.give_up()
            raise OperationalError(NO_ANSWER)
        self._pg.consume_input()


def without_timeouts(engine: Engine) -> Connection:
    """A new connection for work that may take minutes, such as a migration: it has no timeout for answers. Do not
    return it to a pool.
    """
    if engine.dialect.name in ("mysql", "mariadb"):
        arguments = connect_arguments("mariadb") | {"read_timeout": None, "write_timeout": None}
        patient = create_engine(
            engine.url,
            poolclass=NullPool,
            connect_args=arguments,
            isolation_level="READ COMMITTED",
            hide_parameters=True,
        )
        set_timeouts(patient)
        return patient.connect()
    connection = engine.connect()
    connection.detach()
    if engine.dialect.name == "postgresql":
        driver: Any = connection.connection.dbapi_connection
        driver.answer_timeout_s = None
        driver.autocommit = True
        driver.execute(f"SET idle_in_transaction_session_timeout = '{IDLE_READ_TIMEOUT_S}s'")
        driver.autocommit = False
    return connection
