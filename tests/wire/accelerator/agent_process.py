"""An accelerator agent as a process of its own: ``agent_process.py DIRECTORY``. Not a test; one starts and kills it.

It publishes its providers under the uuids of `rig.rp` and serves ``DIRECTORY/acc.sock`` until it is ended.
"""

import signal
import sys
from pathlib import Path

from moorage.accelerator.agent_api import wsgi_app
from moorage.accelerator.agent_socket import SocketServer
from moorage.core.clock import SystemClock
from moorage.core.ids import RandomIds
from tests.unit.accelerator.rig import Rig


def main() -> None:
    directory = Path(sys.argv[1])
    rig = Rig(directory, clock=SystemClock())
    SocketServer(wsgi_app(rig.agent, RandomIds()), directory / "acc.sock").start()
    signal.pause()


main()
