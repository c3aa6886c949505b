"""docs/evidence/reliability.md names an existing test for each promise and each fault."""

import re

from tests.docs.named import ROOT, missing_tests

PAGE = ROOT / "docs" / "evidence" / "reliability.md"
TEXT = PAGE.read_text()


def rows_below(heading):
    section = TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return [line for line in section.splitlines() if line.startswith("| ")][1:]


def named_in(text):
    return re.findall(r"`(tests/[^`]+::[^`]+)`", text)


def test_named_tests_exist():
    assert named_in(TEXT)
    assert missing_tests(named_in(TEXT)) == []


def test_every_promise_has_a_test():
    promises = rows_below("What is promised, and how it is tested")
    assert len(promises) >= 8
    assert [row for row in promises if not named_in(row)] == []


def test_every_fault_has_a_test_and_a_remedy():
    faults = rows_below("Faults found")
    assert len(faults) >= 9
    for row in faults:
        what, found_by, again, mended = (cell.strip() for cell in row.strip("|").split(" | "))
        assert what, row
        assert found_by, row
        assert named_in(again), row
        assert mended, row


def test_commands_are_targets_of_the_makefile():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^make ([a-z]+)", TEXT, re.MULTILINE)) <= targets
