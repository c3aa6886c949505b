"""Reads another system's database for an import, and keeps the receipt: rows read, rows imported, and findings.

Not here: the peer's tables and the conversion of rows, which are in the feature's `importing` package.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import URL, Column, Connection, MetaData, Row, String, Table, func, inspect, select
from sqlalchemy.exc import DBAPIError

from moorage.core.errors import StartError, Unavailable
from moorage.core.import_findings import Findings, ImportFinding
from moorage.db.engine import open_read_only_engine
from moorage.db.errors import translate_error

T = TypeVar("T")

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


#: Called with a table of the peer, the number of its rows that are done, and the number of its rows.
ProgressCallback = Callable[[str, int, int], object]
#: Called with each finding, since there may be too many (millions) to keep them all.
FindingCallback = Callable[[ImportFinding], object]


class ImportLedger:
    """Counts the imported rows of each table of the peer and collects the findings, for the receipt."""

    def __init__(self, source_rows: Mapping[str, int], on_finding: FindingCallback, progress: ProgressCallback) -> None:
        """`source_rows`: the number of rows of each table of the peer, in the order of the receipt."""
        self._source_rows = source_rows
        self._imported = dict.fromkeys(source_rows, 0)
        self._on_finding = on_finding
        self._progress = progress
        self._findings = Findings()

    def record(self, finding: ImportFinding) -> None:
        self._findings.add(finding)
        self._on_finding(finding)

    def count_rows(self, table: str, rows: int = 1) -> None:
        self._imported[table] += rows
        self._progress(table, self._imported[table], self._source_rows[table])

    def receipt(self) -> ImportReceipt:
        return ImportReceipt(
            {table: TableCount(self._source_rows[table], self._imported[table]) for table in self._source_rows},
            self._findings,
        )


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
            f"{where} has schema {revision}, which this release of Moorage does not support (it supports {known[-1]} of "
            f"{self._schema.newest}); use a newer Moorage"
        )

    def row_counts(self) -> dict[str, int]:
        """{table: number of rows}"""
        return {table.name: self._count(table) for table in self._schema.metadata.tables.values()}

    def created_at(self, row: Row[Any]) -> datetime:
        return self._now if row.created_at is None else row.created_at.replace(tzinfo=UTC)

    def updated_at(self, row: Row[Any]) -> datetime:
        return self.created_at(row) if row.updated_at is None else row.updated_at.replace(tzinfo=UTC)

    def _count(self, table: Table) -> int:
        return int(self._connection.execute(select(func.count()).select_from(table)).scalar_one())

    def _all_rows(self, table: Table) -> list[Row[Any]]:
        return list(self._connection.execute(select(table).order_by(table.c.id)).all())

    def _stream_rows(self, statement: Any) -> Iterator[Row[Any]]:
        yield from self._connection.execute(statement.execution_options(yield_per=FETCH_ROWS))


D = TypeVar("D", bound=PeerDatabase)


@contextmanager
def open_peer_database(url: str, opened: Callable[[Connection], D]) -> Iterator[D]:
    """Opens the peer's database for reading. Raises `StartError`, with the remedy, if it cannot be read or is another one."""
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


def batched(rows: Iterable[T], size: int = INSERT_ROWS) -> Iterator[list[T]]:
    iterator = iter(rows)
    while batch := list(islice(iterator, size)):
        yield batch


def _first_line(error: BaseException | None) -> str:
    return str(error).strip().splitlines()[0] if error and str(error).strip() else type(error).__name__
