"""Queries of Moorage's own routes: the change log, history, the cloud summary and trees."""

from moorage.placement.api.schemas.common import UUID, JsonSchema, closed
from moorage.placement.forest.change_entries import SubjectKind
from moorage.wire.body import Schema

_KIND = f"({'|'.join(SubjectKind)})"
_UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"

_CURSOR: JsonSchema = {"type": "string", "pattern": r"^[0-9]{1,18}(\.[0-9]{1,18})?$"}
_TIME: JsonSchema = {"type": "string", "maxLength": 40}
_LIMIT: JsonSchema = {"type": "string", "pattern": "^([1-9][0-9]{0,2}|1000)$"}
_FILTER: JsonSchema = {
    "kind": {"type": "string", "pattern": f"^{_KIND}(,{_KIND})*$"},
    "subject": {"type": "string", "pattern": f"^{_UUID}(,{_UUID}){{0,99}}$"},
}

EVENTS = Schema(closed({"since": _CURSOR, **_FILTER}))
CHANGES = Schema(closed({"since": _CURSOR, "limit": _LIMIT, **_FILTER}))
STATE = Schema(closed({"at": _TIME}))
ENTRIES = Schema(closed({"since": _TIME, "until": _TIME, "after": _CURSOR, "limit": _LIMIT}))


_NAME = "[A-Z0-9_]{1,255}"
_ONE_NAME: JsonSchema = {"type": "string", "pattern": f"^{_NAME}$"}
_TEXT: JsonSchema = {"type": "string", "minLength": 1, "maxLength": 200}
_TREES_LIMIT: JsonSchema = {"type": "string", "pattern": "^([1-9][0-9]?|1[0-9]{2}|200)$"}

SURVEY = Schema(closed({"resource_class": {"type": "string", "pattern": f"^{_NAME}(,{_NAME}){{0,15}}$"}}))
TREES = Schema(
    closed(
        {
            "search": _TEXT,
            "member_of": UUID,
            "resource_class": _ONE_NAME,
            "required": _ONE_NAME,
            "after": _TEXT,
            "limit": _TREES_LIMIT,
        }
    )
)
TREE = Schema(closed({"at": _TIME}))
