"""Runs every command of the operators' guide, in its order, beside a plane."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.system.planes import MOORAGE, PlaneProcess, moorage

pytestmark = pytest.mark.slow

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "operations.md"


def commands(*headings: str) -> list[str]:
    """The commands in the console blocks below these headings."""
    parts = {part.partition("\n")[0]: part for part in re.split(r"^##+ ", GUIDE.read_text(), flags=re.MULTILINE)}
    blocks = [block for heading in headings for block in re.findall(r"```console\n(.*?)```", parts[heading], re.DOTALL)]
    return [line.removeprefix("$ ") for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def run(command: str, config: Path, directory: Path) -> subprocess.CompletedProcess[str]:
    words = shlex.split(command)
    assert words[0] == "moorage", command
    return moorage(*words[1:], directory=directory, MOORAGE_CONFIG=str(config))


UPGRADES = "Upgrades while processes run: `moorage db upgrade`"


def test_the_upgrade_commands_of_the_guide_do_what_it_says(tmp_path):
    """Upgrades from the previous release; each phase does what the plan says."""
    from moorage.db import migrations
    from moorage.db.engine import open_engine
    from tests.store.previous_release.test_previous_release import HEADS, recorded_database

    config = tmp_path / "state" / "moorage.conf"
    with PlaneProcess(config, "--port", str(free_port())) as plane:
        plane.stop()
    for feature in HEADS:
        for path in config.parent.glob(f"{feature}.db*"):
            path.unlink()
        recorded_database(feature, config.parent / f"{feature}.db")
    said = []
    for command in commands(UPGRADES):
        done = run(command, config, tmp_path)
        assert (done.returncode, done.stderr) == (0, ""), command
        said.append(" ".join(done.stdout.split()))
    planned, expanded, _, contracted = said
    since = [f"{feature} expand {revision}" for feature, head in HEADS.items()
             for revision in migrations.revisions(feature) if revision > head]  # fmt: skip
    assert [step for step in since if step not in planned] == []
    assert "reservation contract 0099" in planned
    assert "stop older programs" not in planned
    assert ("Nothing had to be done." in expanded) is not bool(since)
    assert "0099" in contracted
    for feature in HEADS:
        engine = open_engine(f"sqlite:///{config.parent}/{feature}.db")
        assert migrations.is_current(engine, feature)
        engine.dispose()
    assert "Nothing to do." in run("moorage db upgrade --plan", config, tmp_path).stdout
    with PlaneProcess(config, "--port", str(free_port())):
        pass


def test_the_backup_restore_and_completion_commands_of_the_guide_work(tmp_path):
    config = tmp_path / "state" / "moorage.conf"
    plane = PlaneProcess(config, "--port", str(free_port()))
    keep, put_back, *audits = commands("Backup and restore")
    with plane.start():
        done = run(keep, config, tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        plane.stop()
    done = run(put_back, config, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    with plane.start():
        for audit in audits:
            assert run(audit, config, tmp_path).returncode == 0, audit
    (completion,) = commands("Completion")
    script = f'PATH="{MOORAGE.parent}:$PATH"; {completion}; complete -p moorage'
    assert subprocess.run(["bash", "-c", script], capture_output=True, timeout=60, check=False).returncode == 0


def test_every_command_of_the_guide_is_run_by_a_test():
    """`test_status_and_doctor` runs those of the first two parts, `test_wsgi` runs gunicorn, and `test_backup` makes
    encrypted backups; this file runs the rest.
    """
    tried = {
        *commands(UPGRADES), *commands("Backup and restore"), *commands("Completion"),
        *commands("See the state: `moorage status`"), *commands("Diagnose: `moorage doctor`"),
        *commands("Behind another WSGI server"), *commands("Encrypted backups"),
    }  # fmt: skip
    every = re.findall(r"^\$ (.+)$", GUIDE.read_text(), re.MULTILINE)
    assert set(every) == tried
    (command,) = commands("Behind another WSGI server")
    assert command.split()[1:3] == ["gunicorn", "moorage.wsgi.placement:application"]
