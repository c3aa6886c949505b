"""Runs our placement alone for the suite, in .venv. Several of these may share a database.

usage: python -m tests.conformance.our_server VARIANT PORT DATABASE_URL literal|server DIRECTORY
"""

import sys
from pathlib import Path

from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from moorage.telemetry import logs
from moorage.wire.middleware import CrossOrigin
from tests import served
from tests.conformance import literal_server
from tests.conformance.variants import CORS_HEADER, CORS_ORIGIN, VARIANTS
from tests.plane import InProcessPlane


def main() -> None:
    name, port, database_url, front, directory = sys.argv[1:]
    variant = VARIANTS[name]
    logs.set_up_logging("warning")
    with InProcessPlane(
        Path(directory, name),
        "placement",
        clock=SystemClock(),
        ids=RandomIds(),
        placement={"policy": variant.policy},
        database={"placement": database_url},
    ) as plane:
        plane.plane.start_tasks()
        app = plane.alone("placement")
        if variant.cors:
            app = CrossOrigin(frozenset({CORS_ORIGIN}), frozenset({CORS_HEADER})).wrap(app)
        {"literal": literal_server, "server": served}[front].serve(app, int(port))


if __name__ == "__main__":
    main()
