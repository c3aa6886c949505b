"""docs/evidence/scale.md computes correctly, and its links, commands and defaults exist."""

import re
from pathlib import Path

import pytest

from bench import alone
from moorage.config import Config
from moorage.db import group_commit, timeouts
from tests.docs.named import links, missing_links

PAGE = Path(__file__).parents[2] / "docs" / "evidence" / "scale.md"
TEXT = PAGE.read_text()

GROUPS = (1, 8, 32, 64)
#: Milliseconds per write while the lock is held, as on the page.
C_MS = float(re.search(r"^\| c \| ([\d.]+) ms", TEXT, re.MULTILINE)[1])


def throughputs():
    """(database, round trip in ms, flush in ms, writes per second for each of GROUPS)"""
    table = TEXT.partition("| database | round trip |")[2].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        name, round_trip, flush, *rates = [cell.strip() for cell in line.strip("|").split("|")]
        yield name, float(round_trip), float(flush), [int(rate.replace(",", "")) for rate in rates]


@pytest.mark.parametrize(("name", "round_trip", "flush", "rates"), list(throughputs()))
def test_writes_per_second_follow_from_the_formula(name, round_trip, flush, rates):
    assert rates == [round(group / (2 * round_trip + flush + group * C_MS) * 1000) for group in GROUPS]


def test_the_largest_group_in_the_table_is_the_maximum_in_the_code():
    assert list(throughputs())
    assert max(GROUPS) == group_commit.MAX_GROUP


def test_links_and_files_exist():
    named = re.findall(r"`((?:tests|docs|bench)/[^`]+)`", TEXT)
    assert links(PAGE)
    assert named
    assert missing_links(PAGE) == []
    assert [name for name in named if not (PAGE.parents[2] / name).exists()] == []


def test_commands_of_the_bench_exist():
    named = set(re.findall(r"`bench (\w+)`", TEXT))
    assert named
    assert named <= set(alone.COMMANDS)


def test_the_defaults_used_in_the_computation_are_those_of_the_code():
    assert f"`[server] threads` ({Config().server.threads})" in TEXT
    assert f"repeated for up to {timeouts.LOCK_TIMEOUT_S} s" in TEXT
    assert "for a week" in TEXT
    assert Config().placement.history_s == 7 * 24 * 3600
