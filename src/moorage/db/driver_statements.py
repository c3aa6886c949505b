"""Compiles statements to the SQL of one driver, once, and then only binds their values.

A list for ``IN`` gets as many placeholders as the next power of two, and the spare ones repeat its last value. So the cache,
here and in the database, has a few forms of each statement instead of one per length. Statements with longer lists than
`MAX_CACHED_LIST` are not cached.
Not here: sending statements (`moorage.db.prepared_transactions`).
"""

import threading
from collections import namedtuple
from collections.abc import Mapping, Sequence
from typing import Any, cast
from weakref import WeakKeyDictionary

from sqlalchemy import Dialect, Engine
from sqlalchemy.sql import Executable

from moorage.db.driver_connections import Rows
from moorage.db.engine import dialect_name

Values = Mapping[str, Any]

_STYLES = {"postgresql": "numeric_dollar", "mariadb": "format", "sqlite": "qmark"}
#: SQLite has the smallest bound on the parameters of a statement, 32,766: one such list and some more parameters fit in.
MAX_CACHED_LIST = 1 << 14
#: PostgreSQL's type number of a double, which the conversion of floats needs.
_FLOAT8 = 701


def placeholders_for(length: int) -> int:
    """The number of placeholders for a list of `length` values."""
    return length if not length or length > MAX_CACHED_LIST else 1 << (length - 1).bit_length()


class Compiler:
    """Compiles statements for one driver; the result is cached for the lifetime of the statement."""

    def __init__(self, engine: Engine) -> None:
        name = dialect_name(engine)
        self.dialect: Dialect = cast(Any, type(engine.dialect))(paramstyle=_STYLES[name])
        self._kept: WeakKeyDictionary[Executable, dict[tuple[str, ...], _Compiled]] = WeakKeyDictionary()
        self._names: dict[str, bytes] = {}
        self._compiling = threading.Lock()

    def compile_statement(self, statement: Executable, values: Values) -> "DriverStatement":
        """The compiled statement. It depends on the columns that are written, and on the length of lists for ``IN``."""
        names = tuple(values)
        compiled = self._kept.get(statement, {}).get(names)
        words = compiled.words.get(compiled.places(values)) if compiled is not None else None
        return words or self._compile(statement, names, values)

    def _compile(self, statement: Executable, names: tuple[str, ...], values: Values) -> "DriverStatement":
        with self._compiling:  # each name needs a unique number
            kept = self._kept.setdefault(statement, {})
            if names not in kept:
                kept[names] = _Compiled(statement, names, self.dialect)
            compiled = kept[names]
            places = compiled.places(values)
            if max(places, default=0) > MAX_CACHED_LIST:
                return DriverStatement(compiled, places, values, None, self.dialect)
            return compiled.words.setdefault(
                places, DriverStatement(compiled, places, values, self._names, self.dialect)
            )


class _Compiled:
    def __init__(self, statement: Executable, names: Sequence[str], dialect: Dialect) -> None:
        said = cast(Any, statement)
        self.sql = said.compile(dialect=dialect, column_keys=list(names) if said.is_dml else None)
        #: Names of the parameters that are lists.
        self.lists = sorted(self.sql.bind_names[parameter] for parameter in self.sql.post_compile_params)
        #: By the number of placeholders of each list.
        self.words: dict[tuple[int, ...], DriverStatement] = {}

    def places(self, values: Values) -> tuple[int, ...]:
        """The number of placeholders of each of `lists`."""
        return tuple(placeholders_for(len(values.get(name, self.sql.params[name]))) for name in self.lists)


class DriverStatement:
    """A compiled statement for lists of certain lengths.

    `places` is the result of `_Compiled.places` for `values`. `names` has the names of all cached statements; None means
    that this one is not cached.
    """

    def __init__(
        self,
        compiled: _Compiled,
        places: tuple[int, ...],
        values: Values,
        names: dict[str, bytes] | None,
        dialect: Dialect,
    ) -> None:
        sql = compiled.sql
        given = {**sql.params, **values}
        for name, number in zip(compiled.lists, places, strict=True):
            given[name] = [*given[name], *given[name][-1:] * (number - len(given[name]))]
        expanded = sql.construct_expanded_state(given)
        self.text = expanded.statement
        self.encoded = self.text.encode()
        # Equal SQL shares one prepared statement. An unnamed one is valid until the next is prepared.
        self.name = b"" if names is None else names.setdefault(self.text, f"prepared_{len(names)}".encode())
        in_list = {
            place: (name, index)
            for name, of_list in expanded.parameter_expansion.items()
            for index, place in enumerate(of_list)
        }
        processors = {**sql._bind_processors, **expanded.processors}  # noqa: SLF001 - SQLAlchemy has no public access to the converters of values
        #: Per placeholder: name, index in a list (-1: no list), default value, conversion.
        self._places = [
            (*in_list.get(place, (place, -1)), sql.params.get(in_list.get(place, (place,))[0]), processors.get(place))
            for place in expanded.positiontup or ()
        ]
        columns = sql._result_columns or ()  # noqa: SLF001 - SQLAlchemy publishes the columns only after a statement ran
        self._row = namedtuple("_row", [column.keyname for column in columns]) if columns else None  # noqa: PYI024 - the column names are known only at run time
        conversions = [column.type.dialect_impl(dialect).result_processor(dialect, _FLOAT8) for column in columns]
        self._conversions = [(index, convert) for index, convert in enumerate(conversions) if convert is not None]

    def bind_values(self, values: Values) -> list[object]:
        placed = []
        for name, index, own, convert in self._places:
            value = values.get(name, own)
            if index >= 0:
                value = value[min(index, len(value) - 1)]
            placed.append(value if convert is None else convert(value))
        return placed

    def named_rows(self, rows: Rows) -> Sequence[Any]:
        if self._row is None:
            return ()
        return [self._row(*self._converted(row)) for row in rows]

    def _converted(self, row: Sequence[Any]) -> Sequence[Any]:
        if not self._conversions:
            return row
        values = list(row)
        for index, convert in self._conversions:
            values[index] = convert(values[index])
        return values
