"""Runs Placement's own tests over HTTP against running servers, in .venv-conformance. See README.md.

Before each file, it empties the server through its API and builds the state of the file's fixture (`worlds`) through
it. So it works with any implementation.
"""

import argparse
import contextlib
import fnmatch
import functools
import json
import os
import sys
import time
import traceback
import unittest
import urllib.parse
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace

import gabbi.handlers
import gabbi.handlers.jsonhandler
import gabbi.httpclient
import gabbi.suitemaker
import jsonpath_ng.ext

from tests.conformance import worlds
from tests.conformance.gabbits import Gabbit, gabbits
from tests.conformance.reset import empty
from tests.conformance.variants import VARIANTS
from tests.conformance.wire import Api, ApiError, GabbiClient

#: Every HTTP front end answers these requests itself, so only the status is checked.
MALFORMED_HTTP = ("basic-http.yaml", "bad content length not int")


@dataclass(frozen=True)
class Outcome:
    """The result of one test: ``passed``, ``failed`` or ``skipped``."""

    file: str
    test: str
    result: str
    request: str
    status: str
    detail: str


class Outcomes(unittest.TestResult):
    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file
        self.all: list[Outcome] = []

    def _add(self, test, result: str, detail: str = "") -> None:
        data = test.test_data
        version = next(
            (value for name, value in data["request_headers"].items() if name.lower() == "openstack-api-version"), None
        )
        response = getattr(test, "response", None) or {}
        request = f"{data['method']} {getattr(test, 'url', data['url'])} ({version})"
        self.all.append(Outcome(self.file, data["name"], result, request, response.get("status", "-"), detail))

    def addSuccess(self, test):
        self._add(test, "passed")

    def addFailure(self, test, err):
        self._add(test, "failed", str(err[1]) or err[0].__name__)

    def addError(self, test, err):
        self._add(test, "failed", "".join(traceback.format_exception(*err)[-4:]))

    def addSkip(self, test, reason):
        self._add(test, "skipped", reason)

    def addExpectedFailure(self, test, err):
        self._add(test, "passed")

    def addUnexpectedSuccess(self, test):
        self._add(test, "failed", "passed although the file expects a failure")


def run_file(gabbit: Gabbit, base: str, seed: str | None) -> list[Outcome]:
    """Runs one file against the server at `base`."""
    outcomes = Outcomes(gabbit.path.name)
    try:
        api = Api(base)
        empty(api)
        world = worlds.World(api, seed and f"{seed}/{gabbit.path.name}")
        worlds.WORLDS[gabbit.fixture](world)
    except (ApiError, OSError) as error:
        detail = f"preparing the server: {error}"
        return [Outcome(gabbit.path.name, test["name"], "failed", "-", "-", detail) for test in gabbit.suite["tests"]]
    with _environment(world.env):
        _cases(gabbit, base).run(outcomes)
    return outcomes.all


def _cases(gabbit: Gabbit, base: str) -> unittest.TestSuite:
    address = urllib.parse.urlsplit(base)
    return gabbi.suitemaker.test_suite_from_dict(
        unittest.TestLoader(),
        gabbit.path.stem,
        gabbit.suite,
        str(gabbit.path.parent),
        address.hostname,
        address.port,
        None,
        None,
        handlers=[handler() for handler in gabbi.handlers.RESPONSE_HANDLERS],
    )


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets these variables, and removes those of other files afterwards."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _relax(gabbit: Gabbit) -> None:
    for test in gabbit.suite["tests"]:
        if (gabbit.path.name, test["name"]) == MALFORMED_HTTP:
            test.pop("response_strings", None)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="run_gabbits", description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help="show files, fixtures and variants; run nothing")
    parser.add_argument("--url", action="append", default=[], metavar="VARIANT=URL", help="a running server")
    parser.add_argument("--select", nargs="+", default=["*"], metavar="FILE", help="names or globs, without .yaml")
    parser.add_argument("--relax-malformed-http", action="store_true", help="the server is behind a real front end")
    parser.add_argument("--seed", help="draw uuids from this text, so that runs can be compared")
    parser.add_argument("--record", type=Path, metavar="FILE", help="every request and answer, as JSON lines")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the report")
    arguments = parser.parse_args()
    arguments.urls = dict(pair.split("=", 1) for pair in arguments.url)
    if unknown := arguments.urls.keys() - VARIANTS.keys():
        parser.error(f"there is no variant {', '.join(unknown)}; there are {', '.join(VARIANTS)}")
    return arguments


def _chosen(arguments: argparse.Namespace) -> Iterator[Gabbit]:
    for gabbit in gabbits():
        if any(fnmatch.fnmatch(gabbit.path.stem, pattern) for pattern in arguments.select) and (
            arguments.list or gabbit.variant in arguments.urls
        ):
            yield gabbit


def main() -> int:
    arguments = _arguments()
    chosen = list(_chosen(arguments))
    if arguments.list:
        for gabbit in chosen:
            print(f"{gabbit.path.name:50} {len(gabbit.suite['tests']):4}  {gabbit.fixture:30} {gabbit.variant}")
        return 0
    gabbi.httpclient.get_http = GabbiClient
    # gabbi would create a parser for each of 1,426 expressions, of which few differ.
    gabbi.handlers.jsonhandler.json_parser = SimpleNamespace(parse=functools.cache(jsonpath_ng.ext.parse))
    began = time.monotonic()
    outcomes: list[Outcome] = []
    exchanges: list[dict] = []
    for gabbit in chosen:
        if arguments.relax_malformed_http:
            _relax(gabbit)
        GabbiClient.record = [] if arguments.record else None
        outcomes += run_file(gabbit, arguments.urls[gabbit.variant], arguments.seed)
        exchanges += [{"file": gabbit.path.name, **exchange} for exchange in GabbiClient.record or ()]
    if arguments.record:
        arguments.record.write_text("".join(json.dumps(exchange) + "\n" for exchange in exchanges))
    counts = Counter(outcome.result for outcome in outcomes)
    seconds = time.monotonic() - began
    if arguments.json:
        others = [asdict(outcome) for outcome in outcomes if outcome.result != "passed"]
        report = {"files": len(chosen), "passed": counts["passed"], "seconds": seconds, "others": others}
        arguments.json.write_text(json.dumps(report, indent=1))
    _print(outcomes, counts, f"{len(chosen)} files, {seconds:.1f} s")
    return 0 if counts["passed"] == len(outcomes) > 0 else 1


def _print(outcomes: list[Outcome], counts: Counter[str], how: str) -> None:
    for outcome in outcomes:
        if outcome.result != "passed":
            print(f"\n{outcome.result.upper()} {outcome.file}::{outcome.test}\n  {outcome.request} -> {outcome.status}")
            print("  " + outcome.detail[:1500].replace("\n", "\n  "))
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped ({how})")


if __name__ == "__main__":
    sys.exit(main())
