"""The query language of leases, which selects hosts by their properties.

    ["=", "$rack", "9"]        ["and", [">=", "$vcpus", "16"], ["or", ["=", "$gpu", "True"], ["<", "$rack", "10"]]]

    ["not", ["=", "$gpu", "True"]]            ["in", "$rack", ["9", "10"]]

Operators ``= == != < > <= >= in``, ``and``, ``or``, ``not``. Two numbers are compared as numbers, and all other values
as text. (Blazar compares everything as text: there "10" > "9" is false.) A host without the property matches no
comparison, so it matches the ``not`` of one. ``in`` is short for an ``or`` of ``=``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import orjson

from moorage.core.errors import Invalid

MAX_DEPTH = 8
MAX_COMPARISONS = 64
MAX_TEXT = 8192

_Orderable: TypeAlias = float | str

OPERATORS: Mapping[str, Callable[[Any, object], bool]] = {
    "=": lambda left, right: left == right,
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    ">": lambda left, right: left > right,
    "<=": lambda left, right: left <= right,
    ">=": lambda left, right: left >= right,
}


@dataclass(frozen=True, slots=True)
class Comparison:
    operator: str
    property: str
    value: str


@dataclass(frozen=True, slots=True)
class Combination:
    """`operator` is ``and``, ``or`` or ``not``; ``not`` has exactly one part."""

    operator: str
    parts: "tuple[Query, ...]"


Query: TypeAlias = Comparison | Combination

_EXPECTED = (
    'expected [operator, "$property", "value"], ["in", "$property", ["value", ...]], ["not", query] or '
    '["and" or "or", query, ...]'
)

#: The meaning of an empty query: matches every host.
EVERYTHING = Combination("and", ())


def parse(text: str) -> Query:
    """Parses `text` (JSON; empty = every host). Raises `Invalid` that names the malformed part."""
    if not text.strip():
        return EVERYTHING
    if len(text) > MAX_TEXT:
        raise _malformed(text[:60] + "...", f"longer than {MAX_TEXT} characters")
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise _malformed(text, f"not JSON: {error}") from None
    if document in ([], {}, "", None):
        return EVERYTHING
    query = _query(document, 1)
    if sum(1 for _ in comparisons(query)) > MAX_COMPARISONS:
        raise _malformed(text[:60] + "...", f"more than {MAX_COMPARISONS} comparisons")
    return query


def matches(query: Query, properties: Mapping[str, str]) -> bool:
    if isinstance(query, Comparison):
        value = properties.get(query.property)
        return value is not None and OPERATORS[query.operator](*_comparable(value, query.value))
    results = (matches(part, properties) for part in query.parts)
    if query.operator == "not":
        return not any(results)
    return all(results) if query.operator == "and" else any(results)


def comparisons(query: Query) -> Iterator[Comparison]:
    if isinstance(query, Comparison):
        yield query
        return
    for part in query.parts:
        yield from comparisons(part)


def properties_of(query: Query) -> set[str]:
    return {comparison.property for comparison in comparisons(query)}


def _query(document: object, depth: int) -> Query:
    if depth > MAX_DEPTH:
        raise _malformed(document, f"nested deeper than {MAX_DEPTH}")
    match document:
        case [("and" | "or") as operator, _, *_]:
            return Combination(operator, tuple(_query(part, depth + 1) for part in document[1:]))
        case ["not", part]:
            return Combination("not", (_query(part, depth + 1),))
        case ["in", str(name), [_, *_] as values]:
            return Combination("or", tuple(_query(["=", name, value], depth + 1) for value in values))
        case [str(operator), str(name), str() | int() | float() as value] if operator in OPERATORS:
            if not name.startswith("$") or len(name) < 2:
                raise _malformed(document, f"a property's name must start with $: ${name.lstrip('$') or 'name'}")
            if value == "":
                raise _malformed(document, f"the value to compare {name} with is empty")
            return Comparison(operator, name[1:], str(value))
    raise _malformed(document, _EXPECTED)


def _comparable(left: str, right: str) -> tuple[_Orderable, _Orderable]:
    try:
        return float(left), float(right)
    except ValueError:
        return left, right


def _malformed(part: object, why: str) -> Invalid:
    return Invalid(f"Malformed requirements {part}: {why}")
