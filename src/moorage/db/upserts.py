"""INSERTs of rows that may exist already, in the words of each database.

Not in `moorage.db.engine`, because the words of PostgreSQL take time to import, and Placement does not need them.
"""

from collections.abc import Sequence

from sqlalchemy import Dialect, Executable, Table
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
