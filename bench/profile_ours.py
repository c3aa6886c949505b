"""Where our time goes: one request again and again in process, through WSGI, without a socket.

usage: python -m bench.profile_ours DATABASE_URL METHOD PATH [BODY [COUNT]]

``{new}`` in path and body is a new UUID each time. Prints wall and CPU time per request, then the profile.
"""

import cProfile
import io
import pstats
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

from bench.wire import MICROVERSION
from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from moorage.db.engine import open_engine
from moorage.db.migrations import upgrade
from moorage.identity.authenticators import NoAuth
from moorage.placement.routes import API, POLICIES
from moorage.placement.service import PlacementService
from moorage.wire.app import Surroundings, build

LINES = 45


def main() -> None:
    url, method, path, *more = sys.argv[1:]
    body, count = more[0] if more else "", int(more[1]) if more[1:] else 200
    engine, ids = open_engine(url), RandomIds()
    upgrade(engine, "placement")
    service = PlacementService(engine, SystemClock(), ids)
    service.start()
    app = build(API, service, Surroundings(NoAuth(), POLICIES["old"], ids))
    print(_repeated(app, method, path, body, 5)[0])
    cpu, wall = time.process_time(), time.perf_counter()
    _repeated(app, method, path, body, count)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(f"{wall / count * 1e3:.3f} ms wall, {cpu / count * 1e3:.3f} ms CPU of this process (the database's is extra)")
    profile = cProfile.Profile()
    profile.enable()
    _repeated(app, method, path, body, count)
    profile.disable()
    out = io.StringIO()
    pstats.Stats(profile, stream=out).strip_dirs().sort_stats("tottime").print_stats(LINES)
    print(out.getvalue())


def _repeated(app: Callable[..., Any], method: str, path: str, body: str, count: int) -> list[str]:
    statuses: list[str] = []
    for _ in range(count):
        new = str(uuid.uuid4())
        where, _, query = path.replace("{new}", new).partition("?")
        content = body.replace("{new}", new).encode()
        environ = {
            "REQUEST_METHOD": method, "SCRIPT_NAME": "", "PATH_INFO": where, "QUERY_STRING": query,
            "SERVER_NAME": "bench", "SERVER_PORT": "80", "SERVER_PROTOCOL": "HTTP/1.1", "HTTP_HOST": "bench",
            "HTTP_X_AUTH_TOKEN": "admin", "HTTP_ACCEPT": "application/json", "REMOTE_ADDR": "127.0.0.1",
            "HTTP_OPENSTACK_API_VERSION": f"placement {MICROVERSION}", "CONTENT_LENGTH": str(len(content)),
            "wsgi.input": io.BytesIO(content), "wsgi.errors": sys.stderr, "wsgi.url_scheme": "http",
            "wsgi.version": (1, 0), "wsgi.multithread": True, "wsgi.multiprocess": False, "wsgi.run_once": False,
        }  # fmt: skip
        if content:
            environ["CONTENT_TYPE"] = "application/json"
        answer = app(environ, lambda status, headers, error=None: statuses.append(status))
        for _part in answer:
            pass
    return statuses


if __name__ == "__main__":
    main()
