"""Our placement alone, for the suite: run by .venv. Several of these may share a database.

usage: python -m tests.conformance.our_server VARIANT PORT DATABASE_URL literal|granian
"""

import os
import sys

from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from moorage.db.engine import open_engine
from moorage.db.migrations import upgrade
from moorage.identity.authenticators import TestTokens
from moorage.placement.routes import API, POLICIES
from moorage.placement.service import PlacementService
from moorage.telemetry import logs
from moorage.wire.app import Surroundings, WsgiApp, build
from moorage.wire.cors import CrossOrigin
from moorage.wire.serving import forget_variables_like_headers
from tests.conformance.literal_server import serve
from tests.conformance.variants import CORS_HEADER, CORS_ORIGIN, VARIANTS


def application() -> WsgiApp:
    """Loaded by granian in its worker, therefore without arguments: they are this process's."""
    forget_variables_like_headers(os.environ)
    variant, database_url = VARIANTS[sys.argv[1]], sys.argv[3]
    logs.set_up("warning")
    engine = open_engine(database_url)
    upgrade(engine, "placement")
    clock, ids = SystemClock(), RandomIds()
    service = PlacementService(engine, clock, ids)
    service.start()
    app = build(API, service, Surroundings(TestTokens(), POLICIES[variant.policy], ids))
    if variant.cors:
        app = CrossOrigin(frozenset({CORS_ORIGIN}), frozenset({CORS_HEADER})).around(app)
    return app


def main() -> None:
    port, front = int(sys.argv[2]), sys.argv[4]
    if front == "literal":
        serve(application(), port)
        return
    from granian.constants import Interfaces
    from granian.server import Server

    Server(
        "tests.conformance.our_server:application",
        factory=True,
        address="127.0.0.1",
        port=port,
        interface=Interfaces.WSGI,
        websockets=False,
        workers=1,
        blocking_threads=4,
        log_enabled=False,
    ).serve()


if __name__ == "__main__":
    main()
