"""Each feature's migrations create exactly the tables of its code, and downgrades remove them, on all three databases.

The statements of the migration runner (locks, DDL in transactions, missing tables) are tested on all three, too. Its
choice of migrations does not depend on the database.
"""

import importlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

import moorage
from moorage.core.errors import StartError
from moorage.db import migrations
from moorage.db.engine import dialect_name, open_engine
from moorage.db.types import new_metadata
from moorage.jobs.tables import jobs_table
from tests.store.conftest import on_every_database


def differences(engine, feature):
    """The differences that `alembic check` finds between the database and the feature's tables.py."""
    return differences_from(engine, feature, importlib.import_module(f"moorage.{feature}.store.tables").metadata)


def differences_from(engine, feature, metadata):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": f"{feature}_version", "compare_type": True}
        )
        found = compare_metadata(context, metadata)
    # Alembic leaves out the version table by itself, but not this one.
    return [each for each in found if each[:1] != ("remove_table",) or each[1].name != f"{feature}_oldest_program"]


@on_every_database
@pytest.mark.parametrize("feature", migrations.features())
def test_an_upgrade_creates_the_tables_of_the_code_and_a_downgrade_removes_them(engine, feature):
    migrations.upgrade(engine, feature)
    assert differences(engine, feature) == []
    assert migrations.is_current(engine, feature)
    migrations.downgrade(engine, feature)
    assert sa.inspect(engine).get_table_names() == []
    migrations.upgrade(engine, feature)
    assert differences(engine, feature) == []


@pytest.mark.parametrize("feature", migrations.features())
def test_no_two_migrations_have_the_same_number(feature):
    numbers = [*migrations.revisions(feature), *migrations.gated_revisions(feature)]
    assert len(set(numbers)) == len(numbers)


# ---------------------------------------------------------------------- the runner, with a feature for tests

FIRST = """
import sqlalchemy as sa
from alembic import op
from moorage.db.types import TABLE_OPTIONS

def upgrade():
    op.create_table("boat", sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.String(20)),
                    **TABLE_OPTIONS)
    op.create_table("rope", sa.Column("id", sa.Integer, primary_key=True),
                    sa.Column("boat_id", sa.Integer, sa.ForeignKey("boat.id", name="fk_rope_boat_id")), **TABLE_OPTIONS)

def downgrade():
    op.drop_table("rope")
    op.drop_table("boat")
"""

SECOND = """
import sqlalchemy as sa
from alembic import op

def upgrade():
    with op.batch_alter_table("boat") as batch:
        batch.add_column(sa.Column("length_m", sa.Integer, nullable=False, server_default="7"))
        batch.alter_column("name", existing_type=sa.String(20), type_=sa.String(40), nullable=False)

def downgrade():
    with op.batch_alter_table("boat") as batch:
        batch.alter_column("name", existing_type=sa.String(40), type_=sa.String(20), nullable=True)
        batch.drop_column("length_m")
"""


GATED = """
import sqlalchemy as sa
from alembic import op

def upgrade():
    op.drop_table("rope")

def downgrade():
    op.create_table("rope", sa.Column("id", sa.Integer, primary_key=True))
"""


@pytest.fixture
def harbour(tmp_path, monkeypatch):
    """A feature ``moorage.harbour`` in its own directory; returns the directory of its version files."""
    versions = tmp_path / "plugins" / "harbour" / "migrations"
    versions.mkdir(parents=True)
    monkeypatch.setattr(moorage, "__path__", [*moorage.__path__, str(tmp_path / "plugins")])
    (versions / "0001_first_light.py").write_text(FIRST)
    yield versions
    sys.modules.pop("moorage.harbour", None)


@on_every_database
def test_a_migration_of_a_table_keeps_its_rows_and_the_rows_that_refer_to_them(engine, harbour):
    migrations.upgrade(engine, "harbour")
    with engine.begin() as connection:
        connection.execute(sa.text("INSERT INTO boat (id, name) VALUES (1, 'Ada')"))
        connection.execute(sa.text("INSERT INTO rope (id, boat_id) VALUES (5, 1)"))
    (harbour / "0002_length.py").write_text(SECOND)
    assert not migrations.is_current(engine, "harbour")
    migrations.upgrade(engine, "harbour")
    assert migrations.current_revision(engine, "harbour") == "0002"
    with engine.begin() as connection:
        assert connection.execute(sa.text("SELECT id, name, length_m FROM boat")).all() == [(1, "Ada", 7)]
        assert connection.execute(sa.text("SELECT id, boat_id FROM rope")).all() == [(5, 1)]
    migrations.downgrade(engine, "harbour", "0001")
    assert migrations.current_revision(engine, "harbour") == "0001"
    with engine.begin() as connection:
        assert connection.execute(sa.text("SELECT * FROM boat")).all() == [(1, "Ada")]


@on_every_database
def test_foreign_keys_are_checked_again_after_a_migration(engine, harbour):
    migrations.upgrade(engine, "harbour")
    with pytest.raises(sa.exc.IntegrityError), engine.begin() as connection:
        connection.execute(sa.text("INSERT INTO rope (id, boat_id) VALUES (5, 99)"))


@on_every_database
def test_a_constraint_without_a_name_gets_the_name_of_the_naming_convention(engine, harbour):
    unnamed = FIRST.replace('sa.Column("name", sa.String(20))', 'sa.Column("name", sa.String(20), unique=True)')
    (harbour / "0001_first_light.py").write_text(unnamed)
    migrations.upgrade(engine, "harbour")
    [constraint] = sa.inspect(engine).get_unique_constraints("boat")
    assert constraint["name"] == "uq_boat_name"


@on_every_database
def test_a_failed_migration_does_not_set_its_revision_and_releases_the_lock(engine, harbour):
    migrations.upgrade(engine, "harbour")
    broken = SECOND.replace("batch.alter_column(", "raise RuntimeError('half-way')\n        batch.alter_column(", 1)
    (harbour / "0002_length.py").write_text(broken)
    with pytest.raises(RuntimeError, match="half-way"):
        migrations.upgrade(engine, "harbour")
    assert migrations.current_revision(engine, "harbour") == "0001"
    # The lock is free again: the next try does not wait for it.
    (harbour / "0002_length.py").write_text(SECOND)
    if dialect_name(engine) != "mariadb":  # MariaDB has already committed the first DDL statement
        migrations.upgrade(engine, "harbour")
        assert migrations.is_current(engine, "harbour")


@on_every_database
def test_a_database_at_an_unknown_newer_revision_is_refused(engine, harbour):
    (harbour / "0002_length.py").write_text(SECOND)
    migrations.upgrade(engine, "harbour")
    (harbour / "0002_length.py").unlink()
    with pytest.raises(StartError, match=r"revision 0002, which this program does not know \(it knows 0001\)"):
        migrations.upgrade(engine, "harbour")


def test_a_database_older_than_the_first_migration_is_refused(engine, harbour):
    migrations.upgrade(engine, "harbour")
    (harbour / "0001_first_light.py").rename(harbour / "0003_first_light.py")
    assert migrations.schema_state(engine, "harbour") is migrations.SchemaState.OLDER
    with pytest.raises(StartError, match=r"harbour is at revision 0001, but this program's first migration is 0003"):
        migrations.upgrade(engine, "harbour")


def test_an_upgrade_to_an_unknown_revision_is_refused(engine, harbour):
    with pytest.raises(StartError, match="no migration 0007; there are 0001"):
        migrations.upgrade(engine, "harbour", "0007")


@on_every_database
def test_a_downgrade_of_an_empty_database_does_nothing(engine, harbour):
    migrations.downgrade(engine, "harbour")
    assert migrations.current_revision(engine, "harbour") is None


@on_every_database
def test_concurrent_threads_migrate_a_database_once(engine, harbour):
    (harbour / "0002_length.py").write_text(SECOND)
    failures = []

    def start():
        own = open_engine(engine.url.render_as_string(hide_password=False))
        try:
            migrations.upgrade(own, "harbour")
        except Exception as error:  # noqa: BLE001 - the end of a thread: the test compares its error
            failures.append(error)
        finally:
            own.dispose()

    threads = [threading.Thread(target=start) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert migrations.current_revision(engine, "harbour") == "0002"


@on_every_database
@pytest.mark.slow
def test_concurrent_processes_migrate_a_database_once(engine, database_url, harbour):
    (harbour / "0002_length.py").write_text(SECOND)
    script = (
        "import sys, moorage; moorage.__path__.append(sys.argv[1])\n"
        "from moorage.db import engine, migrations\n"
        "migrations.upgrade(engine.open_engine(sys.argv[2]), 'harbour')"
    )
    command = [sys.executable, "-c", script, str(harbour.parent.parent), database_url]
    env = os.environ | {"PYTHONPATH": str(Path(moorage.__file__).parent.parent)}
    processes = [subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    assert [(process.communicate()[1], process.returncode) for process in processes] == [("", 0)] * 3
    assert migrations.current_revision(engine, "harbour") == "0002"


def columns(engine, table):
    return {column["name"] for column in sa.inspect(engine).get_columns(table)}


@on_every_database
def test_a_gated_migration_runs_only_when_it_is_named(engine, harbour):
    (harbour / "0002_length.py").write_text(SECOND)
    (harbour / "0099_gated_no_ropes.py").write_text(GATED)
    migrations.upgrade(engine, "harbour")
    assert "rope" in sa.inspect(engine).get_table_names()
    for _ in range(2):  # the second time changes nothing
        migrations.upgrade(engine, "harbour", "0099")
        assert "rope" not in sa.inspect(engine).get_table_names()
    assert migrations.current_revision(engine, "harbour") == "0002"
    migrations.downgrade(engine, "harbour")
    assert sa.inspect(engine).get_table_names() == []


def test_a_gated_migration_runs_the_ordinary_ones_first(engine, harbour):
    (harbour / "0099_gated_no_ropes.py").write_text(GATED)
    migrations.upgrade(engine, "harbour", "0099")
    assert migrations.current_revision(engine, "harbour") == "0001"
    migrations.downgrade(engine, "harbour", "0001")
    assert "rope" in sa.inspect(engine).get_table_names()


def test_a_later_ordinary_migration_runs_after_a_gated_one(engine, harbour):
    (harbour / "0099_gated_no_ropes.py").write_text(GATED)
    migrations.upgrade(engine, "harbour", "0099")
    (harbour / "0002_length.py").write_text(SECOND)
    assert not migrations.is_current(engine, "harbour")
    migrations.upgrade(engine, "harbour")
    assert migrations.is_current(engine, "harbour")
    assert "length_m" in columns(engine, "boat")
    assert "rope" not in sa.inspect(engine).get_table_names()


def test_an_upgrade_of_a_feature_without_migrations_is_refused(engine):
    with pytest.raises(StartError, match=r"moorage\.core has no migrations"):
        migrations.upgrade(engine, "core")


def test_a_schema_that_is_up_to_date_costs_one_statement(engine, harbour):
    migrations.upgrade(engine, "harbour")
    statements = []
    sa.event.listen(engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2]))
    migrations.upgrade(engine, "harbour")
    assert [statement for statement in statements if statement != "BEGIN"] == [
        "SELECT harbour_version.version_num \nFROM harbour_version"
    ]


def test_alembic_is_not_imported_for_a_schema_that_is_up_to_date(engine, database_url, harbour):
    migrations.upgrade(engine, "harbour")
    script = (
        "import sys, moorage; moorage.__path__.append(sys.argv[1])\n"
        "from moorage.db import engine, migrations\n"
        "migrations.upgrade(engine.open_engine(sys.argv[2]), 'harbour')\n"
        "sys.exit('alembic' in sys.modules)"
    )
    command = [sys.executable, "-c", script, str(harbour.parent.parent), database_url]
    env = os.environ | {"PYTHONPATH": str(Path(moorage.__file__).parent.parent)}
    assert subprocess.run(command, env=env, check=False).returncode == 0


def test_the_shared_first_migration_of_jobs_creates_the_jobs_table(engine, harbour):
    (harbour / "0001_first_light.py").write_text(
        "from moorage.jobs import initial_table as jobs\nupgrade, downgrade = jobs.create, jobs.drop"
    )
    metadata = new_metadata()
    jobs_table(metadata)
    migrations.upgrade(engine, "harbour")
    assert differences_from(engine, "harbour", metadata) == []
    migrations.downgrade(engine, "harbour")
    assert sa.inspect(engine).get_table_names() == []


@on_every_database
def test_an_upgrade_that_waited_for_another_one_runs_nothing_again(engine, harbour):
    """The second upgrade reads the version again when it has the lock."""
    (harbour / "0001_first_light.py").write_text(
        FIRST.replace("def upgrade():", "import time\n\ndef upgrade():\n    time.sleep(0.3)", 1)
    )
    others = [threading.Thread(target=migrations.upgrade, args=(engine, "harbour")) for _ in range(2)]
    started = time.monotonic()
    for other in others:
        other.start()
    for other in others:
        other.join()
    assert migrations.is_current(engine, "harbour")
    assert time.monotonic() - started < 30
