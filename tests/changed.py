"""Runs the tests that a change can affect, according to the import graph.

usage: python -m tests.changed [--base REVISION] [--pytest COMMAND] [--list]

The change is the difference from REVISION (default: HEAD), including uncommitted files. A test file is affected if it
changed, if it imports a changed module directly or through others, or if a ``conftest.py`` above it is affected. Other
files count as follows: one below ``src`` as all modules of its directory, one below ``tests`` as the tests of its
directory, a page or a tool as the tests of documents, and a file in `EVERYTHING` as all tests. `STARTED` lists the
programs that tests start: imports without an ``import`` statement.
"""

import argparse
import ast
import functools
import shlex
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Files that affect all tests.
EVERYTHING = ("pyproject.toml", "Makefile", "requirements/", "tests/conftest.py", "tests/suites.py", ".ci/")
#: Tests of documents, packages and commands that pages show.
OF_DOCUMENTS = ("tests/docs", "tests/pages")
#: Module -> the modules that it starts as processes.
STARTED = {
    "tests.system.planes": ("moorage.cli.main",),
    "tests.crash.processes": ("moorage.cli.main",),
    "tests.pages.runner": ("moorage.cli.main",),
    "tests.processes": ("tests.served", "tests.system.identity.served"),
    "tests.programs": ("tests.forkserver",),
    "tests.system.test_tour": ("tools.demo", "moorage.cli.main"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs the tests that a change can affect.")
    parser.add_argument("--base", default="HEAD", metavar="REVISION", help="what the change is compared with")
    parser.add_argument("--pytest", default=f"{sys.executable} -m pytest", help="the command that runs tests")
    parser.add_argument("--list", action="store_true", help="only print the test files")
    given = parser.parse_args()
    changed = changed_files(given.base)
    affected = affected_tests(changed)
    print(f"{len(changed)} files differ from {given.base}; {len(affected)} test files can be affected", flush=True)
    if given.list or not affected:
        print("\n".join(affected))
        return 0
    command = [*shlex.split(given.pytest), *affected]
    return subprocess.run([sys.executable, "-m", "tests.servers", *command], cwd=ROOT, check=False).returncode


def changed_files(base: str) -> list[str]:
    """Paths relative to the root of the repository, including deleted files. Exits if git does not know `base`."""
    words = (["diff", "--name-only", "--no-renames", base], ["ls-files", "--others", "--exclude-standard"])
    found: set[str] = set()
    for command in words:
        done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"error: git {' '.join(command)}: {done.stderr.strip()}")
        found.update(done.stdout.splitlines())
    return sorted(found)


def affected_tests(changed: Iterable[str]) -> list[str]:
    """Test files, relative to the root."""
    modules = all_modules()
    tests = sorted(
        path for path in modules.values() if path.startswith("tests/") and Path(path).name.startswith("test_")
    )
    changed = list(changed)
    if any(path == root or path.startswith(root) for path in changed for root in EVERYTHING):
        return tests
    reached = set(importers_of(set(modules_of(changed, modules)), modules))
    paths = {modules[name] for name in reached if name in modules}
    folders = [str(Path(path).parent) for path in paths if Path(path).name == "conftest.py"]
    folders += [str(Path(path).parent) for path in changed if path.startswith("tests/") and not path.endswith(".py")]
    if any(not path.startswith(("src/", "tests/")) for path in changed):
        folders += OF_DOCUMENTS
    return [test for test in tests if test in paths or any(test.startswith(f"{folder}/") for folder in folders)]


def all_modules() -> dict[str, str]:
    """{module: path relative to the root}"""
    found = {}
    for folder, root in (("src", "src"), ("tests", "."), ("tools", ".")):
        for path in (ROOT / folder).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT / root).with_suffix("").parts).removesuffix(".__init__")
            found[name] = path.relative_to(ROOT).as_posix()
    return found


def modules_of(paths: Iterable[str], modules: dict[str, str]) -> Iterator[str]:
    """The modules of the files; for a deleted file, or one that is not Python, all modules of its package."""
    by_path = {path: name for name, path in modules.items()}
    for path in paths:
        if path in by_path:
            yield by_path[path]
        elif path.startswith("src/"):
            yield from package_around(path, modules)


def package_around(path: str, modules: dict[str, str]) -> list[str]:
    """The modules of the closest directory above `path` that has any."""
    for folder in Path(path).parents:
        if found := [name for name, its in modules.items() if Path(its).parent == folder]:
            return found
    return []


def importers_of(names: set[str], modules: dict[str, str]) -> set[str]:
    """`names` and all modules that import one of them, directly or through others."""
    importers: dict[str, set[str]] = defaultdict(set)
    for name, path in modules.items():
        for imported in mentions(name, path):
            if imported in modules and imported != name:
                importers[imported].add(name)
    reached, fresh = set(names), set(names)
    while fresh:
        fresh = {importer for name in fresh for importer in importers[name]} - reached
        reached |= fresh
    return reached


@functools.cache
def mentions(name: str, path: str) -> frozenset[str]:
    """Names that a module imports or starts, also inside functions and by name; some of them are not modules."""
    found = set(STARTED.get(name, ()))
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            found.add(node.value.partition(":")[0])  # imported by its name
    return frozenset(found)


if __name__ == "__main__":
    sys.exit(main())
