"""Bodies of the routes of hosts."""

from moorage.identity.hosts import LONGEST_INVITATION_S
from moorage.wire.body import Schema

_SECRET = {"type": "string", "minLength": 1, "maxLength": 512}
_DIGEST = {"type": "string", "pattern": r"^[0-9a-f]{64}$"}


def _body(**fields: object) -> Schema:
    return Schema(
        {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False},
    )


INVITE = _body(expires_s={"type": "integer", "minimum": 1, "maximum": LONGEST_INVITATION_S})
ENROL = _body(token=_SECRET, secret_sha256=_DIGEST)
ROTATE = _body(secret=_SECRET, secret_sha256=_DIGEST)
LOGIN = _body(secret=_SECRET)
