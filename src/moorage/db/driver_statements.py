"""Statements in the words of one driver: compiled once, and then only given their values.

A list of ``IN`` is given as many places as the next power of two, and its last value in those that are left over: what is
kept, here and by the database, is a few forms of each statement and not one for each length. Lists that are longer than any
that we send as a rule are not kept at all.
Not here: sending them (`moorage.db.prepared_transactions`).
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
#: The least bound of the three on the parameters of a statement is SQLite's, 32,766: one list and some more fit in.
MAX_CACHED_LIST = 1 << 14
#: PostgreSQL's number of a double: how floating numbers come, which only their conversion asks for.
_FLOAT8 = 701


def placeholders_for(length: int) -> int:
    """Of a list with so many values."""
    return length if not length or length > MAX_CACHED_LIST else 1 << (length - 1).bit_length()


class Compiler:
    """Statements in the words of one driver, kept as long as they are."""

    def __init__(self, engine: Engine) -> None:
        name = dialect_name(engine)
        self.dialect: Dialect = cast(Any, type(engine.dialect))(paramstyle=_STYLES[name])
        self._kept: WeakKeyDictionary[Executable, dict[tuple[str, ...], _Compiled]] = WeakKeyDictionary()
        self._names: dict[str, bytes] = {}
        self._compiling = threading.Lock()

    def words(self, statement: Executable, values: Values) -> "DriverStatement":
        """What it says depends on which columns are written, and on how many places a list of ``IN`` has."""
        names = tuple(values)
        compiled = self._kept.get(statement, {}).get(names)
        words = compiled.words.get(compiled.places(values)) if compiled is not None else None
        return words or self._worded(statement, names, values)

    def _worded(self, statement: Executable, names: tuple[str, ...], values: Values) -> "DriverStatement":
        with self._compiling:  # the number in a name must be nobody else's
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
        #: Parameters that are lists.
        self.lists = sorted(self.sql.bind_names[parameter] for parameter in self.sql.post_compile_params)
        #: By how many places each of them has.
        self.words: dict[tuple[int, ...], DriverStatement] = {}

    def places(self, values: Values) -> tuple[int, ...]:
        """So many has each of `lists`."""
        return tuple(placeholders_for(len(values.get(name, self.sql.params[name]))) for name in self.lists)


class DriverStatement:
    """`places` as `_Compiled.places` counts them for `values`; `names` are those of all words that are kept, None: these are
    not.
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
        # The same words again are the same prepared statement, whoever made them. Without a name it is one until the next.
        self.name = b"" if names is None else names.setdefault(self.text, f"prepared_{len(names)}".encode())
        in_list = {
            place: (name, index)
            for name, of_list in expanded.parameter_expansion.items()
            for index, place in enumerate(of_list)
        }
        processors = {**sql._bind_processors, **expanded.processors}  # noqa: SLF001 - by which the engine converts values
        #: Per place: name, index in a list (-1: no list), the statement's own value, conversion.
        self._places = [
            (*in_list.get(place, (place, -1)), sql.params.get(in_list.get(place, (place,))[0]), processors.get(place))
            for place in expanded.positiontup or ()
        ]
        columns = sql._result_columns or ()  # noqa: SLF001 - shown nowhere else for a statement that was not run
        self._row = namedtuple("_row", [column.keyname for column in columns]) if columns else None  # noqa: PYI024 - not known before
        conversions = [column.type.dialect_impl(dialect).result_processor(dialect, _FLOAT8) for column in columns]
        self._conversions = [(index, convert) for index, convert in enumerate(conversions) if convert is not None]

    def placed(self, values: Values) -> list[object]:
        placed = []
        for name, index, own, convert in self._places:
            value = values.get(name, own)
            if index >= 0:
                value = value[min(index, len(value) - 1)]
            placed.append(value if convert is None else convert(value))
        return placed

    def named(self, rows: Rows) -> Sequence[Any]:
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
