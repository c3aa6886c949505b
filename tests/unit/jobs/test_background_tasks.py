"""Background tasks, run in threads and in virtual time."""

import logging
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from moorage.core.clock import AdjustableClock, SystemClock, VirtualClock
from moorage.jobs.background_tasks import PAUSE_AFTER_FAILURE, TasksInVirtualTime, TaskThreads, Wakeups

START = datetime(2026, 1, 1, tzinfo=UTC)
TIMEOUT_S = 20


class Task:
    """A task whose runs call `on_tick` with the number of the run, and return its result."""

    def __init__(self, name, on_tick, listens_to=()):
        self.name = name
        self.listens_to = listens_to
        self.on_tick = on_tick
        self.ticks = 0
        self.news = threading.Condition()

    def run_once(self):
        with self.news:
            self.ticks += 1
            self.news.notify_all()
        return self.on_tick(self.ticks)

    def wait_for(self, ticks):
        with self.news:
            assert self.news.wait_for(lambda: self.ticks >= ticks, TIMEOUT_S), f"{self.ticks} ticks"


# ------------------------------------------------------------------------------------------------------ wake-ups


def test_a_wake_up_before_the_wait_is_not_lost():
    wakeups = Wakeups()
    event = wakeups.listen("a")
    wakeups.wake("a")
    assert event.wait(0)


def test_each_listener_of_a_queue_has_its_own_event():
    wakeups = Wakeups()
    first, second, other = wakeups.listen("a", "b"), wakeups.listen("a"), wakeups.listen("c")
    wakeups.wake("a")
    first.clear()
    assert second.is_set()
    assert not other.is_set()
    wakeups.wake("b")
    assert first.is_set()
    wakeups.wake("nobody listens to this")
    wakeups.wake_all()
    assert other.is_set()
    assert wakeups.queues() == {"a", "b", "c"}


def test_own_topics_of_a_listener_are_not_in_the_list_of_queues():
    wakeups = Wakeups()
    event = wakeups.listen("queue", own=("task",))
    wakeups.wake("task")
    assert event.is_set()
    assert wakeups.queues() == {"queue"}


# ------------------------------------------------------------------------------------------------------- threads


@pytest.fixture
def threads():
    """A function that starts tasks; they are stopped at the end."""
    started = []

    def start(*tasks, clock=None, wakeups=None):
        threads = TaskThreads(clock or SystemClock(), wakeups or Wakeups())
        started.append(threads)
        threads.start(tasks)
        return threads

    yield start
    for one in started:
        one.stop()


def test_a_waiting_task_is_woken_by_its_name_and_by_its_queues(threads):
    wakeups = Wakeups()
    task = Task("a", lambda _: None, listens_to=("jobs",))
    threads(task, wakeups=wakeups)
    task.wait_for(1)
    wakeups.wake("a")
    task.wait_for(2)
    wakeups.wake("jobs")
    task.wait_for(3)


def test_wake_ups_during_the_minimum_pause_of_a_task_cause_one_run(threads):
    wakeups, times = Wakeups(), []
    task = Task("a", lambda _: times.append(None))
    task.min_pause_s = 1.0
    threads(task, wakeups=wakeups)
    task.wait_for(1)
    for _ in range(20):
        wakeups.wake("a")
        time.sleep(0.005)  # enough time for another run if there were no pause
    task.wait_for(2)
    assert len(times) == 2


def test_no_wake_up_is_lost_whenever_it_comes(threads):
    """After each wake-up another run begins, whether it came during a run, at its end or before the wait."""
    wakeups = Wakeups()
    work = []  # the open work; a run takes all of it, as a claim of jobs does
    done = []

    def take_all(_):
        done.extend(work[: len(work)])
        del work[:]

    task = Task("a", take_all)
    threads(task, wakeups=wakeups)
    seen = threading.Event()
    for number in range(3000):
        work.append(number)
        wakeups.wake("a")
    deadline = threading.Event()
    for _ in range(400):
        if not work:
            seen.set()
            break
        deadline.wait(0.05)
    assert seen.is_set(), f"{len(work)} left after the last wake"


def test_a_wake_up_during_a_run_is_followed_by_another_run(threads):
    """The next run sees a change that this run has missed."""
    wakeups = Wakeups()
    task = Task("a", lambda ticks: wakeups.wake("a") if ticks < 5 else None)
    threads(task, wakeups=wakeups)
    task.wait_for(5)


def test_a_task_notices_without_a_wake_up_that_the_clock_was_advanced(threads, monkeypatch):
    monkeypatch.setattr("moorage.jobs.background_tasks.LONGEST_WAIT_S", 0.01)
    clock = AdjustableClock()
    task = Task("a", lambda _: clock.now() + timedelta(hours=1))
    threads(task, clock=clock)
    task.wait_for(1)
    clock.advance(3600)
    task.wait_for(2)


def test_a_task_does_not_run_before_it_is_due(threads, monkeypatch):
    monkeypatch.setattr("moorage.jobs.background_tasks.LONGEST_WAIT_S", 0.001)
    clock = SystemClock()
    due = [clock.now()]
    early = []

    def tick(_):
        if clock.now() < due[-1]:
            early.append(clock.now())
        due.append(clock.now() + timedelta(milliseconds=20))
        return due[-1]

    task = Task("a", tick)
    threads(task, clock=clock)
    task.wait_for(4)
    assert early == []


def test_a_task_runs_again_when_it_is_due(threads):
    clock = SystemClock()
    task = Task("a", lambda _: clock.now() + timedelta(milliseconds=5))
    threads(task, clock=clock)
    task.wait_for(4)


def test_a_task_that_raises_an_exception_is_logged_and_runs_again(threads, caplog, monkeypatch):
    monkeypatch.setattr("moorage.jobs.background_tasks.PAUSE_AFTER_FAILURE", timedelta(milliseconds=5))

    def fail_twice(ticks):
        if ticks < 3:
            raise KeyError("trouble")

    task = Task("a", fail_twice)
    with caplog.at_level(logging.ERROR):
        threads(task)
        task.wait_for(3)
    assert [record.task for record in caplog.records] == ["a", "a"]
    assert "trouble" in caplog.text


def test_a_task_that_hangs_does_not_delay_another_task(threads):
    release = threading.Event()
    slow, quick = Task("slow", lambda _: release.wait(TIMEOUT_S)), Task("quick", lambda ticks: START)
    slow.on_tick = lambda _: release.wait(TIMEOUT_S) and None
    threads(slow, quick)
    quick.wait_for(5)
    release.set()


def test_stop_ends_a_waiting_task(threads):
    task = Task("a", lambda _: None)
    running = threads(task)
    task.wait_for(1)
    running.stop()
    assert not any(thread.is_alive() for thread in running._threads)
    assert task.ticks == 1


def test_advancing_the_clock_runs_the_tasks_that_become_due(threads):
    clock, wakeups = AdjustableClock(), Wakeups()
    clock.on_advance.append(wakeups.wake_all)
    end_of_lease = clock.now() + timedelta(days=30)
    ended = threading.Event()

    def end_it(_):
        if clock.now() >= end_of_lease:
            ended.set()
            return None
        return end_of_lease

    task = Task("a", end_it)
    threads(task, clock=clock, wakeups=wakeups)
    task.wait_for(1)
    clock.advance(timedelta(days=30).total_seconds())
    assert ended.wait(TIMEOUT_S)


def test_a_task_that_is_due_in_the_year_9999_waits_and_can_be_woken(threads):
    """Leases may end then, but the longest wait in Python is shorter."""
    wakeups = Wakeups()
    task = Task("a", lambda _: datetime.max.replace(tzinfo=UTC))
    threads(task, wakeups=wakeups)
    task.wait_for(1)
    wakeups.wake("a")
    task.wait_for(2)


# -------------------------------------------------------------------------------------------------- virtual time


def test_in_virtual_time_an_hourly_task_runs_at_every_hour_of_thirty_days():
    clock = VirtualClock(START)
    seen = []

    def hourly(_):
        seen.append(clock.now())
        return clock.now() + timedelta(hours=1)

    TasksInVirtualTime(clock, Wakeups(), [Task("a", hourly)]).run_until(START + timedelta(days=30))
    assert seen == [START + timedelta(hours=hour) for hour in range(30 * 24 + 1)]
    assert clock.now() == START + timedelta(days=30)


def test_run_until_includes_what_is_due_at_its_end_and_nothing_later():
    clock = VirtualClock(START)
    seen = []
    due = [START + timedelta(seconds=5), START + timedelta(seconds=6)]

    def tick(ticks):
        seen.append(clock.now())
        return due[ticks - 1] if ticks <= len(due) else None

    turns = TasksInVirtualTime(clock, Wakeups(), [Task("a", tick)])
    turns.run_until(START + timedelta(seconds=5))
    assert seen == [START, due[0]]
    turns.run_until(START + timedelta(seconds=6))
    assert seen == [START, *due]


def test_in_virtual_time_a_woken_task_runs_at_the_same_time():
    clock, wakeups = VirtualClock(START), Wakeups()
    story = []

    def build(ticks):
        story.append(("build", clock.now()))
        if ticks == 1:
            wakeups.wake("jobs")

    def agent(_):
        story.append(("agent", clock.now()))

    turns = TasksInVirtualTime(clock, wakeups, [Task("agent", agent, ("jobs",)), Task("build", build)])
    turns.run_until(START + timedelta(days=1))
    assert story == [("agent", START), ("build", START), ("agent", START)]


def test_in_virtual_time_a_task_that_raises_an_exception_runs_again_after_a_pause():
    clock = VirtualClock(START)
    seen = []

    def fail_once(ticks):
        seen.append(clock.now())
        if ticks == 1:
            raise KeyError("trouble")

    TasksInVirtualTime(clock, Wakeups(), [Task("a", fail_once)]).run_until(START + timedelta(hours=1))
    assert seen == [START, START + PAUSE_AFTER_FAILURE]


def test_settle_raises_an_error_that_names_tasks_that_are_always_due():
    clock = VirtualClock(START)
    turns = TasksInVirtualTime(clock, Wakeups(), [Task("restless", lambda _: clock.now())])
    with pytest.raises(RuntimeError, match="restless"):
        turns.settle(limit=50)


def test_in_virtual_time_a_task_that_sleeps_only_delays_tasks_that_become_due():
    clock = VirtualClock(START)
    seen = []

    def sleeper(ticks):
        clock.sleep(10)

    def punctual(ticks):
        seen.append(clock.now())
        return START + timedelta(seconds=3) if ticks == 1 else None

    turns = TasksInVirtualTime(clock, Wakeups(), [Task("punctual", punctual), Task("sleeper", sleeper)])
    turns.run_until(START + timedelta(minutes=1))
    assert seen == [START, START + timedelta(seconds=10)]
