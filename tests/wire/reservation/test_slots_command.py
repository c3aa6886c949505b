"""`moorage slots`."""

import json
import re
import shlex
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from moorage.cli.commands import slots as command
from moorage.reservation.client import ReservationClient
from tests.docs.named import ROOT
from tests.wire.reservation.test_availability import OTHER, book


@pytest.fixture
def run(reserved, monkeypatch):
    client = ReservationClient(reserved.client("reservation", "u", "demo", ("member",)))
    monkeypatch.setattr(command, "endpoints", lambda path: SimpleNamespace(reservation=client))

    def invoke(*words):
        result = CliRunner().invoke(command.slots, words)
        assert result.exit_code == 0, (result.output, result.exception)
        return result.output

    return invoke


def test_the_command_prints_the_next_slots_and_the_reason_for_the_wait(reserved, run):
    book(reserved, 7, "01 09:30", "02 00:00", **OTHER)
    said = run("--hours", "12", "--amount", "2", "--limit", "2").splitlines()
    assert " ".join(" ".join(said).split()).startswith(
        "Not possible at the earliest start: 2 instances of 1 VCPU, 1024 MEMORY_MB cannot be reserved in that period; 1 fit"
    )
    assert [line.split() for line in said if line.startswith("2026")] == [
        ["2026-03-02", "00:00", "2026-03-02", "12:00"],
        ["2026-03-02", "12:00", "2026-03-03", "00:00"],
    ]
    found = json.loads(run("--hours", "0.5", "--json"))
    assert found["offers"][0] == ["2026-03-01T09:30:00.000000", "2026-03-01T10:00:00.000000"]


def test_the_command_says_that_nothing_fits(run):
    assert "No time found in this period" in run("--hours", "1", "--amount", "2", "--servers", "apart")


def test_the_command_of_the_guide_prints_the_next_slots(run):
    (line,) = re.findall(
        r"^\$ moorage slots (.*)$", (ROOT / "docs/reference/reservations.md").read_text(), re.MULTILINE
    )
    words = shlex.split(line)
    assert words[words.index("--from") + 1] in run(*words)
