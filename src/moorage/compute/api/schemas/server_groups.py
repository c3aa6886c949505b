"""Bodies of server groups: ``policies`` with one member before microversion 2.64, ``policy`` and ``policy_rules`` since."""

from moorage.compute.api.schemas.flavors import NAME
from moorage.wire.body import Schema, VersionedSchema
from moorage.wire.microversion import Version

_HARD = ["affinity", "anti-affinity"]
_ALL = [*_HARD, "soft-affinity", "soft-anti-affinity"]
_RULES = {
    "type": "object",
    "properties": {
        "max_server_per_host": {
            "type": ["integer", "string"], "pattern": "^0*[1-9][0-9]*$", "minimum": 1, "maxLength": 9,
        }
    },
    "additionalProperties": False,
}  # fmt: skip


def _body(properties: dict[str, object], *required: str) -> Schema:
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
    return _body({"name": NAME, "policies": policies}, "name", "policies")


CREATE = VersionedSchema(
    [
        (Version(2, 1), _policies(_HARD)),
        (Version(2, 15), _policies(_ALL)),
        (Version(2, 64), _body({"name": NAME, "policy": {"enum": _ALL}, "rules": _RULES}, "name", "policy")),
    ]
)
