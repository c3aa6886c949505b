"""The files of a state directory that a backup contains, and how the dump programs are called."""

import subprocess
from types import SimpleNamespace

import pytest

from moorage.cli.backup import backup_files
from moorage.cli.backup.backup_files import dump_database, state_files


def test_a_backup_does_not_contain_the_audit_trail_so_a_restore_cannot_replace_it(tmp_path):
    for name in ("users.yaml", "trail.jsonl", "trail.jsonl.1", "trail.jsonl.lock"):
        (tmp_path / name).touch()
    assert [str(path) for path in state_files(tmp_path)] == ["users.yaml"]


@pytest.mark.parametrize(
    ("url", "options", "environment"),
    [
        ("postgresql://u:pw@db/x", ["--host=db", "--username=u", "--dbname=x"], {"PGPASSWORD": "pw"}),
        (
            "postgresql://u@/x?host=a:5433&host=b",
            ["--host=a,b", "--port=5433,", "--username=u", "--dbname=x"],
            {"PGTARGETSESSIONATTRS": "read-write"},
        ),
        ("postgresql://u@/x?host=a&host=b", ["--host=a,b", "--username=u", "--dbname=x"], {}),
        ("mariadb://u@/x?host=a:3307&host=b", ["--host=a", "--port=3307", "--user=u", "--protocol=tcp", "x"], {}),
    ],
)
def test_a_dump_program_gets_the_hosts_of_the_url_and_never_the_password(
    tmp_path, monkeypatch, url, options, environment
):
    calls = []

    def run(command, *, env, **_rest):
        calls.append((command, env))
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(backup_files.shutil, "which", lambda name: name)
    (tmp_path / "dump").touch()
    dump_database(url, tmp_path / "dump", lambda *_: None)
    [(command, env)] = calls
    assert [each for each in command if each in options] == options
    assert not any("pw" in each for each in command)
    assert environment.items() <= env.items()
