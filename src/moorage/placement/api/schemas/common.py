"""Parts that several schemas share: patterns, and helpers that build objects."""

from collections.abc import Mapping
from typing import Any

from moorage.core.json import Json
from moorage.placement.search.query import looks_like_uuid
from moorage.wire.body import Schema

JsonSchema = dict[str, Any]

UUID_KEY = "^[0-9a-fA-F-]{36}$"
NAME = "^[A-Z0-9_]+$"
CUSTOM_NAME = "^CUSTOM_[A-Z0-9_]+$"
NUMBERED_SUFFIX = "[1-9][0-9]*"
SUFFIX = "[a-zA-Z0-9_-]{1,64}"

UUID: JsonSchema = {"type": "string", "format": "uuid"}
TEXT: JsonSchema = {"type": "string"}


def closed(
    properties: Mapping[str, Json], *, required: tuple[str, ...] = (), patterns: Mapping[str, Json] | None = None
) -> JsonSchema:
    """An object with these properties and no others."""
    schema: JsonSchema = {"type": "object", "properties": dict(properties)}
    if required:
        schema["required"] = list(required)
    schema["additionalProperties"] = False
    if patterns is not None:
        schema["patternProperties"] = dict(patterns)
    return schema


def closed_before_required(properties: Mapping[str, Json], *, required: tuple[str, ...]) -> JsonSchema:
    """`closed` with its keywords in the other order: only the first violated keyword is reported, and messages
    quote both.
    """
    return {**closed(properties), "required": list(required)}


def body(document: JsonSchema) -> Schema:
    """The schema of a body; unlike in queries, a UUID may be without dashes."""
    return Schema(document, formats={"uuid": looks_like_uuid})
