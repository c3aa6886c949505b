"""The server under test as a process group that can be killed and started again in a tenth of a second.

Not here: why it dies by itself (`faults`), and who works with it meanwhile (`load`).
"""

import contextlib
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
from tests.processes import free_port

ROOT = Path(__file__).parents[2]
#: `moorage` of this checkout, whatever is installed.
_COMMAND = (sys.executable, "-c", "from moorage.cli.main import main; main()")
DEADLINE_S = 30


class Server:
    """Placement alone, as `moorage up` runs it.

    `zygote`: started by a fork instead of a new interpreter; only then `bounds` are those of `moorage.db.bounds`.
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
        self._bounds = dict(bounds or {})
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/placement"
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.log = directory / "log"
        self._config = directory / "moorage.conf"
        self._config.write_text(
            f"[plane]\nservices = placement\nstate_path = .\nlog_level = warning\n[server]\nport = {self.port}\n"
            f"[identity]\nmode = none\n[database]\nplacement = {database_url}\n[placement]\npolicy = open\n"
            + "".join(f"{name} = {value}\n" for name, value in options.items())
        )
        self._alive = directory / "alive"
        os.mkfifo(self._alive)
        self._zygote = _start_zygote() if zygote else None
        self._reading: int | None = None
        self.pid = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self._reading is not None:
            self.kill()
            self.died()
        if self._zygote is not None:
            self._zygote.stdin.close()
            self._zygote.wait(DEADLINE_S)

    def start(self, plan: Plan | None = None) -> None:
        """Does not wait until it answers."""
        # Opened first, without waiting for the other side: the new process opens it without waiting then.
        self._reading, self._last_words = os.open(self._alive, os.O_RDONLY | os.O_NONBLOCK), ""
        if self._zygote is not None:
            order = {
                "config": str(self._config),
                "log": str(self.log),
                "alive": str(self._alive),
                "plan": plan and asdict(plan),
                "bounds": self._bounds,
            }
            self._zygote.stdin.write(json.dumps(order) + "\n")
            self._zygote.stdin.flush()
            self.pid = int(self._zygote.stdout.readline())
            return
        writing = os.open(self._alive, os.O_WRONLY)
        with self.log.open("a") as log:
            self._process = subprocess.Popen(
                [*_COMMAND, "up", "--config", self._config], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                pass_fds=(writing,), start_new_session=True, env=_environment(),
            )  # fmt: skip
        os.close(writing)
        self.pid = self._process.pid

    def wait(self) -> None:
        """Until it answers."""
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

    def kill(self) -> None:
        """Supervisor and worker at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def stop(self) -> None:
        """By request: to the supervisor alone, as an init system does it."""
        os.kill(self.pid, signal.SIGTERM)

    def died(self, patience_s: float = DEADLINE_S) -> str | None:
        """Waits for the end of all its processes: the point they died at (empty: killed from outside). None: it lives."""
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

    def counted(self, metric: str) -> int:
        """One of placement's counters in /metrics."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=DEADLINE_S) as answer:
            text = answer.read().decode()
        return int(float(re.search(rf"^moorage_placement_{re.escape(metric)} (\S+)$", text, re.MULTILINE)[1]))

    @property
    def last_log(self) -> str:
        return self.log.read_text()[-3000:]


def _start_zygote() -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.crash.zygote"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=_environment(),
    )


def _environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("OS_", "MOORAGE_"))}
    return own | {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT)))}
