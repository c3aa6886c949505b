"""A private RabbitMQ that a test can stop, kill and restart on the same port."""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import time
from pathlib import Path

from tests import servers

SERVER = servers.SERVERS["rabbit"]


class Broker:
    def __init__(self) -> None:
        servers.install("rabbit")
        self._state: Path = servers.place() / f"broker-{os.getpid()}-{secrets.token_hex(4)}"
        self._state.mkdir(mode=0o755)
        self._identity = {}
        if os.geteuid() == 0:
            shutil.chown(self._state, SERVER.user, SERVER.user)
            self._identity = {"user": SERVER.user, "group": SERVER.user, "extra_groups": []}
        self._launch = SERVER.launch(self._state)
        self.url = self._launch.url
        self._process: subprocess.Popen | None = None

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        with (self._state / "log.txt").open("a") as out:
            self._process = subprocess.Popen(
                self._launch.command,
                stdout=out,
                stderr=out,
                cwd=self._state,
                env={**os.environ, "HOME": str(self._state), **self._launch.env},
                start_new_session=True,
                **self._identity,
            )
        deadline = time.monotonic() + servers.START_TIMEOUT_S
        while not self._answers():
            assert self._process.poll() is None, (self._state / "log.txt").read_text()[-2000:]
            assert time.monotonic() < deadline, "RabbitMQ did not start"
            time.sleep(0.1)

    def stop(self) -> None:
        """Stops it as a service manager does."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Suspends it: connections stay open, but nothing is answered."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.killpg(self._process.pid, signal.SIGCONT)

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self._state, ignore_errors=True)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, how)
        deadline = time.monotonic() + servers.STOP_TIMEOUT_S
        while servers._group_lives(self._process.pid):
            if time.monotonic() > deadline:
                os.killpg(self._process.pid, signal.SIGKILL)
            time.sleep(0.05)
        self._process.wait()
        self._process = None

    def _answers(self) -> bool:
        try:
            SERVER.connect(self.url)
        except Exception:  # noqa: BLE001 - any error of the driver means that the broker is not up yet
            return False
        return True
