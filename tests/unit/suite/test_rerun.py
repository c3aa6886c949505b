"""`tests.rerun`: a failed test is run once more, alone, and a run fails only if the test fails again."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PASSES = "tests/unit/core/test_clock.py::test_virtual_time_does_not_go_back"
FAILS = "tests/unit/core/test_names.py::test_that_is_not_there"


@pytest.fixture
def rerun(tmp_path):
    """Runs `tests.rerun` on a record: (exit status, output, the record afterwards, the page)."""

    def run(failed):
        record, page = tmp_path / "record.json", tmp_path / "unsteady.md"
        record.write_text(json.dumps({"passed": 1, "failed": failed, "skipped": 0, "tests": {}}))
        page.write_text("| seen | test | observed |\n")
        command = [sys.executable, "-m", "tests.rerun", record, page]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, json.loads(record.read_text()), page.read_text()

    return run


@pytest.mark.slow
def test_a_failed_test_that_passes_alone_is_recorded_as_unsteady_and_one_that_fails_again_fails_the_run(rerun):
    status, _, record, page = rerun({PASSES: "call: no answer | within 5 s"})
    assert (status, record["failed"], record["unsteady"]) == (0, {}, {PASSES: "call: no answer | within 5 s"})
    assert page.splitlines()[-1].endswith(f"| `{PASSES}` | call: no answer / within 5 s |")
    status, out, record, page = rerun({FAILS: "call: wrong"})
    assert (status, record["failed"], record["unsteady"]) == (1, {FAILS: "call: wrong"}, {})
    assert f"failed twice: {FAILS} (call: wrong)" in out
    assert len(page.splitlines()) == 1


def test_many_failed_tests_are_not_run_again(rerun):
    status, out, record, _ = rerun({f"tests/test_{number}.py": "call: wrong" for number in range(30)})
    assert status == 1
    assert "30 tests failed; none is run again" in out
    assert len(record["failed"]) == 30


def test_a_run_that_failed_without_a_failed_test_stays_failed(rerun):
    assert rerun({})[0] == 1
