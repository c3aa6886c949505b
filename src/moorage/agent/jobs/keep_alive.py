"""Keeps a job alive while a call of unknown length runs: another thread extends its claim each period.

Most calls end within the first period, so a call runs in its caller's thread, and a thread for the reports is started
only when the period is over. One thread for all calls waits for that moment.
"""

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import TypeVar

T = TypeVar("T")

#: Reports that the job is still in progress; raises `JobLost` when another worker has it.
KeepAlive = Callable[[], None]


def run_keeping_alive(call: Callable[[], T], keep_alive: KeepAlive, period_s: float) -> T:
    """Run `call`, and call `keep_alive` every `period_s` meanwhile.

    An error of `keep_alive`, such as `JobLost`, is raised after the call has ended, so that the call
    never continues in the background.
    The periods are real time on purpose: under a virtual clock the call sleeps virtually and returns at once.
    """
    reports = _Reports(keep_alive, period_s, copy_context())  # the request's id goes with the context
    _watcher.start_later(reports, time.monotonic() + period_s)
    try:
        return call()
    finally:
        if (error := reports.end()) is not None:
            raise error


class _Reports:
    """Sends the reports for one call, from a thread of its own."""

    def __init__(self, keep_alive: KeepAlive, period_s: float, context: Context) -> None:
        self._keep_alive = keep_alive
        self._period_s = period_s
        self._context = context
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self) -> None:
        """Report now and every period, unless the call has ended."""
        with self._lock:
            if not self._ended.is_set():
                self._thread = threading.Thread(
                    target=self._context.run, args=(self._run,), name="keep-alive", daemon=True
                )
                self._thread.start()

    def end(self) -> BaseException | None:
        """Call it when the call has ended. Returns the error of the last report, if it failed."""
        with self._lock:
            self._ended.set()
        if self._thread is not None:
            self._thread.join()
        return self._error

    def _run(self) -> None:
        try:
            self._keep_alive()
            while not self._ended.wait(self._period_s):
                self._keep_alive()
        except BaseException as error:  # noqa: BLE001 - `end` returns it to the caller's thread, which raises it
            self._error = error


class _Watcher:
    """Starts reports at their time, in a thread that ends with the process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, _Reports]] = []
        self._numbers = itertools.count()
        self._is_running = False

    def start_later(self, reports: _Reports, due: float) -> None:
        with self._changed:
            heapq.heappush(self._due, (due, next(self._numbers), reports))
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="keep-alive-watcher", daemon=True).start()
            elif self._due[0][2] is reports:
                self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._due or self._due[0][0] > time.monotonic():
                    self._changed.wait(self._due[0][0] - time.monotonic() if self._due else None)
                _, _, reports = heapq.heappop(self._due)
            reports.start()


_watcher = _Watcher()
