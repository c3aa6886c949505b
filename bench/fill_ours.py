"""Fills our own database directly: a hundred thousand providers or a million allocations in seconds.

Writes what the API would have written, except for the change log, which gets a single entry that makes readers read
everything again. Afterwards, `bench.invariants` checks the contents.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Engine, Table, create_engine, func, make_url, select, text

from bench.cloud import Cloud, Provider
from moorage.db.engine import dialect_name
from moorage.placement.forest import change_entries
from moorage.placement.store import change_store, tables

_DRIVERS = {"postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql", "sqlite": "sqlite"}
_BATCH = 5000

Row = tuple[object, ...]


def fill(url: str, cloud: Cloud, first_host: int = 0) -> float:
    """Writes the hosts from `first_host` on and the servers of all hosts; with `first_host` 0, also providers outside of
    hosts. Returns the seconds it took.

    The resource classes and traits of the cloud must exist.
    """
    started = time.perf_counter()
    with patient_engine(url) as engine, engine.begin() as connection:
        log = change_store.ChangeLogWriter(connection, datetime.now(UTC))
        _Filler(connection, cloud).fill(first_host)
        log.add((change_entries.EVERYTHING,))
    return time.perf_counter() - started


@contextlib.contextmanager
def patient_engine(url: str) -> Iterator[Engine]:
    """An engine without the service's statement timeouts: here a million rows are one statement."""
    engine = create_engine(make_url(url).set(drivername=_DRIVERS[url.partition(":")[0]]))
    try:
        yield engine
    finally:
        engine.dispose()


class _Filler:
    def __init__(self, connection: Connection, cloud: Cloud) -> None:
        self._connection = connection
        self._cloud = cloud
        self._now = datetime.now(UTC).replace(tzinfo=None)
        self._classes = self._ids(tables.resource_classes, tables.resource_classes.c.name)
        self._traits = self._ids(tables.traits, tables.traits.c.name)
        #: {uuid: (id, id of its root)}
        self._providers: dict[str, tuple[int, int]] = {}

    def fill(self, first_host: int) -> None:
        others = self._cloud.others() if first_host == 0 else []
        hosts = range(first_host, self._cloud.hosts)
        known = self._ids(tables.providers, tables.providers.c.uuid)
        self._providers = {uuid: (number, 0) for uuid, number in known.items()}
        self._write(tables.providers, self._provider_rows(others, hosts, max(known.values(), default=0)))
        self._write(tables.inventories, self._inventory_rows(others, hosts))
        self._write(tables.provider_traits, self._trait_rows(others, hosts))
        self._write(tables.provider_aggregates, self._aggregate_rows(others, hosts))
        consumers = self._ids(tables.consumers, tables.consumers.c.uuid)
        first = max(consumers.values(), default=0) + 1
        self._write(tables.consumers, self._consumer_rows(first))
        self._write(tables.allocations, self._allocation_rows(first))

    # Rows, in the order of the tables' columns

    def _all(self, others: Sequence[Provider], hosts: range) -> Iterator[tuple[Provider, int]]:
        """[(provider, approximate number of servers with allocations there)]; the number determines the generation."""
        yield from ((one, 0) for one in others)
        for host in hosts:
            yield from ((one, self._cloud.servers_per_host) for one in self._cloud.providers(host))

    def _provider_rows(self, others: Sequence[Provider], hosts: range, last: int) -> Iterator[Row]:
        for number, (one, servers) in enumerate(self._all(others, hosts), last + 1):
            parent, root = (None, number) if one.parent is None else self._providers[one.parent]
            self._providers[one.uuid] = (number, root)
            generation = bool(one.inventories) + bool(one.traits) + bool(one.aggregates) + servers
            yield number, one.uuid, one.name, parent, root, generation, generation, self._now, self._now

    def _inventory_rows(self, others: Sequence[Provider], hosts: range) -> Iterator[Row]:
        for one, _ in self._all(others, hosts):
            for name, offered in one.inventories.items():
                yield self._providers[one.uuid][0], self._classes[name], *offered.values(), self._now

    def _trait_rows(self, others: Sequence[Provider], hosts: range) -> Iterator[Row]:
        for one, _ in self._all(others, hosts):
            for name in one.traits:
                yield self._providers[one.uuid][0], self._traits[name]

    def _aggregate_rows(self, others: Sequence[Provider], hosts: range) -> Iterator[Row]:
        for one, _ in self._all(others, hosts):
            for name in one.aggregates:
                yield self._providers[one.uuid][0], name

    def _servers(self, first: int) -> Iterator[tuple[int, str, dict[str, Any]]]:
        servers = (server for host in range(self._cloud.hosts) for server in self._cloud.servers(host))
        for number, (uuid, body) in enumerate(servers, first):
            yield number, uuid, body

    def _consumer_rows(self, first: int) -> Iterator[Row]:
        for number, uuid, body in self._servers(first):
            yield number, uuid, 1, body["project_id"], body["user_id"], body["consumer_type"]

    def _allocation_rows(self, first: int) -> Iterator[Row]:
        for number, _, body in self._servers(first):
            for uuid, held in body["allocations"].items():
                for name, used in held["resources"].items():
                    yield number, self._providers[uuid][0], self._classes[name], used, self._now

    # Writing

    def _ids(self, table: Table, name: Any) -> dict[str, int]:
        return {row[0]: row[1] for row in self._connection.execute(select(name, table.c.id))}

    def _write(self, table: Table, rows: Iterable[Row]) -> None:
        _WRITERS[dialect_name(self._connection)](self._connection, table, rows)


def _copy(connection: Connection, table: Table, rows: Iterable[Row]) -> None:
    """Inserts rows with PostgreSQL's COPY, and sets the sequences past our largest IDs."""
    cursor: Any = connection.connection.cursor()
    with cursor.copy(f"COPY {table.name} ({_columns(table)}) FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)
    if table in (tables.providers, tables.consumers):
        highest = connection.execute(select(func.max(table.c.id))).scalar_one()
        if highest is not None:
            sequence = text("SELECT setval(pg_get_serial_sequence(:name, 'id'), :highest)")
            connection.execute(sequence, {"name": table.name, "highest": highest})


def _insert(connection: Connection, table: Table, rows: Iterable[Row]) -> None:
    mark = "?" if dialect_name(connection) == "sqlite" else "%s"
    statement = f"INSERT INTO {table.name} ({_columns(table)}) VALUES ({', '.join([mark] * len(table.columns))})"
    cursor: Any = connection.connection.cursor()
    remaining = iter(rows)
    while batch := list(islice(remaining, _BATCH)):
        cursor.executemany(statement, [_plain(row) for row in batch] if mark == "?" else batch)


def _plain(row: Row) -> Row:
    """The format in which SQLAlchemy writes times to SQLite."""
    return tuple(f"{one:%Y-%m-%d %H:%M:%S.%f}" if isinstance(one, datetime) else one for one in row)


def _columns(table: Table) -> str:
    return ", ".join(column.name for column in table.columns)


_WRITERS: dict[str, Callable[[Connection, Table, Iterable[Row]], None]] = {
    "postgresql": _copy,
    "mariadb": _insert,
    "sqlite": _insert,
}
