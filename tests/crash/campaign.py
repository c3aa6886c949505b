"""Kills a server repeatedly under load, and checks everything after each death.

The whole campaign uses one database, one set of tenants and one server: the writes of the first round must still exist
after the last.
"""

import contextlib
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from moorage.db.engine import open_engine
from tests.crash.databases import DatabaseServer
from tests.crash.faults import POINTS, Plan
from tests.crash.load import Load, Wrong, set_up
from tests.crash.mariadb_line import MariadbLine
from tests.crash.postgresql_line import PostgresqlLine
from tests.crash.processes import DEADLINE_S, Server
from tests.crash.reading import Seen, Tables, wrong_answers
from tests.crash.tenants import Tenant
from tests.crash.wire import Client, Lost

TENANTS = 4
SHARED = [f"5ba7ed00-0000-4000-8000-{number:012d}" for number in range(3)]

#: When a server is killed: at a point around a commit, right after an answer, at a random moment, or while it starts.
WAYS = (*POINTS, "answer", "random", "starting")
#: The ways that can be used with each database.
KNOWN_WAYS = {"sqlite": WAYS, "postgresql": WAYS, "mariadb": ("commit", "committed", "answer", "random")}
#: Time limit from a kill to the first acknowledged write.
BACK_WITHIN_S = 2.0

#: The highest number of the statement after which a transaction may be interrupted.
MOST_STATEMENTS = 6
#: If the planned point is not reached in this time (no transaction has that many statements), the campaign kills the
#: server.
PATIENCE_S = 1.5


@dataclass
class Summary:
    kills: Counter = field(default_factory=Counter)  #: {where it died: how often}
    back_s: list[float] = field(default_factory=list)  #: from SIGKILL to the first write that was acknowledged
    database_back_s: list[float] = field(default_factory=list)  #: from a kill of the database to its next connection
    acknowledged: Counter = field(default_factory=Counter)  #: {kind of request: how often}
    #: Requests without an answer, by their result: carried out, or not at all.
    unanswered: Counter = field(default_factory=Counter)

    def quantile(self, share: float) -> float:
        return _quantile(self.back_s, share)

    def lines(self) -> Iterator[str]:
        yield f"{self.kills.total()} kills: " + ", ".join(
            f"{count} {where}" for where, count in self.kills.most_common()
        )
        yield f"{self.acknowledged.total()} requests acknowledged: " + ", ".join(
            f"{count} {what}" for what, count in self.acknowledged.most_common()
        )
        yield f"{self.unanswered.total()} without an answer: " + ", ".join(
            f"{count} {what}" for what, count in sorted(self.unanswered.items())
        )
        if self.back_s:
            yield f"from SIGKILL to the first acknowledged write, {len(self.back_s)} times: {_shown(self.back_s)} s"
        if self.database_back_s:
            yield f"to when the database took connections again: {_shown(self.database_back_s)} s"


#: {name in the printed line: quantile of the times}
_SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "most": 1.0}


def _shown(seconds: list[float]) -> str:
    return ", ".join(f"{name} {_quantile(seconds, share):.2f}" for name, share in _SHARES.items())


def _quantile(seconds: list[float], share: float) -> float:
    ordered = sorted(seconds)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


class World:
    """The tenants, and the checks of everything that must hold after their requests."""

    def __init__(self, url: str, database_url: str, seed: int) -> None:
        self.url = url
        self.tenants = [Tenant(number, seed, SHARED) for number in range(TENANTS)]
        self._tables = Tables(open_engine(database_url))
        self.summary = Summary()
        self._probes = 0

    def set_up(self) -> None:
        client = Client(self.url)
        set_up(client, self.tenants, SHARED)
        client.close()

    def first_write(self, since: float, has_died: Callable[[], bool], deadline_s: float = DEADLINE_S) -> bool:
        """Repeats a write until it is acknowledged; records the time since the kill. False if the server died again."""
        self._probes += 1
        client = Client(self.url)
        try:
            while time.perf_counter() - since < deadline_s:
                with contextlib.suppress(Lost):
                    answer = client.send("PUT", f"/traits/CUSTOM_PROBE_{self._probes}")
                    if answer.status in (201, 204):
                        self.summary.back_s.append(time.perf_counter() - since)
                        return True
                    if answer.status != 503:
                        raise Wrong(str(answer))
                if has_died():
                    return False
                time.sleep(0.002)
        finally:
            client.close()
        raise Wrong(f"not back after {deadline_s} s")

    def check(self, tables: Tables | None = None) -> None:
        """Checks the tables, then that the service answers the same. Raises `Wrong` with every error."""
        seen, wrong = (tables or self._tables).read()
        for tenant in self.tenants:
            step, state = tenant.known.pending, dict(tenant.known.state)
            wrong += tenant.known.resolve(seen.states)
            if step is not None:
                done = (
                    "carried out"
                    if tenant.known.state.keys() != state.keys() or _moved(tenant, state)
                    else "not at all"
                )
                self.summary.unanswered[done] += 1
        wrong += self._strangers(seen)
        wrong += self._shared_generations(seen)
        client = Client(self.url)
        try:
            wrong += wrong_answers(client, seen)
        finally:
            client.close()
        if wrong:
            raise Wrong("\n".join(wrong))

    def _strangers(self, seen: Seen) -> Iterator[str]:
        known = {uuid for tenant in self.tenants for uuid, state in tenant.known.state.items() if state is not None}
        for uuid in seen.states.keys() - known - set(SHARED):
            yield f"nobody asked for {uuid}: {seen.states[uuid]}"

    def _shared_generations(self, seen: Seen) -> Iterator[str]:
        """Each acknowledged claim increases the generation of its shared providers once, and nothing else changes
        it.
        """
        for uuid in SHARED:
            moved = 1 + sum(tenant.known.shared.get(uuid, 0) for tenant in self.tenants)
            if seen.providers[uuid].generation != moved:
                yield f"shared provider {uuid} was moved {moved} times and is at {seen.providers[uuid].generation}"

    def note(self, load: Load) -> None:
        self.summary.acknowledged.update(load.counts)


def _moved(tenant: Tenant, before: dict) -> bool:
    return any(tenant.known.state[uuid] != state for uuid, state in before.items())


class Shuffled:
    """Draws from shuffled copies of the items, so each is drawn equally often."""

    def __init__(self, every: Sequence[str], chance: random.Random) -> None:
        self._every, self._chance = every, chance
        self._left: list[str] = []

    def draw(self) -> str:
        self._left = self._left or self._chance.sample(self._every, len(self._every))
        return self._left.pop()


class ServerCampaign:
    """Kills the server process with its supervisor; on SQLite this also kills the database."""

    def __init__(
        self,
        directory: Path,
        database_url: str,
        *,
        seed: int = 1,
        zygote: bool = True,
        ways: Sequence[str] = (),
        least_nth: int = 1,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """`ways`: the default is all ways of this kind of database. `least_nth`: the number of the first transaction at
        which the server may be killed. `patience_s`: see `PATIENCE_S`.
        """
        kind = database_url.partition(":")[0]
        line = {"postgresql": PostgresqlLine, "mariadb": MariadbLine}.get(kind)
        self._line = line and line(database_url, self._fatal)
        self._server = Server(directory, self._line.url if self._line else database_url, zygote=zygote)
        self.world = World(self._server.url, database_url, seed)
        self._random = random.Random(seed)
        self._last_words = ""
        # Only processes forked by the zygote can kill themselves on request.
        self._ways = Shuffled(ways or (KNOWN_WAYS[kind] if zygote else ("answer", "random")), self._random)
        self._least_nth = least_nth
        self._patience_s = patience_s

    def run(self, rounds: int) -> Summary:
        summary = self.world.summary
        with self._set_up():
            self._server.kill()
            self._dead()
            while summary.kills.total() < rounds:
                way = self._ways.draw()
                self._start(self._plan(way))
                if not self.world.first_write(self._died_at, self._has_died):
                    summary.kills["starting"] += 1
                elif self._died_while_checked():
                    summary.kills["looked at"] += 1
                else:
                    summary.kills[self._work_until_dead(way)] += 1
            self._server.start()
            self.world.first_write(self._died_at, lambda: False)
            self.world.check()
        return summary

    @contextlib.contextmanager
    def running_with_load(self, requests: int = 50) -> Iterator[World]:
        """Yields after this number of requests was answered and the clients have stopped; nothing is killed."""
        with self._set_up():
            enough = threading.Event()
            load = Load(self.world.url, self.world.tenants, lambda number: number >= requests and enough.set())
            if not enough.wait(DEADLINE_S):
                raise Wrong("no answers")
            load.stop()
            load.join()
            yield self.world

    @contextlib.contextmanager
    def _set_up(self) -> Iterator[None]:
        with self._server:
            self._server.start()
            self.world.first_write(time.perf_counter(), lambda: False)
            self.world.summary.back_s.clear()  # this write waited for the creation of the tables
            self.world.set_up()
            yield

    @property
    def server_log(self) -> str:
        return self._server.last_log

    def _start(self, plan: Plan | None) -> None:
        if self._line is not None:
            self._last_words = ""
            self._line.arm(plan)
        self._server.start(plan if self._line is None else None)

    def _fatal(self, last_words: str) -> None:
        self._last_words = last_words
        self._server.kill()

    def _plan(self, way: str) -> Plan | None:
        if way == "starting":
            return Plan(self._random.choice(POINTS), position=self._random.randint(1, MOST_STATEMENTS))
        if way not in POINTS:
            return None
        position = self._random.randint(1, MOST_STATEMENTS)
        # Spared: the transaction of the start, and the first write, whose time is recorded.
        nth = self._random.randint(self._least_nth, max(self._least_nth, 3 if way == "statement" else 10))
        return Plan(way, nth, position, spared=2)

    def _died_while_checked(self) -> bool:
        """Checks the tables and the service. Returns whether the server died meanwhile: read transactions count for its
        plan.
        """
        try:
            self.world.check()
        except Lost:
            if self._server.died(self._patience_s) is None:
                raise
            self._dead()
            return True
        return False

    def _work_until_dead(self, way: str) -> str:
        """Sends requests until the server is dead; returns the point at which it died."""
        last = self._random.randint(1, 60) if way == "answer" else 0

        def answered(number: int) -> None:
            if number == last:
                self._server.kill()

        load = Load(self.world.url, self.world.tenants, answered)
        where = self._server.died(self._random.uniform(0.0, 0.3) if way == "random" else self._patience_s)
        if where is None:  # a random moment is chosen, or the planned point does not occur in this work
            way = "random"
            self._server.kill()
            where = self._server.died()
        if self._line is not None:
            self._line.arm(None)
        self._dead()
        load.join()
        self.world.note(load)
        return where or self._last_words or way

    def _has_died(self) -> bool:
        if self._server.died(0.0) is None:
            return False
        self._dead()
        return True

    def _dead(self) -> None:
        self._server.died()
        self._died_at = time.perf_counter()


#: How the database is interrupted: "all" kills all its processes, "backend" one process that serves a client,
#: "terminate" ends one connection, "stop" is an orderly stop.
DATABASE_WAYS = {
    "postgresql": ("all", "all", "backend", "terminate", "stop"),
    "mariadb": ("all", "all", "stop"),
}


class DatabaseCampaign:
    """Kills the database of a server, which must survive and reconnect by itself."""

    def __init__(self, directory: Path, database: DatabaseServer, *, seed: int = 1) -> None:
        self._database = database
        self._server = Server(directory, database.url)
        self.world = World(self._server.url, database.url, seed)
        self._random = random.Random(seed)
        self._ways = Shuffled(DATABASE_WAYS[database.kind], self._random)

    def run(self, rounds: int) -> Summary:
        summary = self.world.summary
        with self._server:
            self._server.start()
            self.world.first_write(time.perf_counter(), lambda: False)
            summary.back_s.clear()  # this write waited for the creation of the tables
            self.world.set_up()
            while summary.kills.total() < rounds:
                self._round(self._ways.draw())
        return summary

    @property
    def server_log(self) -> str:
        return self._server.last_log

    def _round(self, way: str) -> None:
        moment = self._random.randint(1, 60)
        reached = threading.Event()
        load = Load(self.world.url, self.world.tenants, lambda number: number >= moment and reached.set())
        if not reached.wait(DEADLINE_S):
            raise Wrong("no answers")
        killed_at = time.perf_counter()
        self._end(way)
        waiting = threading.Thread(target=self._await_database, args=(killed_at,))
        waiting.start()
        load.stop()
        self.world.first_write(killed_at, lambda: self._server.died(0.0) is not None)
        waiting.join()
        load.join()
        self.world.note(load)
        self.world.check()
        self.world.summary.kills[way] += 1

    def _await_database(self, killed_at: float) -> None:
        """Records how long the database itself needs until it accepts connections again."""
        self._database.wait()
        self.world.summary.database_back_s.append(time.perf_counter() - killed_at)

    def _end(self, way: str) -> None:
        """Interrupts the database. Returns when it runs again, or has begun to restart by itself."""
        if way == "all":
            self._database.kill()
            self._database.start()
        elif way == "stop":
            self._database.stop()
            self._database.start()
        elif way == "terminate":
            self._database.execute(f"SELECT pg_terminate_backend({self._any_backend()})")
        else:
            before = self._database.starts()
            os.kill(self._any_backend(), signal.SIGKILL)
            deadline = time.monotonic() + DEADLINE_S
            while self._database.starts() == before:
                if time.monotonic() > deadline:
                    raise Wrong("PostgreSQL did not start again after one of its processes was killed")
                time.sleep(0.002)

    def _any_backend(self) -> int:
        """The pid of a random process that serves one of the server's connections."""
        return self._random.choice(self._database.backends())
