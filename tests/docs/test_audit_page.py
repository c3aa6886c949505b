"""The page of audit findings has a row for each kind, and a test provokes each kind on a whole plane."""

from pathlib import Path

from moorage.audit.model import FindingKind

ROOT = Path(__file__).parents[2]


def test_every_kind_of_finding_has_a_row():
    guide = (ROOT / "docs" / "reference" / "audit-findings.md").read_text()
    rows = [line.split("|")[1] for line in guide.splitlines() if line.startswith("| ")]
    named = [name.strip() for row in rows[1:] for name in row.split(",")]
    assert sorted(named) == sorted(FindingKind)


def test_every_kind_of_finding_is_provoked_by_a_test():
    tests = "".join(path.read_text() for path in (ROOT / "tests" / "system" / "audit").glob("test_*.py"))
    assert [kind for kind in FindingKind if f"Kind.{kind.name}" not in tests] == []
