"""How long anybody waits for a database: to be connected, for an answer, for another transaction's lock.

A database that is gone refuses at once; one that hangs (a stopped process, a dead line, a full journal) says nothing, and
without a bound of ours whoever waits for it waits for ever. Locks have the shorter bound, kept by the database itself:
so a statement that we have given up on is not carried out later. SQLite has no server: its busy timeout is its bound.
"""

import functools
import select
import threading
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Engine, event

from moorage.core import blocking_hook
from moorage.core.errors import Unavailable

CONNECT_TIMEOUT_S = 5
#: A connection that has said nothing for so long in the middle of a statement is given up.
ANSWER_TIMEOUT_S = 15
#: For a row that another transaction holds; also how long SQLite's writers wait for each other.
LOCK_TIMEOUT_S = 10
#: A transaction in which a client does nothing for so long is ended by the server: its owner hangs, or is cut off.
IDLE_TRANSACTION_TIMEOUT_S = 60

#: After a connect that took as long as `HUNG_S` in vain, the others are refused at once for so long.
RETRY_AFTER_S = 1.0
HUNG_S = 0.5


def connect_arguments(backend: str) -> dict[str, object]:
    """For `create_engine`'s ``connect_args``."""
    if backend == "postgresql":
        return {"connect_timeout": CONNECT_TIMEOUT_S}
    return {
        "connect_timeout": CONNECT_TIMEOUT_S,
        "read_timeout": ANSWER_TIMEOUT_S,
        "write_timeout": ANSWER_TIMEOUT_S,
        # MySQL, which does not know the last one, reads it as a comment.
        "init_command": f"SET SESSION innodb_lock_wait_timeout={LOCK_TIMEOUT_S}, lock_wait_timeout={LOCK_TIMEOUT_S} "
        f"/*M!100300 , idle_transaction_timeout={IDLE_TRANSACTION_TIMEOUT_S} */",
    }


def set_timeouts(engine: Engine) -> None:
    """Every connection that `engine` makes from now on has these bounds."""
    gate = _ConnectGate(engine.dispose)
    make = _bounded_postgresql if engine.dialect.name == "postgresql" else _bounded_mariadb

    @event.listens_for(engine, "do_connect")
    def _connect(_dialect: Any, _record: object, given: Any, named: Any) -> Any:
        connection = gate.pass_through(lambda: make()(*given, **named))
        connection.gate = gate
        return connection


class _ConnectGate:
    """One at a time tries a database that hangs: a connect costs seconds then, and a thread for so long.

    `forget` drops the connections that nobody uses: each of them would cost somebody the same time.
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
        except Exception:  # raised again: whatever it is, what counts is how long it took
            hangs = time.monotonic() - began >= HUNG_S
            raise
        else:
            return connection
        finally:
            with self._lock:
                if is_connected:
                    self._connected_at = time.monotonic()
                # Who began before somebody else was connected, and fails after it, has met the time before.
                self._is_hung, self._somebody_tries = hangs and began >= self._connected_at, False
                self._hung_until = time.monotonic() + RETRY_AFTER_S

    def shut(self) -> None:
        """A connection has waited for an answer in vain."""
        with self._lock:
            self._is_hung = True
            self._hung_until = time.monotonic() + RETRY_AFTER_S
        self._forget()


NO_ANSWER = "the database does not answer; the request can be repeated when it is back"
#: Where it went away between our COMMIT and its answer.
OUTCOME_UNKNOWN = (
    "the database does not answer; it was lost while it committed, so the request was carried out wholly or not at all: "
    "read what there is before you repeat it"
)


@functools.cache
def _bounded_postgresql() -> Callable[..., Any]:
    """A connection of psycopg's with a bound on every wait. An extra, so imported where it is used."""
    import psycopg
    from psycopg.pq import TransactionStatus

    class BoundedConnection(psycopg.Connection[Any]):
        #: None: wait for ever.
        answer_timeout_s: float | None = ANSWER_TIMEOUT_S
        gate: _ConnectGate | None = None  #: once it is connected

        def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
            blocking_hook.about_to_block()
            try:
                return super().wait(gen, interval, timeout or self.answer_timeout_s)
            except psycopg.OperationalError:
                if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                    self.give_up()
                raise

        def give_up(self) -> None:
            """Nobody knows what it would still answer."""
            self.close()
            if self.gate is not None:
                self.gate.shut()

    def connect(*given: Any, **named: Any) -> Any:
        connection = BoundedConnection.connect(*given, **named)
        connection.autocommit = True
        connection.execute(
            f"SET lock_timeout = '{LOCK_TIMEOUT_S}s'; "
            f"SET idle_in_transaction_session_timeout = '{IDLE_TRANSACTION_TIMEOUT_S}s'"
        )
        connection.autocommit = False
        return connection

    return connect


@functools.cache
def _bounded_mariadb() -> Callable[..., Any]:
    """PyMySQL has its bounds from `connect_arguments`; this one tells the gate."""
    import pymysql

    class BoundedConnection(pymysql.connections.Connection):  # type: ignore[misc]  # it has no types
        gate: _ConnectGate | None = None

        def _read_bytes(self, num_bytes: int) -> Any:
            blocking_hook.about_to_block()
            began = time.monotonic()
            try:
                return super()._read_bytes(num_bytes)
            except pymysql.err.OperationalError:
                if self.gate is not None and time.monotonic() - began >= ANSWER_TIMEOUT_S:
                    self.gate.shut()
                raise

    return BoundedConnection


class PostgresqlResults:
    """For who speaks to libpq himself: its waits, bounded, and without the interpreter's lock. Errors are psycopg's;
    a connection that has said nothing for too long is given up.
    """

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._pg = connection.pgconn
        self._poll = select.poll()

    def flush(self) -> None:
        """Until all is sent."""
        while self._pg.flush():
            self._wait(select.POLLIN | select.POLLOUT)

    def next(self) -> Any:
        """The next result; None at the end of each."""
        while self._pg.is_busy():
            self._wait(select.POLLIN)
        return self._pg.get_result()

    def _wait(self, for_what: int) -> None:
        blocking_hook.about_to_block()
        self._poll.register(self._pg.socket, for_what)
        if not self._poll.poll(ANSWER_TIMEOUT_S * 1000):
            from psycopg import OperationalError

            self._connection.give_up()
            raise OperationalError(f"no answer for {ANSWER_TIMEOUT_S} s")
        self._pg.consume_input()


def connection_has_ended(socket: int) -> bool:
    """An idle connection on which there is something to read: its server has said good-bye. Costs a microsecond, no
    round trip; a server that is gone without a word is found out by `PostgresqlResults`.
    """
    poll = select.poll()
    poll.register(socket, select.POLLIN)
    return bool(poll.poll(0))


def without_timeouts(connection: Connection) -> Connection:
    """For work that may take minutes, as a migration does. The connection is not used again for anything else."""
    connection.detach()
    driver: Any = connection.connection.dbapi_connection
    if connection.dialect.name == "postgresql":
        driver.answer_timeout_s = None
    elif connection.dialect.name in ("mysql", "mariadb"):
        driver._read_timeout = None  # noqa: SLF001 - PyMySQL has no other way once it is connected
    return connection
