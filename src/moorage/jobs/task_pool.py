"""Runs very many tasks in few threads, in real time, as in a process that simulates a thousand hosts.

A few tasks are better off with a thread each (`TaskThreads`): there, a long run delays no other task. Here it does
as soon as more tasks are due than there are threads.
"""

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

from moorage.core.clock import Clock
from moorage.jobs.background_tasks import LONGEST_WAIT_S, Task, TaskRun, Wakeups, listens_to, min_pause_s, run_task

_LONG_AGO = datetime.min.replace(tzinfo=UTC)


@dataclass(order=True)
class _DueTime:
    """The moment at which a task is due; `number` orders tasks that are due at the same moment."""

    due: datetime
    number: int
    row: "_Row" = field(compare=False)


@dataclass(eq=False)
class _Row:
    task: Task
    due_time: _DueTime | None = None  #: the valid one; older entries of this row in the heap are skipped
    is_running: bool = False
    is_woken: bool = False  #: while it was running
    paused_until: datetime = _LONG_AGO  #: it does not run before, however often it is woken


class TaskPool:
    """Runs of one task never overlap. A task is woken as in `TaskThreads`."""

    def __init__(
        self, clock: Clock, wakeups: Wakeups, threads: int, run_ended: Callable[[TaskRun], None] | None = None
    ) -> None:
        """`run_ended` is called after each run."""
        self._clock = clock
        self._wakeups = wakeups
        self._run_ended = run_ended
        self._changed = threading.Condition()
        self._due_times: list[_DueTime] = []
        self._numbers = itertools.count()
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._run_thread, name=f"tasks {number}", daemon=True) for number in range(threads)
        ]

    def start(self, tasks: Sequence[Task]) -> None:
        """Each is due at once."""
        now = self._clock.now()
        for task in tasks:
            row = _Row(task)
            with self._changed:
                self._put(row, now)
            self._wakeups.call(partial(self._wake, row), *listens_to(task), own=(task.name,))
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Same as `TaskThreads.stop`."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _wake(self, row: _Row) -> None:
        with self._changed:
            if row.is_running:
                row.is_woken = True
            else:
                self._put(row, max(self._clock.now(), row.paused_until))

    def _put(self, row: _Row, due: datetime | None) -> None:
        row.due_time = None if due is None else _DueTime(due, next(self._numbers), row)
        if row.due_time is not None:
            heapq.heappush(self._due_times, row.due_time)
            self._changed.notify()

    def _run_thread(self) -> None:
        while (row := self._next()) is not None:
            done = run_task(row.task, self._clock)
            due = done.due
            if self._run_ended is not None:
                self._run_ended(done)
            with self._changed:
                row.is_running = False
                row.paused_until = self._clock.now() + timedelta(seconds=min_pause_s(row.task))
                if row.is_woken:
                    row.is_woken = False
                    due = row.paused_until
                self._put(row, due)

    def _next(self) -> _Row | None:
        """Waits until a task is due and returns its row; None when the pool stops."""
        with self._changed:
            while not self._stopping:
                if not self._due_times:
                    self._changed.wait(LONGEST_WAIT_S)
                    continue
                due_time = self._due_times[0]
                if due_time.row.due_time is not due_time:
                    heapq.heappop(self._due_times)
                    continue
                pause_s = (due_time.due - self._clock.now()).total_seconds()
                if pause_s > 0:
                    self._changed.wait(min(pause_s, LONGEST_WAIT_S))
                    continue
                heapq.heappop(self._due_times)
                due_time.row.due_time = None
                due_time.row.is_running = True
                return due_time.row
            return None
