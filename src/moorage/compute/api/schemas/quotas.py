"""Bodies of quota sets and quota class sets."""

from moorage.compute.model.quota import CLASS_PREFIX, DEFAULTS, OF_FILES, OF_NETWORKS
from moorage.wire.body import Schema, VersionedSchema
from moorage.wire.microversion import Version

_LIMIT = {"type": ["integer", "string"], "pattern": "^-?[0-9]+$", "minimum": -1, "maximum": 2147483647}
#: Any resource class of Placement by its name.
_CLASS = f"^{CLASS_PREFIX}[A-Z0-9_]{{1,255}}$"


def _limits(key: str, *hidden: str, **more: object) -> Schema:
    names: dict[str, object] = {name: _LIMIT for name in DEFAULTS if name not in hidden}
    inner = {
        "type": "object",
        "properties": names | more,
        "patternProperties": {_CLASS: _LIMIT},
        "additionalProperties": False,
    }
    return Schema({"type": "object", "properties": {key: inner}, "required": [key], "additionalProperties": False})


def _versions(key: str, **more: object) -> VersionedSchema:
    return VersionedSchema(
        [
            (Version(2, 1), _limits(key, **more)),
            (Version(2, 36 if key == "quota_set" else 50), _limits(key, *OF_NETWORKS, **more)),
            (Version(2, 57), _limits(key, *OF_NETWORKS, *OF_FILES, **more)),
        ]
    )


QUOTA_SET = _versions("quota_set", force={"type": ["boolean", "string"]})
QUOTA_CLASS_SET = _versions("quota_class_set")
