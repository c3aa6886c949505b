"""Background tasks and their runners: threads in real time, or one thread in virtual time.

A task does the work that is due and returns when it wants to be called again. It never waits itself, so the same
task also runs under a `VirtualClock`, where thirty days take only as long as the work in them.

`TaskPool` runs very many tasks in few threads, as in a process that simulates a thousand hosts. A few tasks are better
off with a thread each (`TaskThreads`): there, a long run delays no other task. In a pool it does as soon as more tasks
are due than there are threads.

Not here: hints between processes (`moorage.jobs.wakeups`).
"""

import heapq
import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Protocol

from moorage.core.clock import Clock, VirtualClock

log = logging.getLogger(__name__)

#: Pause after a run that raised. The error is logged, and the task goes on.
PAUSE_AFTER_FAILURE = timedelta(seconds=2)

#: Longest wait before the clock is read again: it may have been set, and Python cannot wait for centuries.
LONGEST_WAIT_S = 60.0


class Task(Protocol):
    """Background work with a name. A task may also have these attributes:

    * `listens_to`: queues of jobs; a hint for one of them wakes the task.
    * `min_pause_s`: least time between two runs. Everything that wakes the task within it is done in one run.
    """

    name: str

    def run_once(self) -> datetime | None:
        """Does the work that is due. Returns the moment of the next call; None: call it only when it is woken."""
        ...


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One call of a task. `due` is the moment of the next call; None: only when it is woken."""

    task: str
    succeeded: bool
    due: datetime | None
    began: float  #: as `time.perf_counter` says
    took_s: float


class TaskRuns:
    """The start of each task's last completed run. A caller can wait until all tasks have run since some moment."""

    def __init__(self) -> None:
        self._ended = threading.Condition()
        self._began: dict[str, float] = {}

    def record(self, done: TaskRun) -> None:
        with self._ended:
            self._began[done.task] = done.began
            self._ended.notify_all()

    def wait_for(self, tasks: Collection[str], since: float, timeout_s: float) -> bool:
        """Wait until each of `tasks` has completed a run that began after `since`. False: not within `timeout_s`."""
        with self._ended:
            return self._ended.wait_for(
                lambda: all(self._began.get(task, -math.inf) > since for task in tasks), timeout_s
            )


class Wakeups:
    """Waiters of this process, by topic. A `wake` before the wait is not lost: the next wait returns at once.

    A topic is a queue of jobs, for which other processes send hints too, or a name that only this process uses (`own`).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._actions: dict[str, list[Callable[[], None]]] = {}
        self._queues: set[str] = set()

    def listen(self, *queues: str, own: Sequence[str] = ()) -> threading.Event:
        """Returns an event that each `wake` of one of these topics sets. The listener clears it."""
        event = threading.Event()
        self.call(event.set, *queues, own=own)
        return event

    def call(self, action: Callable[[], None], *queues: str, own: Sequence[str] = ()) -> None:
        """Call `action` at each `wake` of one of these topics. It must be quick and must not raise."""
        with self._lock:
            for topic in (*queues, *own):
                self._actions.setdefault(topic, []).append(action)
            self._queues.update(queues)

    def queues(self) -> frozenset[str]:
        """Queues that this process listens to."""
        with self._lock:
            return frozenset(self._queues)

    def wake(self, topic: str) -> None:
        with self._lock:
            actions = list(self._actions.get(topic, ()))
        for action in actions:
            action()

    def wake_all(self) -> None:
        with self._lock:
            actions = {action for actions in self._actions.values() for action in actions}
        for action in actions:
            action()


class TaskThreads:
    """Runs each task in its own thread, in real time. A task is woken by its name or by a queue in its `listens_to`."""

    def __init__(self, clock: Clock, wakeups: Wakeups, run_ended: Callable[[TaskRun], None] | None = None) -> None:
        """`run_ended` is called after each run."""
        self._clock = clock
        self._run_ended = run_ended
        self._wakeups = wakeups
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            event = self._wakeups.listen(*listens_to(task), own=(task.name,))
            thread = threading.Thread(target=self._run, args=(task, event), name=task.name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Let all threads end after their current run; wait at most `timeout_s` for all of them together.

        A run that takes longer ends with the process. That is harmless: a task's work may be cut off anywhere and is
        taken up again.
        """
        self._stopping.set()
        self._wakeups.wake_all()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self, task: Task, woken: threading.Event) -> None:
        while not self._stopping.is_set():
            woken.clear()
            done = run_task(task, self._clock)
            if self._run_ended is not None:
                self._run_ended(done)
            if rest := min_pause_s(task):
                self._stopping.wait(rest)
            self._wait(woken, done.due)

    def _wait(self, woken: threading.Event, due: datetime | None) -> None:
        while not self._stopping.is_set() and not woken.is_set():
            if due is None:
                woken.wait()
                return
            pause_s = (due - self._clock.now()).total_seconds()
            if pause_s <= 0:
                return
            woken.wait(min(pause_s, LONGEST_WAIT_S))


class TasksInVirtualTime:
    """Runs all tasks in the calling thread under virtual time: deterministic, in the order they were given."""

    def __init__(self, clock: VirtualClock, wakeups: Wakeups, tasks: Sequence[Task]) -> None:
        self._clock = clock
        self._rows = [(task, wakeups.listen(*listens_to(task), own=(task.name,))) for task in tasks]
        self._due: dict[str, datetime | None] = {task.name: clock.now() for task in tasks}

    def run_until(self, moment: datetime) -> None:
        """Run everything that is due up to and including `moment`; the clock stands there afterwards."""
        while True:
            self.settle()
            upcoming = min((due for due in self._due.values() if due is not None), default=None)
            if upcoming is None or upcoming > moment:
                self._clock.advance_to(moment)
                return
            self._clock.advance_to(upcoming)

    def settle(self, *, limit: int = 10_000) -> None:
        """Runs the tasks that are due now, and the tasks that they wake, until none is due at this moment."""
        for _ in range(limit):
            ran = [self._run_if_due(task, woken) for task, woken in self._rows]
            if not any(ran):
                return
        raise RuntimeError(f"the tasks did not come to rest in {limit} rounds: {sorted(self._due)}")

    def _run_if_due(self, task: Task, woken: threading.Event) -> bool:
        due = self._due[task.name]
        if not woken.is_set() and (due is None or due > self._clock.now()):
            return False
        woken.clear()
        self._due[task.name] = run_task(task, self._clock).due
        return True


def listens_to(task: Task) -> tuple[str, ...]:
    """Queues of jobs whose hints wake `task`."""
    queues: tuple[str, ...] = getattr(task, "listens_to", ())
    return queues


def min_pause_s(task: Task) -> float:
    seconds: float = getattr(task, "min_pause_s", 0.0)
    return seconds


def run_task(task: Task, clock: Clock) -> TaskRun:
    began = time.perf_counter()
    try:
        due, succeeded = task.run_once(), True
    except Exception:  # the top of a thread: a task must survive one bad run
        # "duty" is the key's older name, for searches in logs that use it.
        log.exception("task failed; it is tried again", extra={"task": task.name, "duty": task.name})
        due, succeeded = clock.now() + PAUSE_AFTER_FAILURE, False
    return TaskRun(task.name, succeeded, due, began, time.perf_counter() - began)


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
