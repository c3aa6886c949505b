"""/resource_providers"""

from moorage.placement.api.schemas.common import TEXT, UUID, JsonSchema, body, closed
from moorage.wire.body import Schema, VersionedSchema
from moorage.wire.microversion import Version

_NAME: JsonSchema = {"type": "string", "maxLength": 200}
_PARENT: JsonSchema = {"anyOf": [UUID, {"type": "null"}]}

CREATE = VersionedSchema(
    [
        (Version(1, 0), body(closed({"name": _NAME, "uuid": UUID}, required=("name",)))),
        (
            Version(1, 14),
            body(closed({"name": _NAME, "uuid": UUID, "parent_provider_uuid": _PARENT}, required=("name",))),
        ),
    ]
)

UPDATE = VersionedSchema(
    [
        (Version(1, 0), body(closed({"name": _NAME}, required=("name",)))),
        (Version(1, 14), body(closed({"name": _NAME, "parent_provider_uuid": _PARENT}, required=("name",)))),
    ]
)

_LIST: JsonSchema = {"name": TEXT, "uuid": UUID}
_LIST_1_3 = {**_LIST, "member_of": TEXT}
_LIST_1_4 = {**_LIST_1_3, "resources": TEXT}
_LIST_1_14 = {**_LIST_1_4, "in_tree": UUID}
_LIST_1_18 = {**_LIST_1_14, "required": TEXT}

LIST = VersionedSchema(
    [
        (Version(1, 0), Schema(closed(_LIST))),
        (Version(1, 3), Schema(closed(_LIST_1_3))),
        (Version(1, 4), Schema(closed(_LIST_1_4))),
        (Version(1, 14), Schema(closed(_LIST_1_14))),
        (Version(1, 18), Schema(closed(_LIST_1_18))),
    ]
)
