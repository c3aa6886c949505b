"""INSERTs of rows that may exist already, in the words of each database, and locks that reach all nodes of a
Galera cluster.

Not in `moorage.db.engine`, because the words of PostgreSQL take time to import, and Placement does not need them.
"""

from collections.abc import Sequence

from sqlalchemy import Connection, Dialect, Executable, Table, update
from sqlalchemy.dialects import mysql, postgresql, sqlite


def insert_unless_exists(table: Table, key: str, dialect: Dialect) -> Executable:
    """Inserts a row of `table`, or does nothing if one with the same value of the unique column `key` exists."""
    if dialect.name in ("mysql", "mariadb"):
        # INSERT IGNORE would also turn values that are too long or missing into warnings.
        return mysql.insert(table).on_duplicate_key_update({key: table.c[key]})
    new = sqlite.insert(table) if dialect.name == "sqlite" else postgresql.insert(table)
    return new.on_conflict_do_nothing(index_elements=[key])


def insert_or_update(table: Table, key: str, changed: Sequence[str], dialect: Dialect) -> Executable:
    """Inserts a row of `table`, or sets the columns `changed` of the one with the same unique column `key`."""
    if dialect.name in ("mysql", "mariadb"):
        new_row = mysql.insert(table)
        return new_row.on_duplicate_key_update({name: new_row.inserted[name] for name in changed})
    new = sqlite.insert(table) if dialect.name == "sqlite" else postgresql.insert(table)
    return new.on_conflict_do_update(index_elements=[key], set_={name: new.excluded[name] for name in changed})


def take_on_all_nodes(connection: Connection, table: Table, key: str, value: str) -> None:
    """Call it before the lock of the row of `table` whose unique column `key` is `value`, which may not exist yet.

    A lock of Galera is unknown to the other nodes. There, only transactions that write the same row exclude each other:
    all but one of them fail, and are repeated. So on MariaDB this raises the row's number `taken`.
    """
    if connection.dialect.name not in ("mysql", "mariadb"):
        return
    take = update(table).where(table.c[key] == value).values(taken=table.c.taken + 1)
    if connection.execute(take).rowcount == 0:
        connection.execute(insert_unless_exists(table, key, connection.dialect), {key: value})
        connection.execute(take)
