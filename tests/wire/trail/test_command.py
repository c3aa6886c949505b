"""`moorage trail` on the files of a plane."""

import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from moorage.cli.commands.trail import trail
from moorage.config import render_config
from tests.plane import InProcessPlane

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "trail.md"


@pytest.fixture
def plane(tmp_path):
    """A plane with changes by several users, in several files."""
    with InProcessPlane(tmp_path, "placement", trail={"rotate_mb": 0.008}) as plane:
        (tmp_path / "moorage.conf").write_text(render_config(plane.config))
        for number in range(40):
            plane.send("PUT", f"/placement/traits/CUSTOM_{number}", version="1.39")
        plane.send("PUT", "/placement/traits/CUSTOM_X", version="1.39", who="demo:demo", roles="member")
        yield plane


def said(plane, *words):
    done = CliRunner(catch_exceptions=False).invoke(trail, [*words, "--config", str(plane.directory / "moorage.conf")])
    assert done.exit_code == 0
    return done.output.splitlines()


def test_rotated_files_are_read_first(plane):
    assert (plane.directory / "trail.jsonl.2").exists()
    found = [json.loads(line)["target"]["id"] for line in said(plane, "--json")]
    assert found == [*(f"CUSTOM_{number}" for number in range(40)), "CUSTOM_X"]


def test_an_entry_is_printed_as_one_readable_line(plane):
    (line,) = said(plane, "--user", "demo")
    assert re.fullmatch(
        r"2026-03-01T09:30:00Z  failure 403  demo@demo  placement:traits:update  placement/traits CUSTOM_X  "
        r"127\.0\.0\.1  req-[0-9a-f-]{36}",
        line,
    )


def test_filters_are_passed_on(plane):
    assert len(said(plane, "--outcome", "success")) == 40
    assert said(plane, "--resource", "CUSTOM_7", "--project", "admin")
    assert said(plane, "--since", "2026-03-01T09:30:01Z") == []
    assert len(said(plane, "--until", "2026-03-01T09:30:01")) == 41


def test_control_characters_in_names_are_escaped(plane):
    plane.send("DELETE", "/placement/traits/CUSTOM_%1B%5B2J%0Afake", version="1.39")
    (line,) = said(plane, "--action", "traits:delete")
    assert "CUSTOM_\\u001b[2J\\u000afake" in line


def test_without_a_trail_the_command_says_so(tmp_path):
    done = CliRunner().invoke(trail, ["--file", str(tmp_path / "none")])
    assert done.exit_code == 1
    assert "no audit trail" in done.exception.message


def test_the_examples_of_the_guide_work(plane):
    """Runs each command; with its filters this test's plane may have no entries."""
    blocks = re.findall(r"```console\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    commands = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]
    printed = [said(plane, *shlex.split(command)[2:]) for command in commands]
    assert len(printed) == 5
    assert printed[0], "of demo there is something"
    shown = [line for block in blocks for line in block.splitlines() if line.startswith("2026")]
    pattern = re.compile(
        r"\S+Z  (success|failure) \d{3}  \S+(?: \(service\))?  \S+(?: /\S+)?  \S+(?: \S+)?  [\d.]+  req-\S+"
    )
    assert all(pattern.fullmatch(line) for line in [*shown, *printed[0]]), "as the guide shows it"
