"""Databases on a server that the tests of one process use one after another: emptied between tests, not dropped.

Creating a database, running all migrations in it and dropping it takes 1 to 4 s on PostgreSQL and MariaDB. Deleting the
rows of a test takes 5 to 30 ms. Cloning from a template is slower: ``CREATE DATABASE .. TEMPLATE`` of PostgreSQL takes
50 to 1,000 ms with either strategy (and the DROP as much again, because both wait for a checkpoint). MariaDB has no
templates, and running the DDL of a dump takes 400 to 1,000 ms.

Not here: finding and starting the servers (`tests.servers`), and the schemas (`tests.migrated`).
"""

import atexit
import contextlib
import os
import secrets
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import Engine

from moorage.db.engine import open_engine

#: Runs one statement and returns its rows.
Ask = Callable[[str], list[tuple]]

#: A table that a test has filled further than this is compacted: otherwise each later scan reads the dead rows.
LARGE_BYTES = 1_000_000


@dataclass(frozen=True)
class Schema:
    """The tables and rows that a test starts with: `make` creates them in an empty database."""

    name: str
    make: Callable[[Engine], None]


@dataclass
class Pristine:
    """The content of a database after `Schema.make`. Copies of its rows: see `Kind.keep_rows`."""

    #: Every column and index: if a test has changed them, the database cannot be reused.
    shape: Sequence[tuple]
    #: {table: how many rows it has}
    tables: dict[str, int]
    #: {sequence, or table with an AUTO_INCREMENT: the last value given, or the next}
    counters: dict[str, int | None]


@dataclass
class Database:
    name: str
    pristine: Pristine | None = field(default=None)


class Kind(ABC):
    """The differences between PostgreSQL and MariaDB."""

    def __init__(self, url: str) -> None:
        self._url = url

    def url_of(self, name: str) -> str:
        return urlsplit(self._url)._replace(path=f"/{name}").geturl() if name else self._url

    @contextlib.contextmanager
    @abstractmethod
    def asking(self, name: str) -> Iterator[Ask]:
        """A connection to a database, or with an empty name to the server. Without BEGIN each statement is a
        transaction.
        """

    @abstractmethod
    def create(self, name: str) -> None: ...

    @abstractmethod
    def drop(self, names: Sequence[str]) -> None: ...

    @abstractmethod
    def end_other_sessions(self, ask: Ask) -> None:
        """Ends sessions of threads and processes that a test has left behind."""

    @abstractmethod
    def remove_tables(self, ask: Ask) -> None: ...

    @abstractmethod
    def pristine(self, ask: Ask) -> Pristine:
        """The present content of the database."""

    @abstractmethod
    def keep_rows(self, ask: Ask, tables: Sequence[str]) -> None:
        """Copies the rows of these tables to a place that tests do not use."""

    @abstractmethod
    def restore_rows(self, ask: Ask, pristine: Pristine) -> None:
        """Restores the rows and counters of `pristine`."""


def run(kind: str, url: str, statement: str) -> None:
    """Runs one statement on the server of `kind`; raises the driver's errors."""
    with KINDS[kind](url).asking("") as ask:
        ask(statement)


class Databases:
    """The databases that this process has created on one server. They are dropped when the process ends."""

    def __init__(self, kind: str, url: str) -> None:
        self._kind = KINDS[kind](url)
        self._lock = threading.Lock()
        self._free: dict[str, list[Database]] = defaultdict(list)
        self._made: list[str] = []
        self._pid = os.getpid()
        atexit.register(self._drop_all)

    @contextlib.contextmanager
    def lent(self, schema: Schema | None = None) -> Iterator[str]:
        """URL of a database with `schema` (or an empty one). Nobody else gets it until the context ends."""
        key = schema.name if schema else ""
        database = self._restored(key) or self._new(schema)
        try:
            yield self._kind.url_of(database.name)
        finally:
            with self._lock:
                self._free[key].append(database)

    def _restored(self, key: str) -> Database | None:
        while True:
            with self._lock:
                if not self._free[key]:
                    return None
                database = self._free[key].pop()
            if self._restore(database):
                return database

    def _restore(self, database: Database) -> bool:
        """Returns whether it was restored. A database that cannot be restored is dropped later."""
        with self._kind.asking(database.name) as ask:
            self._kind.end_other_sessions(ask)
            if database.pristine is None:
                self._kind.remove_tables(ask)
                return True
            if self._kind.pristine(ask).shape != database.pristine.shape:
                return False
            self._kind.restore_rows(ask, database.pristine)
            return True

    def _new(self, schema: Schema | None) -> Database:
        database = Database(f"moorage_test_{os.getpid()}_{secrets.token_hex(4)}")
        with self._lock:
            self._made.append(database.name)
        self._kind.create(database.name)
        if schema:
            engine = open_engine(self._kind.url_of(database.name))
            schema.make(engine)
            engine.dispose()
            with self._kind.asking(database.name) as ask:
                database.pristine = self._kind.pristine(ask)
                self._kind.keep_rows(ask, [table for table, rows in database.pristine.tables.items() if rows])
        return database

    def _drop_all(self) -> None:
        if os.getpid() == self._pid and self._made:  # not a forked child
            self._kind.drop(self._made)


class Postgresql(Kind):
    @contextlib.contextmanager
    def asking(self, name: str) -> Iterator[Ask]:
        import psycopg

        with psycopg.connect(self.url_of(name), connect_timeout=3, autocommit=True) as connection:

            def ask(statement: str) -> list[tuple]:
                cursor = connection.execute(statement)
                return cursor.fetchall() if cursor.description else []

            yield ask

    def create(self, name: str) -> None:
        with self.asking("") as ask:
            ask(f"CREATE DATABASE \"{name}\" TEMPLATE template0 ENCODING 'UTF8'")

    def drop(self, names: Sequence[str]) -> None:
        with self.asking("") as ask:
            for name in names:
                ask(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def end_other_sessions(self, ask: Ask) -> None:
        ask(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )

    def remove_tables(self, ask: Ask) -> None:
        schemas = ask("SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_' AND nspname <> 'information_schema'")
        for (name,) in schemas:
            ask(f'DROP SCHEMA "{name}" CASCADE')
        ask("CREATE SCHEMA public")

    def pristine(self, ask: Ask) -> Pristine:
        shape = ask(
            "SELECT relname::text, attname::text, atttypid, atttypmod, attnotnull, atthasdef"
            " FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid"
            " WHERE relnamespace = 'public'::regnamespace AND attnum > 0 AND NOT attisdropped ORDER BY 1, 2"
        )
        tables = [name for (name,) in ask("SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'")]
        counters = ask("SELECT sequencename::text, last_value FROM pg_sequences WHERE schemaname = 'public'")
        return Pristine(shape, count_rows(ask, tables, 'public."{}"'), dict(counters))

    def keep_rows(self, ask: Ask, tables: Sequence[str]) -> None:
        ask("CREATE SCHEMA pristine")
        for table in tables:
            ask(f'CREATE TABLE pristine."{table}" AS TABLE public."{table}"')

    def restore_rows(self, ask: Ask, pristine: Pristine) -> None:
        ask("SET session_replication_role = replica")  # foreign keys are not checked
        ask("BEGIN")
        for table in changed(ask, pristine, 'public."{}"', 'pristine."{}"'):
            ask(f'DELETE FROM public."{table}"')
            if pristine.tables[table]:
                ask(f'INSERT INTO public."{table}" SELECT * FROM pristine."{table}"')
        ask("COMMIT")
        for (table,) in ask(
            "SELECT relname::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'"
            f" AND pg_relation_size(oid) > {LARGE_BYTES}"
        ):
            ask(f'VACUUM (ANALYZE) public."{table}"')
        for name, last in ask("SELECT sequencename::text, last_value FROM pg_sequences WHERE schemaname = 'public'"):
            before = pristine.counters[name]
            if last != before:
                ask(f"SELECT setval('public.\"{name}\"', {before or 1}, {before is not None})")


class Mariadb(Kind):
    @contextlib.contextmanager
    def asking(self, name: str) -> Iterator[Ask]:
        import pymysql

        at = urlsplit(self._url)
        with pymysql.connect(
            host=at.hostname,
            port=at.port or 3306,
            user=at.username,
            password=at.password or "",
            database=name or None,
            connect_timeout=3,
            autocommit=True,
            ssl_disabled=True,  # otherwise the trusted certificate authorities are read for each connection: 40 ms
        ) as connection:

            def ask(statement: str) -> list[tuple]:
                cursor: Any = connection.cursor()
                cursor.execute(statement)
                return list(cursor.fetchall())

            yield ask

    def create(self, name: str) -> None:
        with self.asking("") as ask:
            ask(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")

    def drop(self, names: Sequence[str]) -> None:
        with self.asking("") as ask:
            for name in names:
                ask(f"DROP DATABASE IF EXISTS `{name}`")
                ask(f"DROP DATABASE IF EXISTS `{name}_pristine`")

    def end_other_sessions(self, ask: Ask) -> None:
        sessions = ask("SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()")
        for (number,) in sessions:
            with contextlib.suppress(Exception):  # the driver's error if the session has ended by itself
                ask(f"KILL {number}")

    def remove_tables(self, ask: Ask) -> None:
        ask("SET foreign_key_checks = 0")
        if tables := self._tables(ask):
            ask("DROP TABLE " + ", ".join(f"`{table}`" for table in tables))

    def pristine(self, ask: Ask) -> Pristine:
        shape = ask(
            "SELECT table_name, column_name, column_type, is_nullable, column_default"
            " FROM information_schema.columns WHERE table_schema = database()"
            " UNION ALL SELECT table_name, index_name, column_name, seq_in_index, non_unique"
            " FROM information_schema.statistics WHERE table_schema = database() ORDER BY 1, 2, 3"
        )
        return Pristine(shape, count_rows(ask, self._tables(ask), "`{}`"), self._counters(ask))

    def keep_rows(self, ask: Ask, tables: Sequence[str]) -> None:
        [(name,)] = ask("SELECT database()")
        ask(f"CREATE DATABASE `{name}_pristine` CHARACTER SET utf8mb4")
        for table in tables:
            ask(f"CREATE TABLE `{name}_pristine`.`{table}` AS SELECT * FROM `{table}`")

    def restore_rows(self, ask: Ask, pristine: Pristine) -> None:
        [(name,)] = ask("SELECT database()")
        ask("SET foreign_key_checks = 0, sql_mode = CONCAT(@@sql_mode, ',NO_AUTO_VALUE_ON_ZERO')")
        counters = pristine.counters
        counted = [table for table, now in self._counters(ask).items() if now != counters[table]]
        emptied = [table for table in counted if not pristine.tables[table]]
        ask("BEGIN")
        for table in changed(ask, pristine, "`{}`", f"`{name}_pristine`.`{{}}`"):
            if table not in emptied:
                ask(f"DELETE FROM `{table}`")
            if pristine.tables[table]:
                ask(f"INSERT INTO `{table}` SELECT * FROM `{name}_pristine`.`{table}`")
        ask("COMMIT")
        for table in counted:
            ask(
                f"TRUNCATE TABLE `{table}`"
                if table in emptied
                else f"ALTER TABLE `{table}` AUTO_INCREMENT = {counters[table]}"
            )

    @staticmethod
    def _tables(ask: Ask) -> list[str]:
        return [name for (name,) in ask("SHOW TABLES")]

    @staticmethod
    def _counters(ask: Ask) -> dict[str, int | None]:
        rows = ask(
            "SELECT table_name, auto_increment FROM information_schema.tables"
            " WHERE table_schema = database() AND auto_increment IS NOT NULL"
        )
        return dict(rows)


def count_rows(ask: Ask, tables: Sequence[str], quoted: str) -> dict[str, int]:
    """{table: its rows}; `quoted` makes a table's name SQL."""
    if not tables:
        return {}
    [row] = ask("SELECT " + ", ".join(f"(SELECT count(*) FROM {quoted.format(table)})" for table in tables))
    return dict(zip(tables, row, strict=True))


def changed(ask: Ask, pristine: Pristine, quoted: str, kept: str) -> list[str]:
    """The tables whose rows differ from `pristine`; `quoted` and `kept` make a name SQL."""
    questions = [
        f"(SELECT count(*) FROM {quoted.format(table)}) <> {rows}"
        + (
            # Not EXISTS: MariaDB 10.11 leaves out the columns there, and then all rows are the same.
            " OR (SELECT count(*) FROM"
            f" (SELECT * FROM {quoted.format(table)} EXCEPT SELECT * FROM {kept.format(table)}) AS differing) > 0"
            if rows
            else ""
        )
        for table, rows in pristine.tables.items()
    ]
    [row] = ask("SELECT " + ", ".join(questions))
    return [table for table, is_changed in zip(pristine.tables, row, strict=True) if is_changed]


KINDS: dict[str, type[Kind]] = {"postgresql": Postgresql, "mariadb": Mariadb}
