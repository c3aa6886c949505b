"""The bodies that the network service accepts. Attributes of Neutron that we do not have are refused by their name."""

from typing import Any

from moorage.core.ids import is_uuid
from moorage.wire.body import Schema

Document = dict[str, Any]

_NAME: Document = {"type": "string", "maxLength": 255}
_ID: Document = {"type": "string", "format": "uuid"}
_PROJECT: Document = {"type": "string", "maxLength": 255, "minLength": 1}
_ADDRESS: Document = {"type": "string", "maxLength": 60}
_ALWAYS: Document = {"const": True}
_NEVER: Document = {"const": False}
_NOTHING: Document = {"type": ["array", "null"], "maxItems": 0}


def _schema(kind: str, properties: Document, required: list[str]) -> Schema:
    inner = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    document = {"type": "object", "properties": {kind: inner}, "required": [kind], "additionalProperties": False}
    return Schema(document, formats={"uuid": is_uuid})


def describe_fault(error: Any) -> str:
    """The message for a body that a schema refuses."""
    place = ".".join(str(part) for part in error.absolute_path) or "the body"
    if error.validator == "additionalProperties":
        names = sorted(set(error.instance) - set(error.schema["properties"]))
        return (
            f"Attribute '{names[0]}' of {place} is not offered by this network service; leave it out. Offered are "
            f"{', '.join(sorted(error.schema['properties']))}."
        )
    if error.validator in ("const", "maxItems") and error.validator_value in (True, False, 0):
        return f"Invalid input for {place}: this network service has no other value than its default; leave it out."
    return f"Invalid input for {place}. Reason: {error.message}."


_PROJECTS: Document = {"project_id": _PROJECT, "tenant_id": _PROJECT}

NEW_NETWORK = _schema(
    "network",
    {
        "name": _NAME,
        "description": _NAME,
        "shared": {"type": "boolean"},
        **_PROJECTS,
        "provider:network_type": {"enum": ["flat", "vlan", "local"]},
        "provider:physical_network": {"type": "string", "maxLength": 50},
        # openstackclient sends the number as a text.
        "provider:segmentation_id": {"type": ["integer", "string", "null"], "pattern": "^[0-9]{1,4}$"},
        "admin_state_up": _ALWAYS,
        "port_security_enabled": _ALWAYS,
        "router:external": _NEVER,
        "is_default": _NEVER,
    },
    [],
)

CHANGED_NETWORK = _schema(
    "network",
    {"name": _NAME, "description": _NAME, "shared": {"type": "boolean"}, "admin_state_up": _ALWAYS},
    [],
)

_POOL: Document = {
    "type": "object",
    "properties": {"start": _ADDRESS, "end": _ADDRESS},
    "required": ["start", "end"],
    "additionalProperties": False,
}

NEW_SUBNET = _schema(
    "subnet",
    {
        "network_id": _ID,
        "name": _NAME,
        **_PROJECTS,
        "cidr": {"type": "string", "maxLength": 64},
        "ip_version": {"enum": [4, 6, "4", "6"]},
        "gateway_ip": {"type": ["string", "null"], "maxLength": 60},
        "dns_nameservers": {"type": ["array", "null"], "items": _ADDRESS, "maxItems": 20},
        "allocation_pools": {"type": ["array", "null"], "items": _POOL, "maxItems": 100},
        "enable_dhcp": {"type": "boolean"},
        "host_routes": _NOTHING,
        "service_types": _NOTHING,
    },
    ["network_id", "cidr"],
)

CHANGED_SUBNET = _schema("subnet", {"name": _NAME}, [])

_FIXED_IP: Document = {
    "type": "object",
    "properties": {"subnet_id": _ID, "ip_address": _ADDRESS},
    "minProperties": 1,
    "additionalProperties": False,
}

NEW_PORT = _schema(
    "port",
    {
        "network_id": _ID,
        "name": _NAME,
        "description": _NAME,
        **_PROJECTS,
        "mac_address": {"type": "string", "pattern": "^[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}$"},
        "fixed_ips": {"type": "array", "items": _FIXED_IP, "maxItems": 5},
        "admin_state_up": _ALWAYS,
        "port_security_enabled": _ALWAYS,
        "security_groups": _NOTHING,
        "allowed_address_pairs": _NOTHING,
        "binding:vnic_type": {"const": "normal"},
    },
    ["network_id"],
)

CHANGED_PORT = _schema("port", {"name": _NAME, "description": _NAME, "admin_state_up": _ALWAYS}, [])

_SERVER_PORT: Document = {
    "type": "object",
    "properties": {
        "id": _ID,
        "project_id": _PROJECT,
        "server_id": _ID,
        "host": {"type": "string", "maxLength": 255},
        "network_id": {"anyOf": [_ID, {"type": "null"}]},
        "address": {"anyOf": [_ADDRESS, {"type": "null"}]},
    },
    "required": ["id", "project_id", "server_id", "host"],
    "additionalProperties": False,
}

#: Maximum number of ports of a request of the compute service.
MAX_SERVER_PORTS = 500
#: Maximum number of addresses that a host reports of a port.
MAX_LEARNED_ADDRESSES = 8

SERVER_PORTS = Schema(
    {
        "type": "object",
        "properties": {"ports": {"type": "array", "items": _SERVER_PORT, "minItems": 1, "maxItems": MAX_SERVER_PORTS}},
        "required": ["ports"],
        "additionalProperties": False,
    },
    formats={"uuid": is_uuid},
)

_LEARNED: Document = {
    "type": "object",
    "properties": {
        "port_id": _ID,
        "server_id": _ID,
        "host": {"type": "string", "maxLength": 255},
        "mac": {"type": "string", "maxLength": 17},
        "addresses": {"type": "array", "items": _ADDRESS, "maxItems": MAX_LEARNED_ADDRESSES},
    },
    "required": ["port_id", "server_id", "host", "mac", "addresses"],
    "additionalProperties": False,
}

LEARNED_ADDRESSES = Schema(
    {
        "type": "object",
        "properties": {"ports": {"type": "array", "items": _LEARNED, "minItems": 1, "maxItems": MAX_SERVER_PORTS}},
        "required": ["ports"],
        "additionalProperties": False,
    },
    formats={"uuid": is_uuid},
)
