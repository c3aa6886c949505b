"""The queue of a process's writers of one SQLite file: writers that wait share the next transaction and its commit.

SQLite has one writer at a time. A second one sleeps and looks again, in steps of up to 100 ms, and the one that looks
first gets the file. In this queue a writer is woken when it is its turn, and all that have waited meanwhile are written
together, with one fsync (`group_commit`). Writers of other processes still meet at the file's own lock.

Not here: the transaction itself (`session`).
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine

from moorage.core.errors import RetryableConflict, Unavailable
from moorage.db import timeouts
from moorage.db.group_commit import GroupCommit

T = TypeVar("T")
Work = Callable[[Connection], T]


@dataclass(frozen=True, eq=False)
class _Writer:
    """A call of `run_in_turn`."""

    work: Work[Any]
    open_transaction: Callable[[], AbstractContextManager[Connection]]
    run_alone: Callable[[Work[Any]], Any]
    context: Context = field(default_factory=copy_context)

    def run(self, connection: Connection) -> object:
        return self.context.run(self.work, connection)


_queues: "WeakKeyDictionary[Engine, GroupCommit[_Writer, tuple[Any]]]" = WeakKeyDictionary()
_making_queue = threading.Lock()


class _NeedsOwnTransactionError(Exception):
    """One of several writers failed: each gets its own transaction."""


def run_in_turn(
    engine: Engine,
    work: Work[T],
    open_transaction: Callable[[], AbstractContextManager[Connection]],
    run_alone: Callable[[Work[T]], T],
) -> T:
    """The result of `work`, after its commit.

    A writer that waits for no other gets ``run_alone(work)``, and so does each writer of a group of which one fails. A
    group runs in one `open_transaction`, each work in a copy of its caller's context, perhaps in another thread.
    """
    queue = _queues.get(engine)
    if queue is None:
        with _making_queue:
            queue = _queues.setdefault(engine, GroupCommit(_run_group, lambda _: ()))
    result: T = queue.submit(_Writer(work, open_transaction, run_alone))[0]
    return result


def _run_group(writers: Sequence[_Writer]) -> list[tuple[Any]]:
    """The result of each writer. If it raises, `GroupCommit` calls it for each alone; after `Unavailable`, all fail."""
    first = writers[0]
    if len(writers) == 1:
        return [(first.run_alone(first.run),)]
    began = time.monotonic()
    try:
        with first.open_transaction() as connection:
            return [_run_beside_others(writer, connection) for writer in writers]
    except RetryableConflict as error:
        if time.monotonic() - began >= timeouts.LOCK_TIMEOUT_S:
            raise
        raise _NeedsOwnTransactionError from error


def _run_beside_others(writer: _Writer, connection: Connection) -> tuple[Any]:
    try:
        return (writer.run(connection),)
    except Unavailable as error:  # raised by the work itself, so the others must not fail with it
        raise _NeedsOwnTransactionError from error
