"""/resource_classes, /traits, and the traits and aggregates of a provider"""

from moorage.placement.api.schemas.common import CUSTOM_NAME, TEXT, UUID, JsonSchema, body, closed
from moorage.wire.body import Schema, VersionedSchema
from moorage.wire.microversion import Version

RESOURCE_CLASS = body(
    closed({"name": {"type": "string", "pattern": CUSTOM_NAME, "maxLength": 255}}, required=("name",))
)

_TRAIT: JsonSchema = {"type": "string", "minLength": 1, "maxLength": 255}

CUSTOM_TRAIT = Schema({**_TRAIT, "pattern": CUSTOM_NAME})
LIST_TRAITS = Schema(closed({"name": TEXT, "associated": TEXT}))
PROVIDER_TRAITS = body(
    closed(
        {"traits": {"type": "array", "items": _TRAIT}, "resource_provider_generation": {"type": "integer"}},
        required=("traits", "resource_provider_generation"),
    )
)

_AGGREGATES: JsonSchema = {"type": "array", "items": UUID, "uniqueItems": True}

PROVIDER_AGGREGATES = VersionedSchema(
    [
        (Version(1, 1), body(_AGGREGATES)),
        (
            Version(1, 19),
            body(
                closed(
                    {"aggregates": _AGGREGATES, "resource_provider_generation": {"type": "integer"}},
                    required=("aggregates", "resource_provider_generation"),
                )
            ),
        ),
    ]
)
