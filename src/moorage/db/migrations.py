"""Runs the schema migrations of each feature, in the order of their file names.

The files are ``moorage/<feature>/migrations/NNNN_what.py``. Each has ``upgrade()`` and ``downgrade()``, written with
Alembic's operations (``alembic.op``). The first one creates the whole first schema. The table ``<feature>_version``
records the last one that ran. Alembic is imported only if there is something to run: a start with an up-to-date schema
reads one row.

A gated migration, ``NNNN_gated_what.py``, runs only when an operator requests it by its number: it removes something
that must not be in use any more, and the code works before and after it. It is recorded in its own table,
``<feature>_gated_version``, so that later ordinary migrations continue beside it. Before it runs, all ordinary ones
run; later ones must work with and without the thing that it removes.

A migration that only adds (tables, columns that may be NULL or have a default, indexes) or loosens declares
``phase = "expand"``. Older programs then still run and start on the result; ``<feature>_oldest_program`` records the
revision that a program must know at least. Without this declaration, programs must know the migration.
`moorage.db.upgrades` uses it.

Not here: the migrations themselves. A released migration never changes, so it repeats column types instead of importing
tables; put ``**TABLE_OPTIONS`` on each table. MariaDB commits each DDL statement by itself, so a migration that fails
there half-way must be finished by hand: keep each later migration small.
"""

import hashlib
import importlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from sqlalchemy import Column, Connection, Engine, MetaData, PrimaryKeyConstraint, String, Table, select, text
from sqlalchemy.exc import DBAPIError, OperationalError, ProgrammingError

from moorage.core.errors import StartError, Unavailable
from moorage.db.engine import WRITE_OPTION, dialect_name
from moorage.db.errors import translate_error, translating_errors
from moorage.db.timeouts import without_timeouts
from moorage.db.types import new_metadata

#: Seconds that a process waits for another one that is migrating the same database.
LOCK_TIMEOUT_S = 120

_EXPANDS = re.compile(r'^phase = "expand"$', re.MULTILINE)

#: Serialises migrations, since ``alembic.op`` is global to the process.
_alembic_in_use = threading.Lock()


def upgrade(engine: Engine, feature: str, revision: str = "head") -> None:
    """Migrate the schema of `feature` to `revision`; fast if it is already there. Several processes may call it at
    once.

    A gated `revision` runs after all ordinary ones. Raises `StartError` if the database is newer than this program, or
    older than its first migration.
    """
    gated = revision in gated_revisions(feature)
    wanted = head_revision(feature) if gated or revision == "head" else revision
    if _has_reached(engine, feature, wanted) and not gated:
        return
    with _migrating(engine, feature) as connection:
        # Another process may have migrated while we waited for the lock.
        reached = _recorded(connection, feature)
        for each in revisions(feature):
            if reached < each <= wanted:
                _load(feature, each).upgrade()
                _record(connection, feature, each)
        if gated and revision not in _rows(connection, gated_table(feature)):
            _load(feature, revision).upgrade()
            gated_table(feature).create(connection, checkfirst=True)
            connection.execute(gated_table(feature).insert().values(version_num=revision))


def downgrade(engine: Engine, feature: str, revision: str = "base") -> None:
    """Undo migrations down to `revision`, gated ones first.

    With ``base``, all tables and data of the feature are deleted.
    """
    with _migrating(engine, feature) as connection:
        for each in sorted(_rows(connection, gated_table(feature)), reverse=True):
            _load(feature, each).downgrade()
        gated_table(feature).drop(connection, checkfirst=True)
        reached = _recorded(connection, feature)
        left = "" if revision == "base" else min(revision, reached)
        for each in reversed(revisions(feature)):
            if left < each <= reached:
                _load(feature, each).downgrade()
        if left:
            _record(connection, feature, left)
        else:
            version_table(feature).drop(connection, checkfirst=True)
            oldest_table(feature).drop(connection, checkfirst=True)


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
    #: From before this program's first migration: this program does not start on it.
    OLDER = "older"
    BEHIND = "behind"
    CURRENT = "current"
    #: A newer program has only added to it: this program runs on it.
    AHEAD = "ahead"
    #: A newer program has changed it: this program does not start on it.
    NEWER = "newer"


def schema_state(engine: Engine, feature: str) -> SchemaState:
    """The state of the schema of `feature`. Raises `Unavailable` if the database does not answer."""
    return _state_at(engine, feature, current_revision(engine, feature))


def check_schema(engine: Engine, feature: str) -> str | None:
    """The revision of the database; None before the first migration. Raises `StartError` if this program can neither
    run on the schema nor upgrade it.
    """
    now, known = current_revision(engine, feature), revisions(feature)
    match _state_at(engine, feature, now):
        case SchemaState.OLDER:
            raise StartError(
                f"the database of {feature} is at revision {now}, but this program's first migration is {known[0]}: "
                f"first start a version of Moorage that upgrades it to {known[0]}"
            )
        case SchemaState.NEWER:
            raise StartError(
                f"the database of {feature} is at revision {now}, which this program does not know (it knows "
                f"{known[-1]}): start the version of Moorage that migrated it, or a newer one"
            )
    return now


def _state_at(engine: Engine, feature: str, now: str | None) -> SchemaState:
    if now is None:
        return SchemaState.EMPTY
    if now == head_revision(feature):
        return SchemaState.CURRENT
    if now < revisions(feature)[0]:
        return SchemaState.OLDER
    if now in revisions(feature):
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
    return sorted({path.parent.parent.name for place in places for path in place.glob("*/migrations/[0-9]*_*.py")})


def version_table(feature: str) -> Table:
    """The table whose one row is the revision of the schema of `feature`."""
    return _revisions_table(f"{feature}_version")


def gated_table(feature: str) -> Table:
    """The table with a row for each gated revision that was run; it is created with the first."""
    return _revisions_table(f"{feature}_gated_version")


def gated_done(engine: Engine, feature: str) -> frozenset[str]:
    """The gated revisions that were run."""
    with engine.connect() as connection, connection.begin():
        return frozenset(_rows(connection, gated_table(feature)))


def oldest_table(feature: str) -> Table:
    """The table whose one row is the revision that a program must know to run on this schema. It does not exist in
    databases that were last migrated by a program without this feature.
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
    known = revisions(feature)
    if wanted not in known:
        raise StartError(
            f"{feature} has no migration {wanted}; there are {', '.join(known + gated_revisions(feature))}"
        )
    now = check_schema(engine, feature)
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


def _directory(feature: str) -> Path:
    for place in importlib.import_module(f"moorage.{feature}").__path__:
        if (directory := Path(place) / "migrations").is_dir():
            return directory
    raise StartError(f"moorage.{feature} has no migrations")


def revisions(feature: str) -> list[str]:
    """``["0001", "0002"]``, from the file names."""
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


def _revisions_table(name: str) -> Table:
    pk = PrimaryKeyConstraint("version_num", name=f"{name}_pkc")
    return Table(name, MetaData(), Column("version_num", String(32), nullable=False), pk)


def _recorded(connection: Connection, feature: str) -> str:
    """The revision of the database; empty before the first migration."""
    return max(_rows(connection, version_table(feature)), default="")


def _record(connection: Connection, feature: str, revision: str) -> None:
    """Write the revision of the database, and the oldest program that can run on it."""
    passed = [each for each in revisions(feature) if each <= revision]
    oldest = next(each for each in reversed(passed) if each == passed[0] or not is_additive(feature, each))
    for table, value in ((version_table(feature), revision), (oldest_table(feature), oldest)):
        table.create(connection, checkfirst=True)
        connection.execute(table.delete())
        connection.execute(table.insert().values([value]))


def _load(feature: str, revision: str) -> ModuleType:
    path = version_file(feature, revision)
    module = ModuleType(path.stem)
    SourceFileLoader(path.stem, str(path)).exec_module(module)
    return module


@contextmanager
def _migrating(engine: Engine, feature: str) -> Iterator[Connection]:
    """A transaction that only one process at a time can hold for `feature` in this database."""
    alone = {"sqlite": _alone_on_sqlite, "postgresql": _alone_on_postgresql, "mariadb": _alone_on_mariadb}
    with (
        translating_errors(),
        without_timeouts(engine).execution_options(**{WRITE_OPTION: True}) as connection,
        alone[dialect_name(engine)](connection, feature),
        _alembic_operations(connection),
    ):
        yield connection


@contextmanager
def _alembic_operations(connection: Connection) -> Iterator[None]:
    """Directs ``alembic.op`` to `connection`."""
    from alembic.migration import MigrationContext
    from alembic.operations import Operations

    # Gives names to constraints that a migration leaves unnamed, by the convention of the tables.
    context = MigrationContext.configure(connection, opts={"target_metadata": new_metadata()})
    with _alembic_in_use, Operations.context(context):
        yield


@contextmanager
def _alone_on_sqlite(connection: Connection, feature: str) -> Iterator[None]:
    # A batch rebuilds a table under another name; with foreign keys on, dropping the old table would delete the rows
    # that refer to it, or fail. The pragma has no effect inside a transaction, and BEGIN IMMEDIATE is the lock.
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
