"""Shell completion of commands, options and choices, without imports of other commands."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from moorage.cli.main import _COMMANDS
from tests.unit.cli.test_commands import MOORAGE, moorage
from tests.unit.cli.test_imports import loaded


def completed(*words: str) -> list[str]:
    """The completions for the last of `words`."""
    env = os.environ | {
        "_MOORAGE_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(("moorage", *words)), "COMP_CWORD": str(len(words)),
    }  # fmt: skip
    done = subprocess.run([MOORAGE], env=env, capture_output=True, text=True, timeout=60, check=False)
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_is_valid_for_its_shell(shell, tmp_path):
    done = moorage("completion", shell)
    assert done.returncode == 0
    assert "_MOORAGE_COMPLETE" in done.stdout
    if program := shutil.which(shell):
        script = tmp_path / "script"
        script.write_text(done.stdout)
        assert subprocess.run([program, "-n", script], check=False).returncode == 0


def test_commands_options_and_choices_are_completed():
    assert completed("st") == ["status"]
    assert set(completed("")) == set(_COMMANDS)
    assert completed("doctor", "--j") == ["--json"]
    assert completed("db", "upgrade", "--phase", "c") == ["contract"]
    assert completed("provider-config", "val") == ["validate"]


def test_completing_a_command_name_imports_no_command():
    script = (
        "import os\n"
        "os.environ |= {'_MOORAGE_COMPLETE': 'bash_complete', 'COMP_WORDS': 'moorage s', 'COMP_CWORD': '1'}\n"
        "from moorage.cli.main import cli\n"
        "try:\n    cli(prog_name='moorage')\nexcept SystemExit:\n    pass\n"
    )
    assert not loaded(script) & {"sqlalchemy", "rich", "httpx", "moorage.cli.commands.status"}


def test_the_completion_script_can_be_evaluated_in_a_start_up_file(tmp_path):
    script = f'PATH="{Path(sys.executable).parent}:$PATH"; eval "$(moorage completion bash)"; complete -p moorage'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert "moorage" in done.stdout, done.stderr
