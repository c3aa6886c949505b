"""Decides which thread of the server takes up requests, and which requests get a thread when these become scarce.

`LeaderFollowers`: if all threads received requests, they would compete for the interpreter's lock, which each of them
releases at every system call: eight clients then cost twice as much as one (docs/evidence/decisions/0014). So one
thread is the leader: it takes up one request after the other and answers it. Before it blocks
(`moorage.core.blocking_hook`), it gives the leadership up and the deputy, the first of the followers, takes over. If
the leader stays in one request without calling the hook, because it computes or blocks unnoticed, the deputy takes the
leadership away.

`ThreadSlots`: a waiting request holds no thread. The last threads are reserved for requests that must always be
answered (health, identity, agents). Bodies that a thread reads while they arrive have their own limit, of which one
project may use at most half.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence

from moorage.core import blocking_hook
from moorage.wire.server.connection import HttpConnection
from moorage.wire.server.request_body import BodyIntake

#: Seconds between the deputy's checks of the leader. It replaces a leader that is in the same turn as at the previous
#: check.
CHECK_PERIOD_S = 0.005
#: After this many checks without activity, the deputy sleeps until the next turn.
IDLE_CHECKS = 20


class Leadership:
    """One thread's period as the leader."""

    __slots__ = ("is_over", "steps")

    def __init__(self) -> None:
        self.is_over = False
        #: Odd during a turn.
        self.steps = 0


class LeaderFollowers:
    """`is_wanted`: whether another thread would have work. If not, a leader that blocks stays the leader."""

    def __init__(self, is_wanted: Callable[[], bool]) -> None:
        self._is_wanted = is_wanted
        self._mutex = threading.Lock()
        self._leadership: Leadership | None = None
        self._is_closed = False
        self._deputy = threading.Lock()
        #: Released to wake the deputy. Releasing it requires the mutex, so it is never released twice.
        self._call = threading.Lock()
        self._call.acquire()
        self._sleeps = False

    def wait_to_lead(self) -> Leadership | None:
        """Wait until this thread becomes the leader; returns None when the server ends."""
        with self._deputy:
            seen, quiet = -1, 0
            while not self._is_closed:
                with self._mutex:
                    before = self._leadership
                    if before is None or (before.steps == seen and seen % 2):
                        return self._begin(before)
                    quiet = quiet + 1 if before.steps == seen else 0
                    seen = before.steps
                self._sleeps = quiet >= IDLE_CHECKS
                # A turn that began before the leader could see `_sleeps` has changed `steps`, which is checked here.
                self._call.acquire(timeout=-1 if self._sleeps and before.steps == seen else CHECK_PERIOD_S)
                self._sleeps = False
        return None

    def _begin(self, before: Leadership | None) -> Leadership:
        if before is not None:
            before.is_over = True
        leadership = self._leadership = Leadership()
        blocking_hook.set_callback(lambda: self._give_up(leadership))
        return leadership

    def begin_turn(self, leadership: Leadership) -> None:
        leadership.steps += 1
        if self._sleeps:
            with self._mutex:
                self._call_deputy()

    def end_turn(self, leadership: Leadership) -> None:
        """End a turn. `leadership.is_over` then tells whether the thread is still the leader."""
        leadership.steps += 1

    def _give_up(self, leadership: Leadership) -> None:
        if leadership.is_over or not self._is_wanted():
            return
        with self._mutex:
            if self._leadership is leadership:
                self._leadership, leadership.is_over = None, True
                self._call_deputy()

    def close(self) -> None:
        """End all waits in `wait_to_lead`; they return None."""
        with self._mutex:
            self._is_closed = True
            self._call_deputy()

    def _call_deputy(self) -> None:
        if self._call.locked():
            self._call.release()


#: Threads reserved for urgent requests, if the server has enough threads.
_KEPT_FREE = 2

_NOBODY: Sequence[HttpConnection] = ()


class ThreadSlots:
    def __init__(self, threads: int, uploads: int) -> None:
        self._most = threads - _KEPT_FREE if threads > 2 * _KEPT_FREE else threads
        self._most_uploads = max(1, min(uploads, threads // 2))
        self._most_of_owner = max(1, self._most_uploads // 2)
        self._lock = threading.Lock()
        #: Threads that are handling a request.
        self.at_work = 0
        self._uploads: Counter[str] = Counter()
        self._waiting: deque[tuple[HttpConnection, BodyIntake]] = deque()
        self._is_open = False

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def acquire(self, intake: BodyIntake, *, is_urgent: bool) -> bool:
        """Take a thread slot; returns whether one was free. `release` returns it."""
        with self._lock:
            if not intake.streams:
                if self.at_work >= self._most and not (is_urgent or self._is_open):
                    return False
            elif self._is_free(intake):
                self._uploads[intake.owner] += 1
            else:
                return False
            self.at_work += 1
            return True

    def release(self, intake: BodyIntake) -> Sequence[HttpConnection]:
        """Return a slot. Returns the waiting connections that should try again."""
        with self._lock:
            self.at_work -= 1
            if intake.streams:
                self._uploads[intake.owner] -= 1
                self._uploads += Counter()  # without zeros
            return self._next() if self._waiting else _NOBODY

    def next_waiting(self) -> list[HttpConnection]:
        """Like `release`, after a connection that was told to try again has closed."""
        if not self._waiting:
            return []
        with self._lock:
            return self._next()

    def enqueue(self, connection: HttpConnection, intake: BodyIntake) -> bool:
        """Enqueue the connection unless a slot is free; returns whether it waits. A later `release` returns it."""
        with self._lock:
            if self._is_free(intake):
                return False
            self._waiting.append((connection, intake))
            return True

    def release_all(self) -> list[HttpConnection]:
        """Admit everything from now on; returns the connections that were waiting."""
        with self._lock:
            self._is_open = True
            waiting, self._waiting = self._waiting, deque()
            return [connection for connection, _ in waiting]

    def _is_free(self, intake: BodyIntake) -> bool:
        if self._is_open:
            return True
        if self.at_work >= self._most:
            return False
        if not intake.streams:
            return True
        return self._uploads.total() < self._most_uploads and self._uploads[intake.owner] < self._most_of_owner

    def _next(self) -> list[HttpConnection]:
        """The connection that has waited longest and may proceed now; None if there is none."""
        for index, (connection, intake) in enumerate(self._waiting):
            if self._is_free(intake):
                del self._waiting[index]
                return [connection]
        return []
