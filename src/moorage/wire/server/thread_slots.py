"""Admits requests to the server's threads when these become scarce. A waiting request holds no thread.

The last threads are reserved for requests that must always be answered (health, identity, agents). Bodies that a thread
reads while they arrive have their own limit, of which one project may use at most half.
"""

import threading
from collections import Counter, deque
from collections.abc import Sequence

from moorage.wire.server.connection import HttpConnection
from moorage.wire.server.request_body import BodyIntake

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
