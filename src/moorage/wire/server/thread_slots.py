"""Which requests may use the threads of a server when they become scarce; the others wait, and hold none meanwhile.

The last threads are kept for what must be answered at all times (health, identity, agents), and bodies that a thread reads
while they come have a number of threads of their own, of which no project has more than half.
"""

import threading
from collections import Counter, deque
from collections.abc import Sequence

from moorage.wire.server.connection import HttpConnection
from moorage.wire.server.request_body import BodyIntake

#: Threads that are kept free, where there are some to spare.
_KEPT_FREE = 2

_NOBODY: Sequence[HttpConnection] = ()


class ThreadSlots:
    def __init__(self, threads: int, uploads: int) -> None:
        self._most = threads - _KEPT_FREE if threads > 2 * _KEPT_FREE else threads
        self._most_uploads = max(1, min(uploads, threads // 2))
        self._most_of_owner = max(1, self._most_uploads // 2)
        self._lock = threading.Lock()
        #: Threads that answer a request.
        self.at_work = 0
        self._uploads: Counter[str] = Counter()
        self._waiting: deque[tuple[HttpConnection, BodyIntake]] = deque()
        self._is_open = False

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def acquire(self, intake: BodyIntake, *, is_urgent: bool) -> bool:
        """Whether there is a place; then `leave` gives it back."""
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
        """Those that were waiting and should try again."""
        with self._lock:
            self.at_work -= 1
            if intake.streams:
                self._uploads[intake.owner] -= 1
                self._uploads += Counter()  # without zeros
            return self._next() if self._waiting else _NOBODY

    def next_waiting(self) -> list[HttpConnection]:
        """As `leave`, where somebody went who had been told to try again."""
        if not self._waiting:
            return []
        with self._lock:
            return self._next()

    def enqueue(self, connection: HttpConnection, intake: BodyIntake) -> bool:
        """Whether it must wait; from then on it belongs to whoever calls `leave`."""
        with self._lock:
            if self._is_free(intake):
                return False
            self._waiting.append((connection, intake))
            return True

    def release_all(self) -> list[HttpConnection]:
        """Nobody waits from now on; returns those that did."""
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
        """The one that has waited longest of those that may."""
        for index, (connection, intake) in enumerate(self._waiting):
            if self._is_free(intake):
                del self._waiting[index]
                return [connection]
        return []
