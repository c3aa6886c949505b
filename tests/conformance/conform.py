"""Start servers for the suite, run it against them, compare what they answered: the parts of `make conformance`.

One process per variant; those of ours share one database, so each file of the suite also meets what another process
wrote.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.compare import Difference, differences
from tests.conformance.variants import VARIANTS
from tests.conformance.wire import send
from tests.processes import end, free_port, inherited
from tests.servers import temporary_database

ROOT = Path(__file__).parents[2]
SUITE_PYTHON = ROOT / ".venv-conformance" / "bin" / "python"
START_TIMEOUT_S = 90

#: The suite of openstack-placement 16.0.0.
FILES = 79
TESTS = 1316


@dataclass(frozen=True)
class Report:
    """`others`: the tests that did not pass, as `run_gabbits.Outcome`; `text`: what the run printed."""

    files: int
    passed: int
    seconds: float
    others: Sequence[Mapping[str, str]]
    text: str


@contextlib.contextmanager
def our_servers(database: str, front: str = "literal") -> Iterator[dict[str, str]]:
    """{variant: URL} of our placement on a new database; `front`: ``literal`` or ``server`` (what users have) serves it."""
    with temporary_database(database) as url, our_servers_on(url, front) as urls:
        yield urls


@contextlib.contextmanager
def our_servers_on(database_url: str, front: str) -> Iterator[dict[str, str]]:
    """{variant: URL} of our placement, a process each, on one database."""
    module = "tests.conformance.our_server"
    commands = {name: [sys.executable, "-m", module, name, str(free_port()), database_url, front] for name in VARIANTS}
    with _running(commands) as urls:
        yield urls


@contextlib.contextmanager
def upstream_servers() -> Iterator[dict[str, str]]:
    """{variant: URL} of the real Placement, on SQLite."""
    module = "tests.conformance.upstream_server"
    with tempfile.TemporaryDirectory(prefix="upstream-placement") as parent:
        commands = {}
        for name in VARIANTS:
            directory = Path(parent, name)
            directory.mkdir()
            commands[name] = [
                str(SUITE_PYTHON), "-W", "ignore", "-m", module, name, str(free_port()), str(directory)
            ]  # fmt: skip
        with _running(commands) as urls:
            yield urls


@contextlib.contextmanager
def upstream_server(database_url: str) -> Iterator[str]:
    """URL of the real Placement, on a database that it makes its schema in."""
    with tempfile.TemporaryDirectory(prefix="upstream-placement") as directory:
        module = "tests.conformance.upstream_server"
        command = [str(SUITE_PYTHON), "-W", "ignore", "-m", module, "default", str(free_port()), directory]
        with _running({"default": [*command, database_url]}) as urls:
            yield urls["default"]


def run_suite(urls: Mapping[str, str], *options: str) -> Report:
    """Run the suite, or what `options` (of `run_gabbits`) leave of it."""
    if not SUITE_PYTHON.exists():
        raise RuntimeError("the suite is not installed; make .venv-conformance/.done")
    with tempfile.TemporaryDirectory(prefix="conformance") as directory:
        report = Path(directory, "report.json")
        command = [str(SUITE_PYTHON), "-m", "tests.conformance.run_gabbits", "--json", str(report), *options]
        for variant, url in urls.items():
            command += ["--url", f"{variant}={url}"]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=environment(),
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if not report.exists():
            raise RuntimeError(f"the suite did not run:\n{done.stdout[-3000:]}")
        return Report(**json.loads(report.read_text()), text=done.stdout)


def compare() -> list[Difference]:
    """Run the suite against the real Placement and against ours, on SQLite: all that differs in their answers."""
    with tempfile.TemporaryDirectory(prefix="conformance") as directory:
        records = {}
        for name, servers in (("upstream", upstream_servers()), ("ours", our_servers("sqlite"))):
            records[name] = Path(directory, f"{name}.jsonl")
            with servers as urls:
                report = run_suite(urls, "--seed", "moorage", "--record", str(records[name]))
            if report.others:
                raise RuntimeError(f"{name}: {report.text}")
        return list(differences(records["upstream"], records["ours"]))


@contextlib.contextmanager
def _running(commands: Mapping[str, Sequence[str]]) -> Iterator[dict[str, str]]:
    """The servers of `commands` ({variant: [..., variant, port, ...]}), from when all of them answer."""
    with contextlib.ExitStack() as stack:
        processes = {variant: stack.enter_context(_process(command)) for variant, command in commands.items()}
        urls = {}
        for variant, command in commands.items():
            urls[variant] = f"http://127.0.0.1:{command[command.index(variant) + 1]}"
            _wait(urls[variant], processes[variant])
        yield urls


@contextlib.contextmanager
def _process(command: Sequence[str]) -> Iterator[tuple[subprocess.Popen, Path]]:
    """The process and the file it prints to; ended by request, after 10 s by force."""
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=log, stderr=log)
        try:
            yield process, Path(log.name)
        finally:
            end(process)


def _wait(url: str, started: tuple[subprocess.Popen, Path]) -> None:
    process, log = started
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        with contextlib.suppress(OSError):
            if send(f"{url}/", timeout=5)[0] == 200:
                return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{' '.join(process.args)} does not answer:\n{log.read_text()[-3000:]}")
        time.sleep(0.05)


def environment() -> dict[str, str]:
    # The peer's lists come in the order of its sets: with one hash seed, in the same one each time.
    return inherited() | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYTHONHASHSEED": "0"}
