"""A part of the plane that behaves like a process: a kill loses its memory, but not its files."""

import hashlib
import sqlite3
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from moorage.core.clock import VirtualClock
from moorage.core.ids import SeededIds
from moorage.jobs.background_tasks import Task, Wakeups, listens_to
from moorage.wire.transports import ClientResponse, InProcessTransport
from tests.plane import InProcessPlane
from tests.simulation.network import Hub, Line

if TYPE_CHECKING:
    from tests.simulation.world import World


class Killed(BaseException):
    """A part is killed here. Code that still runs while this is raised has no effect, because the part is dead."""

    def __init__(self, part: "Part", where: str) -> None:
        super().__init__(f"{part.name} {where}")
        self.part = part


class PartClock:
    """The simulated time on one machine, which may be wrong by an offset and a drift."""

    def __init__(self, world: VirtualClock) -> None:
        self._world = world
        self._offset = timedelta(0)
        self._rate = 0.0
        self._since = world.now()

    def now(self) -> datetime:
        if self._rate:
            return self._world.now() + self._offset + (self._world.now() - self._since) * self._rate
        return self._world.now() + self._offset

    def sleep(self, seconds: float) -> None:
        self._world.sleep(seconds)

    def set_wrong(self, *, seconds: float = 0.0, rate: float = 0.0) -> None:
        self._since, self._offset, self._rate = self._world.now(), timedelta(seconds=seconds), rate

    def in_world(self, moment: datetime) -> datetime:
        """The simulated time at which this clock will show `moment`, exact to the microsecond and not earlier."""
        left = moment - self.now()
        return self._world.now() + (left / (1 + self._rate) + timedelta(microseconds=2) if self._rate else left)


class Part:
    """`life` counts the starts; objects from before the last start are refused."""

    def __init__(
        self, world: "World", name: str, directory: Path, services: str, **sections: dict[str, object]
    ) -> None:
        self.world = world
        self.name = name
        self.clock = PartClock(world.clock)
        self.process = InProcessPlane(
            directory,
            services,
            clock=self.clock,
            authenticator=None,
            credentials=None,
            reach=lambda url: Line(world, self, url),
            hints=lambda wakeups: Hub(world, self, wakeups),
            starts=False,
            **sections,
        )
        self.state: Path = directory
        self.life = 0
        self.alive = False
        self.connections: list[sqlite3.Connection] = []
        #: The time until which its database, or its disk, fails.
        self.away_until = self.full_until = world.clock.now()
        self._rows: list[tuple[Task, threading.Event]] = []
        self._due: dict[str, datetime | None] = {}

    # ---------------------------------------------------------------------------------------- life and death

    def start(self) -> None:
        """Starts it as its command does. Raises `StartError` and `Killed`."""
        self.life += 1
        self.alive = True
        self._rows, self._due = [], {}
        seed = hashlib.sha256(f"{self.world.seed}/{self.name}/{self.life}".encode()).digest()
        self.process.cloud.ids = SeededIds(int.from_bytes(seed[:8]))
        self.process.start()
        tasks = self.process.in_turn()
        wakeups = self.process.wakeups
        self._rows = [(task, wakeups.listen(*listens_to(task), own=(task.name,))) for task in tasks]
        self._due = {task.name: self.clock.now() for task in tasks}

    def die(self) -> None:
        """From now on, the running code of this part has no effect."""
        self.alive = False

    def release_resources(self) -> None:
        """Releases what an operating system would take back from a dead process: connections and locks."""
        for connection in self.connections:
            connection.close()
        self.connections.clear()
        self.process.kill()
        self._rows, self._due = [], {}

    def raise_killed(self, where: str) -> None:
        """Raises `Killed` for an object from before the last start."""
        raise Killed(self, where)

    def point(self, where: str) -> None:
        """Called at every effect on the outside. Raises `Killed` if the part is dead or is killed at this point."""
        if not self.alive:
            raise Killed(self, where)
        if self.world.dice.happens("crash"):
            self.world.died(self, where)
            raise Killed(self, where)

    # ---------------------------------------------------------------------------------------- tasks and requests

    @property
    def wakeups(self) -> Wakeups | None:
        return self.process.wakeups if self.alive and self.process.is_running else None

    def ready(self) -> list[Task]:
        now = self.clock.now()
        return [
            task
            for task, woken in self._rows
            if woken.is_set() or ((due := self._due[task.name]) is not None and due <= now)
        ]

    def upcoming(self) -> datetime | None:
        """When the next task is due, in simulated time."""
        first = min((due for due in self._due.values() if due is not None), default=None)
        return None if first is None else self.clock.in_world(first)

    def run_once(self, task: Task, run: Callable[[Task], tuple[datetime | None, bool]]) -> bool:
        """One round of the task. Returns whether it succeeded."""
        for row, woken in self._rows:
            if row is task:
                woken.clear()
        self._due[task.name], succeeded = run(task)
        return succeeded

    def serve(
        self, url: str, method: str, path: str, headers: dict[str, str], body: bytes | None
    ) -> ClientResponse | None:
        """The answer, or None if the part is dead or is killed by this request."""
        if not self.alive or not self.process.is_running:
            return None
        try:
            answer = InProcessTransport(self.process.plane.app, url).send(method, path, headers, body)
        except Killed as killed:
            if killed.part is not self:
                raise
            return None
        return answer if self.alive else None

    def reload(self) -> None:
        """Reads the files of its start again, as on SIGHUP."""
        if self.alive and self.process.is_running:
            self.process.plane.reload()
