"""Simulates databases that are down, abort transactions, lose the answer to a commit, or are full.

The faults are in the driver: `sqlite3.connect` returns a `_Connection` for the files of simulated parts, so the code of
Moorage is unchanged.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.simulation.part import Part
    from tests.simulation.world import World

_WRITES = ("INSERT", "UPDATE", "DELETE", "REPLACE")


class _Cursor(sqlite3.Cursor):
    def execute(self, sql: str, *values: Any) -> Any:
        return self.connection.run_statement(sql, lambda: sqlite3.Cursor.execute(self, sql, *values))

    def executemany(self, sql: str, *values: Any) -> Any:
        return self.connection.run_statement(sql, lambda: sqlite3.Cursor.executemany(self, sql, *values))


class _Connection(sqlite3.Connection):
    part: "Part"

    def __init__(self, *given: Any, **named: Any) -> None:
        self._life = self.part.life
        self._writes = False
        self._check()
        super().__init__(*given, **named)
        # Simulated faults include no power failure, so a commit needs no sync.
        super().execute("PRAGMA synchronous=OFF")
        self.part.connections.append(self)

    def cursor(self, factory: Any = _Cursor) -> Any:
        return super().cursor(factory)

    def execute(self, sql: str, *values: Any) -> Any:
        return self.cursor().execute(sql, *values)

    def executemany(self, sql: str, *values: Any) -> Any:
        return self.cursor().executemany(sql, *values)

    def commit(self) -> None:
        self._committed(super().commit)

    def rollback(self) -> None:
        self._writes = False
        if self._is_mine():
            super().rollback()

    def close(self) -> None:
        # Without the rollback, a connection that is closed while a statement is open would keep its lock.
        with suppress(sqlite3.Error):
            super().rollback()
        super().close()

    def run_statement(self, sql: str, run: Callable[[], Any]) -> Any:
        word = sql.lstrip()[:16].upper()
        if word.startswith("PRAGMA SYNC"):
            return sqlite3.Cursor(self)
        if word.startswith("COMMIT"):
            return self._committed(run)
        if word.startswith("ROLLBACK"):
            self._writes = False
            return run() if self._is_mine() else sqlite3.Cursor(self)
        self._check()
        if word == "BEGIN IMMEDIATE":
            self._begins()
            self._writes = True
        elif word.startswith(_WRITES) and self.part.world.clock.now() < self.part.full_until:
            raise sqlite3.OperationalError("database or disk is full")
        done = run()
        if self._writes:
            self.part.point(f"after {word.partition(' ')[0]}")
        return done

    def _begins(self) -> None:
        dice, part = self.part.world.dice, self.part
        part.point("before BEGIN")
        if dice.happens("given_up"):
            raise sqlite3.OperationalError("database is locked")
        if dice.happens("away"):
            part.world.database_away(part)
            self._check()

    def _committed(self, run: Callable[[], Any]) -> Any:
        self._check()
        if not self._writes:
            return run()
        dice, part = self.part.world.dice, self.part
        self._writes = False
        part.point("before COMMIT")
        if dice.happens("given_up"):
            raise sqlite3.OperationalError("database is locked")
        done = run()
        part.point("after COMMIT")
        if dice.happens("half_told"):
            raise sqlite3.OperationalError("disk I/O error")
        return done

    def _is_mine(self) -> bool:
        return self.part.alive and self._life == self.part.life

    def _check(self) -> None:
        if not self._is_mine():
            self.part.raise_killed("its database")
        if self.part.world.clock.now() < self.part.away_until:
            raise sqlite3.OperationalError("unable to open database file")


@contextmanager
def watched(world: "World") -> Iterator[None]:
    """Within this context, connections to files of simulated parts are `_Connection` objects."""
    connect = sqlite3.connect
    kinds: dict[str, type[_Connection]] = {}

    def connecting(database: Any, *given: Any, **named: Any) -> Any:
        part = world.part_of(Path(str(database)))
        if part is None:
            return connect(database, *given, **named)
        kind = kinds.setdefault(part.name, type("_ConnectionOfPart", (_Connection,), {"part": part}))
        return connect(database, *given, **{"factory": kind} | named)

    sqlite3.connect = sqlite3.dbapi2.connect = connecting
    try:
        yield
    finally:
        sqlite3.connect = sqlite3.dbapi2.connect = connect
