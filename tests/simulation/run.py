"""Runs one seed and returns its results."""

import gc
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from tests.simulation.settling import settle, state_of
from tests.simulation.users import Users
from tests.simulation.world import EndOfRun, World, Wrong

#: The files are not needed after the run, so they are kept in memory.
_MEMORY = Path("/dev/shm")


@dataclass
class Summary:
    """The results of one or several runs. `wrong`: the error, if any."""

    seeds: int = 0
    simulated: timedelta = timedelta(0)
    wall_s: float = 0.0
    steps: int = 0
    checks: int = 0
    settled: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    digest: str = ""
    wrong: str = ""

    def add(self, other: "Summary") -> None:
        for name in ("seeds", "simulated", "wall_s", "steps", "checks", "settled"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.faults += other.faults
        self.done += other.done

    @property
    def years(self) -> float:
        return self.simulated / timedelta(days=365.25)


@dataclass(frozen=True)
class Course:
    """How a seed is run: `rounds` periods of length `stormy` with faults, each followed by checks without faults."""

    rounds: int = 4
    stormy: timedelta = timedelta(days=12)
    busy: timedelta = timedelta(hours=4)
    hosts: int = 4
    without: Collection[str] = ()
    fury: float = 1.0
    #: Maximum number of steps.
    until: int | None = None


def run(
    seed: str, course: Course, shown: Callable[[str], None] | None = None, directory: Path | None = None
) -> Summary:
    """The same seed and course give the same events in the same order."""
    gc.set_threshold(50_000, 20, 100)  # most long-lived objects belong to a service, and are created again with it
    began = time.perf_counter()
    summary = Summary(seeds=1)
    with ExitStack() as stack:
        place = directory or _place(stack)
        world = World(place, seed, hosts=course.hosts, without=course.without, fury=course.fury, shown=shown)
        world.last_step = course.until
        start = world.clock.now()
        try:
            stack.enter_context(world)
            users = Users(world, course.busy)
            users.create_resources()
            for _ in range(course.rounds):
                users.begin()
                world.dice.calm = False
                world.run_for(course.stormy)
                settle(world, users)
            world.story.tell(state_of(world, users))
            summary.done += Counter(users.done)
        except EndOfRun:
            pass
        except Wrong as wrong:
            summary.wrong = f"{wrong}\n" + "\n".join(list(world.story.last)[-40:])
        summary.simulated = world.clock.now() - start
        summary.steps, summary.checks = world.steps, world.invariants.checks
        summary.settled = world.counts["settled"]
        summary.faults += world.dice.happened
        summary.digest = world.story.digest
    summary.wall_s = time.perf_counter() - began
    return summary


def _place(stack: ExitStack) -> Path:
    where = _MEMORY if _MEMORY.is_dir() else None
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="moorage-simulation-", dir=where)))
