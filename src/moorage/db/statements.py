"""SQL in the words of each database: SELECTs compiled once, and statements whose rows are one JSON parameter.

All rows of a `Statement` are sent as one JSON parameter, so each statement is prepared once for any number of rows.
`{rows}` in its SQL becomes each database's way to read JSON as a table (`json_to_recordset`, `JSON_TABLE`,
`json_each`). All other differences between the three databases are handled here, too.

Not here: sending them (`moorage.db.session`).
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary

from sqlalchemy import Dialect, SelectBase

#: {column: value} with values of `TYPES`; None is NULL.
Row = Mapping[str, object]
#: What a statement returns.
Rows = Sequence[tuple[Any, ...]]

#: The column types of a parameter, by their names in `Statement`, in each database. `time` is a text as the database
#: keeps it.
TYPES: Mapping[str, Mapping[str, str]] = {
    "postgresql": {"int": "bigint", "float": "float8", "text": "text", "time": "timestamp"},
    "mariadb": {"int": "bigint", "float": "double", "text": "longtext", "time": "datetime(6)"},
    "sqlite": {"int": "", "float": "", "text": "", "time": ""},
}

_numbers = itertools.count()


class PreparedSql(NamedTuple):
    """SQL for one driver, with positional parameters."""

    name: bytes  #: of the prepared statement on PostgreSQL; unique in this process
    text: str
    encoded: bytes
    returns_rows: bool


def prepared_sql(text: str, *, returns_rows: bool) -> PreparedSql:
    return PreparedSql(f"moorage_{next(_numbers)}".encode(), text, text.encode(), returns_rows)


# --- statements with rows -------------------------------------------------------------------------------------------


class Statement:
    """SQL in which ``{rows}`` stands for the rows of the parameter, as a table named `v` with these columns.

    `sql` is the SQL, or {database: its SQL}; `returns_rows`: the statement returns rows. `lookups`: {alias: (table,
    condition)}; ``{alias}`` after ``{rows}`` joins the rows of the table that meet the condition, which names them by
    the alias.
    """

    def __init__(
        self,
        sql: str | Mapping[str, str],
        columns: Mapping[str, str] | None = None,
        *,
        returns_rows: bool = False,
        lookups: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        self._sql = sql
        self._columns = columns or {}
        self._lookups = lookups or {}
        self._returns_rows = returns_rows
        self._prepared: dict[str, PreparedSql] = {}

    def prepared_for(self, database: str) -> PreparedSql:
        if database not in self._prepared:
            text = self._sql if isinstance(self._sql, str) else self._sql[database]
            text = text.replace("{rows}", _ROWS[database](self._columns, TYPES[database]))
            for alias, (table, condition) in self._lookups.items():
                text = text.replace(f"{{{alias}}}", _lookup(database, table, alias, condition))
            self._prepared[database] = prepared_sql(text, returns_rows=self._returns_rows)
        return self._prepared[database]


#: A statement and its rows; None for a statement without a parameter.
Command = tuple[Statement, Sequence[Row] | None]


def insert(table: str, columns: Mapping[str, str], *, returning: str = "") -> Statement:
    names = ", ".join(columns)
    values = ", ".join(f"v.{name}" for name in columns)
    tail = f" RETURNING {returning}" if returning else ""
    sql = f"INSERT INTO {table} ({names}) SELECT {values} FROM {{rows}} WHERE true{tail}"
    return Statement(sql, columns, returns_rows=bool(returning))


def update(
    table: str, keys: Mapping[str, str], changed: Mapping[str, str], *, copied: Mapping[str, str] | None = None
) -> Statement:
    """Sets `changed` in the rows with these keys. `copied`: {column: the column of the same row whose value it gets}.

    On PostgreSQL no other transaction may change these rows meanwhile.
    """
    here = _equal(table, keys)
    values = {name: f"v.{name}" for name in changed} | {
        name: f"{table}.{other}" for name, other in (copied or {}).items()
    }
    listed = ", ".join(f"{name} = {value}" for name, value in values.items())
    sql = {
        "postgresql": f"UPDATE {table} SET {listed} FROM {_found_rows(table, keys)}",
        "sqlite": f"UPDATE {table} SET {listed} FROM {{rows}} WHERE {here}",
        "mariadb": f"UPDATE {table} JOIN {{rows}} ON {here} SET "
        + ", ".join(f"{table}.{name} = {value}" for name, value in values.items()),
    }
    return Statement(sql, {**keys, **changed})


def delete(table: str, keys: Mapping[str, str]) -> Statement:
    """Deletes the rows with these keys. On PostgreSQL no other transaction may change these rows meanwhile."""
    names, values = ", ".join(keys), ", ".join(f"v.{key}" for key in keys)
    sql = {
        "postgresql": f"DELETE FROM {table} USING {_found_rows(table, keys)}",
        "sqlite": f"DELETE FROM {table} WHERE ({names}) IN (SELECT {values} FROM {{rows}})",
        "mariadb": f"DELETE {table} FROM {table} JOIN {{rows}} ON {_equal(table, keys)}",
    }
    return Statement(sql, keys)


def _equal(table: str, keys: Mapping[str, str]) -> str:
    return " AND ".join(f"{table}.{key} = v.{key}" for key in keys)


def _lookup(database: str, table: str, alias: str, condition: str, columns: str = "*") -> str:
    """Joins the rows of `table` that meet the condition.

    PostgreSQL assumes that a JSON document has 100 rows. Instead of looking one row up by its key, it would read a
    table of 10,000 rows as a whole, to join both. It does not merge a subquery with OFFSET into the query around it, so
    it runs the subquery for each row of the document, with the index.
    """
    if database != "postgresql":
        return f"JOIN {table} AS {alias} ON {condition}"
    return f"CROSS JOIN LATERAL (SELECT {columns} FROM {table} AS {alias} WHERE {condition} OFFSET 0) AS {alias}"


def _found_rows(table: str, keys: Mapping[str, str]) -> str:
    """For UPDATE and DELETE on PostgreSQL: the rows of the parameter, joined to the table by physical addresses."""
    found = _lookup("postgresql", table, "found", _equal("found", keys), "ctid")
    return f"{{rows}} {found} WHERE {table}.ctid = found.ctid"


def _postgresql_rows(columns: Mapping[str, str], types: Mapping[str, str]) -> str:
    return f"json_to_recordset($1::json) AS v({', '.join(f'{name} {types[kind]}' for name, kind in columns.items())})"


def _mariadb_rows(columns: Mapping[str, str], types: Mapping[str, str]) -> str:
    listed = ", ".join(f"{name} {types[kind]} PATH '$.{name}'" for name, kind in columns.items())
    return f"JSON_TABLE(%s, '$[*]' COLUMNS ({listed})) AS v"


def _sqlite_rows(columns: Mapping[str, str], _types: Mapping[str, str]) -> str:
    listed = ", ".join(f"value ->> '$.{name}' AS {name}" for name in columns)
    return f"(SELECT {listed} FROM json_each(?)) AS v"


_ROWS: Mapping[str, Callable[[Mapping[str, str], Mapping[str, str]], str]] = {
    "postgresql": _postgresql_rows,
    "mariadb": _mariadb_rows,
    "sqlite": _sqlite_rows,
}


# --- SELECTs --------------------------------------------------------------------------------------------------------

_STYLES = {"postgresql": "numeric_dollar", "mysql": "format", "mariadb": "format", "sqlite": "qmark"}

#: {statement: {dialect class: the compiled statement}}
_compiled: WeakKeyDictionary[SelectBase, dict[type[Dialect], "CompiledSelect"]] = WeakKeyDictionary()


class CompiledSelect:
    """A SELECT compiled for one driver, with positional parameters (texts, numbers and times)."""

    def __init__(self, statement: SelectBase, dialect: Dialect) -> None:
        own = cast(Any, type(dialect))(paramstyle=_STYLES[dialect.name])
        compiled = statement.compile(dialect=own)
        self.sql = prepared_sql(str(compiled), returns_rows=True)
        #: (name, value if the statement itself has one, conversion) by position.
        self._parameters = [
            (name, compiled.params[name], compiled.binds[name].type.dialect_impl(own).bind_processor(own))
            for name in compiled.positiontup or ()
        ]
        converters = [
            column.type.dialect_impl(own).result_processor(own, None) for column in statement.selected_columns
        ]
        #: (index, conversion) of the columns whose values the driver does not convert.
        self._converters = [(index, convert) for index, convert in enumerate(converters) if convert is not None]

    def bind_values(self, given: Mapping[str, object]) -> list[object]:
        values = [(given.get(name, fixed), convert) for name, fixed, convert in self._parameters]
        return [value if convert is None else convert(value) for value, convert in values]

    def converted(self, rows: Rows) -> Rows:
        """The rows with the values that SQLAlchemy would return."""
        return [self._converted_row(row) for row in rows] if self._converters else rows

    def _converted_row(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        values = list(row)
        for index, convert in self._converters:
            values[index] = convert(values[index])
        return tuple(values)


def compiled_select(statement: SelectBase, dialect: Dialect) -> CompiledSelect:
    """The compiled statement, cached per process, since statements are module constants."""
    kept = _compiled.setdefault(statement, {})
    if type(dialect) not in kept:
        kept[type(dialect)] = CompiledSelect(statement, dialect)
    return kept[type(dialect)]
