"""Our placement alone, for the suite: run by .venv. Several of these may share a database.

usage: python -m tests.conformance.our_server VARIANT PORT DATABASE_URL literal|server
"""

import sys

from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from moorage.db.engine import open_engine
from moorage.db.migrations import upgrade
from moorage.identity.authenticators import TestTokens
from moorage.jobs.duties import DutyThreads, Wakeups
from moorage.placement.routes import API, POLICIES
from moorage.placement.service import PlacementService
from moorage.telemetry import logs
from moorage.wire.app import Surroundings, WsgiApp, build
from moorage.wire.cors import CrossOrigin
from tests import served
from tests.conformance import literal_server
from tests.conformance.variants import CORS_HEADER, CORS_ORIGIN, VARIANTS


def application() -> WsgiApp:
    variant, database_url = VARIANTS[sys.argv[1]], sys.argv[3]
    logs.set_up("warning")
    engine = open_engine(database_url)
    upgrade(engine, "placement")
    clock, ids = SystemClock(), RandomIds()
    service = PlacementService(engine, clock, ids)
    service.start()
    DutyThreads(clock, Wakeups()).start([service.lease_duty])
    app = build(API, service, Surroundings(TestTokens(), POLICIES[variant.policy], ids))
    if variant.cors:
        app = CrossOrigin(frozenset({CORS_ORIGIN}), frozenset({CORS_HEADER})).around(app)
    return app


def main() -> None:
    front = {"literal": literal_server, "server": served}[sys.argv[4]]
    front.serve(application(), int(sys.argv[2]))


if __name__ == "__main__":
    main()
