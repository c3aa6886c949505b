"""The suite of a test follows from its closest marker, its requirements and its directory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


FILES = [
    "tests/store/test_smoke.py",
    "tests/store/compute/test_server_store.py",
    "tests/conformance/test_gabbi.py",
    "tests/unit/core/test_names.py",
    "tests/transport/test_hints.py",
]


@pytest.fixture(scope="module")
def collected():
    """{suite: tests of `FILES`}"""
    found = {}
    for suite in ("core", "extended", "all"):
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", f"--suite={suite}", *FILES]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:]
        found[suite] = {line for line in done.stdout.splitlines() if "::" in line}
    return found


@pytest.mark.slow
def test_each_test_belongs_to_one_suite(collected):
    assert not collected["core"] & collected["extended"]
    assert collected["core"] | collected["extended"] == collected["all"]


@pytest.mark.slow
def test_the_suite_of_a_test_follows_from_its_marker_its_database_and_its_directory(collected):
    def suites(path, words=""):
        return {suite for suite in ("core", "extended") for test in collected[suite] if path in test and words in test}

    assert suites("test_smoke.py", "postgresql") == {"core"}  # by its marker
    assert suites("compute/test_server_store.py", "sqlite") == {"core"}
    assert suites("compute/test_server_store.py", "postgresql") == {"extended"}
    assert suites("test_gabbi.py", "passes[sqlite]") == {"core"}  # by its marker, in an extended directory
    assert suites("test_gabbi.py", "http_server") == {"extended"}
    assert suites("test_names.py") == {"core"}
    assert suites("test_hints.py") == {"extended"}


def test_the_record_of_a_run_has_the_failed_tests_and_the_duration_of_each_test(tmp_path):
    (tmp_path / "conftest.py").write_text(
        "from tests.run_record import RunRecord\n"
        "def pytest_configure(config): config.pluginmanager.register(RunRecord())\n"
    )
    (tmp_path / "test_three.py").write_text(
        "import pytest\n"
        "def test_passes(): pass\n"
        "def test_fails(): assert 1 == 2, 'not the same'\n"
        "def test_skips(): pytest.skip('no such device')\n"
    )
    path = tmp_path / "record.json"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", tmp_path]
    environment = {"PATH": "", "PYTHONPATH": str(ROOT), "MOORAGE_TEST_RUN": str(path)}
    subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False)
    record = json.loads(path.read_text())
    assert (record["passed"], record["skipped"], record["workers"]) == (1, 1, 2)
    assert record["failed"] == {"test_three.py::test_fails": "call: AssertionError: not the same"}
    assert record["tests"].keys() == {f"test_three.py::test_{name}" for name in ("passes", "fails", "skips")}
    assert all(test["wall_s"] >= 0 and test["cpu_s"] >= 0 for test in record["tests"].values())
