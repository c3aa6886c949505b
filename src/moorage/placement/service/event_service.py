"""Following the change log: pages of it, and watches that wait for what comes.

A watch is an answer that stays open, and while it does it holds a thread of the server. So it is bounded in three
ways, and each of them only ends it early; a client of server-sent events then comes again with the last id it has
seen, and misses nothing:

* `watchers` of them are held at once. Whoever comes beyond gets what there is and is asked to come again in two
  seconds: it polls. A refusal would be worse: browsers do not come again after one.
* One lasts `WATCH_S` at most; so tokens are looked at again, and a server that stops waits for nobody.
* One carries `MOST_BYTES` at most. The server asks for no more while its client has some to take, so whoever does not read
  holds a place here and no thread, until the server ends it.

What other processes commit is seen by asking for the last number every `POLL_S`, once for all watches of a process.
"""

import threading
import time
from collections.abc import Callable, Iterator

from sqlalchemy import Engine

from moorage.core.errors import Gone, Invalid, MoorageError
from moorage.db.transactions import read
from moorage.placement.forest.change_events import (
    ChangePage,
    Cursor,
    Filter,
    first_within,
    sse_frames,
    sse_heartbeat,
    sse_retry,
)
from moorage.placement.store import change_log, change_store
from moorage.placement.sync.meters import PlacementMeters

WATCH_S = 30.0
HEARTBEAT_S = 10.0
POLL_S = 0.1

#: Numbers of the log that one page looks at, and entries that it shows: however rare what is wanted.
WINDOW = 20_000
MOST_ENTRIES = 1_000
MOST_BYTES = 256 * 1024

#: When to come again (ms): there is more already; nothing was waiting; no place was free.
AT_ONCE_MS, SOON_MS, LATER_MS = 10, 500, 2_000


class EventService:
    def __init__(self, engine: Engine, meters: PlacementMeters, *, watchers: int) -> None:
        """`watchers`: threads of the server that watches may hold at the same time."""
        self._engine = engine
        self._tail = _Tail(engine)
        self._lock = threading.Lock()
        self._free = self._watchers = watchers
        self._open, self._at_once, self._later = (
            meters.watches.labels(answer) for answer in ("open", "come_at_once", "come_later")
        )

    def close(self) -> None:
        """Every watch ends now."""
        self._tail.close()

    def newest(self) -> Cursor:
        """Behind all that was committed before this call."""
        with read(self._engine) as connection:
            return Cursor(change_log.last_number(connection))

    def oldest(self) -> Cursor:
        """In front of all that is kept."""
        with read(self._engine) as connection:
            return Cursor(max(0, change_store.read_retention(connection).first - 1))

    def page(self, after: Cursor, wanted: Filter, most: int = MOST_ENTRIES, most_bytes: int = MOST_BYTES) -> ChangePage:
        """What comes behind `after`. Raises `Gone` where that is no longer kept, `Invalid` where it is yet to come."""
        with read(self._engine) as connection:
            last = change_log.last_number(connection)
            if after.sequence > last:
                raise Invalid(f"There is no change {after} yet; the last one is {last}")
            upto = min(last, after.sequence + WINDOW)
            found = change_store.entries_between(connection, after, upto, wanted, most + 1)
            # Asked last: what had been taken away by then may have been missing before, what had not was there.
            first = change_store.read_retention(connection).first
        if after < Cursor(first - 1):
            raise Gone(
                f"Changes after {after} are no longer kept; the oldest one that is kept is {first}. Read the present "
                f"state and go on from there, or from since={first - 1}",
                oldest=first,
            )
        shown = first_within(found[:most], most_bytes)
        reached = shown[-1].cursor if len(shown) < len(found) else Cursor(upto)
        return ChangePage(shown, reached, last, first)

    def watch(self, after: Cursor, wanted: Filter) -> "Watch | bytes":
        """Server-sent events behind `after`: an open answer, or a finished one where there is no sense in waiting.

        Raises what `page` raises.
        """
        page = self.page(after, wanted, most_bytes=MOST_BYTES)
        if not page.is_last:
            self._at_once.inc()
            return sse_retry(AT_ONCE_MS) + sse_frames(page)
        if self._tail.is_closed or not self._takes_place():
            self._later.inc()
            return sse_retry(LATER_MS) + sse_frames(page)
        self._open.inc()
        return Watch(self._follow(page, wanted), self._give_place_back)

    @property
    def held(self) -> int:
        """Watches that are open."""
        return self._watchers - self._free

    def _takes_place(self) -> bool:
        with self._lock:
            is_free = self._free > 0
            self._free -= is_free
            return is_free

    def _give_place_back(self) -> None:
        with self._lock:
            self._free += 1

    def _follow(self, page: ChangePage, wanted: Filter) -> Iterator[bytes]:
        """`page` and what comes after it, as it comes."""
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
                if not self._tail.goes_beyond(page.reached.sequence, min(left_s, HEARTBEAT_S)):
                    chunk = sse_heartbeat(page.reached)
                    continue
                page = self.page(page.reached, wanted, most_bytes=MOST_BYTES // 4)
            except MoorageError as error:  # the database; the client comes again and is told more
                yield sse_retry(LATER_MS) + f": {error.message}\n\n".encode()
                return
            chunk = sse_frames(page)
            if sent + len(chunk) > MOST_BYTES:
                yield sse_retry(AT_ONCE_MS)
                return


class Watch:
    """An open answer. Its place is free again when it has ended or is closed, also when it was never begun."""

    def __init__(self, chunks: Iterator[bytes], release: Callable[[], None]) -> None:
        self._chunks = chunks
        self._release: Callable[[], None] | None = release

    def __iter__(self) -> "Watch":
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._chunks)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        release, self._release = self._release, None
        if release is not None:
            release()


class _Tail:
    """The last number of the log, asked for by one of the threads that wait for it to grow, for all of them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._last = 0
        self._somebody_asks = False

    @property
    def is_closed(self) -> bool:
        return self._closing.is_set()

    def close(self) -> None:
        self._closing.set()
        with self._changed:
            self._changed.notify_all()

    def goes_beyond(self, sequence: int, timeout_s: float) -> bool:
        """Whether the log goes, in that time, beyond `sequence`. Raises `Unavailable`."""
        ends = time.monotonic() + timeout_s
        with self._changed:
            while self._last <= sequence:
                left_s = ends - time.monotonic()
                if left_s <= 0 or self.is_closed:
                    return False
                if self._somebody_asks:
                    self._changed.wait(left_s)
                else:
                    self._ask(min(left_s, POLL_S))
            return True

    def _ask(self, after_s: float) -> None:
        """Let the lock go meanwhile; the others wait for the answer, and one of them asks next."""
        self._somebody_asks = True
        self._changed.release()
        last = 0
        try:
            self._closing.wait(after_s)
            with read(self._engine) as connection:
                last = change_log.last_number(connection)
        finally:
            self._changed.acquire()
            self._somebody_asks = False
            self._last = max(self._last, last)
            self._changed.notify_all()
