"""A backup of a working plane is restored completely, and `moorage audit` repairs the differences."""

import json
import os
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa

from moorage.core.clock import SystemClock
from moorage.core.ids import SeededIds
from moorage.db import migrations
from moorage.db.engine import open_engine
from tests.conftest import DATABASES
from tests.people import create_first_people
from tests.ports import free_port
from tests.servers import program, temporary_database
from tests.system import planes
from tests.system.planes import PlaneProcess, until, write_config

pytestmark = pytest.mark.slow


def moorage(config, *words):
    tools = {str(Path(path).parent) for name in ("pg_dump", "mariadb-dump", "mariadb") if (path := program(name))}
    path = os.pathsep.join([*sorted(tools), os.environ["PATH"]])
    return planes.moorage(*words, "--config", config, PATH=path)


def json_output(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_backup_of_a_plane_under_load_is_restored_and_repaired_by_the_audit(tmp_path):
    config = tmp_path / "state" / "moorage.conf"
    plane = PlaneProcess(config, "--port", str(free_port()))
    with plane.start():
        clients = plane.clients()
        clients.create_flavor("small")
        image = clients.create_image()
        kept = clients.create_server(flavor="small", image=image, name="kept")
        clients.wait_for_status(kept, "ACTIVE")
        made, enough = [], threading.Event()

        def load():
            other = plane.clients()
            while not enough.is_set():
                made.append(other.create_server(flavor="small", image=image, name="meanwhile"))
                other.compute.request("DELETE", f"/servers/{made[-1]}")  # the quota allows ten servers
                other.wait_until_gone(made[-1])

        worker = threading.Thread(target=load)
        worker.start()
        try:
            until(lambda: len(made) >= 2)
            manifest = json_output(moorage(config, "backup", str(tmp_path / "backup"), "--json"))
        finally:
            enough.set()
            worker.join()
        assert list(manifest["databases"]) == [
            "identity", "reservation", "compute", "network", "accelerator", "placement",
        ]  # fmt: skip
        again = moorage(config, "backup", str(tmp_path / "backup"))
        assert (again.returncode, "already exists" in again.stderr) == (1, True)
        later = clients.create_server(flavor="small", image=image, name="later")
        clients.wait_for_status(later, "ACTIVE")
        refused = moorage(config, "restore", str(tmp_path / "backup"))
        assert (refused.returncode, "a plane is running with" in refused.stderr) == (1, True)
        plane.stop()
    assert (tmp_path / "backup").stat().st_mode & 0o077 == 0
    json_output(moorage(config, "restore", str(tmp_path / "backup"), "--json"))
    with plane.start():
        clients = plane.clients()
        until(lambda: clients.server(kept) and clients.server(kept)["status"] == "ACTIVE")
        assert clients.allocations(kept)["VCPU"] == 1
        assert clients.server(later) is None
        moorage(config, "audit", "--fix", "--grace", "0s", "--receipt", str(tmp_path / "receipt.jsonl"))
        for server in (later, *made):
            until(lambda server=server: bool(clients.server(server)) or not clients.allocations(server))


@pytest.fixture
def passphrase(tmp_path):
    """The options that name a file with a passphrase."""
    (tmp_path / "passphrase").write_text("correct horse\n")
    (tmp_path / "passphrase").chmod(0o600)
    return ("--passphrase-file", str(tmp_path / "passphrase"))


@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize("kind", DATABASES)
def test_each_kind_of_database_is_restored_exactly(tmp_path, kind, passphrase, is_encrypted):
    sealed = passphrase if is_encrypted else ()
    with temporary_database(kind) as url:
        config = write_config(
            tmp_path / "state", plane={"services": "placement"}, identity={"mode": "none"}, database={"placement": url}
        ).source
        engine = open_engine(url)
        migrations.upgrade(engine, "placement")

        def names():
            with engine.connect() as connection:
                return set(connection.execute(sa.text("SELECT name FROM traits")).scalars())

        with engine.begin() as connection:
            connection.execute(
                sa.text(
                    "INSERT INTO traits (id, name, standard, created_at) VALUES (7, 'CUSTOM_KEPT', false, '2026-03-01 09:30:00')"
                )
            )
        before = names()
        manifest = json_output(moorage(config, "backup", str(tmp_path / "backup"), *sealed, "--json"))
        assert manifest["encrypted"] is is_encrypted
        assert b"CUSTOM_KEPT" not in b"".join(_contents(tmp_path / "backup")) or not is_encrypted
        assert manifest["databases"]["placement"]["revision"] == migrations.head_revision("placement")
        with engine.begin() as connection:
            connection.execute(sa.text("DELETE FROM traits WHERE id = 7"))
            connection.execute(
                sa.text(
                    "INSERT INTO traits (id, name, standard, created_at) VALUES (8, 'CUSTOM_LATER', false, '2026-03-01 09:30:00')"
                )
            )
        engine.dispose()
        done = moorage(config, "restore", str(tmp_path / "backup"), *sealed)
        assert (done.returncode, done.stderr) == (0, "")
        assert names() == before
        assert migrations.is_current(engine, "placement")
        engine.dispose()


def test_an_incomplete_or_changed_backup_is_refused_before_anything_is_restored(tmp_path):
    with temporary_database("sqlite") as url:
        config = write_config(
            tmp_path / "state", plane={"services": "placement"}, identity={"mode": "none"}, database={"placement": url}
        ).source
        engine = open_engine(url)
        migrations.upgrade(engine, "placement")
        engine.dispose()
        (tmp_path / "empty").mkdir()
        done = moorage(config, "restore", str(tmp_path / "empty"))
        assert (done.returncode, "an incomplete one" in done.stderr) == (1, True)
        json_output(moorage(config, "backup", str(tmp_path / "backup"), "--json"))
        with (tmp_path / "backup" / "placement.backup").open("ab") as file:
            file.write(b"x")
        done = moorage(config, "restore", str(tmp_path / "backup"))
        assert (done.returncode, "does not match the manifest for placement" in done.stderr) == (1, True)
        manifest = tmp_path / "backup" / "manifest.json"
        text = json.loads(manifest.read_text())
        from moorage.cli.backup.backup_files import file_digest

        text["databases"]["placement"]["sha256"] = file_digest(tmp_path / "backup" / "placement.backup")
        for revision in ("0001", "9999"):
            text["databases"]["placement"] |= {"revision": revision}
            manifest.write_text(json.dumps(text))
            done = moorage(config, "restore", str(tmp_path / "backup"))
            assert (done.returncode, f"is at revision {revision}" in done.stderr) == (1, True)


def _contents(directory):
    return [path.read_bytes() for path in directory.rglob("*") if path.is_file()]


@pytest.fixture
def stopped(tmp_path):
    """The configuration of a plane with users that is not running."""
    config = write_config(tmp_path / "state", plane={"services": "identity,placement"})
    create_first_people(config, SystemClock(), SeededIds(1))
    engine = open_engine(config.database_url("placement"))
    migrations.upgrade(engine, "placement")
    engine.dispose()
    return config


def test_an_encrypted_backup_contains_no_plain_text_and_needs_its_passphrase(tmp_path, stopped, passphrase):
    state, directory = stopped.state, tmp_path / "backup"
    kept = {name: (state / name).read_bytes() for name in ("token.key", "credentials.json")}
    said = moorage(stopped.source, "backup", str(directory), *passphrase)
    assert "The backup is encrypted" in said.stdout
    assert sorted(path.name for path in directory.iterdir()) == ["backup.tar.age", "manifest.json"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in directory.iterdir())
    everything = b"".join(_contents(directory))
    assert not any(secret in everything for secret in (*kept.values(), b"SQLite format 3", b"correct horse"))
    assert [path.name for path in state.iterdir() if path.name.startswith(".backup")] == []

    for name in kept:
        (state / name).write_text("changed")
    (tmp_path / "wrong").write_text("wrong horse")
    (tmp_path / "wrong").chmod(0o600)
    refused = moorage(stopped.source, "restore", str(directory), "--passphrase-file", str(tmp_path / "wrong"))
    assert (refused.returncode, "is wrong" in refused.stderr) == (1, True)
    assert (state / "token.key").read_text() == "changed"
    assert moorage(stopped.source, "restore", str(directory), *passphrase).returncode == 0
    assert {name: (state / name).read_bytes() for name in kept} == kept
    assert all((state / name).stat().st_mode & 0o077 == 0 for name in kept)
    assert [path.name for path in state.iterdir() if path.name.startswith(".backup")] == []


def test_check_reports_whether_a_backup_is_encrypted_and_complete(tmp_path, stopped, passphrase):
    plain, sealed = tmp_path / "plain", tmp_path / "sealed"
    said = moorage(stopped.source, "backup", str(plain))
    assert "The backup is not encrypted" in said.stdout
    moorage(stopped.source, "backup", str(sealed), *passphrase)
    said = moorage(stopped.source, "backup", "--check", str(plain))
    assert (
        said.returncode,
        "The backup is not encrypted" in said.stdout,
        "is complete and unchanged" in said.stdout,
    ) == (0, True, True)
    said = moorage(stopped.source, "backup", "--check", str(sealed), *passphrase)
    assert (said.returncode, "The backup is encrypted" in said.stdout, "placement" in said.stdout) == (0, True, True)
    with (sealed / "backup.tar.age").open("r+b") as file:
        file.truncate(file.seek(0, 2) - 1)
    for words in (("backup", "--check"), ("restore",)):
        refused = moorage(stopped.source, *words, str(sealed), *passphrase)
        assert (refused.returncode, "was changed or cut" in refused.stderr) == (1, True)


def test_a_passphrase_that_others_can_read_is_refused(tmp_path, stopped, passphrase):
    (tmp_path / "passphrase").chmod(0o644)
    refused = moorage(stopped.source, "backup", str(tmp_path / "backup"), *passphrase)
    assert (refused.returncode, "other users can read the passphrase" in refused.stderr) == (1, True)
    assert not (tmp_path / "backup").exists()
