"""Bodies of keypairs."""

from typing import Any

from moorage.wire.body import Schema, VersionedSchema
from moorage.wire.microversion import Version


def _keypair(name_pattern: str, *required: str, **more: Any) -> Schema:
    name = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": name_pattern}
    properties = {"name": name, "public_key": {"type": "string"}} | more
    inner = {
        "type": "object",
        "properties": properties,
        "required": ["name", *required],
        "additionalProperties": False,
    }
    return Schema(
        {"type": "object", "properties": {"keypair": inner}, "required": ["keypair"], "additionalProperties": False}
    )


#: No blank at either end.
_NAME = r"^(?! )[a-zA-Z0-9 _-]+(?<! )$"
_KIND = {"type": {"type": "string", "enum": ["ssh", "x509"]}}
_USER = {"user_id": {"type": "string"}}
KEYPAIR = VersionedSchema(
    [
        (Version(2, 1), _keypair(_NAME)),
        (Version(2, 2), _keypair(_NAME, **_KIND)),
        (Version(2, 10), _keypair(_NAME, **_KIND, **_USER)),
        (Version(2, 92), _keypair(r"^(?! )[a-zA-Z0-9 @._-]+(?<! )$", "public_key", **_KIND, **_USER)),
    ]
)
