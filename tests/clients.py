"""The stock clients for tests that run many commands: the same programs, without the second that each start costs.

`Clients` starts one process of .venv-clients that has the client imported, and makes a directory with an ``openstack`` that
hands its words, environment and streams to a fork of it (`served_client`). What runs is the client's own shell.
"""

import contextlib
import os
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.processes import end, python_of

_ASKING = """#!{python} -IS
import json, os, socket, sys
asking = socket.socket(socket.AF_UNIX)
asking.connect({socket!r})
words = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(asking, [len(words).to_bytes(4, "big")], [0, 1, 2])
asking.sendall(words)
sys.exit((asking.recv(1) or b"\\x63")[0])
"""


class Clients:
    """`directory` goes first in the PATH."""

    def __enter__(self) -> Self:
        python = python_of(".venv-clients")
        self._scratch = tempfile.TemporaryDirectory(prefix="moorage-clients-")
        self.directory = Path(self._scratch.name)
        at = self.directory / "socket"
        asking = self.directory / "openstack"
        asking.write_text(_ASKING.format(python=python, socket=str(at)))
        asking.chmod(0o755)
        command = [python, Path(__file__).with_name("served_client.py"), at]
        self._process = subprocess.Popen(command, env={"PATH": os.environ["PATH"], "PYTHONWARNINGS": "ignore"})
        deadline = time.monotonic() + 60
        while not at.exists():
            assert self._process.poll() is None, "the client does not start"
            assert time.monotonic() < deadline, "the client does not start within 60 s"
            time.sleep(0.05)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end(self._process)
        with contextlib.suppress(OSError):
            self._scratch.cleanup()
