"""Schema migrations of each feature: Alembic's version files, found in the package, run without an ini file.

The files lie in ``moorage/<feature>/migrations/NNNN_what.py`` with ``revision = "NNNN"``, each following the one before
it, and each feature has a version table of its own, ``<feature>_version``. Alembic is imported only when
there is something to do: a start with an up-to-date schema reads one row.

``NNNN_gated_what.py`` is only run when it is asked for by its number: it takes something away that an operator must be
done with, and the code works before and after it. It follows no other (``down_revision = None``) and is written down
in a table of its own, ``<feature>_gated_version``, so that ordinary ones of later go on beside it. All ordinary ones
that there are come before it when it is run; those of later must do without what it took away, and with it.

A migration that only adds (tables, columns that may be NULL or have a default, indexes) or loosens says so: ``phase = "expand"``. Then
programs of before go on beside it, and start on it again: ``<feature>_oldest_program`` names the revision that a program
must know at least. One without that word is for programs that know it. `moorage.db.upgrades` plans by it.

Not here: the migrations themselves. They stand still once released, so they repeat column types instead of
importing tables; ``**TABLE_OPTIONS`` belongs on each table. MariaDB commits each DDL statement by itself, so a
migration that fails there half-way is finished by hand: keep one migration small.
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

#: How long a starting process waits for another one that is migrating the same database.
LOCK_TIMEOUT_S = 120

_EXPANDS = re.compile(r'^phase = "expand"$', re.MULTILINE)

#: ``alembic.op`` and ``alembic.context`` are names of the process, not of a thread.
_alembic_in_use = threading.Lock()


def upgrade(engine: Engine, feature: str, revision: str = "head") -> None:
    """Bring the schema of `feature` to `revision`; quick when it is there already. Any number of processes at once.

    A gated `revision` comes after all ordinary ones. Raises `StartError` when the database is newer than this program.
    """
    gated = revision in gated_revisions(feature)
    wanted = head_revision(feature) if gated or revision == "head" else revision
    if _has_reached(engine, feature, wanted) and not gated:
        return
    with _migrating(engine, feature) as connection:
        _separate_gated_record(connection, feature)
        # Somebody else may have done it while we waited for the lock.
        if wanted not in _rows(connection, version_table(feature)):
            _migrate_to(connection, feature, version_table(feature), wanted)
            _write_oldest(connection, feature, wanted)
        if gated and revision not in _rows(connection, gated_table(feature)):
            _migrate_to(connection, feature, gated_table(feature), revision)


def downgrade(engine: Engine, feature: str, revision: str = "base") -> None:
    """Undo migrations down to `revision`, gated ones first. After ``base`` nothing of the feature is left, data included."""
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
    """How far a database is, seen from this program."""

    EMPTY = "empty"
    BEHIND = "behind"
    CURRENT = "current"
    #: A newer program has added to it: this one runs on it.
    AHEAD = "ahead"
    #: A newer program has written it: this one does not start on it.
    NEWER = "newer"


def schema_state(engine: Engine, feature: str) -> SchemaState:
    """Raises `Unavailable` where the database does not answer."""
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
    """The newest revision that a start leads to: gated ones are not."""
    return revisions(feature)[-1]


def features() -> list[str]:
    """All features that have migrations."""
    places = [Path(place) for place in importlib.import_module("moorage").__path__]
    return sorted({path.parent.parent.name for place in places for path in place.glob("*/migrations/0001_*.py")})


def version_table(feature: str) -> Table:
    """The table that Alembic keeps for `feature`; one row with the revision."""
    return Table(f"{feature}_version", MetaData(), Column("version_num", String(32), primary_key=True))


def gated_table(feature: str) -> Table:
    """A row for each gated revision that was run; the table is there from the first on."""
    return Table(f"{feature}_gated_version", MetaData(), Column("version_num", String(32), primary_key=True))


def gated_done(engine: Engine, feature: str) -> frozenset[str]:
    """The gated revisions that were run."""
    with engine.connect() as connection, connection.begin():
        done = set(_rows(connection, gated_table(feature))) | set(_rows(connection, version_table(feature)))
    return frozenset(done & set(gated_revisions(feature)))


def oldest_table(feature: str) -> Table:
    """One row, since a migration was run that knows of it: the revision that a program must know to run on this schema."""
    return Table(f"{feature}_oldest_program", MetaData(), Column("revision", String(32), primary_key=True))


def version_file(feature: str, revision: str) -> Path:
    return next(_directory(feature).glob(f"{revision}_*.py"))


def is_additive(feature: str, revision: str) -> bool:
    """Whether programs that do not know `revision` run on what it leaves. Read, not imported: that would take Alembic."""
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
            "start the version of Moorage that wrote it, or a newer one"
        )
    return now is not None and now >= wanted


def _can_run_here(engine: Engine, feature: str) -> bool:
    """Whether a newer program has left a schema that this one runs on."""
    try:
        with engine.connect() as connection, connection.begin():
            oldest = connection.execute(select(oldest_table(feature).c.revision)).scalar()
    except (OperationalError, ProgrammingError) as error:
        if _is_missing_table(error):
            return False
        raise
    return oldest is not None and oldest <= head_revision(feature)


def _write_oldest(connection: Connection, feature: str, revision: str) -> None:
    """`revision` is what the schema is at now."""
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
    """``["0001", "0002"]``, from the names of the files: Alembic would have to import them all."""
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
    """Write down a gated migration beside the ordinary ones where it stands in their place.

    Gated ones were once recorded as if they were the last. Such a database says nothing of the ordinary ones; the gated
    migration's ``stood_at`` sees from the schema how far they are.
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
    """Run the migrations from where `version` says that the schema is to `target`."""
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
            # Names the constraints that a migration leaves unnamed, as in the tables.
            target_metadata=new_metadata(),
        )
        environment.run_migrations()


@contextmanager
def _migrating(engine: Engine, feature: str) -> Iterator[Connection]:
    """A transaction that only one process has at a time for `feature` in this database."""
    alone = {"sqlite": _alone_on_sqlite, "postgresql": _alone_on_postgresql, "mariadb": _alone_on_mariadb}
    with (
        translating_errors(),
        without_timeouts(engine.connect()).execution_options(**{WRITE_OPTION: True}) as connection,
        alone[dialect_name(engine)](connection, feature),
    ):
        yield connection


@contextmanager
def _alone_on_sqlite(connection: Connection, feature: str) -> Iterator[None]:
    # A batch rebuilds a table under another name; with foreign keys on, dropping the old one would delete or
    # refuse what refers to it. The pragma does nothing inside a transaction, and BEGIN IMMEDIATE is the lock.
    driver: Any = connection.connection.dbapi_connection
    driver.execute("PRAGMA foreign_keys=OFF")
    try:
        with connection.begin():
            yield
            broken = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
            if broken:
                raise StartError(f"after the migration of {feature} rows refer to nothing: {broken[:5]}")
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
    # Locks are the server's, not the database's; the name may have 64 characters.
    name = hashlib.sha256(f"moorage migrations {connection.engine.url.database} {feature}".encode()).hexdigest()
    values = {"name": name, "patience": LOCK_TIMEOUT_S}
    with connection.begin():
        if not connection.execute(text("SELECT GET_LOCK(:name, :patience)"), values).scalar():
            raise Unavailable(f"another process has been migrating {feature} for {LOCK_TIMEOUT_S} s; look at it")
    try:
        with connection.begin():
            yield
    finally:
        # After the commit: the next one must see the version that we wrote.
        with connection.begin():
            connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": name})
