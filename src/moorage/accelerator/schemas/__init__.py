"""What a request body must look like before it is decoded."""

from moorage.wire.body import Schema

#: The peer's form: a list of exactly one profile.
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
    }
)

DEVICES = Schema(
    {
        "type": "object",
        "required": ["devices"],
        "properties": {"devices": {"type": "array"}},
        "additionalProperties": False,
    }
)

ATTACHMENTS = Schema(
    {
        "type": "object",
        "required": ["attachments"],
        "properties": {"attachments": {"type": "array"}},
        "additionalProperties": False,
    }
)
