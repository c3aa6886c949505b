"""Imports another system's database: opens it for reading, checks source and target, writes in one transaction.

    open_peer_database -> PeerDatabase (SELECT only) -> PeerImport (one import, or its rehearsal) -> ImportReceipt

Not here: the peer's tables and the conversion of rows, which are in the feature's `importing` package.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from sqlalchemy import URL, Column, Connection, Engine, MetaData, String, Table, func, inspect, select
from sqlalchemy.exc import DBAPIError

from moorage.core.errors import Conflict, StartError, Unavailable
from moorage.core.import_findings import Findings, ImportFinding, ImportFindingKind
from moorage.db.engine import open_read_only_engine
from moorage.db.errors import translate_error
from moorage.db.session import write
from moorage.db.types import ResultRow

T = TypeVar("T")
W = TypeVar("W")
P = ParamSpec("P")

#: Rows per insert.
INSERT_ROWS = 5_000

#: Rows per fetch.
FETCH_ROWS = 2_000


@dataclass(frozen=True, slots=True)
class TableCount:
    source: int
    taken: int


@dataclass(frozen=True, slots=True)
class ImportReceipt:
    """The result of an import. `counts` is by table of the peer."""

    counts: Mapping[str, TableCount]
    findings: Findings


@dataclass(frozen=True, slots=True)
class ImportListener:
    """Called while an import runs."""

    #: With each finding, since there may be too many (millions) to keep them all.
    on_finding: Callable[[ImportFinding], object] = lambda _: None
    #: With a table of the peer, the number of its rows that are done, and the number of its rows.
    progress: Callable[[str, int, int], object] = lambda *_: None


@dataclass(frozen=True, slots=True)
class PeerSchema:
    """Identifies the peer's database and its release."""

    metadata: MetaData
    needed: str  #: a table that every database of the peer has
    revisions: Collection[str]  #: of the peer's Alembic, oldest first; only the last one is supported
    no_database: str  #: for the error about another database: "WHERE is not a database of ..."
    older: str  #: for the error about an older schema: "WHERE has schema REVISION of an older ...; run ..."
    newest: str  #: the release of the last revision


class PeerDatabase:
    """Another system's database, read in one transaction that sees one state; only SELECT is used.

    `now` replaces times that are missing in a row.
    """

    def __init__(self, connection: Connection, schema: PeerSchema, now: datetime) -> None:
        self._connection = connection
        self._schema = schema
        self._now = now
        self.url: URL = connection.engine.url

    def check_revision(self, where: str) -> None:
        found: set[str] = set()
        if inspect(self._connection).has_table("alembic_version"):
            versions = Table("alembic_version", MetaData(), Column("version_num", String))
            found = set(self._connection.execute(select(versions.c.version_num)).scalars())
        known = list(self._schema.revisions)
        if found == {known[-1]}:
            return
        if not found or not inspect(self._connection).has_table(self._schema.needed):
            raise StartError(f"{where} is not a database of {self._schema.no_database}")
        revision = ", ".join(sorted(found))
        if found < set(known):
            raise StartError(f"{where} has schema {revision} of an older {self._schema.older}")
        raise StartError(
            f"{where} has schema {revision}, which this release of Moorage does not support (it supports {known[-1]} "
            f"of {self._schema.newest}); use a newer Moorage"
        )

    def row_counts(self) -> dict[str, int]:
        """{table: number of rows}"""
        return {table.name: self._count(table) for table in self._schema.metadata.tables.values()}

    def created_at(self, row: ResultRow) -> datetime:
        return self._now if row.created_at is None else row.created_at.replace(tzinfo=UTC)

    def updated_at(self, row: ResultRow) -> datetime:
        return self.created_at(row) if row.updated_at is None else row.updated_at.replace(tzinfo=UTC)

    def _count(self, table: Table) -> int:
        return int(self._connection.execute(select(func.count()).select_from(table)).scalar_one())

    def _all_rows(self, table: Table) -> list[ResultRow]:
        return list(self._connection.execute(select(table).order_by(table.c.id)).all())

    def _stream_rows(self, statement: Any) -> Iterator[ResultRow]:
        yield from self._connection.execute(statement.execution_options(yield_per=FETCH_ROWS))


D = TypeVar("D", bound=PeerDatabase)


@contextmanager
def open_peer_database(url: str, opened: Callable[[Connection], D]) -> Iterator[D]:
    """Opens the peer's database for reading.

    Raises `StartError`, with the remedy, if it cannot be read or is another one.
    """
    engine = open_read_only_engine(url)
    where = engine.url.render_as_string(hide_password=True)
    try:
        with engine.connect() as connection, connection.begin():
            database = opened(connection)
            database.check_revision(where)
            yield database
    except DBAPIError as error:
        if isinstance(translate_error(error), Unavailable):
            raise Unavailable(f"{where} does not answer: {_first_line(error.orig)}") from error
        raise StartError(f"{where} cannot be read: {_first_line(error.orig)}") from error
    finally:
        engine.dispose()


class PeerImport(Generic[D, W]):
    """One import, or its rehearsal: reads the peer's rows, converts and writes them, counts them and records findings.

    A feature implements `import_rows`. `target` has the methods, or is the first argument of the functions, that write
    to Moorage's tables. It is None in a rehearsal, which makes the same findings and counts, and writes nothing.
    """

    def __init__(self, peer: D, target: W | None, listener: ImportListener) -> None:
        self._peer = peer
        self._target = target
        self._listener = listener
        self._source_rows = peer.row_counts()
        self._imported = dict.fromkeys(self._source_rows, 0)
        self._findings = Findings()

    def import_rows(self) -> None:
        """Imports everything."""
        raise NotImplementedError

    def run(self) -> ImportReceipt:
        self.import_rows()
        counts = {table: TableCount(rows, self._imported[table]) for table, rows in self._source_rows.items()}
        return ImportReceipt(counts, self._findings)

    def _record(self, finding: ImportFinding) -> None:
        self._findings.add(finding)
        self._listener.on_finding(finding)

    def _accepted(self, results: Iterable[T | ImportFinding]) -> Iterator[T]:
        """Records the findings among `results` and yields the other results."""
        for result in results:
            if isinstance(result, ImportFinding):
                self._record(result)
            else:
                yield result

    def _count(self, table: str, rows: int = 1) -> None:
        """Counts imported rows of a table of the peer."""
        self._imported[table] += rows
        self._listener.progress(table, self._imported[table], self._source_rows[table])

    def _write(self, store: Callable[Concatenate[W, P], object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Calls `store` with the target and the other arguments, except in a rehearsal."""
        if self._target is not None:
            store(self._target, *args, **kwargs)

    def _write_batches(self, table: str, store: Callable[[W, list[T]], object], rows: Iterable[T]) -> None:
        """Writes `rows`, which are imported from `table`, and counts them."""
        for batch in batched(rows):
            self._write(store, batch)
            self._count(table, len(batch))


@dataclass(frozen=True, slots=True)
class Importer(Generic[D]):
    """What a feature gives to the import of a peer's database, apart from its `PeerImport`."""

    feature: str
    open_peer: Callable[[str, datetime], AbstractContextManager[D]]  #: see `open_peer_database`
    kinds: type[ImportFindingKind]
    target_tables: tuple[Table, ...]  #: Moorage's tables that must be empty
    #: The error about a target that is not empty; has ``{where}`` and the number of rows as ``{table name}``.
    not_empty: str

    def check_empty(self, connection: Connection) -> None:
        """Raises `Conflict` if the database already has rows."""
        rows = {
            table.name: int(connection.execute(select(func.count()).select_from(table)).scalar_one())
            for table in self.target_tables
        }
        if any(rows.values()):
            where = connection.engine.url.render_as_string(hide_password=True)
            message = self.not_empty.format(where=where, **rows)
            raise Conflict(message, code=f"{self.feature}.import.not_empty")

    def run(self, target: Engine | None, begin: Callable[[Connection | None], PeerImport[D, Any]]) -> ImportReceipt:
        """Imports in one transaction: everything or nothing. Without a `target`, rehearses the import.

        Raises `Conflict` if `target` is not empty.
        """
        if target is None:
            return begin(None).run()
        with write(target) as connection:
            self.check_empty(connection)
            return begin(connection).run()


def batched(rows: Iterable[T], size: int = INSERT_ROWS) -> Iterator[list[T]]:
    iterator = iter(rows)
    while batch := list(islice(iterator, size)):
        yield batch


def _first_line(error: BaseException | None) -> str:
    return str(error).strip().splitlines()[0] if error and str(error).strip() else type(error).__name__
