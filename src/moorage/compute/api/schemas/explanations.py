"""The body of an explanation: of a server's, what bears on where it can go."""

from moorage.compute.api.schemas.servers import HINTS
from moorage.wire.body import Schema

_TEXT = {"type": "string", "minLength": 1, "maxLength": 255}
_SERVER = {
    "type": "object",
    "properties": {
        "flavorRef": {"type": ["string", "integer"], "minLength": 1},
        "imageRef": {"type": "string", "maxLength": 255},
        "availability_zone": _TEXT,
        "host": _TEXT,
        "hypervisor_hostname": _TEXT,
    },
    "required": ["flavorRef"],
    "additionalProperties": False,
}
EXPLAINED = Schema(
    {
        "type": "object",
        "properties": {"server": _SERVER, "os:scheduler_hints": HINTS},
        "required": ["server"],
        "additionalProperties": False,
    }
)
