"""Python programs that tests run many times: one process imports a program, and each run is a fork (`forkserver`).

    moorage = moorage_server()
    done = moorage.run("moorage.cli.main:main", ["status"], environment={...})     # as subprocess.run, output captured
    plane = moorage.start("moorage.cli.main:main", ["up"], environment={...}, stdout=log, stderr=log)   # as Popen

A run is the whole program from its entry point on. Do not use it for tests of how a program starts: the interpreter's
options, its imports, or the time that they take.
"""

import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self

ROOT = Path(__file__).parents[1]
START_TIMEOUT_S = 120

_ASKING = """#!{python} -IS
import json, os, signal, socket, sys
asking = socket.socket(socket.AF_UNIX)
asking.connect({socket!r})
order = {{"program": {program!r}, "words": sys.argv[1:], "directory": os.getcwd(), "environment": dict(os.environ),
          "session": False, "longest_sleep_s": {longest_sleep_s!r}}}
order = json.dumps(order).encode()
socket.send_fds(asking, [len(order).to_bytes(4, "big")], [0, 1, 2])
asking.sendall(order)
pid = int.from_bytes(asking.recv(4), "big")
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, lambda number, _: os.kill(pid, number))
status = int.from_bytes(asking.recv(4) or b"\\0\\0\\0\\x63", "big", signed=True)
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


class Fork:
    """A run of a program, with the methods of `subprocess.Popen`. When no reference to it is left, the program is
    killed.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.returncode: int | None = None
        self.pid = int.from_bytes(connection.recv(4), "big")
        assert self.pid, "the program could not be forked"

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        if self._ended(timeout) is None:
            raise subprocess.TimeoutExpired(f"pid {self.pid}", timeout)
        return self.returncode

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            self._connection.settimeout(timeout)
            with contextlib.suppress(TimeoutError, BlockingIOError):
                # End of file: the fork server has ended, and with it the fork.
                told = self._connection.recv(4) or (-signal.SIGKILL).to_bytes(4, "big", signed=True)
                self.returncode = int.from_bytes(told, "big", signed=True)
                self._connection.close()
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """A process of `python` that has imported `modules` (see `forkserver`); it ends with this one, or by `close`."""

    def __init__(
        self,
        python: Path,
        *modules: str,
        environment: Mapping[str, str] | None = None,
        longest_sleep_s: float | None = None,
    ) -> None:
        """`longest_sleep_s`: limits each sleep of the programs to this time."""
        self._longest_sleep_s = longest_sleep_s
        scratch = tempfile.TemporaryDirectory(prefix="moorage-forks-")
        self._python = python
        self._directory = Path(scratch.name)
        self._socket = self._directory / "socket"
        process = subprocess.Popen(
            [python, "-P", Path(__file__).with_name("forkserver.py"), self._socket, *modules],
            stdin=subprocess.PIPE,  # the pipe closes when this process ends, even by a kill, and then the server ends
            # Hides the home of the person who runs the tests, because some modules read it when they are imported.
            env={"PATH": os.environ["PATH"], "HOME": scratch.name, **(environment or {})},
            cwd=scratch.name,
            start_new_session=True,  # Ctrl-C is for the tests, which end what they started
        )
        self.close = weakref.finalize(self, _close, process, scratch)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._socket.exists():
            assert process.poll() is None, f"{modules[0]} cannot be imported by {python}"
            assert time.monotonic() < deadline, f"{modules[0]} is not imported within {START_TIMEOUT_S} s"
            time.sleep(0.02)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def start(
        self,
        program: str,
        words: Sequence[object],
        *,
        environment: Mapping[str, str],
        stdout: IO,
        stderr: IO,
        directory: Path | None = None,
        start_new_session: bool = False,
    ) -> Fork:
        """`program`: see `forkserver`. Its standard input is an empty pipe."""
        order = {
            "program": program,
            "words": [str(word) for word in words],
            "directory": str(directory or Path.cwd()),
            "environment": dict(environment),
            "session": start_new_session,
            "longest_sleep_s": self._longest_sleep_s,
        }
        text = json.dumps(order).encode()
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(str(self._socket))
        stdin, nothing = os.pipe()
        os.close(nothing)
        streams = [stdin, stdout.fileno(), stderr.fileno()]
        socket.send_fds(connection, [len(text).to_bytes(4, "big")], streams)
        os.close(stdin)
        connection.sendall(text)
        return Fork(connection)

    def run(
        self, program: str, words: Sequence[object], *, environment: Mapping[str, str], timeout: float, **more: object
    ) -> subprocess.CompletedProcess[str]:
        """Runs it to its end, with its output; kills it after `timeout`. `more`: of `start`."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            fork = self.start(program, words, environment=environment, stdout=out, stderr=err, **more)
            try:
                status = fork.wait(timeout)
            except subprocess.TimeoutExpired:
                fork.kill()
                fork.wait()
                raise
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess([program, *map(str, words)], status, out.read(), err.read())

    def executable(self, name: str, program: str) -> Path:
        """A file for shells and for programs that start others; put its directory first in the PATH."""
        path = self._directory / "bin" / name
        path.parent.mkdir(exist_ok=True)
        asking = _ASKING.format(
            python=self._python, socket=str(self._socket), program=program, longest_sleep_s=self._longest_sleep_s
        )
        path.write_text(asking)
        path.chmod(0o755)
        return path


def _close(process: subprocess.Popen, scratch: tempfile.TemporaryDirectory) -> None:
    process.stdin.close()
    process.wait()
    scratch.cleanup()


@functools.cache
def moorage_server() -> ForkServer:
    """The fork server that the tests of this process share; it has imported `moorage up` and all other commands."""
    drivers = ("alembic.migration", "psycopg", "pymysql", "sqlalchemy.dialects.sqlite.pysqlite",
               "sqlalchemy.dialects.postgresql.psycopg", "sqlalchemy.dialects.mysql.pymysql")  # fmt: skip
    return ForkServer(Path(sys.executable), "moorage.*", *drivers, environment={"PYTHONPATH": f"{ROOT}/src:{ROOT}"})
