"""GET /allocation_candidates"""

from moorage.placement.api.schemas.common import NUMBERED_SUFFIX, SUFFIX, TEXT, JsonSchema, closed
from moorage.wire.body import Schema, VersionedSchema
from moorage.wire.microversion import Version

_LIMIT: JsonSchema = {
    "limit": {"type": ["integer", "string"], "pattern": "^[1-9][0-9]*$", "minimum": 1, "minLength": 1}
}
_POLICY: JsonSchema = {"group_policy": {"type": "string", "enum": ["none", "isolate"]}}
_ROOT: JsonSchema = {"root_required": {"type": ["string"]}}
_SUBTREE: JsonSchema = {"same_subtree": {"type": ["string"]}}
_RESOURCES: JsonSchema = {"resources": TEXT}
_REQUIRED: JsonSchema = {"required": {"type": ["string"]}}
_MEMBER_OF: JsonSchema = {"member_of": {"type": ["string"]}}


def _groups(suffix: str, *keys: str) -> JsonSchema:
    return {f"^{key}({suffix})?$": TEXT for key in keys}


_OLD_KEYS = ("resources", "required", "member_of")
_KEYS = (*_OLD_KEYS, "in_tree")

LIST = VersionedSchema(
    [
        (Version(1, 10), Schema(closed(_RESOURCES, required=("resources",)))),
        (Version(1, 16), Schema(closed({**_RESOURCES, **_LIMIT}, required=("resources",)))),
        (Version(1, 17), Schema(closed({**_RESOURCES, **_LIMIT, **_REQUIRED}, required=("resources",)))),
        (Version(1, 21), Schema(closed({**_RESOURCES, **_LIMIT, **_REQUIRED, **_MEMBER_OF}, required=("resources",)))),
        (Version(1, 25), Schema(closed({**_LIMIT, **_POLICY}, patterns=_groups(NUMBERED_SUFFIX, *_OLD_KEYS)))),
        (Version(1, 31), Schema(closed({**_LIMIT, **_POLICY}, patterns=_groups(NUMBERED_SUFFIX, *_KEYS)))),
        (Version(1, 33), Schema(closed({**_LIMIT, **_POLICY}, patterns=_groups(SUFFIX, *_KEYS)))),
        (Version(1, 35), Schema(closed({**_LIMIT, **_POLICY, **_ROOT}, patterns=_groups(SUFFIX, *_KEYS)))),
        (Version(1, 36), Schema(closed({**_LIMIT, **_POLICY, **_ROOT, **_SUBTREE}, patterns=_groups(SUFFIX, *_KEYS)))),
    ]
)
