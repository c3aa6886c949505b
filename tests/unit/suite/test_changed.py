"""`make test-changed`: the tests that a change can affect, by imports, by conftest and by directory."""

from pathlib import Path

import pytest

from tests.changed import affected_tests, all_modules

ROOT = Path(__file__).parents[3]


def test_a_module_affects_tests_that_import_it_directly_or_indirectly():
    affected = affected_tests(["src/moorage/placement/rules/allocation_writes.py"])
    assert "tests/property/placement/test_capacity_check.py" in affected  # imports it
    assert "tests/wire/compute/test_create_server.py" in affected  # through the service and the wiring
    assert "tests/unit/reservation/test_calendar.py" not in affected


def test_a_module_affects_tests_that_start_it_as_a_program():
    assert "tests/system/test_up.py" in affected_tests(["src/moorage/cli/main.py"])


def test_a_conftest_affects_only_the_tests_in_its_directory():
    affected = affected_tests(["tests/wire/identity/conftest.py"])
    assert affected == sorted(str(p.relative_to(ROOT)) for p in (ROOT / "tests/wire/identity").glob("test_*.py"))


@pytest.mark.parametrize(
    ("path", "test"),
    [
        ("src/moorage/dashboard/templates/no_such_page.html", "tests/wire/dashboard/test_pages.py"),
        ("tests/wire/compute/recorded.json", "tests/wire/compute/test_recorded.py"),
        ("docs/concepts.md", "tests/docs/test_pages.py"),
        ("src/moorage/placement/rules/a_module_that_was_removed.py", "tests/property/placement/test_capacity_check.py"),
    ],
)
def test_a_data_file_or_removed_module_affects_the_tests_of_its_package(path, test):
    assert test in affected_tests([path])


def test_a_requirements_file_affects_all_tests():
    tests = [path for path in all_modules().values() if Path(path).name.startswith("test_")]
    assert affected_tests(["requirements/runtime.txt"]) == sorted(tests)


def test_no_change_affects_no_test():
    assert affected_tests([]) == []
