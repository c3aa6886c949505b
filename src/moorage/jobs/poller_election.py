"""Elects one poller among the workers that share a queue. It polls by the clock and by hints; the others rest.

If each of a host's four workers polled and followed every hint, that would cost four times as much and find no more
work. A poller that finds a job calls one resting worker, which polls next: it finds another job and calls the next
worker, or finds none and stays the poller. So a lost hint costs one poll period at most, never the length of a job.

If the answer to the poller says that the queue has no other job, and no hint has come since it asked, the called worker
does not ask: it is the poller, and waits for a hint or the end of the poll period.
"""

import threading
from collections.abc import Callable
from datetime import datetime


class PollerElection:
    """Elects the one worker of a queue that polls for jobs.

    `wake` wakes the worker of a number, which calls `may_poll`.
    """

    def __init__(self, wake: Callable[[int], None]) -> None:
        self._wake = wake
        self._lock = threading.Lock()
        self._resting: set[int] = set()
        self._poller: int | None = None  #: number of the worker that polls; None: nobody does at this moment
        self._called: int | None = None
        self._hints = 0  #: heard so far
        self._hints_before_poll: dict[int, int] = {}  #: {worker: hints heard before it asked}
        #: The poller that has not asked because the queue was empty, and the hints heard before. None: it has asked.
        self._successor: tuple[int, int] | None = None
        #: When the service last answered one of the workers.
        self.answered_at: datetime | None = None

    def hear_hint(self) -> None:
        """The queue has a new job, perhaps. Call it before the hint wakes any worker."""
        with self._lock:
            self._hints += 1

    def need_not_poll(self, worker: int) -> bool:
        """Whether `worker`, which was woken, is the poller of a queue that was empty, and no hint has come since: it
        asks after a poll period.
        """
        with self._lock:
            if self._successor is None or self._successor[0] != worker:
                return False
            (_, hints), self._successor = self._successor, None
            return self._poller == worker and self._hints == hints

    def may_poll(self, worker: int) -> bool:
        """Whether `worker`, which was woken or is due, asks the service for a job."""
        with self._lock:
            self._hints_before_poll[worker] = self._hints
            if worker not in self._resting or self._poller == worker:
                return True
            if self._called == worker:
                self._called = None
                self._resting.discard(worker)  # until it has an answer; without one it asks again
                return True
            return False

    def found_no_job(self, worker: int) -> bool:
        """`worker` rests from now on. Returns whether it is the poller, which asks again after a poll period."""
        with self._lock:
            self._resting.add(worker)
            if self._poller is None:
                self._poller = worker
            return self._poller == worker

    def began_job(self, worker: int, *, may_have_more: bool = True) -> None:
        """`worker` is busy from now on: another worker becomes the poller.

        `may_have_more`: whether the queue may have had another job when the service answered.
        """
        with self._lock:
            self._resting.discard(worker)
            if self._poller == worker:
                self._poller = None
            if self._poller is not None:
                return
            called = min(self._resting, default=None)
            if may_have_more or called is None or self._hints != self._hints_before_poll.get(worker):
                self._called = called
            else:
                self._poller, self._called = called, None
                self._successor = (called, self._hints)
        if called is not None:
            self._wake(called)
