"""The parts of `make conformance`: starts servers for the suite, runs it against them, and compares their answers.

There is one process per variant. Our processes share one database, so each file of the suite also sees data that
another process wrote.
"""

import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.conformance.compare import Difference, differences
from tests.conformance.variants import VARIANTS
from tests.conformance.wire import send
from tests.migrated import schema_of
from tests.ports import free_port
from tests.processes import end, inherited
from tests.programs import Fork, ForkServer
from tests.servers import temporary_database

ROOT = Path(__file__).parents[2]
SUITE_PYTHON = ROOT / ".venv-conformance" / "bin" / "python"
START_TIMEOUT_S = 90

#: The suite of openstack-placement 16.0.0.
FILES = 79
TESTS = 1316


@dataclass(frozen=True)
class Report:
    """`others`: the tests that did not pass, as `run_gabbits.Outcome`; `text`: the output of the run."""

    files: int
    passed: int
    seconds: float
    others: Sequence[Mapping[str, str]]
    text: str


@contextlib.contextmanager
def our_servers(
    database: str, front: str = "literal", variants: Collection[str] = tuple(VARIANTS)
) -> Iterator[dict[str, str]]:
    """{variant: URL} of our placement on a database of its own; `front`: ``literal`` or ``server`` (what users have)
    serves it.
    """
    with temporary_database(database, schema_of("placement")) as url, our_servers_on(url, front, variants) as urls:
        yield urls


@contextlib.contextmanager
def our_servers_on(
    database_url: str, front: str, variants: Collection[str] = tuple(VARIANTS)
) -> Iterator[dict[str, str]]:
    """{variant: URL} of our placement, one process each, on one database."""
    with (
        tempfile.TemporaryDirectory(prefix="our-placement") as directory,
        _running(_our_program(), {name: [database_url, front, directory] for name in variants}) as urls,
    ):
        yield urls


@contextlib.contextmanager
def upstream_servers() -> Iterator[dict[str, str]]:
    """{variant: URL} of the real Placement, on SQLite."""
    with tempfile.TemporaryDirectory(prefix="upstream-placement") as parent:
        directories = {name: Path(parent, name) for name in VARIANTS}
        for directory in directories.values():
            directory.mkdir()
        with _running(_upstream_program(), {name: [directory] for name, directory in directories.items()}) as urls:
            yield urls


@contextlib.contextmanager
def upstream_server(database_url: str) -> Iterator[str]:
    """URL of the real Placement, on a database in which it creates its schema."""
    with (
        tempfile.TemporaryDirectory(prefix="upstream-placement") as directory,
        _running(_upstream_program(), {"default": [directory, database_url]}) as urls,
    ):
        yield urls["default"]


def run_suite(urls: Mapping[str, str], *options: str) -> Report:
    """Runs the suite, or the part of it that `options` (of `run_gabbits`) select."""
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
    """Runs the suite against the real Placement and against ours, on SQLite; returns all differences."""
    with (
        tempfile.TemporaryDirectory(prefix="conformance") as directory,
        upstream_servers() as upstream,
        our_servers("sqlite") as ours,
        ThreadPoolExecutor() as pool,
    ):
        sides = {"upstream": upstream, "ours": ours}
        records = {name: Path(directory, f"{name}.jsonl") for name in sides}

        def record(name: str) -> Report:
            return run_suite(sides[name], "--seed", "moorage", "--record", str(records[name]))

        for name, report in zip(sides, pool.map(record, sides), strict=True):
            if report.others:
                raise RuntimeError(f"{name}: {report.text}")
        return list(differences(records["upstream"], records["ours"]))


@dataclass(frozen=True)
class _Program:
    """A program that serves one variant, and its fork server."""

    name: str
    server: ForkServer


@functools.cache
def _our_program() -> _Program:
    name = "tests.conformance.our_server"
    return _Program(f"{name}:main", ForkServer(Path(sys.executable), name, environment=environment()))


@functools.cache
def _upstream_program() -> _Program:
    name = "tests.conformance.upstream_server"
    server = ForkServer(SUITE_PYTHON, name, environment=environment() | {"PYTHONWARNINGS": "ignore"})
    return _Program(f"{name}:main", server)


@contextlib.contextmanager
def _running(program: _Program, words: Mapping[str, Sequence[object]]) -> Iterator[dict[str, str]]:
    """{variant: URL} of a process per variant, from when all of them answer; `words` are the program's last arguments."""
    with contextlib.ExitStack() as stack:
        ports = {variant: free_port() for variant in words}
        processes = {
            variant: stack.enter_context(_process(program, [variant, ports[variant], *words[variant]]))
            for variant in words
        }
        urls = {variant: f"http://127.0.0.1:{port}" for variant, port in ports.items()}
        for variant, url in urls.items():
            _wait(url, *processes[variant])
        yield urls


@contextlib.contextmanager
def _process(program: _Program, words: Sequence[object]) -> Iterator[tuple[Fork, Path]]:
    """The process and its output file; it is stopped by request, after 10 s by force."""
    with tempfile.NamedTemporaryFile(suffix=".log") as log:
        process = program.server.start(
            program.name, words, environment=environment(), stdout=log, stderr=log, directory=ROOT
        )
        try:
            yield process, Path(log.name)
        finally:
            end(process)


def _wait(url: str, process: Fork, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        with contextlib.suppress(OSError):
            if send(f"{url}/", timeout=5)[0] == 200:
                return
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{url} does not answer:\n{log.read_text()[-3000:]}")
        time.sleep(0.05)


def environment() -> dict[str, str]:
    # The peer's lists come in the order of its sets: with one hash seed, in the same one each time.
    return inherited() | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "PYTHONHASHSEED": "0"}
