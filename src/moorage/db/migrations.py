"""Schema migrations of each feature: Alembic's version files, found in the package, run without an ini file.

The files lie in ``moorage/<feature>/migrations/NNNN_what.py`` with ``revision = "NNNN"``, each following the one before
it, and each feature has a version table of its own, ``<feature>_version``. Alembic is imported only when
there is something to do: a start with an up-to-date schema reads one row. ``NNNN_gated_what.py`` is only run when it is
asked for by its number: it takes something away that an operator must be done with, and the code works before and after it.

Not here: the migrations themselves. They stand still once released, so they repeat column types instead of
importing tables; ``**TABLE_OPTIONS`` belongs on each table. MariaDB commits each DDL statement by itself, so a
migration that fails there half-way is finished by hand: keep one migration small.
"""

import hashlib
import importlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, select, text
from sqlalchemy.exc import DBAPIError, OperationalError, ProgrammingError

from moorage.core.errors import StartError, Unavailable
from moorage.db.bounds import without_bound
from moorage.db.engine import WRITE_OPTION, dialect_name
from moorage.db.transactions import translate, translated
from moorage.db.types import new_metadata

#: How long a starting process waits for another one that is migrating the same database.
LOCK_TIMEOUT_S = 120

#: ``alembic.op`` and ``alembic.context`` are names of the process, not of a thread.
_alembic_in_use = threading.Lock()


def upgrade(engine: Engine, feature: str, revision: str = "head") -> None:
    """Bring the schema of `feature` to `revision`; quick when it is there already. Any number of processes at once.

    Raises `StartError` when the database is newer than this program.
    """
    wanted = head(feature) if revision == "head" else revision
    if _passed(engine, feature, wanted):
        return
    with _migrating(engine, feature) as connection:
        # Somebody else may have done it while we waited for the lock.
        if _version(connection, feature) != wanted:
            _run(connection, feature, lambda script, now: script._upgrade_revs(wanted, now))  # noqa: SLF001 - as Alembic's own command does


def downgrade(engine: Engine, feature: str, revision: str = "base") -> None:
    """Undo migrations down to `revision`. After ``base`` nothing of the feature is left, data included."""
    with _migrating(engine, feature) as connection:
        if _version(connection, feature) is not None:
            _run(connection, feature, lambda script, now: script._downgrade_revs(revision, now))  # noqa: SLF001 - as above
        if revision == "base":
            version_table(feature).drop(connection, checkfirst=True)


def current(engine: Engine, feature: str) -> str | None:
    """The revision of the database; None before the first migration."""
    try:
        with engine.connect() as connection, connection.begin():
            return connection.execute(select(version_table(feature).c.version_num)).scalar()
    except (OperationalError, ProgrammingError) as error:
        if _is_missing_table(error):
            return None
        if ours := translate(error):
            raise ours from error
        raise


def is_current(engine: Engine, feature: str) -> bool:
    return _passed(engine, feature, head(feature))


def head(feature: str) -> str:
    """The newest revision that a start leads to: gated ones behind it are not."""
    return _revisions(feature, gated=False)[-1]


def features() -> list[str]:
    """All features that have migrations."""
    places = [Path(place) for place in importlib.import_module("moorage").__path__]
    return sorted({path.parent.parent.name for place in places for path in place.glob("*/migrations/0001_*.py")})


def version_table(feature: str) -> Table:
    """The table that Alembic keeps for `feature`; one row with the revision."""
    return Table(f"{feature}_version", MetaData(), Column("version_num", String(32), primary_key=True))


def _is_missing_table(error: DBAPIError) -> bool:
    original: Any = error.orig
    return (
        getattr(original, "sqlstate", None) == "42P01"
        or original.args[:1] == (1146,)
        or str(original).startswith("no such table")
    )


def _passed(engine: Engine, feature: str, wanted: str) -> bool:
    known = _revisions(feature)
    if wanted not in known:
        raise StartError(f"{feature} has no migration {wanted}; there are {', '.join(known)}")
    now = current(engine, feature)
    if now is not None and now not in known:
        raise StartError(
            f"the database of {feature} is at revision {now}, which this program does not know (it knows {known[-1]}): "
            "start the version of Moorage that wrote it, or a newer one"
        )
    return now is not None and now >= wanted


def _directory(feature: str) -> Path:
    for place in importlib.import_module(f"moorage.{feature}").__path__:
        if (directory := Path(place) / "migrations").is_dir():
            return directory
    raise StartError(f"moorage.{feature} has no migrations")


def _revisions(feature: str, *, gated: bool = True) -> list[str]:
    """``["0001", "0002"]``, from the names of the files: Alembic would have to import them all."""
    names = sorted(path.name for path in _directory(feature).glob("[0-9]*_*.py"))
    found = [name.partition("_")[0] for name in names if gated or "_gated_" not in name]
    if not found:
        raise StartError(f"moorage.{feature} has no migrations")
    return found


def _version(connection: Connection, feature: str) -> str | None:
    if not connection.dialect.has_table(connection, f"{feature}_version"):
        return None
    return connection.execute(select(version_table(feature).c.version_num)).scalar()


def _run(connection: Connection, feature: str, steps: Callable[[Any, Any], Any]) -> None:
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext
    from alembic.script import ScriptDirectory

    place = str(_directory(feature))
    script = ScriptDirectory(place, version_locations=[place])
    with (
        _alembic_in_use,
        EnvironmentContext(Config(), script, fn=lambda revision, _context: steps(script, revision)) as environment,
    ):
        environment.configure(
            connection=connection,
            version_table=f"{feature}_version",
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
        translated(),
        without_bound(engine.connect()).execution_options(**{WRITE_OPTION: True}) as connection,
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
