"""A process that kills itself, and its group, at a chosen point around a commit on SQLite.

The points are found in the driver, so the code under test is unchanged. Only writing transactions count, which begin
with ``BEGIN IMMEDIATE``. `postgresql_line` finds the same points for PostgreSQL.
"""

import os
import signal
import sqlite3
import threading
from dataclasses import dataclass

#: Before the transaction, after one of its statements, before its COMMIT, after its COMMIT (nothing was answered yet).
POINTS = ("begin", "statement", "commit", "committed")


@dataclass(frozen=True)
class Plan:
    """Die when `point` is reached for the `nth` time, after `spared` writing transactions that do not count.

    `position` applies to the point ``statement``: the number of the statement after which it dies, the first being 1.
    """

    point: str
    nth: int = 1
    position: int = 1
    spared: int = 0


class _Death:
    """Counts the points in all threads, and ends the process at the planned one."""

    def __init__(self, plan: Plan, last_words: int) -> None:
        self._plan = plan
        self._last_words = last_words
        self._left = plan.nth
        self._spared = plan.spared
        self._lock = threading.Lock()

    def reached(self, point: str, position: int = 0) -> None:
        with self._lock:
            if self._spared == 0 and point == self._plan.point and position in (0, self._plan.position):
                self._left -= 1
                if self._left == 0:
                    where = f"statement {position}" if position else point
                    os.write(self._last_words, where.encode())
                    os.killpg(os.getpgrp(), signal.SIGKILL)
                    signal.pause()  # the signal is for all threads; this one must not continue
            if point == "committed" and self._spared:
                self._spared -= 1


class _Watched:
    """One connection's transaction."""

    def __init__(self, death: _Death) -> None:
        self._death = death
        self._statements = 0
        self._is_writing = False

    def before(self, *, begins: bool) -> None:
        if begins and not self._is_writing:
            self._death.reached("begin")
            self._is_writing = True

    def after(self) -> None:
        if self._is_writing:
            self._statements += 1
            self._death.reached("statement", self._statements)

    def before_commit(self) -> None:
        if self._is_writing:
            self._death.reached("commit")

    def after_commit(self) -> None:
        if self._is_writing:
            self._death.reached("committed")
        self.over()

    def over(self) -> None:
        self._statements, self._is_writing = 0, False


class _SqliteCursor(sqlite3.Cursor):
    def execute(self, sql, *values):
        return self._watched(sql, super().execute, *values)

    def executemany(self, sql, *values):
        return self._watched(sql, super().executemany, *values)

    def _watched(self, sql, run, *values):
        watched, word = self.connection.watched, sql.lstrip()[:16].upper()
        if word.startswith("COMMIT"):
            return _committing(watched, lambda: run(sql, *values))
        watched.before(begins=word == "BEGIN IMMEDIATE")
        done = run(sql, *values)
        if word.startswith("ROLLBACK"):
            watched.over()
        else:
            watched.after()
        return done


class _SqliteConnection(sqlite3.Connection):
    death: _Death

    def __init__(self, *given, **named):
        super().__init__(*given, **named)
        self.watched = _Watched(self.death)

    def cursor(self, factory=_SqliteCursor):
        return super().cursor(factory)

    def execute(self, sql, *values):
        return self.cursor().execute(sql, *values)

    def executemany(self, sql, *values):
        return self.cursor().executemany(sql, *values)

    def commit(self):
        _committing(self.watched, super().commit)

    def rollback(self):
        super().rollback()
        self.watched.over()


def _committing(watched: _Watched, commit):
    watched.before_commit()
    done = commit()
    watched.after_commit()
    return done


def install(plan: Plan, last_words: int) -> None:
    """Watches this process and its forks from now on. `last_words`: where the point of death is written."""
    _SqliteConnection.death = _Death(plan, last_words)
    connect = sqlite3.connect

    def connecting(*given, **named):
        return connect(*given, **{"factory": _SqliteConnection} | named)

    sqlite3.connect = sqlite3.dbapi2.connect = connecting
