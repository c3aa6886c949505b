"""The whole plane with each part as a simulated process, in one thread under one seed.

A step is a due task of a part, a delayed message, the kill or restart of a part, or an action of a user. The step that
is due first is next; among several, a random number decides. After each step `Invariants` checks everything.
"""

import contextlib
import heapq
import logging
import random
from collections import Counter
from collections.abc import Callable, Collection
from contextvars import Context
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

from moorage.core.clock import VirtualClock
from moorage.core.errors import MoorageError
from moorage.jobs.background_tasks import PAUSE_AFTER_FAILURE, Task
from moorage.options.services import PlacementOptions
from moorage.wire.transports import ClientResponse
from tests.simulation import databases, devices, disks
from tests.simulation.dice import Dice
from tests.simulation.invariants import Invariants
from tests.simulation.part import Killed, Part
from tests.simulation.story import Story

START = datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
URL = "http://127.0.0.1:8778"
#: Part -> its services.
SERVICES = {
    "placement": "placement",
    "compute": "compute,image",
    "accelerator": "accelerator",
    "reservation": "reservation",
}
_DAY_S = 24 * 3600.0
#: After this many steps at the same simulated time, the plane counts as one that never becomes idle.
MOST_STEPS_AT_ONCE = 3000


class Wrong(BaseException):
    """A violated invariant. The message says what, where and in which seed. No code of the plane catches it."""


class EndOfRun(Exception):
    """The requested number of steps has been reached."""


class World:
    """`hosts` hosts with accelerators. A context manager, because it patches SQLite and `moorage.durable`."""

    def __init__(
        self,
        directory: Path,
        seed: str,
        *,
        hosts: int = 3,
        without: Collection[str] = (),
        fury: float = 1.0,
        shown: Callable[[str], None] | None = None,
        start: datetime = START,
    ) -> None:
        self.seed = seed
        self.clock = VirtualClock(start)
        self.dice = Dice(seed, without, fury)
        self._turns = random.Random(f"{seed}/turns")
        self.hosts = [f"host-{number + 1}" for number in range(hosts)]
        self._directory = directory
        self.story = Story(self.clock.now, shown, left_out=str(self._directory))
        self.parts: dict[str, Part] = {}
        self.serving: dict[str, Part] = {}
        for name, runs in SERVICES.items():
            self._add(name, runs)
        for name in self.hosts:
            self._add(name, "agent")
        self._agenda: list[tuple[datetime, int, str, Callable[[], object]]] = []
        self._number = 0
        self.steps = 0
        self.last_step: int | None = None
        self.counts: Counter[str] = Counter()
        #: Requests that are carried out after their callers gave up, with their bodies.
        self.late: list[tuple[str, bytes]] = []
        self.invariants = Invariants(self)
        self._surroundings = contextlib.ExitStack()

    def _add(self, name: str, runs: str) -> None:
        elsewhere = {
            service: f"{URL}/{service}"
            for service in ("placement", "compute", "accelerator", "reservation", "image")
            if service not in runs.split(",")
        }
        self.parts[name] = Part(
            self,
            name,
            self._directory / name,
            runs,
            identity={"mode": "none"},
            endpoints=elsewhere,
            # With the usual periods, polls would be most of the work of a long simulation.
            agent={
                "host": name,
                "workers": 1,
                "heartbeat_period_s": _DAY_S / 2,
                "update_period_s": _DAY_S,
                "poll_period_s": _DAY_S,
            },
            compute={
                "host_down_after_s": int(2 * _DAY_S),
                "poll_period_s": _DAY_S,
                "provider_config_watch_s": 0.0,
                "bare_metal_period_s": _DAY_S,
                "quota_instances": 40,
                "quota_cores": 80,
            },
            accelerator={"report_period_s": _DAY_S, "poll_period_s": _DAY_S},
            audit={"period_s": _DAY_S},
            reservation={"poll_period_s": _DAY_S, "watch_period_s": _DAY_S},
            placement={"watchers": PlacementOptions().watchers},
        )
        for service in runs.split(","):
            self.serving[service] = self.parts[name]

    def __enter__(self) -> Self:
        self._disabled = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        for kind in (databases, disks, devices):
            self._surroundings.enter_context(kind.watched(self))
        for part in self.parts.values():
            part.start()
        return self

    def __exit__(self, *_error: object) -> None:
        for part in self.parts.values():
            part.die()
            part.release_resources()
        self._surroundings.close()
        self.invariants.close()
        logging.disable(self._disabled)

    def part_of(self, path: Path) -> Part | None:
        """The part to which a file belongs."""
        try:
            return self.parts.get(path.relative_to(self._directory).parts[0])
        except (ValueError, IndexError):
            return None

    # -------------------------------------------------------------------------------------------------- time

    def run_for(self, period: timedelta) -> None:
        """Runs everything that is due within `period`."""
        until = self.clock.now() + period
        at_once, last = 0, self.clock.now()
        while True:
            due = self._next_due()
            if due > until:
                self.clock.advance_to(until)
                return
            self.clock.advance_to(due)
            at_once, last = (at_once + 1, last) if self.clock.now() == last else (0, self.clock.now())
            if at_once > MOST_STEPS_AT_ONCE:
                self.wrong(f"the plane does not come to rest: {self._ready()}")
            self._step()

    def later(self, seconds: float, what: str, action: Callable[[], object]) -> None:
        self._number += 1
        due = self.clock.now() + timedelta(seconds=seconds)
        heapq.heappush(self._agenda, (due, self._number, what, action))

    def _next_due(self) -> datetime:
        moments = [part.upcoming() for part in self.parts.values() if part.alive]
        if self._agenda:
            moments.append(self._agenda[0][0])
        upcoming = min((moment for moment in moments if moment is not None), default=datetime.max.replace(tzinfo=UTC))
        return self.clock.now() if self._ready() else upcoming

    def _ready(self) -> list[tuple[Part, Task]]:
        return [(part, task) for part in self.parts.values() if part.alive for task in part.ready()]

    def _step(self) -> None:
        if self.steps == self.last_step:
            raise EndOfRun
        ready = self._ready()
        self.steps += 1
        if self._agenda and self._agenda[0][0] <= self.clock.now() and (not ready or self._turns.random() < 0.5):
            _, _, what, action = heapq.heappop(self._agenda)
            self.story.tell(what)
            action()
        elif ready:
            part, task = ready[self._turns.randrange(len(ready))]
            self._tick(part, task)
        self._faults_between_steps()
        self.invariants.check()

    def _tick(self, part: Part, task: Task) -> None:
        self.story.tell(f"{part.name} {task.name}")
        self.counts[task.name.partition("@")[0]] += 1

        def run(one: Task) -> tuple[datetime | None, bool]:
            try:
                return one.run_once(), True
            except MoorageError as error:
                self.story.tell(f"{part.name} {one.name} failed: {error.message}")
            except OSError as error:  # a simulated fault of its disk
                self.story.tell(f"{part.name} {one.name} failed: {error}")
            except Exception as error:  # noqa: BLE001 - any other error is a finding
                self.wrong(f"{part.name} {one.name} failed: {type(error).__name__}: {error}", error)
            return part.clock.now() + PAUSE_AFTER_FAILURE, False

        try:
            Context().run(part.run_once, task, run)
        except Killed as killed:
            if killed.part is not part:
                raise
            part.release_resources()

    # -------------------------------------------------------------------------------------------------- faults

    def _faults_between_steps(self) -> None:
        dice = self.dice
        if dice.calm:
            return
        for name, part in self.parts.items():
            if part.alive and dice.happens("killed"):
                self.died(part, "between two steps")
                part.release_resources()
            if dice.happens("clock"):
                wrong_s = dice.seconds("clock", 120.0, -120.0) if dice.one_of("clock", 3) else 0.0
                part.clock.set_wrong(seconds=wrong_s)
                self.story.tell(f"the clock of {name} is wrong by {wrong_s} s")
            if dice.happens("drift"):
                part.clock.set_wrong(rate=dice.seconds("drift", 1.0, -1.0) / 3600)
                self.story.tell(f"the clock of {name} drifts")

    def died(self, part: Part, where: str) -> None:
        """Marks the part as dead and schedules its restart, as systemd would."""
        part.die()
        away_s = self.dice.seconds("killed", 60.0, 1.0)
        if part.name in self.hosts and self.dice.happens("agent_late"):
            away_s = self.dice.seconds("agent_late", 8 * 3600.0, 60.0)
        self.story.tell(f"{part.name} dies {where}; back in {away_s} s")
        self.later(away_s, f"{part.name} starts", lambda: self.start(part))

    def start(self, part: Part) -> None:
        if part.alive:
            return
        part.release_resources()
        try:
            Context().run(part.start)
        except Killed as killed:
            if killed.part is not part:
                raise
            part.release_resources()
        except (MoorageError, OSError) as error:
            self.story.tell(f"{part.name} cannot start: {error}")
            part.die()
            part.release_resources()
            self.later(30.0, f"{part.name} starts", lambda: self.start(part))

    def database_away(self, part: Part) -> None:
        away_s = self.dice.seconds("away", 600.0, 1.0)
        part.away_until = self.clock.now() + timedelta(seconds=away_s)
        self.story.tell(f"the database of {part.name} is away for {away_s} s")

    def disk_full(self, part: Part) -> None:
        full_s = self.dice.seconds("full", 900.0, 1.0)
        part.full_until = self.clock.now() + timedelta(seconds=full_s)
        self.story.tell(f"the disk of {part.name} is full for {full_s} s")

    def calm(self) -> None:
        """Ends all faults and their effects on clocks, disks and databases."""
        self.dice.calm = True
        for part in self.parts.values():
            part.clock.set_wrong()
            part.away_until = part.full_until = self.clock.now()
            if not part.alive:
                self.start(part)

    # ------------------------------------------------------------------------------------------------ findings

    def answered(self, who: str, what: str, answer: ClientResponse) -> None:
        if answer.status >= 500 and answer.status != 503:
            self.wrong(f"{who} {what} was answered with {answer.status}: {answer.body[:500]!r}")

    def wrong(self, what: str, cause: BaseException | None = None) -> None:
        raise Wrong(f"seed {self.seed}, step {self.steps}: {what}") from cause
