"""Runs the blocks of a page in order, in one shell, on a plane in its own directory.

    python -m tests.pages.runner docs/guides/explain.md       # prints the output of each command

The output of a command is compared loosely with the page: ids, times, ports and column widths may differ (`alike`). A
line of three dots stands for any lines, and dots within a line for anything. All dates in a page are moved by the same
number of days, so that the first of them is tomorrow.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from tests.pages.blocks import ROOT, Block, Step, blocks, hosts_of
from tests.ports import free_port
from tests.processes import stock_openstack
from tests.programs import moorage_server
from tests.system.planes import COMMAND, MOORAGE, PlaneProcess, write_config

COMMAND_TIMEOUT_S = 180
UNTIL_S = 90
_END = "--end-of-a-command-of-a-page--"

_VARYING = [
    # python-blazarclient 4.6.0 names a command that does not exist, and every openstack command prints a warning about
    # it.
    (re.compile(r"^.*reservation_host_unset.*$\n?", re.MULTILINE), ""),
    (re.compile(r"[0-9a-fA-F]{8}([-_])[0-9a-fA-F]{4}\1[0-9a-fA-F]{4}\1[0-9a-fA-F]{4}\1[0-9a-fA-F]{12}"), "<id>"),
    (re.compile(r"\b(?:[0-9a-f]{32}|[0-9a-f]{16}\.\.\.)(?![0-9a-f])"), "<id>"),
    (re.compile(r"\d{8}T\d{6}Z"), "<time>"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|\+00:00)?"), "<time>"),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:<port>"),
    (re.compile(r"\b\d+\.\d+ s\b"), "<seconds> s"),
    (re.compile(r"[-+=]{3,}"), "--"),
    (re.compile(r"[ \t]+"), " "),
]
_DATE = re.compile(r"\b(20\d\d)-(\d\d)-(\d\d)\b")


def alike(text: str) -> list[str]:
    """The text without values that differ from run to run, line by line."""
    for pattern, instead in _VARYING:
        text = pattern.sub(instead, text)
    return [line.strip() for line in text.splitlines() if line.strip()]


def agrees(shown: str, printed: str) -> bool:
    """Whether a command's output agrees with the page; a page that shows nothing agrees with everything."""
    if not shown.strip():
        return True
    pattern = "".join(
        r"(?:.*\n)*?" if line in {"...", "…"} else re.sub(r"(?:\\\.){3}|…", ".*", re.escape(line)) + r"\n"
        for line in alike(shown)
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in alike(printed))) is not None


class Shell:
    """One bash process; variables, functions and the directory persist from command to command.

    `before`: words that start bash, such as those that enter a namespace.
    """

    def __init__(self, directory: Path, environment: dict[str, str], before: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(
            [*before, "bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            cwd=directory, env=environment, text=True, start_new_session=True,
        )  # fmt: skip

    def run(self, command: str) -> tuple[int, str]:
        """(exit code, output on both streams)."""
        assert self._process.stdin
        assert self._process.stdout
        # In braces, so that variables persist, and so that a command does not read the next ones as its input.
        self._process.stdin.write(f"{{ {command}\n}} < /dev/null\n__code=$?; echo; echo {_END} $__code\n")
        self._process.stdin.flush()
        lines: list[str] = []
        deadline = time.monotonic() + COMMAND_TIMEOUT_S
        for line in self._process.stdout:
            if line.startswith(_END):
                return int(line.split()[1]), "".join(lines).rstrip()
            lines.append(line)
            assert time.monotonic() < deadline, f"{command}\nstill prints:\n{''.join(lines)[-2000:]}"
        raise AssertionError(f"the shell ended in\n{command}\n{''.join(lines)[-2000:]}")

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@dataclass
class World:
    """The environment of a page: its shell, its home directory, and the program that is called for `moorage`."""

    shell: Shell
    home: Path
    planes: list[PlaneProcess]
    shift_days: int

    def there(self, command: str) -> str:
        """The command with its dates moved into the future."""

        def moved(found: re.Match[str]) -> str:
            return str(date(*map(int, found.groups())) + timedelta(days=self.shift_days))

        return _DATE.sub(moved, command)


@contextlib.contextmanager
def world(page: Path, directory: Path) -> Iterator[World]:
    home, work = directory / "home", directory / "work"
    (home / ".local" / "state").mkdir(parents=True)
    work.mkdir()
    planes: list[PlaneProcess] = []
    shell = Shell(work, environment(home))
    try:
        there = World(shell, home, planes, shift_of(page))
        if hosts := hosts_of(page):
            state = home / ".local" / "state" / "moorage"
            if hosts > 1:
                write_config(state, agent={"simulated_hosts": hosts})
            up(there, "--adjustable-clock")
            assert shell.run('eval "$(moorage env)"')[0] == 0
        yield there
    finally:
        shell.close()
        for plane in planes:
            plane.kill()


def environment(home: Path) -> dict[str, str]:
    """The environment of a user who works in this checkout, without variables of the person who runs the tests."""
    forked = [stock_openstack().parent, moorage_server().executable("moorage", COMMAND).parent]
    return {
        "HOME": str(home),
        "PATH": ":".join(map(str, [*forked, MOORAGE.parent, os.environ["PATH"]])),
        "LC_ALL": "C.UTF-8",
        "NO_COLOR": "1",
        "COLUMNS": "100",
        "PYTHONWARNINGS": "ignore",
        "CHECKOUT": str(ROOT),
    }


def up(there: World, *options: str) -> None:
    config = there.home / ".local" / "state" / "moorage" / "moorage.conf"
    packages = there.shell.run('echo "$PYTHONPATH"')[1].strip()
    plane = PlaneProcess(config, "--port", str(free_port()), *options, home=there.home, python_path=packages)
    there.planes.append(plane)
    plane.start()


def shift_of(page: Path) -> int:
    """The number of days from the first date in the commands of the page to tomorrow; 0 without a date."""
    dates = [
        date(*map(int, found))
        for block in blocks(page)
        for step in block.steps
        for found in _DATE.findall(step.command)
    ]
    return (datetime.now(UTC).date() + timedelta(days=1) - min(dates)).days if dates else 0


class Failed(AssertionError):
    pass


def run(page: Path, directory: Path, *, aloud: bool = False) -> int:
    """Runs the page; returns the number of commands. Raises `Failed` with page, line, command and both texts."""
    count = 0
    with world(page, directory) as there:
        for block in blocks(page):
            if {"not run", "run by"} & set(block.marks):
                continue
            if before := block.marks.get("beforehand"):
                # Each of them must succeed, not only the last one.
                code, printed = there.shell.run(
                    f"__bad=0; trap '__bad=1' ERR\n{there.there(before)}\ntrap - ERR; [ $__bad = 0 ]"
                )
                if code != 0:
                    raise Failed(f"{block.where}: beforehand: {before}\nexit code {code}\n{printed}")
            for step in block.steps:
                follow(there, block, step, aloud=aloud)
                count += 1
    return count


def follow(there: World, block: Block, step: Step, *, aloud: bool) -> None:
    if "in another terminal" in block.marks:
        if step.command.startswith("moorage up"):
            up(there, *step.command.split()[2:])
        else:
            there.shell.run(f"{there.there(step.command)} > /dev/null 2>&1 &")
        return
    refused = "refused" in block.marks and step is block.steps[-1]
    deadline = time.monotonic() + (UNTIL_S if "until it is so" in block.marks else 0)
    while True:
        code, printed = there.shell.run(there.there(step.command))
        good = (code != 0) == refused and agrees(step.output, printed)
        if good or time.monotonic() > deadline:
            break
        time.sleep(0.3)
    if aloud:
        print(f"$ {step.command}\n{printed}", flush=True)
    if not good:
        shown = f"\nthe page shows:\n{step.output}" if step.output else ""
        raise Failed(f"{block.where}: {step.command}\nexit code {code}; it prints:\n{printed}{shown}")


def main() -> None:
    import tempfile

    for name in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as directory:
            print(f"{name}: {run(Path(name).resolve(), Path(directory), aloud=True)} commands")


if __name__ == "__main__":
    main()
