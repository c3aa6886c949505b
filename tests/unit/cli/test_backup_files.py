"""The files of a state directory that a backup contains, and how the dump programs are called."""

import subprocess
from types import SimpleNamespace

import pytest

from moorage.cli.backup import backup_files
from moorage.cli.backup.backup_files import dump_database, restore_database, state_files
from moorage.core.errors import StartError
from tests.ports import free_port


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
        ("mariadb://u@a:3307/x", ["--host=a", "--port=3307", "--user=u", "--protocol=tcp", "x"], {}),
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


def test_if_no_host_of_mariadb_can_be_used_the_error_names_each_with_its_reason(tmp_path):
    ports = free_port(), free_port()
    url = f"mariadb://u:pw@/placement?host=127.0.0.1:{ports[0]}&host=127.0.0.1:{ports[1]}"
    (tmp_path / "dump").touch()
    for work in (lambda: dump_database(url, tmp_path / "dump", lambda *_: None),
                 lambda: restore_database(url, tmp_path / "dump")):  # fmt: skip
        with pytest.raises(StartError) as caught:
            work()
        said = str(caught.value)
        assert said.startswith("no host of the database placement can be used (127.0.0.1:")
        assert all(f"127.0.0.1:{port}: Can't connect to MySQL server" in said for port in ports)
        assert "start one of them" in said
        assert "pw" not in said
