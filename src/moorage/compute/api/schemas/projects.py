"""Schemas of what a project has besides servers: quotas, key pairs, server groups.

Server groups have ``policies`` with one member before microversion 2.64, ``policy`` and ``policy_rules`` since.
"""

from moorage.compute.api.schemas.flavors import NAME
from moorage.compute.model.quota import CLASS_PREFIX, DEFAULTS, OF_FILES, OF_NETWORKS
from moorage.wire.body import Schema, VersionedSchema
from moorage.wire.microversion import Version

_LIMIT = {"type": ["integer", "string"], "pattern": "^-?[0-9]+$", "minimum": -1, "maximum": 2147483647}
#: The limit of any resource class of Placement.
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


def _keypair(name_pattern: str, *required: str, **more: object) -> Schema:
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


#: No blank at either end, and no line end, before which `$` matches, too.
_KEYPAIR_NAME = r"^(?! )[a-zA-Z0-9 _-]+(?<! )$(?!\n)"
_KEYPAIR_KIND = {"type": {"type": "string", "enum": ["ssh", "x509"]}}
_KEYPAIR_USER = {"user_id": {"type": "string"}}
KEYPAIR = VersionedSchema(
    [
        (Version(2, 1), _keypair(_KEYPAIR_NAME)),
        (Version(2, 2), _keypair(_KEYPAIR_NAME, **_KEYPAIR_KIND)),
        (Version(2, 10), _keypair(_KEYPAIR_NAME, **_KEYPAIR_KIND, **_KEYPAIR_USER)),
        (
            Version(2, 92),
            _keypair(r"^(?! )[a-zA-Z0-9 @._-]+(?<! )$(?!\n)", "public_key", **_KEYPAIR_KIND, **_KEYPAIR_USER),
        ),
    ]
)


_HARD_POLICIES = ["affinity", "anti-affinity"]
_ALL_POLICIES = [*_HARD_POLICIES, "soft-affinity", "soft-anti-affinity"]
_RULES = {
    "type": "object",
    "properties": {
        "max_server_per_host": {
            "type": ["integer", "string"], "pattern": "^0*[1-9][0-9]*$", "minimum": 1, "maxLength": 9,
        }
    },
    "additionalProperties": False,
}  # fmt: skip


def _group_body(properties: dict[str, object], *required: str) -> Schema:
    group = {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
    return Schema(
        {
            "type": "object",
            "properties": {"server_group": group},
            "required": ["server_group"],
            "additionalProperties": False,
        }
    )


def _policies(allowed: list[str]) -> Schema:
    policies = {"type": "array", "items": {"enum": allowed}, "minItems": 1, "maxItems": 1}
    return _group_body({"name": NAME, "policies": policies}, "name", "policies")


SERVER_GROUP = VersionedSchema(
    [
        (Version(2, 1), _policies(_HARD_POLICIES)),
        (Version(2, 15), _policies(_ALL_POLICIES)),
        (
            Version(2, 64),
            _group_body({"name": NAME, "policy": {"enum": _ALL_POLICIES}, "rules": _RULES}, "name", "policy"),
        ),
    ]
)
