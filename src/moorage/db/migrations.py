"""Runs the schema migrations of each feature: Alembic's version files in the package, without an ini file.

The files are ``moorage/<feature>/migrations/NNNN_what.py`` with ``revision = "NNNN"``; each follows the previous one. Each
feature has its own version table, ``<feature>_version``. Alembic is imported only if there is something to run: a start with
an up-to-date schema reads one row.

A gated migration, ``NNNN_gated_what.py``, runs only when an operator requests it by its number: it removes something that
must not be in use any more, and the code works before and after it. It follows no other migration (``down_revision = None``)
and is recorded in its own table, ``<feature>_gated_version``, so that later ordinary migrations continue beside it. Before it
runs, all ordinary ones run; later ones must work with and without the thing that it removes.

A migration that only adds (tables, columns that may be NULL or have a default, indexes) or loosens declares
``phase = "expand"``. Older programs then still run and start on the result; ``<feature>_oldest_program`` records the revision
that a program must know at least. Without this declaration, programs must know the migration. `moorage.db.upgrades` uses it.

Not here: the migrations themselves. A released migration never changes, so it repeats column types instead of importing
tables; put ``**TABLE_OPTIONS`` on each table. MariaDB commits each DDL statement by itself, so a migration that fails there
half-way must be finished by hand: keep each migration small.
"""

import hashlib
import importlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, select, text
from sqlalchemy.exc import DBAPIError, OperationalError, ProgrammingError

from moorage.core.errors import StartError, Unavailable
from moorage.db.engine import WRITE_OPTION, dialect_name
from moorage.db.timeouts import without_timeouts
from moorage.db.transactions import translate_error, translating_errors
from moorage.db.types import new_metadata

#: Seconds that a process waits for another one that is migrating the same database.
LOCK_TIMEOUT_S = 120

_EXPANDS = re.compile(r'^phase = "expand"$', re.MULTILINE)

#: Serialises migrations, since ``alembic.op`` and ``alembic.context`` are global to the process.
_alembic_in_use = threading.Lock()


def upgrade(engine: Engine, feature: str, revision: str = "head") -> None:
    """Migrate the schema of `feature` to `revision`; fast if it is already there. Several processes may call it at once.

    A gated `revision` runs after all ordinary ones. Raises `StartError` if the database is newer than this program.
    """
    gated = revision in gated_revisions(feature)
    wanted = head_revision(feature) if gated or revision == "head" else revision
    if _has_reached(engine, feature, wanted) and not gated:
        return
    with _migrating(engine, feature) as connection:
        _separate_gated_record(connection, feature)
        # Another process may have migrated while we waited for the lock.
        if wanted not in _rows(connection, version_table(feature)):
            _migrate_to(connection, feature, version_table(feature), wanted)
            _write_oldest(connection, feature, wanted)
        if gated and revision not in _rows(connection, gated_table(feature)):
            _migrate_to(connection, feature, gated_table(feature), revision)


def downgrade(engine: Engine, feature: str, revision: str = "base") -> None:
    """Undo migrations down to `revision`, gated ones first. With ``base``, all tables and data of the feature are deleted."""
    with _migrating(engine, feature) as connection:
        _separate_gated_record(connection, feature)
        for table, target in ((gated_table(feature), "base"), (version_table(feature), revision)):
            if _rows(connection, table):
                _migrate_to(connection, feature, table, target, up=False)
            if target == "base":
                table.drop(connection, checkfirst=True)
        if revision == "base":
            oldest_table(feature).drop(connection, checkfirst=True)
        else:
            _write_oldest(connection, feature, revision)


def current_revision(engine: Engine, feature: str) -> str | None:
    """The revision of the database; None before the first migration."""
    try:
        with engine.connect() as connection, connection.begin():
            return connection.execute(select(version_table(feature).c.version_num)).scalar()
    except (OperationalError, ProgrammingError) as error:
        if _is_missing_table(error):
            return None
        if ours := translate_error(error):
            raise ours from error
        raise


class SchemaState(StrEnum):
    """The state of a schema compared with this program."""

    EMPTY = "empty"
    BEHIND = "behind"
    CURRENT = "current"
    #: A newer program has only added to it: this program runs on it.
    AHEAD = "ahead"
    #: A newer program has changed it: this program does not start on it.
    NEWER = "newer"


def schema_state(engine: Engine, feature: str) -> SchemaState:
    """The state of the schema of `feature`. Raises `Unavailable` if the database does not answer."""
    now = current_revision(engine, feature)
    if now is None:
        return SchemaState.EMPTY
    if now == head_revision(feature):
        return SchemaState.CURRENT
    if now in revisions(feature) or now in gated_revisions(feature):
        return SchemaState.BEHIND
    return SchemaState.AHEAD if _can_run_here(engine, feature) else SchemaState.NEWER


def is_current(engine: Engine, feature: str) -> bool:
    return _has_reached(engine, feature, head_revision(feature))


def head_revision(feature: str) -> str:
    """The newest ordinary revision, to which a start migrates."""
    return revisions(feature)[-1]


def features() -> list[str]:
    """All features that have migrations."""
    places = [Path(place) for place in importlib.import_module("moorage").__path__]
    return sorted({path.parent.parent.name for place in places for path in place.glob("*/migrations/0001_*.py")})


def version_table(feature: str) -> Table:
    """Alembic's version table of `feature`; it has one row with the revision."""
    return Table(f"{feature}_version", MetaData(), Column("version_num", String(32), primary_key=True))


def gated_table(feature: str) -> Table:
    """The table with a row for each gated revision that was run; it is created with the first."""
    return Table(f"{feature}_gated_version", MetaData(), Column("version_num", String(32), primary_key=True))


def gated_done(engine: Engine, feature: str) -> frozenset[str]:
    """The gated revisions that were run."""
    with engine.connect() as connection, connection.begin():
        done = set(_rows(connection, gated_table(feature))) | set(_rows(connection, version_table(feature)))
    return frozenset(done & set(gated_revisions(feature)))


def oldest_table(feature: str) -> Table:
    """The table whose one row is the revision that a program must know to run on this schema. It does not exist in databases
    that were last migrated by a program without this feature.
    """
    return Table(f"{feature}_oldest_program", MetaData(), Column("revision", String(32), primary_key=True))


def version_file(feature: str, revision: str) -> Path:
    return next(_directory(feature).glob(f"{revision}_*.py"))


def is_additive(feature: str, revision: str) -> bool:
    """Whether programs that do not know `revision` run after it. Reads the file; importing it would import Alembic."""
    return _EXPANDS.search(version_file(feature, revision).read_text(encoding="utf-8")) is not None


def _is_missing_table(error: DBAPIError) -> bool:
    original: Any = error.orig
    return (
        getattr(original, "sqlstate", None) == "42P01"
        or original.args[:1] == (1146,)
        or str(original).startswith("no such table")
    )


def _has_reached(engine: Engine, feature: str, wanted: str) -> bool:
    known, gated = revisions(feature), gated_revisions(feature)
    if wanted not in known:
        raise StartError(f"{feature} has no migration {wanted}; there are {', '.join(known + gated)}")
    now = current_revision(engine, feature)
    if now in gated:  # see `_separate_gated_record`
        return False
    if now is not None and now not in known:
        if _can_run_here(engine, feature):
            return True
        raise StartError(
            f"the database of {feature} is at revision {now}, which this program does not know (it knows {known[-1]}): "
            "start the version of Moorage that migrated it, or a newer one"
        )
    return now is not None and now >= wanted


def _can_run_here(engine: Engine, feature: str) -> bool:
    """Whether this program runs on the schema of a newer one."""
    try:
        with engine.connect() as connection, connection.begin():
            oldest = connection.execute(select(oldest_table(feature).c.revision)).scalar()
    except (OperationalError, ProgrammingError) as error:
        if _is_missing_table(error):
            return False
        raise
    return oldest is not None and oldest <= head_revision(feature)


def _write_oldest(connection: Connection, feature: str, revision: str) -> None:
    """Update the oldest program that can run, after a migration to `revision`."""
    passed = [each for each in revisions(feature) if each <= revision]
    oldest = next(each for each in reversed(passed) if each == passed[0] or not is_additive(feature, each))
    table = oldest_table(feature)
    table.create(connection, checkfirst=True)
    connection.execute(table.delete())
    connection.execute(table.insert().values(revision=oldest))


def _directory(feature: str) -> Path:
    for place in importlib.import_module(f"moorage.{feature}").__path__:
        if (directory := Path(place) / "migrations").is_dir():
            return directory
    raise StartError(f"moorage.{feature} has no migrations")


def revisions(feature: str) -> list[str]:
    """``["0001", "0002"]``, from the file names, since Alembic would have to import all files."""
    found = [name.partition("_")[0] for name in _version_files(feature) if "_gated_" not in name]
    if not found:
        raise StartError(f"moorage.{feature} has no migrations")
    return found


def gated_revisions(feature: str) -> list[str]:
    return [name.partition("_")[0] for name in _version_files(feature) if "_gated_" in name]


def _version_files(feature: str) -> list[str]:
    return sorted(path.name for path in _directory(feature).glob("[0-9]*_*.py"))


def _rows(connection: Connection, table: Table) -> list[str]:
    if not connection.dialect.has_table(connection, table.name):
        return []
    return list(connection.execute(select(table.c.version_num)).scalars())


def _separate_gated_record(connection: Connection, feature: str) -> None:
    """Move the record of a gated migration from the version table to its own table.

    Older programs recorded gated migrations in the version table. Such a database has no record of the ordinary ones; the
    gated migration's ``stood_at`` determines their revision from the schema.
    """
    table, gated = version_table(feature), gated_table(feature)
    for revision in set(_rows(connection, table)) & set(gated_revisions(feature)):
        stood_at = _script(feature).get_revision(revision).module.stood_at(connection)
        gated.create(connection, checkfirst=True)
        connection.execute(gated.insert().values(version_num=revision))
        connection.execute(table.update().values(version_num=stood_at))


def _script(feature: str) -> Any:
    from alembic.script import ScriptDirectory

    place = str(_directory(feature))
    return ScriptDirectory(place, version_locations=[place])


def _migrate_to(connection: Connection, feature: str, version: Table, target: str, *, up: bool = True) -> None:
    """Run the migrations from the revision recorded in the table `version` to `target`."""
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext

    script = _script(feature)
    steps = script._upgrade_revs if up else script._downgrade_revs  # noqa: SLF001 - as Alembic's own commands do
    with (
        _alembic_in_use,
        EnvironmentContext(Config(), script, fn=lambda now, _context: steps(target, now)) as environment,
    ):
        environment.configure(
            connection=connection,
            version_table=version.name,
            render_as_batch=dialect_name(connection) == "sqlite",
            # Gives names to constraints that a migration leaves unnamed, by the convention of the tables.
            target_metadata=new_metadata(),
        )
        environment.run_migrations()


@contextmanager
def _migrating(engine: Engine, feature: str) -> Iterator[Connection]:
    """A transaction that only one process at a time can hold for `feature` in this database."""
    alone = {"sqlite": _alone_on_sqlite, "postgresql": _alone_on_postgresql, "mariadb": _alone_on_mariadb}
    with (
        translating_errors(),
        without_timeouts(engine.connect()).execution_options(**{WRITE_OPTION: True}) as connection,
        alone[dialect_name(engine)](connection, feature),
    ):
        yield connection


@contextmanager
def _alone_on_sqlite(connection: Connection, feature: str) -> Iterator[None]:
    # A batch rebuilds a table under another name; with foreign keys on, dropping the old table would delete the rows that
    # refer to it, or fail. The pragma has no effect inside a transaction, and BEGIN IMMEDIATE is the lock.
    driver: Any = connection.connection.dbapi_connection
    driver.execute("PRAGMA foreign_keys=OFF")
    try:
        with connection.begin():
            yield
            broken = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
            if broken:
                raise StartError(f"after the migration of {feature}, rows have dangling references: {broken[:5]}")
    finally:
        driver.execute("PRAGMA foreign_keys=ON")


@contextmanager
def _alone_on_postgresql(connection: Connection, feature: str) -> Iterator[None]:
    number = int.from_bytes(hashlib.sha256(f"moorage migrations {feature}".encode()).digest()[:8], signed=True)
    with connection.begin():
        connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": number})
        yield


@contextmanager
def _alone_on_mariadb(connection: Connection, feature: str) -> Iterator[None]:
    # Locks belong to the server, not to the database; a name has at most 64 characters.
    name = hashlib.sha256(f"moorage migrations {connection.engine.url.database} {feature}".encode()).hexdigest()
    values = {"name": name, "patience": LOCK_TIMEOUT_S}
    with connection.begin():
        if not connection.execute(text("SELECT GET_LOCK(:name, :patience)"), values).scalar():
            raise Unavailable(
                f"another process has been migrating {feature} for {LOCK_TIMEOUT_S} s; check that process"
            )
    try:
        with connection.begin():
            yield
    finally:
        # Release after the commit, so that the next process sees our version.
        with connection.begin():
            connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": name})
