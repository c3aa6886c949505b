"""Runs tests against changed modules, each time in a fork of a process that has imported everything.

usage: .venv/bin/python -m tools.mutant_tests TEST ...

`tools.mutate` starts it and sends orders, one JSON document per line of standard input; each has one line as its answer:

``{"measure": [module, ...]}``: runs all tests once, without a change. The answer is ``{"tests": {test: {"seconds": s,
"fails": bool}}, "lines": {module: {line: [test, ...]}}}``: the tests that execute each line, within functions or not.

``{"module": m, "source": text, "tests": [test, ...], "limit_s": s, "imported": bool}``: runs the tests with `text` as
the module's source, up to the first that fails. The answer is ``{"killed_by": test or null, "timed_out": bool}``. With
`imported`, only functions may differ: the fork replaces their code. Otherwise the fork imports the changed module and
the tests itself, which takes some seconds. The answer to a change that cannot be made to imported functions is
``{"not_replaceable": true}``.

Modules are paths such as ``src/moorage/config.py``, or without `imported` also package data that is read as text; tests
are ids without parameters.
"""

import contextlib
import gc
import importlib
import importlib.abc
import importlib.util
import inspect
import io
import json
import os
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import coverage
import hypothesis
import pytest

ROOT = Path(__file__).parents[1]
OPTIONS = ("-q", "--suite=all", "-p", "no:cacheprovider", "-p", "no:xdist")
OURS = ("moorage", "os_acc", "tests", "conftest", "tools")
MEASURE_LIMIT_S = 3600
ALL_TESTS = "*"


class NotReplaceableError(Exception):
    """The change concerns more than the code of functions."""


class ImportedTests:
    """A plugin that answers orders instead of running the collected tests."""

    def __init__(self, orders: int, answers: int, temporary: Path) -> None:
        self._orders = orders
        self._answers = answers
        self._temporary = temporary
        self._items: dict[str, list[pytest.Item]] = defaultdict(list)
        self._failed: list[str] = []
        self._functions: dict[str, list[FunctionType]] = defaultdict(list)  #: by file
        self._test = ""  #: that runs now
        self._tracer: coverage.Coverage | None = None  #: only in the fork that measures

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        without_shrinking()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.append(report.nodeid.partition("[")[0])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        for item in session.items:
            if is_of_other_database(item):
                continue
            self._items[item.nodeid.partition("[")[0]].append(item)
        with os.fdopen(self._orders) as orders, os.fdopen(self._answers, "w") as answers:
            for line in orders:
                answers.write(json.dumps(self._answer(json.loads(line))) + "\n")
                answers.flush()
        return True

    def _answer(self, order: dict[str, Any]) -> dict[str, Any]:
        if "modules_of_others" in order:
            return {"modules": [name for name in sys.modules if name.partition(".")[0] not in OURS]}
        if "measure" in order:
            for module in order["measure"]:
                importlib.import_module(name_of(module))
            self._functions = functions_by_file()
            return in_fork(
                lambda temporary: self._measure(order["measure"], temporary), self._temporary, MEASURE_LIMIT_S
            )
        return in_fork(lambda temporary: self._run(order, temporary), self._temporary, order["limit_s"])

    def _measure(self, modules: list[str], temporary: Path) -> dict[str, Any]:
        """Runs the tests in this fork. The order of tests is that of the collection, so that fixtures are shared."""
        self._tracer = tracer = coverage.Coverage(
            data_file=None, include=[str(ROOT / module) for module in modules], config_file=False, messages=False
        )
        items = [item for items in self._items.values() for item in items]
        use_directory(items, temporary)
        seconds: dict[str, float] = defaultdict(float)
        tracer.start()
        for item, after in zip(items, [*items[1:], None], strict=True):
            test = self._test = item.nodeid.partition("[")[0]
            tracer.switch_context(test)
            started = time.monotonic()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            seconds[test] += time.monotonic() - started
        tracer.stop()
        data = tracer.get_data()
        tests_of_file: dict[str, set[str]] = defaultdict(set, {ALL_TESTS: set(seconds)})
        for test in seconds:
            tests_of_file[test.partition("::")[0]].add(test)
        return {
            "tests": {test: {"seconds": seconds[test], "fails": test in self._failed} for test in seconds},
            "lines": {
                module: {
                    line: sorted(set().union(*(tests_of_file.get(context, {context}) for context in contexts)) - {""})
                    for line, contexts in data.contexts_by_lineno(str(ROOT / module)).items()
                }
                for module in modules
            },
        }

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        """What a fixture of several tests executes counts for all tests of the file or of the session."""
        if self._tracer is None or fixturedef.scope == "function":
            return (yield)
        test = request.node.nodeid.partition("::")[0] if fixturedef.scope != "session" else ALL_TESTS
        self._tracer.switch_context(test)
        try:
            return (yield)
        finally:
            self._tracer.switch_context(self._test)

    def _run(self, order: dict[str, Any], temporary: Path) -> dict[str, Any]:
        try:
            path = ROOT / order["module"]
            replace_functions(path, order["source"], self._functions[str(path)])
        except NotReplaceableError:
            return {"not_replaceable": True}
        items = [item for test in order["tests"] for item in self._items[test]]
        use_directory(items, temporary)
        for item, after in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            if self._failed:
                with contextlib.suppress(BaseException):  # whatever the teardown raises: the mutant is killed
                    item.session._setupstate.teardown_exact(None)  # noqa: SLF001 - drops databases
                break
        return {"killed_by": self._failed[0] if self._failed else None}


class FirstFailure:
    """A plugin that remembers the first failed test."""

    test: str | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        without_shrinking()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.test is None:
            self.test = report.nodeid.partition("[")[0]


class ChangedModule(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports one module from a text instead of its file."""

    def __init__(self, module: str, source: str) -> None:
        self._name = name_of(module)
        self._path = str(ROOT / module)
        self._source = source

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> Any:
        if fullname != self._name:
            return None
        is_package = self._path.endswith("__init__.py")
        spec = importlib.util.spec_from_loader(fullname, self, origin=self._path, is_package=is_package)
        if spec is not None and spec.submodule_search_locations is not None:
            spec.submodule_search_locations.append(str(Path(self._path).parent))
        return spec

    def get_source(self, fullname: str) -> str:
        return self._source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._source, self._path, "exec", dont_inherit=True)

    def exec_module(self, module: Any) -> None:
        module.__file__ = self._path
        super().exec_module(module)


def main() -> int:
    tests = sys.argv[1:]
    os.chdir(ROOT)
    orders, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    temporary = Path(tempfile.mkdtemp(prefix="mu", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    try:
        ask = start_imported(tests, temporary)
        has_imported_others = False
        for line in orders:
            order = json.loads(line)
            if order.get("imported", True):
                answer = ask(order)
            else:
                if not has_imported_others:
                    import_others(ask({"modules_of_others": True})["modules"])
                    has_imported_others = True
                answer = in_fork(lambda inner, order=order: run_fresh(order, inner), temporary, order["limit_s"])
            answers.write(json.dumps({"killed_by": None, "timed_out": False} | answer) + "\n")
            answers.flush()
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return 0


def start_imported(tests: Sequence[str], temporary: Path) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Starts a process that imports all tests; returns a function that sends it an order and returns the answer."""
    order_read, order_write = os.pipe()
    answer_read, answer_write = os.pipe()
    if os.fork() == 0:
        os.close(order_write)
        os.close(answer_read)
        silence()
        plugin = ImportedTests(order_read, answer_write, temporary)
        os._exit(int(pytest.main([*OPTIONS, *tests], plugins=[plugin])))
    os.close(order_read)
    os.close(answer_write)
    orders, answers = os.fdopen(order_write, "w"), os.fdopen(answer_read)

    def ask(order: dict[str, Any]) -> dict[str, Any]:
        orders.write(json.dumps(order) + "\n")
        orders.flush()
        line = answers.readline()
        if not line:
            raise SystemExit("the tests cannot be imported: run pytest --collect-only on them")
        return json.loads(line)

    return ask


def import_others(names: Sequence[str]) -> None:
    """Imports what the tests need, without our own modules."""
    for name in names:
        with contextlib.suppress(Exception):  # a module that only its package can import
            importlib.import_module(name)
    gc.freeze()


def run_fresh(order: dict[str, Any], temporary: Path) -> dict[str, Any]:
    if order["module"].endswith(".py"):
        sys.meta_path.insert(0, ChangedModule(order["module"], order["source"]))
    else:
        change_package_data(order["module"], order["source"])
    first = FirstFailure()
    status = pytest.main([*OPTIONS, "-x", f"--basetemp={temporary / 't'}", *order["tests"]], plugins=[first])
    return {"killed_by": first.test or ("the import" if status != 0 else None)}


def change_package_data(file: str, text: str) -> None:
    """Lets this process read `text` instead of the file, which `importlib.resources` reads with `Path.open`."""
    really = Path.open

    def opened(path: Path, *arguments: Any, **options: Any) -> Any:
        return io.StringIO(text) if path == ROOT / file else really(path, *arguments, **options)

    Path.open = opened  # type: ignore[method-assign]


def in_fork(work: Callable[[Path], dict[str, Any]], parent: Path, limit_s: float) -> dict[str, Any]:
    """The result of `work` in a fork with a temporary directory of its own; kills what it started."""
    temporary = Path(tempfile.mkdtemp(dir=parent))
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):  # an exit or a KeyboardInterrupt of a test ends the fork only
            os.setsid()
            silence()
            os.environ["TMPDIR"] = tempfile.tempdir = str(temporary)
            os.write(write, json.dumps(work(temporary)).encode() + b"\n")
        os._exit(0)
    os.close(write)
    text = b"".join(chunks(read, time.monotonic() + limit_s))
    os.close(read)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    shutil.rmtree(temporary, ignore_errors=True)
    if text.endswith(b"\n"):
        return json.loads(text)
    return {"killed_by": "the end of its process" if text == b"" else "the limit of time", "timed_out": True}


def chunks(read: int, end: float) -> Iterator[bytes]:
    """What arrives until the end of the line, the end of the pipe or `end`."""
    while (left := end - time.monotonic()) > 0 and select.select([read], [], [], left)[0]:
        chunk = os.read(read, 1 << 20)
        yield chunk
        if not chunk or chunk.endswith(b"\n"):
            return


def is_of_other_database(item: pytest.Item) -> bool:
    """SQLite's variant of a test is the fastest, and notices nearly everything that the others notice."""
    return any(item.get_closest_marker(kind) for kind in ("postgresql", "mariadb"))


def use_directory(items: Sequence[pytest.Item], temporary: Path) -> None:
    """Each fork needs a directory of its own for `tmp_path`."""
    factory: Any = vars(items[0].config)["_tmp_path_factory"]  # there is no public way after the start
    vars(factory).update(_given_basetemp=temporary / "t", _basetemp=None)


def silence() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)


def without_shrinking() -> None:
    """A failed example need not become a short one."""
    hypothesis.settings.register_profile(
        "mutants",
        derandomize=True,
        deadline=None,
        phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
    )
    hypothesis.settings.load_profile("mutants")


def functions_by_file() -> dict[str, list[FunctionType]]:
    """All functions of our modules. Found once, before the forks: to look at all objects copies all memory of a fork."""
    found: dict[str, list[FunctionType]] = defaultdict(list)
    gc.unfreeze()
    for function in gc.get_objects():
        if type(function) is FunctionType and function.__code__.co_filename.startswith(f"{ROOT}/src/"):
            found[function.__code__.co_filename].append(function)
    gc.freeze()
    return found


def replace_functions(path: Path, source: str, functions: Sequence[FunctionType]) -> None:
    """Gives `functions`, which are those of the file, the code that they have in `source`."""
    before = list(code_objects(compile(path.read_text(), str(path), "exec", dont_inherit=True)))
    after = list(code_objects(compile(source, str(path), "exec", dont_inherit=True)))
    if [code.co_qualname for code in before] != [code.co_qualname for code in after]:
        raise NotReplaceableError
    if any(run_by_import(old) != run_by_import(code) for old, code in zip(before, after, strict=True)):
        raise NotReplaceableError
    new = {(old.co_qualname, old.co_firstlineno): code for old, code in zip(before, after, strict=True)}
    for function in functions:
        code = new[function.__code__.co_qualname, function.__code__.co_firstlineno]
        if code.co_freevars != function.__code__.co_freevars:
            raise NotReplaceableError
        function.__code__ = code
    if not functions:
        raise NotReplaceableError


def run_by_import(code: CodeType) -> tuple[object, ...] | None:
    """What the import of the module runs of `code`, the body of a module or class; None for a function."""
    if code.co_flags & inspect.CO_OPTIMIZED:
        return None
    constants = [constant for constant in code.co_consts if not isinstance(constant, CodeType)]
    return code.co_code, code.co_names, repr(constants)


def code_objects(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from code_objects(constant)


def name_of(module: str) -> str:
    """``src/moorage/jobs/__init__.py`` -> ``moorage.jobs``"""
    return ".".join(Path(module).relative_to("src").with_suffix("").parts).removesuffix(".__init__")


if __name__ == "__main__":
    sys.exit(main())
