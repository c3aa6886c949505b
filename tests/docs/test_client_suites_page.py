"""docs/wire/client-suites.md shows the tables of the suites and of their tests that do not pass."""

from tests.docs.named import ROOT
from tests.system.suites.out_of_scope import OUT_OF_SCOPE, PAGE, SUITES, page_with_tables

TEXT = PAGE.read_text()


def test_the_page_shows_the_tables():
    assert page_with_tables(TEXT) == TEXT, "run `python -m tests.system.suites.out_of_scope`"


def test_each_suite_has_a_file_that_runs_it_and_each_file_a_suite():
    assert {row.suite for row in OUT_OF_SCOPE} <= {row.name for row in SUITES}
    files = {row.file for row in SUITES}
    assert [path for path in files if not (ROOT / path).exists()] == []
    system = ROOT / "tests" / "system"
    run = {
        path.relative_to(ROOT).as_posix()
        for path in (*system.glob("suites/test_*.py"), *system.glob("*/test_tempest.py"))
    }
    assert run <= files


def test_a_row_appears_once():
    names = [(row.suite, row.pattern) for row in OUT_OF_SCOPE]
    assert sorted(set(names)) == sorted(names)
