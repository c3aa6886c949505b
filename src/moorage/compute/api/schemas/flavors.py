"""Schemas of flavors, extra specs and access lists, and of the migration of bare-metal servers."""

from moorage.wire.body import Schema, VersionedSchema
from moorage.wire.microversion import Version

#: Nova accepts numbers as text, too.
_COUNT = {"type": ["integer", "string"], "pattern": "^[0-9]+$", "minimum": 0, "maximum": 2147483647}
_POSITIVE = _COUNT | {"minimum": 1, "pattern": "^0*[1-9][0-9]*$"}
#: Not allowed in a name, as in Nova: control characters, which XML cannot hold and which control terminals, and
#: characters that change the direction of text.
_UNSEEN = r"\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufffe\uffff"
NAME = {
    "type": "string",
    "minLength": 1,
    "maxLength": 255,
    "pattern": rf"^[^\s{_UNSEEN}]([^{_UNSEEN}]*[^\s{_UNSEEN}])?$",
}
_SPECS = {
    "type": "object",
    "patternProperties": {
        "^[a-zA-Z0-9-_:. ]{1,255}$": {"type": ["string", "number"], "maxLength": 255},
        # One of several traits. Nova reads such keys but accepts no comma in its API.
        "^trait[a-zA-Z0-9_-]{0,64}:in:[A-Z0-9_,]{1,180}$": {"type": ["string", "number"], "maxLength": 255},
    },
    "additionalProperties": False,
}

_FLAVOR = {
    "name": NAME,
    "id": {
        "anyOf": [
            {"type": "null"},
            {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^(?! )[a-zA-Z0-9. _-]*(?<! )$"},
            {"type": "integer", "minimum": 0},
        ]
    },
    "ram": _POSITIVE,
    "vcpus": _POSITIVE,
    "disk": _COUNT,
    "OS-FLV-EXT-DATA:ephemeral": _COUNT,
    "swap": _COUNT | {"pattern": "^[0-9]*$"},
    "rxtx_factor": {"type": ["number", "string"], "pattern": r"^[0-9]+(\.[0-9]+)?$", "exclusiveMinimum": 0},
    "os-flavor-access:is_public": {"type": ["boolean", "string"]},
}
_DESCRIPTION = {"description": {"type": ["string", "null"], "maxLength": 65535}}


def _one(key: str, properties: dict[str, object], *required: str) -> Schema:
    """``{key: {...}}`` and nothing else."""
    inner = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
    return Schema({"type": "object", "properties": {key: inner}, "required": [key], "additionalProperties": False})


CREATE = VersionedSchema(
    [
        (Version(2, 1), _one("flavor", dict(_FLAVOR), "name", "ram", "vcpus", "disk")),
        (Version(2, 55), _one("flavor", _FLAVOR | _DESCRIPTION, "name", "ram", "vcpus", "disk")),
    ]
)
UPDATE = _one("flavor", dict(_DESCRIPTION), "description")

EXTRA_SPECS = Schema(
    {
        "type": "object",
        "properties": {"extra_specs": _SPECS},
        "required": ["extra_specs"],
        "additionalProperties": False,
    }
)
EXTRA_SPEC = Schema(_SPECS | {"minProperties": 1, "maxProperties": 1})

_TENANT = {
    "type": "object",
    "properties": {"tenant": {"type": "string", "minLength": 1, "maxLength": 255}},
    "required": ["tenant"],
    "additionalProperties": False,
}
ACCESS = Schema(
    {
        "type": "object",
        "properties": {"addTenantAccess": _TENANT, "removeTenantAccess": _TENANT},
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
    }
)


MIGRATE_FLAVORS = Schema(
    {
        "type": "object",
        "properties": {"dry_run": {"type": "boolean"}, "after": {"type": "string", "maxLength": 255}},
        "required": ["dry_run"],
        "additionalProperties": False,
    }
)
