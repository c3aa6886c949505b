"""Which thread of the server takes requests up: one at a time, as long as it need not wait.

Many threads that are all told of requests fight for the lock of the interpreter, which each of them gives up at every call
of the kernel: eight clients cost twice what one does (docs/evidence/decisions/0014). So one of them has the wheel: it takes up one
request after the other, and answers it. When it is going to wait (`moorage.core.blocking_hook`) it gives the wheel up, and the
deputy takes it. Where it stays in one request without a word, because that one computes long or waits for something that
does not say so, the deputy takes the wheel away.
"""

import threading
from collections.abc import Callable

from moorage.core import blocking_hook

#: The deputy looks so often, and takes the wheel away from who is in the same turn as at the last look.
CHECK_PERIOD_S = 0.005
#: After so many looks at which nothing was done the deputy sleeps until there is something.
IDLE_CHECKS = 20


class Leadership:
    """One thread's time at the wheel."""

    __slots__ = ("is_over", "steps")

    def __init__(self) -> None:
        self.is_over = False
        #: Odd while it is in a turn.
        self.steps = 0


class LeaderFollowers:
    """`is_wanted`: whether anybody could have use of another thread. If not, nobody is called where one waits."""

    def __init__(self, is_wanted: Callable[[], bool]) -> None:
        self._is_wanted = is_wanted
        self._mutex = threading.Lock()
        self._drive: Leadership | None = None
        self._is_closed = False
        self._deputy = threading.Lock()
        #: Released to call the deputy. Not released twice: whoever does has the mutex.
        self._call = threading.Lock()
        self._call.acquire()
        self._sleeps = False

    def wait_to_lead(self) -> Leadership | None:
        """Wait for the wheel; None at the end."""
        with self._deputy:
            seen, quiet = -1, 0
            while not self._is_closed:
                with self._mutex:
                    before = self._drive
                    if before is None or (before.steps == seen and seen % 2):
                        return self._begin(before)
                    quiet = quiet + 1 if before.steps == seen else 0
                    seen = before.steps
                self._sleeps = quiet >= IDLE_CHECKS
                # Whoever began a turn before it could see that we sleep has moved on from what we have seen.
                self._call.acquire(timeout=-1 if self._sleeps and before.steps == seen else CHECK_PERIOD_S)
                self._sleeps = False
        return None

    def _begin(self, before: Leadership | None) -> Leadership:
        if before is not None:
            before.is_over = True
        drive = self._drive = Leadership()
        blocking_hook.set_callback(lambda: self._give_up(drive))
        return drive

    def begin_turn(self, drive: Leadership) -> None:
        drive.steps += 1
        if self._sleeps:
            with self._mutex:
                self._call_deputy()

    def end_turn(self, drive: Leadership) -> None:
        """Whether it goes on is in `drive.is_over`."""
        drive.steps += 1

    def _give_up(self, drive: Leadership) -> None:
        if drive.is_over or not self._is_wanted():
            return
        with self._mutex:
            if self._drive is drive:
                self._drive, drive.is_over = None, True
                self._call_deputy()

    def close(self) -> None:
        """Whoever waits for the wheel is told that there is none any more."""
        with self._mutex:
            self._is_closed = True
            self._call_deputy()

    def _call_deputy(self) -> None:
        if self._call.locked():
            self._call.release()
