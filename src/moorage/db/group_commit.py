"""Group commit: requests that arrive during a write are written together, in one transaction.

No request waits for others to join. A request that arrives while nothing is written is written at once, with those that
arrive while it waits for the turn of this process, if there is one. Requests that arrive during a write wait. After the
write, the first of them becomes the leader of a group of all waiting requests (up to `MAX_GROUP`). So groups grow with
the load, and each takes one commit (one fsync).

Each caller gets the outcome of its own request, after its commit.

`run_in_turn` is the queue of a process's writers of one SQLite file. SQLite has one writer at a time. A second one
sleeps and looks again, in steps of up to 100 ms, and the one that looks first gets the file. In the queue a writer is
woken when it is its turn, and all that have waited meanwhile are written together, with one fsync. Writers of other
processes still meet at the file's own lock.

Not here: the transaction itself (`session`).
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from itertools import chain, repeat
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine

from moorage.core.errors import RetryableConflict, Unavailable
from moorage.db import timeouts

T = TypeVar("T")
R = TypeVar("R")

#: Maximum number of requests in a group; limits the length of a transaction.
MAX_GROUP = 64
#: A request that is in no group after this time is refused, because the database hangs.
MAX_WAIT_S = 30.0


class _Waiter(Generic[T]):
    def __init__(self, item: T) -> None:
        self.item = item
        #: Released when the request has its outcome or becomes the leader. An `Event` costs ten times as much.
        self.wakeup = threading.Lock()
        self.wakeup.acquire()
        self.leads = False
        self.is_done = False
        self.outcome: Any = None  #: the result or the error


class GroupCommit(Generic[T, R]):
    """Collects the items of concurrent callers into groups and writes one group at a time.

    `write(items)` writes a group and returns a result or an error for each item. If it raises, the items are written
    one by one; after `Unavailable`, all of them fail.

    `about` returns the subjects of an item. No two items of a group share a subject. `write` gets the items in
    their order, and may let one see what those before it have decided.

    `turn` is entered before a group is taken, and left after it is written. So items that arrive while it waits, for
    example for a lock that other processes take, too, are in the group. If it raises, the group fails with that error.
    """

    def __init__(
        self,
        write: Callable[[Sequence[T]], Sequence[R | Exception]],
        about: Callable[[T], Collection[str]],
        turn: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._write = write
        self._about = about
        self._turn = turn
        self._lock = threading.Lock()
        self._waiting: deque[_Waiter[T]] = deque()
        self._has_leader = False

    def submit(self, item: T) -> R:
        """Blocks until `item` is committed; returns its result or raises its error.

        Raises `Unavailable` if the item is in no group after `MAX_WAIT_S`.
        """
        mine = _Waiter(item)
        with self._lock:
            leads = not self._has_leader
            self._has_leader = True
            self._waiting.append(mine)
        if not leads:
            self._wait(mine)
        if not mine.is_done:
            self._lead(mine)
        if isinstance(mine.outcome, Exception):
            raise mine.outcome
        result: R = mine.outcome
        return result

    def _wait(self, mine: _Waiter[T]) -> None:
        if mine.wakeup.acquire(timeout=MAX_WAIT_S):
            return
        with self._lock:
            if mine in self._waiting and not mine.leads:
                self._waiting.remove(mine)
                raise Unavailable("the database has not finished earlier requests; repeat the request")
        mine.wakeup.acquire()  # its group is being written, so the caller must wait for the outcome

    def _lead(self, mine: _Waiter[T]) -> None:
        """Writes a group of waiting requests, then wakes the next leader."""
        group: list[_Waiter[T]] = []
        outcomes: Sequence[R | Exception] = ()
        failure: Exception = Unavailable("the server was stopped during the write; repeat the request")
        try:
            with self._turn():
                group = self._next_group()
                outcomes = self._write_group([waiter.item for waiter in group])
        except Exception as error:  # noqa: BLE001 - the outcome of each request, which `submit` raises
            failure = error
        finally:
            group = group or self._next_group()
            self._hand_over()
            for waiter, outcome in zip(group, chain(outcomes, repeat(failure)), strict=False):
                waiter.outcome, waiter.is_done = outcome, True
                if waiter is not mine:
                    waiter.wakeup.release()

    def _hand_over(self) -> None:
        """Makes the first waiting request the next leader."""
        with self._lock:
            self._has_leader = bool(self._waiting)
            if self._waiting:
                self._waiting[0].leads = True
                self._waiting[0].wakeup.release()

    def _next_group(self) -> list[_Waiter[T]]:
        """Takes up to `MAX_GROUP` waiting requests in order of arrival; stops before one with a common subject."""
        group: list[_Waiter[T]] = []
        about: set[str] = set()
        with self._lock:
            while self._waiting and len(group) < MAX_GROUP:
                subjects = self._about(self._waiting[0].item)
                if group and not about.isdisjoint(subjects):
                    break
                about.update(subjects)
                group.append(self._waiting.popleft())
        return group

    def _write_group(self, items: Sequence[T]) -> Sequence[R | Exception]:
        try:
            return self._write(items)
        except Unavailable as error:  # the database would also fail for each item alone
            return [error] * len(items)
        except Exception as error:  # noqa: BLE001 - the error of one request must not affect the others of its group
            return [error] if len(items) == 1 else [outcome for item in items for outcome in self._write_group([item])]


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
