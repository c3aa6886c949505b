"""Our placement with delayed answers of its database, so that many requests arrive while a group is being written.

usage: python -m tests.system.placement.guessing PORT DATABASE_URL WARY DIRECTORY

WARY replaces `moorage.placement.sync.committer.GROUPS_AFTER_MISS`: after another process has written, this many groups
are not optimistic.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from moorage.db.session import StatementPipeline
from moorage.db.statements import Command, Rows
from moorage.placement.sync import committer
from moorage.telemetry import logs
from tests.plane import InProcessPlane
from tests.ports import free_port
from tests.processes import ROOT, running
from tests.served import serve

#: The delay of the database's answers to writes.
AWAY_S = 0.008


class Guessing(NamedTuple):
    url: str


@contextlib.contextmanager
def guessing_servers(database_url: str, wary: Sequence[int], directory: Path) -> Iterator[list[Guessing]]:
    """Starts one process for each element of `wary`, all on one database."""
    with contextlib.ExitStack() as stack:
        servers = []
        for number, one in enumerate(wary):
            port = free_port()
            servers.append(Guessing(f"http://127.0.0.1:{port}/placement"))
            program = "tests.system.placement.guessing"
            own = directory / f"server-{number}"
            command = [sys.executable, "-m", program, str(port), database_url, str(one), str(own)]
            log = own.with_suffix(".log")
            stack.enter_context(running(command, f"{servers[-1].url}/", log, PYTHONPATH=f"{ROOT}/src:{ROOT}"))
        yield servers


def _move_database_away() -> None:
    start = StatementPipeline.start

    def started(
        batches: StatementPipeline, commands: Sequence[Command], *, begin: bool, commit: bool
    ) -> Callable[[], list[Rows]]:
        finish = start(batches, commands, begin=begin, commit=commit)

        def finish_later() -> list[Rows]:
            time.sleep(AWAY_S)
            return finish()

        return finish_later

    StatementPipeline.start = started


def main() -> None:
    port, database_url, wary, directory = sys.argv[1:]
    logs.set_up_logging("warning")
    _move_database_away()
    committer.GROUPS_AFTER_MISS = int(wary)
    database = {"placement": database_url}
    with InProcessPlane(Path(directory), "placement", clock=SystemClock(), ids=RandomIds(), database=database) as plane:
        plane.plane.start_tasks()
        serve(plane.plane.app, int(port), threads=8)


if __name__ == "__main__":
    main()
