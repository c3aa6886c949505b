"""The accelerator service in its own process: ``service_process.py DATABASE DIRECTORY PORT [POINT]``. Tests start it.

It serves the Accelerator API with the callers of `ByRole`. Instead of compute, the file ``DIRECTORY/told`` gets one
line of JSON for each event. At the named point (`commits`) it kills itself with SIGKILL.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from moorage.accelerator.service.event_task import EventsTask
from moorage.accelerator.service.host_jobs import EVENTS_QUEUE
from moorage.accelerator.store import tables
from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from tests.served import serve
from tests.unit.accelerator.rig import Watch
from tests.wire.accelerator.commits import watched
from tests.wire.accelerator.conftest import RecordedHints, process_in

WAITING = tables.jobs.select().where(tables.jobs.c.queue == EVENTS_QUEUE, tables.jobs.c.finished_at.is_(None))


class KillingWatch(Watch):
    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Compute:
    """The methods of compute's client that `EventsTask` calls."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def send_events(self, events) -> None:
        with self._path.open("a") as file:
            file.writelines(f"{json.dumps(event)}\n" for event in events)


def main() -> None:
    url, directory, port, *point = sys.argv[1:]
    clock = SystemClock()
    process = process_in(
        Path(directory, "service"), RecordedHints(), clock=clock, ids=RandomIds(), database={"accelerator": url}
    )
    engine = process.engine("accelerator")
    watch = KillingWatch()
    watch.arm(point[0] if point else None)
    watched(watch)
    task = EventsTask(engine, clock, Compute(Path(directory, "told")), worker="events", poll_s=5)

    def tell():
        """Sends events only if there are any; otherwise each run would commit and count as a point."""
        while True:
            with engine.connect() as connection:
                waiting = connection.execute(WAITING).first()
            if waiting is not None:
                task.run_once()
            time.sleep(0.02)

    threading.Thread(target=tell, daemon=True).start()
    serve(process.plane.app, int(port))


if __name__ == "__main__":
    main()
