"""Of the workers that share a queue one looks at it, by the clock and by hints; the others rest until they are called.

Four workers of a host that each polled, and each followed every hint, would cost four times as much and find nothing
more. Whoever looks and finds work calls one of the others, which looks then: it finds more work and calls the next, or
nothing and goes on looking. So a lost hint costs a poll period, and not the length of a job.
"""

import threading
from collections.abc import Callable
from datetime import datetime


class PollerElection:
    """`wake` wakes all workers of the queue; those that are not called may then go on resting (`may_poll`)."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._resting: set[int] = set()
        self._poller: int | None = None  #: number of the worker who does
        self._called: int | None = None
        #: When the service last answered one of them.
        self.answered_at: datetime | None = None

    def may_poll(self, worker: int) -> bool:
        """Whether `worker`, which was woken or whose time has come, is to ask for work."""
        with self._lock:
            if worker not in self._resting or self._poller == worker:
                return True
            if self._called == worker:
                self._called = None
                self._resting.discard(worker)  # until it has an answer: it asks again when it gets none
                return True
            return False

    def found_no_job(self, worker: int) -> bool:
        """Whether it is for `worker` to look again by itself."""
        with self._lock:
            self._resting.add(worker)
            if self._poller is None:
                self._poller = worker
            return self._poller == worker

    def began_job(self, worker: int) -> None:
        """`worker` is busy from now on: somebody else looks."""
        with self._lock:
            self._resting.discard(worker)
            if self._poller == worker:
                self._poller = None
            if self._poller is not None:
                return
            self._called = min(self._resting, default=None)
            is_called = self._called is not None
        if is_called:
            self._wake()
