"""An accelerator agent in its own process: ``agent_process.py DIRECTORY [POINT]``. Tests start and kill it.

It publishes its providers with the uuids of `rig.rp` and serves ``DIRECTORY/acc.sock`` until it is stopped. At the
named point (`rig.Watch`) it kills itself with SIGKILL.
"""

import os
import signal
import sys
from pathlib import Path

from moorage.accelerator.host.agent_api import SocketServer, wsgi_app
from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from tests.unit.accelerator.rig import Rig, Watch


class KillingWatch(Watch):
    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    directory, *point = sys.argv[1:]
    directory, watch = Path(directory), KillingWatch()
    watch.arm(point[0] if point else None)
    rig = Rig(directory, clock=SystemClock(), watch=watch)
    SocketServer(wsgi_app(rig.agent, RandomIds()), directory / "acc.sock").start()
    signal.pause()


main()
