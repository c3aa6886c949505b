"""Schemas of servers and of explanations. As in Nova, attributes of later microversions are refused."""

from moorage.compute.api.schemas.flavors import NAME
from moorage.compute.model.servers import MAX_INTERFACES
from moorage.wire.body import Schema, VersionedSchema
from moorage.wire.microversion import Version

_TEXT = {"type": "string"}
_FLAG = {"type": ["boolean", "string"]}
_COUNT = {"type": ["integer", "string"], "pattern": "^[0-9]+$", "minimum": 1}
#: An empty text removes the address.
IPV4 = {"type": "string", "anyOf": [{"format": "ipv4"}, {"maxLength": 0}]}
IPV6 = {"type": "string", "anyOf": [{"format": "ipv6"}, {"maxLength": 0}]}
_BASE64 = r"^(?:[A-Za-z0-9+/\s]*={0,2}\s*)$"
METADATA_ITEMS = {
    "type": "object",
    "patternProperties": {"^[a-zA-Z0-9-_:. ]{1,255}$": {"type": "string", "maxLength": 255}},
    "additionalProperties": False,
}
HOSTNAME = {"type": "string", "pattern": r"^[a-zA-Z0-9]+[a-zA-Z0-9-]*[a-zA-Z0-9]+$", "minLength": 2, "maxLength": 63}
_LABEL = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
#: Since 2.94 also a name with a domain.
FQDN = {"type": "string", "pattern": rf"^{_LABEL}(?:\.{_LABEL})*$", "minLength": 2, "maxLength": 255}
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
_TAG = {"type": "string", "minLength": 1, "maxLength": 60, "pattern": "^[^,/]*$"}
_UUID = {"type": "string", "format": "uuid"}
_NETWORK = {
    "uuid": _TEXT,
    "port": {"oneOf": [{"type": "string", "format": "uuid"}, {"type": "null"}]},
    "fixed_ip": {"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]},
}


def _networks(**more: object) -> dict[str, object]:
    """A list of networks and ports; `more`: properties of each."""
    one = {"type": "object", "properties": _NETWORK | more, "additionalProperties": False}
    return {"type": "array", "items": one, "maxItems": MAX_INTERFACES}


def _choice(networks: dict[str, object]) -> dict[str, object]:
    return {"oneOf": [networks, {"enum": ["none", "auto"]}]}


#: Accepted from 2.1 on.
_FIRST: dict[str, object] = {
    "name": NAME,
    "imageRef": _TEXT,
    "flavorRef": {"type": ["string", "integer"], "minLength": 1},
    "adminPass": _TEXT,
    "metadata": METADATA_ITEMS,
    "networks": _networks(),
    "OS-DCF:diskConfig": {"enum": ["AUTO", "MANUAL"]},
    "accessIPv4": IPV4,
    "accessIPv6": IPV6,
    "availability_zone": {"type": ["string", "null"], "minLength": 1, "maxLength": 255},
    "block_device_mapping_v2": {"type": "array", "items": _BLOCK_DEVICE},
    "config_drive": {"type": ["boolean", "string", "null"]},
    "key_name": {"type": ["string", "null"], "minLength": 1, "maxLength": 255},
    "min_count": _COUNT,
    "max_count": _COUNT,
    "return_reservation_id": _FLAG,
    "security_groups": {"type": "array", "items": {"type": "object", "properties": {"name": _TEXT}}},
    "user_data": {"type": ["string", "null"], "maxLength": 65535, "pattern": _BASE64},
}
_TAGS = {"type": "array", "items": _TAG, "maxItems": 50, "uniqueItems": True}
TAG = Schema(_TAG)
TAGS = Schema({"type": "object", "properties": {"tags": _TAGS}, "required": ["tags"], "additionalProperties": False})
_ADDED: list[tuple[Version, dict[str, object]]] = [
    (Version(2, 19), {"description": {"type": ["string", "null"], "maxLength": 255}}),
    (Version(2, 32), {"networks": _networks(tag=_TAG)}),
    (Version(2, 37), {"networks": _choice(_networks(uuid=_UUID))}),
    (Version(2, 42), {"networks": _choice(_networks(uuid=_UUID, tag=_TAG))}),
    (Version(2, 52), {"tags": _TAGS}),
    (Version(2, 74), {"host": NAME, "hypervisor_hostname": NAME}),
    (Version(2, 90), {"hostname": HOSTNAME}),
    (Version(2, 94), {"hostname": FQDN}),
]
_SERVERS = {"type": "array", "items": {"type": "string", "format": "uuid"}}
#: Only hints that are used here; as in Nova, others may have any value.
HINTS = {
    "type": "object",
    "properties": {
        "same_host": {"oneOf": [_TEXT, _SERVERS]},
        "different_host": {"oneOf": [{"type": "string", "format": "uuid"}, _SERVERS]},
    },
}


def _create(properties: dict[str, object], since: Version) -> Schema:
    required = ["name", "flavorRef"] + (["networks"] if since >= (2, 37) else [])
    server = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return Schema(
        {
            "type": "object",
            "properties": {"server": server, "os:scheduler_hints": HINTS, "OS-SCH-HNT:scheduler_hints": HINTS},
            "required": ["server"],
            "additionalProperties": False,
        }
    )


def _versions() -> VersionedSchema:
    properties = dict(_FIRST)
    rows: list[tuple[Version, Schema | None]] = [(Version(2, 1), _create(dict(properties), Version(2, 1)))]
    for since, added in _ADDED:
        properties |= added
        rows.append((since, _create(dict(properties), since)))
    return VersionedSchema(rows)


CREATE = _versions()


def _update(**more: object) -> Schema:
    properties = {
        "name": NAME,
        "OS-DCF:diskConfig": {"enum": ["AUTO", "MANUAL"]},
        "accessIPv4": IPV4,
        "accessIPv6": IPV6,
    }
    server = {"type": "object", "properties": properties | more, "additionalProperties": False}
    return Schema(
        {"type": "object", "properties": {"server": server}, "required": ["server"], "additionalProperties": False}
    )


UPDATE = VersionedSchema(
    [
        (Version(2, 1), _update()),
        (Version(2, 19), _update(description=_ADDED[0][1]["description"])),
        (Version(2, 90), _update(description=_ADDED[0][1]["description"], hostname=HOSTNAME)),
        (Version(2, 94), _update(description=_ADDED[0][1]["description"], hostname=FQDN)),
    ]
)


def _attach_interface(**more: object) -> Schema:
    address = {"type": "string", "anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]}
    fixed_ip = {
        "type": "object",
        "properties": {"ip_address": address},
        "required": ["ip_address"],
        "additionalProperties": False,
    }
    properties = {
        "net_id": _UUID,
        "port_id": _UUID,
        "fixed_ips": {"type": "array", "items": fixed_ip, "minItems": 1, "maxItems": 1},
    }
    attachment = {"type": "object", "properties": properties | more, "additionalProperties": False}
    return Schema({"type": "object", "properties": {"interfaceAttachment": attachment}, "additionalProperties": False})


ATTACH_INTERFACE = VersionedSchema(
    [(Version(2, 1), _attach_interface()), (Version(2, 49), _attach_interface(tag=_TAG))]
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


_NONEMPTY_TEXT = {"type": "string", "minLength": 1, "maxLength": 255}
_EXPLAINED_SERVER = {
    "type": "object",
    "properties": {
        "flavorRef": {"type": ["string", "integer"], "minLength": 1},
        "imageRef": {"type": "string", "maxLength": 255},
        "availability_zone": _NONEMPTY_TEXT,
        "host": _NONEMPTY_TEXT,
        "hypervisor_hostname": _NONEMPTY_TEXT,
    },
    "required": ["flavorRef"],
    "additionalProperties": False,
}
EXPLAIN = Schema(
    {
        "type": "object",
        "properties": {"server": _EXPLAINED_SERVER, "os:scheduler_hints": HINTS},
        "required": ["server"],
        "additionalProperties": False,
    }
)
