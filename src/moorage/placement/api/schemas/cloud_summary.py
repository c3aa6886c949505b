"""Queries of /moorage/v1/survey and /moorage/v1/trees: our own routes, beside the peer's."""

from moorage.placement.api.schemas.common import UUID, JsonSchema, closed
from moorage.wire.body import Schema

_NAME = "[A-Z0-9_]{1,255}"
_ONE_NAME: JsonSchema = {"type": "string", "pattern": f"^{_NAME}$"}
_TEXT: JsonSchema = {"type": "string", "minLength": 1, "maxLength": 200}
_LIMIT: JsonSchema = {"type": "string", "pattern": "^([1-9][0-9]?|1[0-9]{2}|200)$"}
_TIME: JsonSchema = {"type": "string", "maxLength": 40}

SURVEY = Schema(closed({"resource_class": {"type": "string", "pattern": f"^{_NAME}(,{_NAME}){{0,15}}$"}}))
TREES = Schema(
    closed(
        {
            "search": _TEXT,
            "member_of": UUID,
            "resource_class": _ONE_NAME,
            "required": _ONE_NAME,
            "after": _TEXT,
            "limit": _LIMIT,
        }
    )
)
TREE = Schema(closed({"at": _TIME}))
