"""The page of commands and exit codes equals the one generated from the commands."""

import re
import shutil
import subprocess

import click
import pytest

from moorage.cli import exit_codes
from moorage.cli.main import cli
from tools import commands_page, man_page

#: `clock advance` has the exit codes of `clock`.
WITHOUT_A_PLANE = {
    "bitstream sign",
    "clock advance",
    "completion",
    "login",
    "provider-config sample",
    "provider-config schema",
}
COMMANDS = dict(commands_page.commands(cli))


def test_the_page_equals_the_one_generated_from_the_commands():
    assert commands_page.PAGE.read_text() == commands_page.page(), "run tools/commands_page.py"


def test_the_manual_page_equals_the_one_generated_from_the_commands():
    assert man_page.PAGE.read_text() == man_page.page(), "run tools/man_page.py"


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed, so nothing formats the manual page")
def test_groff_formats_the_manual_page_without_a_warning():
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", man_page.PAGE], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    shown = re.sub("\x1b\\[[0-9;]*m|.\x08", "", done.stdout)
    for name in COMMANDS:
        assert f"moorage {name}" in shown


def test_every_command_with_its_own_exit_codes_explains_them_in_its_help():
    for name in exit_codes.MEANINGS:
        command = COMMANDS.get(name) or cli.get_command(click.Context(cli), name)
        assert command is not None, name
        assert re.search(r"[Ee]xit status", command.help or ""), name


#: Commands without output, or with a file of another format as output.
NOTHING_TO_READ = {
    "up", "agent join", "clock advance", "completion", "host enrol", "host join", "host revoke", "project add",
    "provider-config sample", "reservation finish-upgrade", "user add", "user disable", "user enable", "user set-password",
    "user unlock",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - NOTHING_TO_READ - {"provider-config schema"}))
def test_every_command_with_output_has_a_json_option(name):
    (option,) = (one for one in COMMANDS[name].params if "--json" in one.opts)
    assert option.is_flag
    assert option.name == "as_json"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_the_config_option_and_every_option_has_a_help(name):
    options = {option: one for one in COMMANDS[name].params if isinstance(one, click.Option) for option in one.opts}
    assert ("--config" in options) or name in WITHOUT_A_PLANE, name
    assert all(one.help for one in options.values()), "each option says what it does"
