"""Building blocks for the steps of the tour (`demo.py`): a plane, commands as users type them, and checks."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from openstack_process import OpenStackProcess

#: Maximum width of the output in columns; also the width for files and pipes.
WIDTH = 118


class Failed(Exception):
    """A check failed."""


class Tour:
    def __init__(self, clients: Path, moorage: Path, state: Path, port: int) -> None:
        self.clients = clients
        self.moorage = moorage
        self.state = state
        self.port = port
        self.config = state / "moorage.conf"
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("OS_")}
        self.environment |= {
            "MOORAGE_CONFIG": str(self.config),
            "PYTHONWARNINGS": "ignore",
            "NO_COLOR": "1",
            "CLIFF_FIT_WIDTH": "1",
        }
        self.width = min(WIDTH, shutil.get_terminal_size().columns) if sys.stdout.isatty() else WIDTH
        self.environment["COLUMNS"] = str(self.width)
        self.checks = 0
        self.commands = 0
        self.client_starts = 0
        self.transcript: list[str] = []
        self.region_id = ""  #: the type of the FPGA regions, as bitstreams name it
        self._providers: dict[str, dict[str, Any]] = {}
        self._plane: subprocess.Popen[str] | None = None
        self._client: OpenStackProcess | None = None

    # Building blocks of a step

    def say(self, text: str) -> None:
        shown = "\n".join(wrapped(line, self.width) for line in text.split("\n"))
        self.transcript.append(shown)
        print(shown, flush=True)

    def title(self, text: str) -> None:
        self.say(f"\n== {text}")

    def run(self, line: str, *, refused: bool = False, shown: bool = True) -> str:
        """Runs a command as a user types it; returns its standard output. `refused`: the command must fail."""
        words = shlex.split(line)
        self.commands += 1
        answer, errors, has_failed = {"openstack": self._openstack, "moorage": self._moorage}[words[0]](words[1:])
        if shown:
            self.say(f"$ {line}")
            for text in filter(None, (answer, errors)):
                self.say(text)
        if has_failed != refused:
            raise Failed(f"{line}\n{'failed' if has_failed else 'did not fail'}\n{answer}\n{errors}")
        return errors if refused else answer

    def _openstack(self, words: list[str]) -> tuple[str, str, bool]:
        """(standard output, standard error, whether the command failed)"""
        if self._client is None or self._client.has_ended:
            self._client = OpenStackProcess(self.clients / "openstack", self.environment, self.state)
            self.client_starts += 1
        answer, errors = self._client.run(words)
        return answer, errors, bool(errors) or self._client.has_ended

    def _moorage(self, words: list[str]) -> tuple[str, str, bool]:
        done = subprocess.run(
            [self.moorage, *words],
            env=self.environment,
            cwd=self.state,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return done.stdout.strip(), done.stderr.strip(), done.returncode != 0

    def record(self, line: str) -> dict[str, Any]:
        """{column: value} of a command's output, which is not printed."""
        return dict(json.loads(self.run(f"{line} -f json", shown=False)))

    def rows(self, line: str) -> list[dict[str, Any]]:
        """Like `record`, for a command that prints a list."""
        return list(json.loads(self.run(f"{line} -f json", shown=False)))

    def check(self, claim: str, *, holds: bool, found: object = "") -> None:
        if not holds:
            raise Failed(f"{claim}: does not hold. Found: {found}")
        self.checks += 1
        self.say(f"   ok: {claim}")

    def until(self, claim: str, probe: Callable[[], tuple[bool, object]], timeout_s: float = 30) -> None:
        """Checks a claim that must become true within `timeout_s`."""
        end = time.monotonic() + timeout_s
        while True:
            holds, found = probe()
            if holds or time.monotonic() > end:
                break
            time.sleep(0.2)
        self.check(claim, holds=holds, found=found)

    # The plane

    @property
    def up_command(self) -> list[str]:
        return [str(self.moorage), "up", "--port", str(self.port), "--adjustable-clock"]

    def start(self) -> None:
        self.say(f"$ moorage up --port {self.port} --adjustable-clock &")
        began = time.monotonic()
        self._plane = subprocess.Popen(
            self.up_command,
            env=self.environment,
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        while not self._answers():
            if self._plane.poll() is not None or time.monotonic() - began > 180:
                raise Failed(f"the plane did not start: {self._plane.communicate()[1]}")
            time.sleep(0.05)
        self.say(f"   ready after {time.monotonic() - began:.1f} s")
        answer = self.run("moorage env", shown=False)
        for line in answer.splitlines():
            if line.startswith("export "):  # the others are comments
                name, _, value = line.removeprefix("export ").partition("=")
                self.environment[name] = shlex.split(value)[0]

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stops the client, the plane and all its processes. SIGKILL gives the plane no chance to clean up."""
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._plane is None:
            return
        if how == signal.SIGKILL:
            os.killpg(self._plane.pid, how)
        else:
            self._plane.send_signal(how)
        try:
            self._plane.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(self._plane.pid, signal.SIGKILL)
            raise Failed("the plane did not end within 30 s of Ctrl-C") from None
        self._plane = None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/identity/healthcheck", timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    # Queries

    def server(self, name: str) -> dict[str, Any]:
        return self.record(f"openstack server show {name}")

    def fault(self, name: str) -> str:
        """The fault of a server in ERROR, as its owner sees it."""
        fault = self.server(name)["fault"]
        self.say(f"   fault: {fault['message']}")
        return str(fault["message"])

    def provider(self, name: str) -> str:
        """The provider's UUID, cached."""
        if name not in self._providers:
            self.generations()
        if name not in self._providers:
            raise Failed(f"no resource provider {name}")
        return str(self._providers[name]["uuid"])

    def generations(self) -> dict[str, int]:
        self._providers = {row["name"]: row for row in self.rows("openstack resource provider list")}
        return {name: int(row["generation"]) for name, row in self._providers.items()}

    def regions(self) -> list[str]:
        """The FPGA regions of the host, by name."""
        return sorted(name for name in self._providers or self.generations() if "_R" in name)

    def allocation(self, consumer: str) -> dict[str, int]:
        """{resource class: amount} allocated to `consumer`, summed over providers."""
        held: dict[str, int] = {}
        for row in self.rows(f"openstack resource provider allocation show {consumer}"):
            for name, amount in row["resources"].items():
                held[name] = held.get(name, 0) + amount
        return held


def wrapped(line: str, width: int) -> str:
    """The line in at most `width` columns, if it is a sentence or a command; rows of tables stay whole."""
    if len(line) <= width or line.startswith(("|", "+")):
        return line
    is_command = line.startswith("$ ")
    leading = len(line) - len(line.lstrip())
    indent = "      " if is_command else " " * (leading + 2 if leading or line.startswith("moorage: ") else 0)
    parts = textwrap.wrap(
        line,
        width - 2 if is_command else width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return (" \\\n" if is_command else "\n").join(parts)
