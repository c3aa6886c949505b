"""JSON schemas of request bodies, checked before a body is decoded."""

from moorage.accelerator.model.errors import UNCHECKED
from moorage.core.json import Json
from moorage.wire.body import Schema

#: Cyborg's form: a list of exactly one profile.
CREATE_DEVICE_PROFILE = Schema(
    {
        "type": "array",
        "minItems": 1,
        "maxItems": 1,
        "items": {
            "type": "object",
            "required": ["name", "groups"],
            "properties": {
                "name": {"type": "string", "minLength": 1, "maxLength": 255},
                "description": {"type": ["string", "null"]},
                "uuid": {"type": ["string", "null"]},
                "groups": {
                    "type": "array",
                    "minItems": 1,
                    "items": {"type": "object", "additionalProperties": {"type": ["string", "integer"]}},
                },
            },
        },
    },
    code=UNCHECKED,
)

_POSITION: dict[str, Json] = {"type": "integer", "minimum": 1, "maximum": (1 << 62)}


def _report_of(name: str) -> Schema:
    """A report of a host; agents of the release before send no position (epoch, number)."""
    return Schema(
        {
            "type": "object",
            "required": [name],
            "properties": {name: {"type": "array"}, "epoch": _POSITION, "number": _POSITION},
            "dependentRequired": {"epoch": ["number"], "number": ["epoch"]},
            "additionalProperties": False,
        }
    )


DEVICES = _report_of("devices")

ATTACHMENTS = _report_of("attachments")

HISTORY = Schema(
    {
        "type": "object",
        "required": ["records"],
        "properties": {"records": {"type": "array", "maxItems": 1000}},
        "additionalProperties": False,
    }
)

RELEASE_HANDLE = Schema(
    {
        "type": "object",
        "required": ["host", "handle", "reason"],
        "properties": {
            "host": {"type": "string", "minLength": 1, "maxLength": 255},
            "handle": {"type": "string", "minLength": 1, "maxLength": 255},
            "reason": {"type": "string", "pattern": "\\S", "maxLength": 1000},
            "is_clean": {"type": "boolean"},
            "wait_s": {"type": "number", "minimum": 0, "maximum": 60},
        },
        "additionalProperties": False,
    }
)

CREATE_REQUESTS = Schema(
    {
        "type": "object",
        "required": ["device_profile_name"],
        "properties": {"device_profile_name": {"type": "string", "maxLength": 255}},
    }
)

#: ``{<request>: [{"op", "path", "value"}, ...]}``
PATCH_REQUESTS = Schema(
    {
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["op", "path"],
                "properties": {
                    "op": {"type": "string", "enum": ["add", "remove"]},
                    "path": {"type": "string"},
                    "value": {"type": ["string", "null"]},
                },
            },
        },
    }
)

PROGRAM = Schema(
    {
        "type": "array",
        "minItems": 1,
        "maxItems": 1,
        "items": {
            "type": "object",
            "required": ["path", "op"],
            "if": {"properties": {"op": {"const": "replace"}}},
            "then": {"required": ["value"]},
            "properties": {
                "path": {"const": "/program"},
                "op": {"enum": ["replace", "remove"]},
                "wait_s": {"type": "number", "minimum": 0, "maximum": 60},
                "value": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 1,
                    "items": {
                        "type": "object",
                        "oneOf": [{"required": [name]} for name in ("image_uuid", "function_id", "function_name")],
                        "properties": {
                            "image_uuid": {"type": "string", "minLength": 1, "maxLength": 255},
                            "function_id": {"type": "string", "minLength": 1, "maxLength": 255},
                            "function_name": {"type": "string", "minLength": 1, "maxLength": 255},
                            "project_id": {"type": "string", "minLength": 1, "maxLength": 255},
                        },
                    },
                },
            },
        },
    },
    code=UNCHECKED,
)

_ATTRIBUTE = {
    "type": "object",
    "required": ["deployable_id", "key", "value"],
    "properties": {
        "deployable_id": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]{1,18}$"}]},
        "key": {"type": "string", "minLength": 1, "maxLength": 255},
        "value": {"type": "string", "minLength": 1, "maxLength": 255},
    },
}
#: Cyborg's form, or openstacksdk's: ``{"attribute": {...}}``.
CREATE_ATTRIBUTE = Schema(
    {
        "type": "object",
        "if": {"required": ["attribute"]},
        "then": {"properties": {"attribute": _ATTRIBUTE}},
        "else": _ATTRIBUTE,
    },
    code=UNCHECKED,
)
