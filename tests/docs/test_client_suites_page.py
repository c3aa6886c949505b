"""docs/wire/client-suites.md shows the table of the tests that do not pass, and names the tests that run the suites."""

import re

from tests.docs.named import ROOT
from tests.system.suites.out_of_scope import OUT_OF_SCOPE, PAGE, page_with_table

TEXT = PAGE.read_text()


def test_the_page_shows_the_table():
    assert page_with_table(TEXT) == TEXT, "run `python -m tests.system.suites.out_of_scope`"


def test_the_page_names_each_suite_and_the_file_that_runs_it():
    rows = dict(re.findall(r"^\| ([\w. -]+) \| [^|]+ \| `(tests/[^`]+)` \|$", TEXT, re.MULTILINE))
    assert {row.suite for row in OUT_OF_SCOPE} <= rows.keys()
    assert [path for path in rows.values() if not (ROOT / path).exists()] == []
    run = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests" / "system" / "suites").glob("test_*.py")}
    assert run <= set(rows.values())


def test_a_row_appears_once():
    names = [(row.suite, row.pattern) for row in OUT_OF_SCOPE]
    assert sorted(set(names)) == sorted(names)
