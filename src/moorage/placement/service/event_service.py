"""Pages of the change log, watches that wait for new entries, and the background task that deletes old entries.

A watch is an answer that stays open and occupies a thread of the server. So it has three limits. Each of them only ends
it early: the client then reconnects with the last id that it received, and misses nothing.

* At most `watchers` are open at once. Further clients get the present entries with a reconnect delay of two seconds, so
  they poll. They are not refused, because browsers do not reconnect after a refusal.
* A watch lasts at most `WATCH_S`, so that tokens are checked again, and a server can stop without waiting.
* A watch sends at most `MAX_BYTES`. The server generates no data while the client has data to read, so a client that
  does not read occupies one of the `watchers` places but no thread, until the server closes the connection.

To notice commits of other processes, one thread reads the last number every `POLL_S` for all watches of the process.

`RetentionTask` deletes in batches, so that writers wait for it only briefly. Entries on which a later state depends
stay, regardless of age: the last complete state of each existing subject, and the last usages after it. The task
examines each entry once, in the order of the log. It deletes an entry when the newer entry that supersedes it becomes
old, so a provider without changes costs nothing.

Several processes may run the task: it locks one row while it deletes entries, and does nothing if it finds the row
locked. A crash is harmless, because progress is recorded in the same transaction.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import takewhile

from sqlalchemy import Connection, Engine

from moorage.core.clock import Clock
from moorage.core.errors import Gone, Invalid, MoorageError
from moorage.db.session import in_transaction, read
from moorage.placement.forest.change_entries import (
    ChangePage,
    Cursor,
    Filter,
    first_within,
    sse_frames,
    sse_heartbeat,
    sse_retry,
    superseded,
)
from moorage.placement.store import change_store
from moorage.placement.store.change_store import OldEntry, Retention
from moorage.placement.sync.meters import PlacementMeters

WATCH_S = 30.0
HEARTBEAT_S = 10.0
POLL_S = 0.1

#: Maximum change numbers that a page examines, and maximum entries and bytes that it returns, for any filter.
WINDOW = 20_000
MAX_ENTRIES = 1_000
MAX_BYTES = 256 * 1024

#: Reconnect delay (ms): more entries are ready; no new entries; no free place.
AT_ONCE_MS, SOON_MS, LATER_MS = 10, 500, 2_000


class EventService:
    def __init__(self, engine: Engine, meters: PlacementMeters, *, watchers: int) -> None:
        """`watchers`: server threads that watches may occupy at the same time."""
        self._engine = engine
        self._tail = _Tail(engine)
        self._lock = threading.Lock()
        self._free = self._watchers = watchers
        self._open, self._at_once, self._later = (
            meters.watches.labels(answer) for answer in ("open", "come_at_once", "come_later")
        )

    def close(self) -> None:
        """End every watch."""
        self._tail.close()

    def newest_cursor(self) -> Cursor:
        """The position after all changes committed before this call."""
        with read(self._engine) as connection:
            return Cursor(change_store.last_number(connection))

    def oldest_cursor(self) -> Cursor:
        """The position before the oldest retained entry."""
        with read(self._engine) as connection:
            return Cursor(max(0, change_store.read_retention(connection).first - 1))

    def read_page(
        self, after: Cursor, wanted: Filter, limit: int = MAX_ENTRIES, max_bytes: int = MAX_BYTES
    ) -> ChangePage:
        """Entries after `after`. Raises `Gone` if they are not retained, `Invalid` if `after` is in the future."""
        with read(self._engine) as connection:
            last = change_store.last_number(connection)
            if after.sequence > last:
                raise Invalid(f"There is no change {after} yet; the last one is {last}")
            upto = min(last, after.sequence + WINDOW)
            found = change_store.entries_between(connection, after, upto, wanted, limit + 1)
            # Read last: all entries that are retained now were read above; pruned ones may have been missed.
            first = change_store.read_retention(connection).first
        if after < Cursor(first - 1):
            raise Gone(
                f"Changes after {after} are no longer retained; the oldest retained one is {first}. Read the present "
                f"state, then continue with new changes, or continue from since={first - 1}",
                oldest=first,
            )
        shown = first_within(found[:limit], max_bytes)
        reached = shown[-1].cursor if len(shown) < len(found) else Cursor(upto)
        return ChangePage(shown, reached, last, first)

    def watch(self, after: Cursor, wanted: Filter) -> "Watch | bytes":
        """Server-sent events after `after`: an open answer, or a complete one if more entries wait or no place is free.

        Raises the errors of `read_page`.
        """
        page = self.read_page(after, wanted, max_bytes=MAX_BYTES)
        if not page.is_last:
            self._at_once.inc()
            return sse_retry(AT_ONCE_MS) + sse_frames(page)
        if self._tail.is_closed or not self._take_place():
            self._later.inc()
            return sse_retry(LATER_MS) + sse_frames(page)
        self._open.inc()
        return Watch(self._follow(page, wanted), self._free_place)

    @property
    def open_watches(self) -> int:
        """Number of open watches."""
        return self._watchers - self._free

    def _take_place(self) -> bool:
        with self._lock:
            is_free = self._free > 0
            self._free -= is_free
            return is_free

    def _free_place(self) -> None:
        with self._lock:
            self._free += 1

    def _follow(self, page: ChangePage, wanted: Filter) -> Iterator[bytes]:
        """Yields the events of `page`, then new entries as they are committed."""
        ends = time.monotonic() + WATCH_S
        chunk = sse_retry(SOON_MS) + sse_frames(page)
        sent = 0
        while True:
            yield chunk
            sent += len(chunk)
            left_s = ends - time.monotonic()
            if left_s <= 0 or self._tail.is_closed:
                return
            try:
                if not self._tail.wait_beyond(page.reached.sequence, min(left_s, HEARTBEAT_S)):
                    chunk = sse_heartbeat(page.reached)
                    continue
                page = self.read_page(page.reached, wanted, max_bytes=MAX_BYTES // 4)
            except MoorageError as error:  # the database failed; the client reconnects and gets the error
                yield sse_retry(LATER_MS) + f": {error.message}\n\n".encode()
                return
            chunk = sse_frames(page)
            if sent + len(chunk) > MAX_BYTES:
                yield sse_retry(AT_ONCE_MS)
                return


class Watch:
    """An open answer. It frees its place when it ends or is closed, also if it was never started."""

    def __init__(self, chunks: Iterator[bytes], release: Callable[[], None]) -> None:
        self._chunks = chunks
        self._release: Callable[[], None] | None = release

    def __iter__(self) -> "Watch":
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._chunks)
        except BaseException:  # also StopIteration: in each case the place becomes free
            self.close()
            raise

    def close(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            release()


class _Tail:
    """The last change number, read by one of the waiting threads for all of them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._last = 0
        self._is_being_read = False

    @property
    def is_closed(self) -> bool:
        return self._closing.is_set()

    def close(self) -> None:
        self._closing.set()
        with self._changed:
            self._changed.notify_all()

    def wait_beyond(self, sequence: int, timeout_s: float) -> bool:
        """True if the log grows beyond `sequence` within `timeout_s`. Raises `Unavailable`."""
        ends = time.monotonic() + timeout_s
        with self._changed:
            while self._last <= sequence:
                left_s = ends - time.monotonic()
                if left_s <= 0 or self.is_closed:
                    return False
                if self._is_being_read:
                    self._changed.wait(left_s)
                else:
                    self._read_last(min(left_s, POLL_S))
            return True

    def _read_last(self, after_s: float) -> None:
        """Reads the number while the lock is released. The other threads wait for it; then one of them reads next."""
        self._is_being_read = True
        self._changed.release()
        last = 0
        try:
            self._closing.wait(after_s)
            with read(self._engine) as connection:
                last = change_store.last_number(connection)
        finally:
            self._changed.acquire()
            self._is_being_read = False
            self._last = max(self._last, last)
            self._changed.notify_all()


#: Number of entries that one transaction examines. It takes a few milliseconds, during which writers on SQLite wait.
BATCH = 500
#: Minimum pause between two transactions; it is also at least as long as the last one took. On SQLite, waiting writers
#: poll for the lock, and would rarely get it between transactions without a pause.
MIN_PAUSE = timedelta(milliseconds=20)
#: Pause after another process was found deleting. It may have been suspended, and what is left is then this one's.
BUSY_PAUSE = timedelta(seconds=2)
#: Minimum pause after all old entries were deleted, at any write rate.
MIN_ROUND_PAUSE = timedelta(seconds=60)


class RetentionTask:
    name = "placement-retention"

    def __init__(self, engine: Engine, clock: Clock, *, history: timedelta) -> None:
        self._engine = engine
        self._clock = clock
        self._history = history
        #: The last entry examined. The database stores it without the position within a number.
        self._reached = Cursor(-1)

    def run_once(self) -> datetime:
        """Deletes a batch of entries older than `history`. Returns the time of the next run."""
        began = self._clock.now()
        following = in_transaction(self._engine, self._delete_batch)
        now = self._clock.now()
        return now + max(MIN_PAUSE, now - began) if following is None else following

    def _delete_batch(self, connection: Connection) -> datetime | None:
        """Deletes one batch. Returns the time of the next one; None: soon, because more entries are old already."""
        now = self._clock.now()
        retention = change_store.claim_retention(connection)
        if retention is None:
            return now + BUSY_PAUSE
        # A number can have very many entries: some of the last deleted number may not have been examined yet.
        reached = max(self._reached, Cursor(retention.first - 2))
        rows = change_store.oldest_entries(connection, reached, BATCH)
        # In the order of the log, because the clocks of two processes may differ.
        batch = list(takewhile(lambda row: row.at < now - self._history, rows))
        if batch:
            self._delete_superseded(connection, retention, batch)
        if len(batch) == BATCH:
            return None
        becomes_old = rows[len(batch)].at + self._history if len(batch) < len(rows) else now + self._history
        return max(becomes_old, self._clock.now() + MIN_ROUND_PAUSE)

    def _delete_superseded(self, connection: Connection, retention: Retention, batch: Sequence[OldEntry]) -> None:
        upto = batch[-1].cursor
        subjects = {row.subject for row in batch if row.subject is not None}
        old = superseded(change_store.entry_headers(connection, subjects, upto))
        old += [row.cursor for row in batch if row.subject is None]
        since = max(row.at for row in batch)
        reaches = Retention(upto.sequence + 1, max(since, retention.since or since))
        change_store.delete_entries(connection, old, reaches)
        self._reached = upto
