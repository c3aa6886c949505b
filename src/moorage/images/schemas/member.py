"""Who an image is shared with. Source: Image API v2 reference, "Sharing"."""

from moorage.images.model import MemberStatus
from moorage.wire.body import Schema

NEW_MEMBER = Schema(
    {
        "type": "object",
        "required": ["member"],
        "properties": {"member": {"type": "string", "minLength": 1, "maxLength": 255}},
        "additionalProperties": False,
    }
)
MEMBER_ANSWER = Schema(
    {
        "type": "object",
        "required": ["status"],
        "properties": {"status": {"enum": [one.value for one in MemberStatus]}},
        "additionalProperties": False,
    }
)
