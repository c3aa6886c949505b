"""Hostile integers, dates and texts for each field of a body, each parameter and each part of a path.

Fields come from a route's JSON schema and an example of a body; parameters are those that a route reads while it
answers. Not here: the routes (`tests.wire.test_hostile_values`).
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from moorage.wire.app import ServiceApi
from moorage.wire.body import Schema, VersionedSchema
from moorage.wire.http import Query, Route

#: Around the limits of 32 and of 64 bits and beyond, also as other kinds of JSON numbers.
INTEGERS: tuple[object, ...] = (0, -1, 2**31, -(2**31) - 1, 2**63 - 1, 2**63, 2**64, 1e30)

#: The ends of Python's calendar, and dates that are beyond them in UTC, in each format that an API of the plane reads.
DATES = (
    "0001-01-01T00:00:00+14:00",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59-12:00",
    "0001-01-01 00:00",
    "9999-12-31 23:59",
    "8999-12-31 23:59",
)

#: Numbers as texts. Python refuses to read more than 4,300 digits, and accepts digits of other scripts.
DIGITS = (str(2**31), str(2**63), "-1", "9" * 30, "9" * 5000, "1e400", "\u0662", "\u00b2")
TEXTS: tuple[object, ...] = (*DATES, *DIGITS, "x" * 70_000, 2**63, 1e30)

Path = tuple[str | int, ...]
Json = Any


def schema_at(route: Route[Any], api: ServiceApi[Any]) -> Schema | None:
    """The schema of the route in its newest microversion."""
    if isinstance(route.schema, VersionedSchema):
        return route.schema.for_version(route.until or (api.versions.maximum if api.versions else None))
    return route.schema


# ------------------------------------------------------------------------------------------- bodies


def bodies(schema: Mapping[str, Json], example: Json) -> Iterator[tuple[str, Json]]:
    """(place, body): `example` with one hostile value in a field that `schema` or the example has."""
    for path in sorted({*_fields(schema, schema, example, ()), *_leaves(example, ())}, key=str):
        now = _at(example, path)
        for value in (
            INTEGERS if isinstance(now, int | float) else TEXTS if isinstance(now, str) else (*TEXTS, *INTEGERS)
        ):
            shown = str(value) if len(str(value)) < 40 else f"{str(value)[:3]}... ({len(str(value))})"
            yield f"{'/'.join(map(str, path))} = {shown}", _with(example, path, value)


def _fields(root: Mapping[str, Json], schema: Json, example: Json, at: Path) -> Iterator[Path]:
    """The places of texts and numbers in the documents of `schema`."""
    if not isinstance(schema, Mapping):
        return
    branches = [one for word in ("anyOf", "oneOf", "allOf") for one in schema.get(word, ())]
    for branch in (*branches, schema.get("then"), schema.get("else")):
        yield from _fields(root, branch, example, at)
    for name, below, inner in _members(schema, example):
        yield from _fields(root, below, inner, (*at, name))
    types = schema.get("type", ())
    if {"string", "integer", "number"}.intersection([types] if isinstance(types, str) else types) or "enum" in schema:
        yield at


def _members(schema: Mapping[str, Json], example: Json) -> Iterator[tuple[str | int, Json, Json]]:
    """[(name or index, its schema, its value in the example)]"""
    there = example if isinstance(example, Mapping) else {}
    for name, below in schema.get("properties", {}).items():
        yield name, below, there.get(name)
    further = [*schema.get("patternProperties", {}).values(), schema.get("additionalProperties")]
    for name, below in itertools.product(there.keys() - schema.get("properties", {}).keys(), further):
        yield name, below, there[name]
    if isinstance(example, list):
        yield from [(0, schema.get("items"), example[0])] if example else ()
    elif "items" in schema:
        yield 0, schema["items"], None


def _leaves(document: Json, at: Path) -> Iterator[Path]:
    """The leaves of the document; the first element of each list stands for all."""
    match document:
        case dict():
            for name, value in document.items():
                yield from _leaves(value, (*at, name))
        case list():
            for index, value in enumerate(document[:1]):
                yield from _leaves(value, (*at, index))
        case _:
            yield at


def _at(document: Json, path: Path) -> Json:
    for part in path:
        try:
            document = document[part]
        except (KeyError, IndexError, TypeError):
            return None
    return document


def _with(document: Json, path: Path, value: Json) -> Json:
    if not path:
        return value
    first, *rest = path
    changed: Json
    if isinstance(first, int):
        changed = list(document) if isinstance(document, list) else []
        changed += [None] * (first + 1 - len(changed))
    else:
        changed = dict(document) if isinstance(document, dict) else {}
        changed.setdefault(first, None)
    changed[first] = _with(changed[first], tuple(rest), value)
    return changed


def smallest(schema: Mapping[str, Json]) -> Json:
    """A small document that probably fits `schema`: only required fields."""
    if "const" in schema or "enum" in schema:
        return next(iter(schema.get("enum", [schema.get("const")])))
    types = schema.get("type", "object" if "properties" in schema else "string")
    name = types if isinstance(types, str) else types[0]
    if name == "object":
        return {
            key: smallest(below)
            for key, below in schema.get("properties", {}).items()
            if key in schema.get("required", ())
        }
    if name == "array":
        return [smallest(schema.get("items", {})) for _ in range(schema.get("minItems", 0))]
    if name in ("integer", "number"):
        return max(schema.get("minimum", 1), 1)
    if name == "boolean":
        return True
    return "00000000-0000-4000-8000-000000000000" if schema.get("format") == "uuid" else "x"


# ------------------------------------------------------------------------------------------- parameters


@contextmanager
def asked_for(mark: str = "") -> Iterator[set[str]]:
    """The names of all parameters that the handlers read inside this context, so that no list of them can be
    incomplete.

    `mark`: counts only queries with this parameter, not those that a handler sends to other services.
    """
    names: set[str] = set()
    first, every = Query.first, Query.every

    def note(query: Query, name: str) -> None:
        if not mark or mark in query.names():
            names.add(name)

    def noted_first(self: Query, name: str) -> str | None:
        note(self, name)
        return first(self, name)

    def noted_every(self: Query, name: str) -> list[str]:
        note(self, name)
        return every(self, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Query, "first", noted_first)
        patch.setattr(Query, "every", noted_every)
        yield names


def parameters(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    return itertools.product(sorted(names), (*DATES, *DIGITS, "x" * 300))
