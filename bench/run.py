"""One run. For each stage: two new databases and servers, loading, comparison of the answers, then the measurements."""

import contextlib
import hashlib
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bench import fill, fill_ours, operations, servers
from bench.databases import DatabaseServer, database_server, free_ports
from bench.floors import LOADING, floor_of
from bench.load import Operation, Round, TimedOut, Watched, drive
from bench.plan import Measure, Stage
from bench.processes import memory_mib
from bench.results import OURS, UPSTREAM, Row, Side
from bench.servers import Server
from bench.wire import Connection

#: Errors of a server, a client or the network, which end a row or stage, but not the run.
FAILURES = (RuntimeError, OSError, EOFError, TimedOut)

LOAD_CLIENTS = 8
#: Hosts that our server loads for each host of upstream, so that both take long enough to measure.
OURS_LOADS_MORE = 5


@dataclass(frozen=True)
class Settings:
    database: str
    rounds: int
    round_s: float
    #: Timeout for one answer of upstream, in seconds.
    patience_s: float
    #: Seconds after which no measurement is started.
    budget_s: float
    #: Ports; by default free ones for each stage, so that a server of an earlier stage cannot be in the way.
    ports: tuple[int, int] | None = None
    only: str = ""


@dataclass
class Run:
    settings: Settings
    rows: list[Row] = field(default_factory=list)
    #: Remarks of one sentence each: rows that were not measured, and doubtful figures.
    remarks: list[str] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)
    started: float = field(default_factory=time.monotonic)

    def run(self, stages: list[Stage]) -> None:
        kind = self.settings.database
        with database_server(kind) as theirs, database_server(kind) as own:
            self.versions[kind] = own.version()
            for stage in stages:
                if self._spent():
                    self.remarks.append(f"not measured, the time was up: {stage.cloud.profile} {stage.cloud.hosts:,}")
                    continue
                try:
                    _StageRun(self, stage).run({UPSTREAM: theirs, OURS: own})
                except FAILURES as error:
                    self.remarks.append(f"{stage.cloud.profile} {stage.cloud.hosts:,} ended early: {error!r}")
                    say(f"  !! {error!r}")

    def _spent(self) -> bool:
        return time.monotonic() - self.started > self.settings.budget_s

    def skip_row(self, row: str) -> bool:
        if not self._spent():
            return False
        self.remarks.append(f"not measured, the time was up: {row}")
        return True


class _StageRun:
    def __init__(self, run: Run, stage: Stage) -> None:
        self.report = run
        self.settings = run.settings
        self.stage = stage
        self.cloud = stage.cloud
        self.servers: dict[str, Server] = {}
        #: The first measurement on which upstream timed out; harder ones after it are skipped.
        self.gave_up = ""

    def run(self, databases: dict[str, DatabaseServer]) -> None:
        name = f"{self.cloud.profile}_{self.cloud.hosts}"
        say(f"\n{self.cloud.profile}, {self.cloud.hosts:,} hosts: starting both servers ...")
        makers: dict[str, Callable[[DatabaseServer, str, int], Server]] = {
            UPSTREAM: servers.upstream,
            OURS: servers.ours,
        }
        with contextlib.ExitStack() as stack:
            for (side, make), port in zip(makers.items(), self.settings.ports or free_ports(2), strict=True):
                self.servers[side] = stack.enter_context(servers.running(make(databases[side], name, port)))
            self._load(name)
            self._compare()
            for measure in self.stage.measures:
                if self.settings.only in measure.name and not self.report.skip_row(measure.name):
                    self._measure_or_say(measure)
            self._memory()

    # Loading

    def _load(self, name: str) -> None:
        """Loads the first hosts over HTTP, whose speed is a row; the others and all servers directly into the tables."""
        row = self._row(LOADING, LOAD_CLIENTS)
        loaded = {
            UPSTREAM: min(self.stage.loaded, self.cloud.hosts),
            OURS: min(self.stage.loaded * OURS_LOADS_MORE, self.cloud.hosts),
        }
        for side, server in self.servers.items():
            operations.prepare(Connection(server.url), self.cloud)
            clients = 1 if server.database.kind == "sqlite" and side == UPSTREAM else LOAD_CLIENTS
            _side(row, side).add(self._drive(side, operations.loading(self.cloud, loaded[side]), clients), 1)
        self._keep(row)
        fillers = {UPSTREAM: fill.fill, OURS: fill_ours.fill}
        for side, server in self.servers.items():
            server.stop()
            fillers[side](server.database.url_of(name), self.cloud, loaded[side])
            server.database.settle(name)
        # Both are restarted, because upstream caches names in memory, and they were written without it.
        for server in self.servers.values():
            server.start()

    def _compare(self) -> None:
        """Checks that both give the same answers; a wrong server could be fast because it is wrong."""
        for name, query in self.cloud.queries().items():
            answers = {side: _canonical(server.url, query) for side, server in self.servers.items()}
            if answers[UPSTREAM] != answers[OURS]:
                self._remark(f"{self.cloud.profile}: DIFFERENT ANSWERS to the query {name!r}: {answers}")

    # Measuring

    def _measure_or_say(self, measure: Measure) -> None:
        """Measures a row. A failure does not affect the other rows; clients still running are stopped."""
        try:
            self._keep(self._measure(measure))
        except FAILURES as error:
            self._remark(f"{measure.name}, {self.cloud.hosts:,} hosts: not measured: {error!r}")
            for server in self.servers.values():
                server.restart()

    def _measure(self, measure: Measure) -> Row:
        row = self._row(measure.name, measure.clients)
        latencies: dict[str, list[float]] = {UPSTREAM: [], OURS: []}
        strangers = []
        operation = measure.operation(self.cloud)
        for number in range(self.settings.rounds):
            for side in (UPSTREAM, OURS):
                if (found := self._round(row, side, measure, operation, first=number == 0)) is not None:
                    _side(row, side).add(found, measure.size)
                    latencies[side] += found.latencies
                    strangers.append(found.strangers_cpu / found.wall)
        for side, values in latencies.items():
            if len(values) >= 100:
                _side(row, side).p99_ms = statistics.quantiles(values, n=100)[98] * 1e3
        row.strangers = statistics.median(strangers)
        row.warnings += _doubts(row)
        return row

    def _round(self, row: Row, side: str, measure: Measure, operation: Operation, *, first: bool) -> Round | None:
        if side == OURS or not measure.explosive:
            if first:  # to fill caches and open connections
                self._drive(side, operation, 1, 0)
            return self._drive(side, operation, measure.clients, self.settings.round_s)
        if not first:
            return None
        if self.gave_up:
            row.upstream.note = f"not asked (gave up on {self.gave_up!r})"
            return None
        try:
            return self._drive(side, operation, measure.clients, 0, self.settings.patience_s)
        except TimedOut:
            self.gave_up = measure.name
            row.upstream.note = f"> {self.settings.patience_s:.0f} s"
            self.servers[UPSTREAM].restart()  # otherwise it would continue to work on abandoned requests
            return None

    def _drive(
        self, side: str, operation: Operation, clients: int, seconds: float = 1e9, patience_s: float = 300.0
    ) -> Round:
        server = self.servers[side]
        resting = tuple(pid for name, other in self.servers.items() if name != side for pid in other.pids)
        watched = Watched(server.pids, server.database.pids, resting)
        return drive(operation, server.url, watched, clients=clients, seconds=seconds, patience_s=patience_s)

    def _memory(self) -> None:
        mib = [memory_mib((*server.pids, *server.database.pids)) for server in self.servers.values()]
        alone = [memory_mib(server.pids) for server in self.servers.values()]
        row = self._row("memory, all processes", 0)
        row.memory_mib = (mib[0], mib[1])
        row.upstream.note, row.ours.note = (f"{size:.0f} MiB without the database" for size in alone)
        self._keep(row)

    def _row(self, name: str, clients: int) -> Row:
        floor = floor_of(self.settings.database, self.cloud.profile, self.cloud.hosts, name)
        return Row(name, self.cloud.profile, self.cloud.hosts, clients, floor)

    def _keep(self, row: Row) -> None:
        from bench.report import line

        self.report.rows.append(row)
        say(line(row))
        for warning in row.warnings:
            self._remark(f"{row.name}, {row.hosts:,} hosts: {warning}")

    def _remark(self, text: str) -> None:
        say(f"  !! {text}")
        self.report.remarks.append(text)


def _side(row: Row, side: str) -> Side:
    return row.upstream if side == UPSTREAM else row.ours


def _doubts(row: Row) -> list[str]:
    """Reasons why a figure is worthless: no operation was measured, or answers were unexpected."""
    found = []
    for name, side in ((UPSTREAM, row.upstream), (OURS, row.ours)):
        if side.requests and sum(side.cpu_ms) == 0:
            found.append(f"{name} used no CPU: was it the one that answered?")
        bad = {status: count for status, count in side.statuses.items() if status not in (200, 204)}
        if bad:
            found.append(f"{name} answered {bad}")
    return found


def _canonical(url: str, query: str) -> str:
    """A digest of all candidates and summaries, independent of their order."""
    status, answer = Connection(url).request("GET", f"/allocation_candidates?{query}")
    if status != 200:
        return f"{status}"
    document = json.loads(answer)
    requests = sorted(
        json.dumps(
            [one["allocations"], {suffix: sorted(found) for suffix, found in one["mappings"].items()}], sort_keys=True
        )
        for one in document["allocation_requests"]
    )
    for summary in document["provider_summaries"].values():
        summary["traits"].sort()
    text = json.dumps([requests, document["provider_summaries"]], sort_keys=True)
    return f"{len(requests)} candidates, {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def say(text: str) -> None:
    print(text, flush=True)
    sys.stdout.flush()
