"""Chooses the thread of the server that takes up requests: one at a time, as long as it does not block.

If all threads received requests, they would compete for the interpreter's lock, which each of them releases at every
system call: eight clients then cost twice as much as one (docs/evidence/decisions/0014). So one thread is the leader:
it takes up one request after the other and answers it. Before it blocks (`moorage.core.blocking_hook`), it gives the
leadership up and the deputy, the first of the followers, takes over. If the leader stays in one request without calling
the hook, because it computes or blocks unnoticed, the deputy takes the leadership away.
"""

import threading
from collections.abc import Callable

from moorage.core import blocking_hook

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
