"""Schema of events from other services."""

from moorage.wire.body import Schema, VersionedSchema
from moorage.wire.microversion import Version

_NETWORK = ("network-changed", "network-vif-plugged", "network-vif-unplugged", "network-vif-deleted")
#: (minor version, event name) of later additions.
_ADDED = ((51, "volume-extended"), (76, "power-update"), (82, "accelerator-request-bound"), (93, "volume-reimaged"))
#: Events whose tag identifies their object.
TAG_REQUIRED = frozenset(name for _, name in _ADDED)


def _schema(names: list[str]) -> Schema:
    event = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "enum": names},
            "server_uuid": {"type": "string", "format": "uuid"},
            "status": {"type": "string", "enum": ["failed", "completed", "in-progress"]},
            "tag": {"type": "string", "maxLength": 255},
        },
        "required": ["name", "server_uuid"],
        "additionalProperties": False,
    }
    return Schema(
        {
            "type": "object",
            "properties": {"events": {"type": "array", "minItems": 1, "items": event}},
            "required": ["events"],
            "additionalProperties": False,
        }
    )


EVENTS = VersionedSchema(
    [
        (Version(2, 1), _schema(list(_NETWORK))),
        *(
            (Version(2, minor), _schema([*_NETWORK, *(name for since, name in _ADDED if since <= minor)]))
            for minor, _ in _ADDED
        ),
    ]
)
