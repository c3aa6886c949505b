"""Advancing an adjustable clock returns when all tasks have run at the new time."""

import threading
import time
from datetime import timedelta

import pytest

from moorage.core.clock import AdjustableClock
from moorage.jobs.background_tasks import Wakeups
from moorage.wiring import components
from moorage.wiring.components import Plane
from moorage.wiring.plane import build_plane
from tests.system.planes import write_config

DAY_S = 86400


class Task:
    """Records the time of each run in `looks`, after a call of `before_look`."""

    def __init__(self, name, clock, looks, *, before_look=lambda: None):
        self.name = name
        self._clock = clock
        self._looks = looks
        self._before_look = before_look

    def run_once(self):
        self._before_look()
        self._looks.append((self.name, self._clock.now()))
        return self._clock.now() + timedelta(hours=1)


@pytest.fixture
def running():
    """Starts a plane with these tasks, in threads and in a pool, and returns when each has run once."""
    planes = []

    def start(clock, tasks, crowd=()):
        plane = Plane(app=None, clock=clock, wakeups=Wakeups(), tasks=list(tasks), simulated_host_tasks=list(crowd))
        clock.on_advance.append(plane.catch_up)
        began = time.perf_counter()
        plane.start()
        planes.append(plane)
        assert plane._task_runs.wait_for([each.name for each in (*tasks, *crowd)], began, 20)
        return plane

    yield start
    for plane in planes:
        plane.stop()


def test_after_the_clock_was_advanced_all_tasks_have_run(running):
    clock, looks = AdjustableClock(), []
    tasks = [Task(f"look {n}", clock, looks, before_look=lambda: time.sleep(0.02)) for n in range(3)]
    running(clock, tasks, [Task("jobs", clock, looks)])
    looks.clear()
    jump = clock.now() + timedelta(seconds=DAY_S)
    clock.advance(DAY_S)
    assert {name for name, at in looks if at >= jump} == {"look 0", "look 1", "look 2", "jobs"}


def test_a_plane_with_an_adjustable_clock_waits_for_its_tasks(tmp_path):
    config = write_config(tmp_path, plane={"services": "image", "clock": "adjustable"}, identity={"mode": "none"})
    plane, looks = build_plane(config), []
    plane.tasks.append(Task("look", plane.clock, looks, before_look=lambda: time.sleep(0.02)))
    plane.start()
    jump = plane.clock.now() + timedelta(seconds=DAY_S)
    plane.clock.advance(DAY_S)
    assert looks[-1][1] >= jump
    plane.stop()


def test_a_run_that_had_begun_before_the_clock_was_advanced_does_not_count(running):
    clock, looks, may_go_on, under_way = AdjustableClock(), [], threading.Event(), threading.Event()
    may_go_on.set()

    def wait_to_go_on():
        under_way.set()
        may_go_on.wait(20)

    plane = running(clock, [Task("slow", clock, looks, before_look=wait_to_go_on)])
    may_go_on.clear()
    under_way.clear()
    plane.wakeups.wake("slow")
    assert under_way.wait(20)
    threading.Timer(0.1, may_go_on.set).start()
    jump = clock.now() + timedelta(seconds=DAY_S)
    clock.advance(DAY_S)
    assert looks[-1][1] >= jump
    assert len(looks) == 3


def test_the_wait_for_tasks_has_a_time_limit(running, monkeypatch):
    monkeypatch.setattr(components, "CATCH_UP_S", 0.05)
    clock, looks, may_go_on = AdjustableClock(), [], threading.Event()
    may_go_on.set()
    stuck = Task("stuck", clock, looks, before_look=lambda: may_go_on.wait(20))
    running(clock, [stuck, Task("look", clock, looks)])
    may_go_on.clear()
    began = time.perf_counter()
    clock.advance(DAY_S)
    assert time.perf_counter() - began < 5
    may_go_on.set()


def test_a_plane_that_was_not_started_does_not_wait_for_its_tasks():
    clock = AdjustableClock()
    plane = Plane(app=None, clock=clock, wakeups=Wakeups(), tasks=[Task("look", clock, [])])
    clock.on_advance.append(plane.catch_up)
    began = time.perf_counter()
    clock.advance(DAY_S)
    assert time.perf_counter() - began < 1
