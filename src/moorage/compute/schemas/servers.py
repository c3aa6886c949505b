"""Bodies of servers. What came with a microversion is refused below it, as in Nova."""

from typing import Any

from moorage.compute.schemas.flavors import NAME
from moorage.wire.body import Schema, Versioned
from moorage.wire.microversion import Version

_TEXT = {"type": "string"}
_FLAG = {"type": ["boolean", "string"]}
_COUNT = {"type": ["integer", "string"], "pattern": "^[0-9]+$", "minimum": 1}
METADATA_ITEMS = {
    "type": "object",
    "patternProperties": {"^[a-zA-Z0-9-_:. ]{1,255}$": {"type": "string", "maxLength": 255}},
    "additionalProperties": False,
}
_HOSTNAME = {"type": "string", "pattern": r"^[a-zA-Z0-9]+[a-zA-Z0-9-]*[a-zA-Z0-9]+$", "minLength": 2, "maxLength": 63}
_BLOCK_DEVICE = {
    "type": "object",
    "properties": {
        "uuid": _TEXT,
        "boot_index": {"type": ["integer", "string", "null"]},
        "source_type": {"enum": ["volume", "image", "snapshot", "blank"]},
        "destination_type": {"enum": ["volume", "local"]},
        "delete_on_termination": _FLAG,
        "volume_size": {"type": ["integer", "string", "null"]},
        "device_name": {"type": ["string", "null"]},
        "device_type": {"type": ["string", "null"]},
        "disk_bus": {"type": ["string", "null"]},
        "guest_format": {"type": ["string", "null"]},
        "no_device": {},
        "tag": _TEXT,
        "volume_type": {"type": ["string", "null"]},
    },
    "additionalProperties": False,
}
_NETWORK = {
    "type": "object",
    "properties": {"uuid": _TEXT, "port": {"type": ["string", "null"]}, "fixed_ip": _TEXT, "tag": _TEXT},
    "additionalProperties": False,
}
#: Taken from 2.1 on.
_FIRST: dict[str, Any] = {
    "name": NAME,
    "imageRef": _TEXT,
    "flavorRef": {"type": ["string", "integer"], "minLength": 1},
    "adminPass": _TEXT,
    "metadata": METADATA_ITEMS,
    "networks": {"type": "array", "items": _NETWORK},
    "OS-DCF:diskConfig": {"enum": ["AUTO", "MANUAL"]},
    "accessIPv4": _TEXT,
    "accessIPv6": _TEXT,
    "availability_zone": {"type": ["string", "null"], "minLength": 1, "maxLength": 255},
    "block_device_mapping_v2": {"type": "array", "items": _BLOCK_DEVICE},
    "config_drive": {"type": ["boolean", "string", "null"]},
    "key_name": {"type": ["string", "null"], "minLength": 1, "maxLength": 255},
    "min_count": _COUNT,
    "max_count": _COUNT,
    "return_reservation_id": _FLAG,
    "security_groups": {"type": "array", "items": {"type": "object", "properties": {"name": _TEXT}}},
    "user_data": {"type": ["string", "null"], "maxLength": 65535},
}
_NETWORKS = {"oneOf": [{"type": "array", "items": _NETWORK}, {"enum": ["none", "auto"]}]}
_TAGS = {
    "type": "array",
    "items": {"type": "string", "minLength": 1, "maxLength": 60, "pattern": "^[^,/]*$"},
    "maxItems": 50,
    "uniqueItems": True,
}
_ADDED: list[tuple[Version, dict[str, Any]]] = [
    (Version(2, 19), {"description": {"type": ["string", "null"], "maxLength": 255}}),
    (Version(2, 37), {"networks": _NETWORKS}),
    (Version(2, 52), {"tags": _TAGS}),
    (Version(2, 74), {"host": NAME, "hypervisor_hostname": NAME}),
    (Version(2, 90), {"hostname": _HOSTNAME}),
]
_HINTS = {"type": "object"}


def _create(properties: dict[str, Any], since: Version) -> Schema:
    required = ["name", "flavorRef"] + (["networks"] if since >= (2, 37) else [])
    server = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return Schema(
        {
            "type": "object",
            "properties": {"server": server, "os:scheduler_hints": _HINTS, "OS-SCH-HNT:scheduler_hints": _HINTS},
            "required": ["server"],
            "additionalProperties": False,
        }
    )


def _versions() -> Versioned:
    properties = dict(_FIRST)
    rows: list[tuple[Version, Schema | None]] = [(Version(2, 1), _create(dict(properties), Version(2, 1)))]
    for since, added in _ADDED:
        properties |= added
        rows.append((since, _create(dict(properties), since)))
    return Versioned(rows)


CREATE = _versions()


def _update(**more: Any) -> Schema:
    properties = {
        "name": NAME,
        "OS-DCF:diskConfig": {"enum": ["AUTO", "MANUAL"]},
        "accessIPv4": _TEXT,
        "accessIPv6": _TEXT,
    }
    server = {"type": "object", "properties": properties | more, "additionalProperties": False}
    return Schema(
        {"type": "object", "properties": {"server": server}, "required": ["server"], "additionalProperties": False}
    )


UPDATE = Versioned(
    [
        (Version(2, 1), _update()),
        (Version(2, 19), _update(description=_ADDED[0][1]["description"])),
        (Version(2, 90), _update(description=_ADDED[0][1]["description"], hostname=_HOSTNAME)),
    ]
)
METADATA = Schema(
    {
        "type": "object",
        "properties": {"metadata": METADATA_ITEMS},
        "required": ["metadata"],
        "additionalProperties": False,
    }
)
METADATA_ITEM = Schema(
    {
        "type": "object",
        "properties": {"meta": METADATA_ITEMS | {"minProperties": 1, "maxProperties": 1}},
        "required": ["meta"],
        "additionalProperties": False,
    }
)
ACTION = Schema({"type": "object"})

#: Arguments of actions, by the key in the body; keys without a row take null or an empty object.
ACTION_ARGUMENTS = {
    "reboot": Schema(
        {
            "type": "object",
            "properties": {"type": {"enum": ["HARD", "Hard", "hard", "SOFT", "Soft", "soft"]}},
            "required": ["type"],
            "additionalProperties": False,
        }
    ),
    "lock": Schema(
        {
            "type": ["object", "null"],
            "properties": {"locked_reason": {"type": "string", "minLength": 1, "maxLength": 255}},
            "additionalProperties": False,
        }
    ),
    "os-getConsoleOutput": Schema(
        {
            "type": "object",
            "properties": {"length": {"type": ["integer", "string", "null"], "pattern": "^-?[0-9]+$", "minimum": -1}},
            "additionalProperties": False,
        }
    ),
    "os-resetState": Schema(
        {
            "type": "object",
            "properties": {"state": {"enum": ["active", "error"]}},
            "required": ["state"],
            "additionalProperties": False,
        }
    ),
}
