"""A pool of threads that runs many tasks."""

import threading
import time
from datetime import timedelta

import pytest

from moorage.core.clock import SystemClock
from moorage.jobs.background_tasks import TaskPool, Wakeups

TIMEOUT_S = 20


class CountingTask:
    """A task that counts its runs, and those that began while another one was in progress."""

    def __init__(self, name, period_s=None, *, listens_to=(), action=lambda: None):
        self.name, self.period_s, self.listens_to, self.action = name, period_s, listens_to, action
        self.clock = SystemClock()
        self.ticks = 0
        self.overlaps = 0
        self._busy = threading.Lock()
        self._changed = threading.Condition()

    def run_once(self):
        if not self._busy.acquire(blocking=False):
            self.overlaps += 1
            return None
        try:
            self.action()
        finally:
            self._busy.release()
            with self._changed:
                self.ticks += 1
                self._changed.notify_all()
        return None if self.period_s is None else self.clock.now() + timedelta(seconds=self.period_s)

    def wait_for(self, ticks):
        with self._changed:
            assert self._changed.wait_for(lambda: self.ticks >= ticks, TIMEOUT_S), f"{self.name}: {self.ticks}"


@pytest.fixture
def wakeups():
    return Wakeups()


@pytest.fixture
def pool(wakeups):
    pool = TaskPool(SystemClock(), wakeups, threads=2)
    yield pool
    pool.stop()


def test_two_threads_run_hundreds_of_tasks(pool):
    before = threading.active_count()
    tasks = [CountingTask(f"d{number}", period_s=0.01) for number in range(300)]
    pool.start(tasks)
    assert threading.active_count() == before + 2
    for task in tasks:
        task.wait_for(3)


def test_a_task_without_a_period_runs_at_the_start_and_once_per_wake_up(pool, wakeups):
    task = CountingTask("d", listens_to=("queue",))
    pool.start([task])
    task.wait_for(1)
    wakeups.wake("queue")
    task.wait_for(2)
    wakeups.wake("d")
    task.wait_for(3)
    wakeups.wake("another")
    time.sleep(0.05)
    assert task.ticks == 3


def test_wake_ups_during_the_minimum_pause_of_a_task_cause_one_run(pool, wakeups):
    task = CountingTask("d")
    task.min_pause_s = 1.0
    pool.start([task])
    task.wait_for(1)
    for _ in range(20):
        wakeups.wake("d")
        time.sleep(0.005)  # enough time for another run if there were no pause
    task.wait_for(2)
    assert task.ticks == 2


def test_a_wake_up_during_a_run_is_followed_by_another_run_that_does_not_overlap(pool, wakeups):
    inside, go_on = threading.Event(), threading.Event()

    def wait():
        inside.set()
        assert go_on.wait(TIMEOUT_S)

    task = CountingTask("d", action=wait)
    pool.start([task])
    assert inside.wait(TIMEOUT_S)
    for _ in range(5):
        wakeups.wake("d")
    go_on.set()
    task.wait_for(2)
    time.sleep(0.05)
    assert (task.ticks, task.overlaps) == (2, 0)


def test_a_wake_up_replaces_the_next_periodic_run(pool, wakeups):
    task = CountingTask("d", period_s=0.3)
    pool.start([task])
    task.wait_for(1)
    for number in range(2, 5):
        wakeups.wake("d")
        task.wait_for(number)
    assert len([due for due in pool._due_times if due.row.due_time is due]) <= 1
    task.wait_for(5)


def test_a_run_that_raises_an_exception_is_logged_and_the_task_runs_again(wakeups, caplog):
    told = []
    pool = TaskPool(SystemClock(), wakeups, 1, lambda done: told.append((done.task, done.succeeded)))
    failing = CountingTask("bad", action=lambda: 1 / 0)
    good = CountingTask("good", period_s=0.01)
    pool.start([failing, good])
    failing.wait_for(1)
    good.wait_for(3)
    wakeups.wake("bad")
    failing.wait_for(2)
    pool.stop()
    assert ("bad", False) in told
    assert ("good", True) in told
    assert "task failed" in caplog.text


def test_stop_ends_the_threads_while_no_task_is_due(pool, wakeups):
    pool.start([CountingTask("d")])
    pool.stop()
    assert not any(thread.is_alive() for thread in pool._threads)
