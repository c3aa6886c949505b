"""The server under test as a process group that can be killed and restarted within a tenth of a second.

Not here: why it kills itself (`faults`), and the clients that use it meanwhile (`load`).
"""

import atexit
import contextlib
import functools
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Self

from tests.crash.faults import Plan
from tests.crash.wire import Client, Lost
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
#: `moorage` of this checkout, even if another version is installed.
_COMMAND = (sys.executable, "-c", "from moorage.cli.main import main; main()")
DEADLINE_S = 30


class Zygote:
    """Starts `moorage up` by a fork instead of a new interpreter. `packages`: packages whose modules it imports."""

    def __init__(self, *packages: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.zygote", *packages],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=_environment(),
        )

    def fork(self, order: Mapping[str, object]) -> int:
        """See `tests.crash.zygote`."""
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(DEADLINE_S)


@functools.cache
def zygote_of(*packages: str) -> Zygote:
    """One zygote for all tests of this process, because its imports take two seconds."""
    zygote = Zygote(*packages)
    atexit.register(zygote.close)
    return zygote


class Process:
    """`moorage up` with the configuration file `config`, forked from `zygote`, or a new interpreter without one.

    `bounds`, `effects`: see `tests.crash.zygote`; they have an effect only in forks.
    """

    def __init__(
        self,
        config: Path,
        zygote: Zygote | None,
        *,
        bounds: Mapping[str, float] | None = None,
        effects: Path | None = None,
    ) -> None:
        self.directory = config.parent
        self.log = self.directory / "log"
        self._config = config
        self._bounds = dict(bounds or {})
        self._effects = effects
        self._alive = self.directory / "alive"
        os.mkfifo(self._alive)
        self._zygote = zygote
        self._reading: int | None = None
        self.pid = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._reading is not None:
            self.kill()
            self.died()

    def start(self, plan: Plan | None = None) -> None:
        """Does not wait until the server answers; `wait` does."""
        # Opened first and non-blocking, so that the new process does not block when it opens the other end.
        self._reading, self._last_words = os.open(self._alive, os.O_RDONLY | os.O_NONBLOCK), ""
        if self._zygote is not None:
            order = {
                "config": str(self._config),
                "log": str(self.log),
                "alive": str(self._alive),
                "plan": plan and asdict(plan),
                "bounds": self._bounds,
                "effects": self._effects and str(self._effects),
            }
            self.pid = self._zygote.fork(order)
            return
        writing = os.open(self._alive, os.O_WRONLY)
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                [*_COMMAND, "up", "--config", self._config], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                pass_fds=(writing,), start_new_session=True, env=_environment(),
            )  # fmt: skip
        os.close(writing)
        self.pid = self._process.pid

    def kill(self) -> None:
        """Kills supervisor and worker at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def stop(self) -> None:
        """Sends SIGTERM to the supervisor alone, as an init system does."""
        os.kill(self.pid, signal.SIGTERM)

    def died(self, patience_s: float = DEADLINE_S) -> str | None:
        """Waits until all its processes have ended. Returns the point of death, which is empty after a kill from
        outside; None if it still lives.
        """
        if self._reading is None:
            return self._last_words
        deadline = time.monotonic() + patience_s
        while select.select([self._reading], [], [], max(0.0, deadline - time.monotonic()))[0]:
            if words := os.read(self._reading, 100).decode():
                self._last_words = words
                continue
            os.close(self._reading)
            self._reading = None
            if self._zygote is None:
                self._process.wait(DEADLINE_S)
            return self._last_words
        return None

    @property
    def last_log(self) -> str:
        return self.log.read_text()[-3000:]


class Server(Process):
    """Placement alone, as `moorage up` runs it.

    `zygote`: forks instead of starting a new interpreter; only then `bounds` replace those of `moorage.db.timeouts`.
    """

    def __init__(
        self,
        directory: Path,
        database_url: str,
        *,
        zygote: bool = True,
        bounds: Mapping[str, float] | None = None,
        **options: object,
    ) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/placement"
        directory.mkdir(parents=True, exist_ok=True)
        config = directory / "moorage.conf"
        config.write_text(
            f"[plane]\nservices = placement\nstate_path = .\nlog_level = warning\n[server]\nport = {self.port}\n"
            f"[identity]\nmode = none\n[database]\nplacement = {database_url}\n[placement]\npolicy = open\n"
            + "".join(f"{name} = {value}\n" for name, value in options.items())
        )
        super().__init__(config, zygote_of("moorage.cli", "moorage.placement") if zygote else None, bounds=bounds)

    def wait(self) -> None:
        """Waits until it answers."""
        deadline = time.monotonic() + DEADLINE_S
        client = Client(self.url)
        while time.monotonic() < deadline:
            with contextlib.suppress(Lost):
                client.send("GET", "/")
                client.close()
                return
            if self.died(0.0) is not None:
                break
            time.sleep(0.01)
        raise RuntimeError(f"the server did not start:\n{self.last_log}")

    def in_flight(self) -> int:
        """The number of requests that placement is working on."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=DEADLINE_S) as answer:
            text = answer.read().decode()
        metric = 'moorage_http_requests_in_flight{service="placement"}'
        return int(float(re.search(rf"^{re.escape(metric)} (\S+)$", text, re.MULTILINE)[1]))


def _environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("OS_", "MOORAGE_"))}
    return own | {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
