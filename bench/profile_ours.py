"""Profiles one row of the plan in process through WSGI, with cProfile.

usage: python -m bench.profile_ours [DATABASE] PROFILE HOSTS ROW [COUNT]      e.g. sharing 300 "sharing, limit 10"
       python -m bench.profile_ours [DATABASE] PROFILE HOSTS loading          loads that many hosts

Prints wall and CPU time per operation without the profiler, the slowest ones, then the profile.
"""

import cProfile
import gc
import io
import json
import pstats
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from bench import operations
from bench.databases import KINDS, database_server
from bench.load import Client
from bench.plan import stages
from bench.wire import MICROVERSION, Connection
from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from moorage.db.engine import open_engine
from moorage.db.migrations import upgrade
from moorage.identity.authentication.authenticators import NoAuth
from moorage.placement.api.routes import API, POLICIES
from moorage.placement.service.service import PlacementService
from moorage.wire.app import AppContext, build_app

LINES = 40


class InProcess(Connection):
    """A connection that calls the application instead of a socket."""

    def __init__(self, app: Callable[..., Any]) -> None:
        super().__init__("http://127.0.0.1:1")
        self._app = app

    def build(self, method: str, path: str, body: object = None) -> bytes:
        return json.dumps([method, path, body]).encode()

    def send(self, request: bytes) -> tuple[int, bytes]:
        method, target, body = json.loads(request)
        path, _, query = target.partition("?")
        content = b"" if body is None else json.dumps(body).encode()
        environ = {
            "REQUEST_METHOD": method, "SCRIPT_NAME": "", "PATH_INFO": path, "QUERY_STRING": query,
            "SERVER_NAME": "bench", "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1", "HTTP_HOST": "bench",
            "HTTP_X_AUTH_TOKEN": "admin", "HTTP_ACCEPT": "application/json", "REMOTE_ADDR": "127.0.0.1",
            "HTTP_OPENSTACK_API_VERSION": f"placement {MICROVERSION}", "CONTENT_LENGTH": str(len(content)),
            "wsgi.input": io.BytesIO(content), "wsgi.errors": sys.stderr, "wsgi.url_scheme": "http",
            "wsgi.version": (1, 0), "wsgi.multithread": True, "wsgi.multiprocess": False, "wsgi.run_once": False,
        }  # fmt: skip
        if content:
            environ["CONTENT_TYPE"] = "application/json"
        statuses: list[str] = []
        answer = b"".join(self._app(environ, lambda status, headers, error=None: statuses.append(status)))
        return int(statuses[0][:3]), answer


def main() -> None:
    kind = sys.argv.pop(1) if sys.argv[1] in KINDS else "postgresql"
    profile, hosts, row, *more = sys.argv[1:]
    stage = next(one for one in stages([int(hosts)], full=True) if one.cloud.profile == profile)
    with database_server(kind) as database:
        engine, ids = open_engine(database.create("profiled")), RandomIds()
        upgrade(engine, "placement")
        service = PlacementService(engine, SystemClock(), ids)
        service.start()
        connection = InProcess(build_app(API, service, AppContext(NoAuth(), POLICIES["old"], ids)))
        operations.prepare(connection, stage.cloud)
        loading = operations.loading(stage.cloud, stage.cloud.hosts)
        if row == "loading":
            _profile(connection, loading, stage.cloud.hosts // 2)
        else:
            _all(connection, loading)
            _all(connection, operations.loading_servers(stage.cloud))
            database.settle("profiled")
            measure = next(one for one in stage.measures if row in one.name)
            _profile(connection, measure.operation(stage.cloud), int(more[0]) if more else 200)
        engine.dispose()


def _all(connection: Connection, operation: Callable[..., Any]) -> None:
    for _step in operation(connection, Client(0, 1), random.Random(1), Counter()):
        pass


def _profile(connection: Connection, operation: Callable[..., Any], count: int) -> None:
    steps = operation(connection, Client(0, 1), random.Random(1), Counter())
    next(steps)
    next(steps)
    collected, spans = _watch_collections()
    times, cpu = [], time.process_time()
    for _ in range(count // 2):
        started = time.perf_counter()
        next(steps)
        times.append((time.perf_counter() - started) * 1e3)
    cpu = (time.process_time() - cpu) / len(times) * 1e3
    gc.callbacks.pop()
    times.sort()
    print(
        f"garbage collections: {Counter(collected)}, the longest {max(spans, default=0) * 1e3:.1f} ms, {sum(spans) * 1e3:.0f} ms in all"
    )
    print(f"p50 {times[len(times) // 2]:.3f} ms, slowest {[round(one, 2) for one in times[-5:]]} ms")
    print(f"{sum(times) / len(times):.3f} ms wall, {cpu:.3f} ms CPU of this process (the database's is extra)")
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(count // 2 - 2):
        next(steps)
    profile.disable()
    out = io.StringIO()
    pstats.Stats(profile, stream=out).strip_dirs().sort_stats("tottime").print_stats(LINES)
    print(out.getvalue())


def _watch_collections() -> tuple[list[int], list[float]]:
    """[(generation, seconds)] of each garbage collection from now on. The oldest generation covers the whole snapshot."""
    generations: list[int] = []
    spans: list[float] = []
    started = [0.0]

    def watch(phase: str, details: dict[str, int]) -> None:
        if phase == "start":
            started[0] = time.perf_counter()
        else:
            generations.append(details["generation"])
            spans.append(time.perf_counter() - started[0])

    gc.callbacks.append(watch)
    return generations, spans


if __name__ == "__main__":
    main()
