"""/allocations, /reshaper and /usages; the body of a consumer's allocations has changed seven times"""

from moorage.placement.api.schemas.common import (
    NAME,
    SUFFIX,
    UUID,
    UUID_KEY,
    JsonSchema,
    body,
    closed,
    closed_before_required,
)
from moorage.placement.api.schemas.inventory import SET_DOCUMENT
from moorage.wire.body import Schema, VersionedSchema
from moorage.wire.microversion import Version

_RESOURCES: JsonSchema = {
    "type": "object",
    "minProperties": 1,
    "patternProperties": {NAME: {"type": "integer", "minimum": 1}},
    "additionalProperties": False,
}
_ID: JsonSchema = {"type": "string", "minLength": 1, "maxLength": 255}
_OWNER: JsonSchema = {"project_id": _ID, "user_id": _ID}

_LIST: JsonSchema = {
    "allocations": {
        "type": "array",
        "minItems": 1,
        "items": closed(
            {"resource_provider": closed_before_required({"uuid": UUID}, required=("uuid",)), "resources": _RESOURCES},
            required=("resource_provider", "resources"),
        ),
    }
}


def _by_provider(least: int) -> JsonSchema:
    return {
        "allocations": {
            "type": "object",
            "minProperties": least,
            "patternProperties": {
                UUID_KEY: closed({"generation": {"type": "integer"}, "resources": _RESOURCES}, required=("resources",))
            },
            "additionalProperties": False,
        },
        **_OWNER,
    }


_GENERATION: JsonSchema = {"consumer_generation": {"type": ["integer", "null"], "additionalProperties": False}}
_MAPPINGS: JsonSchema = {
    "mappings": {
        "type": "object",
        "minProperties": 1,
        "patternProperties": {SUFFIX: {"type": "array", "minItems": 1, "items": UUID}},
    }
}
_TYPE: JsonSchema = {"consumer_type": {"type": "string", "pattern": NAME, "minLength": 1, "maxLength": 255}}

_OWNED = ("allocations", "project_id", "user_id")
_COUNTED = (*_OWNED, "consumer_generation")

_V1_0 = closed(_LIST, required=("allocations",))
_V1_8 = closed({**_LIST, **_OWNER}, required=_OWNED)
_V1_12 = closed_before_required(_by_provider(1), required=_OWNED)
_V1_13 = closed_before_required(_by_provider(0), required=_OWNED)
_V1_28 = closed_before_required({**_by_provider(0), **_GENERATION}, required=_COUNTED)
_V1_34 = closed_before_required({**_by_provider(0), **_GENERATION, **_MAPPINGS}, required=_COUNTED)
_V1_38 = closed_before_required(
    {**_by_provider(0), **_GENERATION, **_MAPPINGS, **_TYPE}, required=(*_COUNTED, "consumer_type")
)

PUT = VersionedSchema(
    [
        (Version(1, 0), body(_V1_0)),
        (Version(1, 8), body(_V1_8)),
        (Version(1, 12), body(_V1_12)),
        (Version(1, 28), body(_V1_28)),
        (Version(1, 34), body(_V1_34)),
        (Version(1, 38), body(_V1_38)),
    ]
)


def _by_consumer(document: JsonSchema, least: int) -> JsonSchema:
    return {
        "type": "object",
        "minProperties": least,
        "additionalProperties": False,
        "patternProperties": {UUID_KEY: document},
    }


POST = VersionedSchema(
    [
        (Version(1, 13), body(_by_consumer(_V1_13, 1))),
        (Version(1, 28), body(_by_consumer(_V1_28, 1))),
        (Version(1, 34), body(_by_consumer(_V1_34, 1))),
        (Version(1, 38), body(_by_consumer(_V1_38, 1))),
    ]
)


def _reshape(document: JsonSchema) -> Schema:
    inventories: JsonSchema = {
        "type": "object",
        "patternProperties": {UUID_KEY: SET_DOCUMENT},
        "minProperties": 1,
        "additionalProperties": False,
    }
    return body(
        closed(
            {"inventories": inventories, "allocations": _by_consumer(document, 0)},
            required=("inventories", "allocations"),
        )
    )


RESHAPE = VersionedSchema(
    [
        (Version(1, 30), _reshape(_V1_28)),
        (Version(1, 34), _reshape(_V1_34)),
        (Version(1, 38), _reshape(_V1_38)),
    ]
)

_USAGES: JsonSchema = dict(_OWNER)
_USAGE_TYPE: JsonSchema = {
    # The peer's pattern: it does not anchor the end of "all", so "allxyz" passes, too.
    "consumer_type": {"type": "string", "pattern": f"{NAME}|^all|^unknown$", "minLength": 1, "maxLength": 255}
}
USAGES = VersionedSchema(
    [
        (Version(1, 9), Schema(closed(_USAGES, required=("project_id",)))),
        (Version(1, 38), Schema(closed({**_USAGES, **_USAGE_TYPE}, required=("project_id",)))),
    ]
)
