"""A backup of a plane that works, put back: what was there is there, and `moorage audit` mends what came between."""

import json
import os
import threading
from pathlib import Path

import pytest
import sqlalchemy as sa

from moorage.db import migrations
from moorage.db.engine import open_engine
from tests.conftest import DATABASES
from tests.processes import free_port
from tests.servers import program, temporary_database
from tests.system import planes
from tests.system.planes import PlaneProcess, until, write_config

pytestmark = pytest.mark.slow


def moorage(config, *words):
    tools = {str(Path(path).parent) for name in ("pg_dump", "mariadb-dump", "mariadb") if (path := program(name))}
    path = os.pathsep.join([*sorted(tools), os.environ["PATH"]])
    return planes.moorage(*words, "--config", config, PATH=path)


def document(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_backup_of_a_plane_under_load_is_put_back_and_audited(tmp_path):
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
                other.compute.request("DELETE", f"/servers/{made[-1]}")  # the quota is ten
                other.wait_until_gone(made[-1])

        worker = threading.Thread(target=load)
        worker.start()
        try:
            until(lambda: len(made) >= 2)
            manifest = document(moorage(config, "backup", str(tmp_path / "backup"), "--json"))
        finally:
            enough.set()
            worker.join()
        assert list(manifest["databases"]) == ["reservation", "compute", "accelerator", "placement"]
        again = moorage(config, "backup", str(tmp_path / "backup"))
        assert (again.returncode, "is there already" in again.stderr) == (1, True)
        later = clients.create_server(flavor="small", image=image, name="later")
        clients.wait_for_status(later, "ACTIVE")
        refused = moorage(config, "restore", str(tmp_path / "backup"))
        assert (refused.returncode, "a plane runs with" in refused.stderr) == (1, True)
        plane.stop()
    assert (tmp_path / "backup").stat().st_mode & 0o077 == 0
    document(moorage(config, "restore", str(tmp_path / "backup"), "--json"))
    with plane.start():
        clients = plane.clients()
        until(lambda: clients.server(kept) and clients.server(kept)["status"] == "ACTIVE")
        assert clients.allocations(kept)["VCPU"] == 1
        assert clients.server(later) is None
        moorage(config, "audit", "--fix", "--grace", "0s", "--receipt", str(tmp_path / "receipt.jsonl"))
        for server in (later, *made):
            until(lambda server=server: bool(clients.server(server)) or not clients.allocations(server))


@pytest.mark.parametrize("kind", DATABASES)
def test_each_database_comes_back_as_it_was(tmp_path, kind):
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
        manifest = document(moorage(config, "backup", str(tmp_path / "backup"), "--json"))
        assert manifest["databases"]["placement"]["revision"] == migrations.head("placement")
        with engine.begin() as connection:
            connection.execute(sa.text("DELETE FROM traits WHERE id = 7"))
            connection.execute(
                sa.text(
                    "INSERT INTO traits (id, name, standard, created_at) VALUES (8, 'CUSTOM_LATER', false, '2026-03-01 09:30:00')"
                )
            )
        engine.dispose()
        done = moorage(config, "restore", str(tmp_path / "backup"))
        assert (done.returncode, done.stderr) == (0, "")
        assert names() == before
        assert migrations.is_current(engine, "placement")
        engine.dispose()


def test_what_is_no_whole_backup_is_refused_before_anything_is_touched(tmp_path):
    with temporary_database("sqlite") as url:
        config = write_config(
            tmp_path / "state", plane={"services": "placement"}, identity={"mode": "none"}, database={"placement": url}
        ).source
        engine = open_engine(url)
        migrations.upgrade(engine, "placement")
        engine.dispose()
        (tmp_path / "empty").mkdir()
        done = moorage(config, "restore", str(tmp_path / "empty"))
        assert (done.returncode, "was not finished" in done.stderr) == (1, True)
        document(moorage(config, "backup", str(tmp_path / "backup"), "--json"))
        with (tmp_path / "backup" / "placement.backup").open("ab") as file:
            file.write(b"x")
        done = moorage(config, "restore", str(tmp_path / "backup"))
        assert (done.returncode, "is not what was backed up of placement" in done.stderr) == (1, True)
        manifest = tmp_path / "backup" / "manifest.json"
        text = json.loads(manifest.read_text())
        text["databases"]["placement"] |= {"revision": "9999"}
        from moorage.cli.backup_files import digest

        text["databases"]["placement"]["sha256"] = digest(tmp_path / "backup" / "placement.backup")
        manifest.write_text(json.dumps(text))
        done = moorage(config, "restore", str(tmp_path / "backup"))
        assert (done.returncode, "is at revision 9999" in done.stderr) == (1, True)
