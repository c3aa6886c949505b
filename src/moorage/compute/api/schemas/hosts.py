"""Schemas of services and aggregates, of the agents' API, and of orders about provider configuration."""

from moorage.compute.api.schemas.flavors import NAME
from moorage.compute.model.observed_state import POWERS
from moorage.wire.body import Schema

_ZONE = {"type": ["string", "null"], "minLength": 1, "maxLength": 255, "pattern": "^[^:]*$"}
_HOST = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[a-zA-Z0-9-._]*$"}


def _object(properties: dict[str, object], *required: str, more: bool = False) -> dict[str, object]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": more,
    }


SERVICE = Schema(
    _object(
        {
            "status": {"type": "string", "enum": ["enabled", "disabled"]},
            "disabled_reason": {"type": "string", "minLength": 1, "maxLength": 255},
            "forced_down": {"type": ["boolean", "string"]},
        }
    )
)

#: Below 2.53.
SERVICE_NAMED = Schema(
    _object(
        {
            "host": _HOST,
            "binary": {"type": "string", "minLength": 1, "maxLength": 255},
            "disabled_reason": {"type": "string", "minLength": 1, "maxLength": 255},
            "forced_down": {"type": ["boolean", "string"]},
        },
        "host",
        "binary",
    )
)

AGGREGATE_CREATE = Schema(
    _object({"aggregate": _object({"name": NAME, "availability_zone": _ZONE}, "name")}, "aggregate")
)
AGGREGATE_UPDATE = Schema(
    _object(
        {"aggregate": _object({"name": NAME, "availability_zone": _ZONE}) | {"minProperties": 1}},
        "aggregate",
    )
)
_METADATA = {
    "type": "object",
    "patternProperties": {"^[a-zA-Z0-9-_:. ]{1,255}$": {"type": ["string", "null"], "maxLength": 255}},
    "additionalProperties": False,
}
AGGREGATE_ACTION = Schema(
    _object(
        {
            "add_host": _object({"host": _HOST}, "host"),
            "remove_host": _object({"host": _HOST}, "host"),
            "set_metadata": _object({"metadata": _METADATA}, "metadata"),
        }
    )
    | {"minProperties": 1, "maxProperties": 1}
)

_COUNT = {"type": "integer", "minimum": 0, "maximum": 2147483647}
REGISTER = Schema(
    _object(
        {
            "provider_uuid": {"type": "string", "format": "uuid"},
            "hypervisor_type": {"type": "string", "minLength": 1, "maxLength": 255},
            "hypervisor_version": {"type": ["integer", "string"]},
            "host_ip": {"type": "string", "maxLength": 255},
            "vcpus": _COUNT,
            "memory_mb": _COUNT,
            "local_gb": _COUNT,
            "devices": _COUNT,
            "cpu_info": {"type": "object"},
            "capabilities": {"type": "array", "items": {"type": "string"}},
        },
        "provider_uuid",
        "hypervisor_type",
        "vcpus",
        "memory_mb",
        "local_gb",
        more=True,
    )
)

#: A guest has few interfaces; of the addresses of one, its host reports few.
_LEARNED = {
    "type": "object",
    "maxProperties": 64,
    "propertyNames": {"pattern": "^[0-9a-f]{2}(:[0-9a-f]{2}){5}$"},
    "additionalProperties": {"type": "array", "maxItems": 8, "items": {"type": "string", "maxLength": 60}},
}

DOMAIN_REPORT = Schema(
    _object(
        {
            "domains": {
                "type": "object",
                "additionalProperties": _object(
                    {"mark": {"type": "string"}, "power": {"type": "string", "enum": sorted(POWERS)}}, "mark", "power"
                ),
            },
            "consoles": {"type": "object", "additionalProperties": {"type": "string"}},
            #: {server id: {MAC address: addresses that a DHCP server gave it}}
            "addresses": {"type": "object", "additionalProperties": _LEARNED},
        },
        "domains",
    )
)


#: A failed device in words; a server has few of them.
_DEVICES = {"type": "array", "minItems": 1, "maxItems": 64, "items": {"type": "string", "maxLength": 200}}

DEVICE_FAULTS = Schema(_object({"servers": {"type": "object", "additionalProperties": _DEVICES}}, "servers"))


#: The device becomes a part of the port in the network service.
PORT_DEVICE = Schema(
    _object(
        {
            "address": {"type": "string", "maxLength": 12, "pattern": r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$"},
            "physical_network": {"type": "string", "minLength": 1, "maxLength": 64},
        },
        "address",
        "physical_network",
    )
)


#: Maximum number of files, and of characters in one file; no host needs as many.
MAX_FILES, MAX_FILE_CHARACTERS = 50, 1 << 18

PROVIDER_CONFIG_ORDER = Schema(
    {
        "type": "object",
        "properties": {
            "do": {"enum": ["show", "plan", "apply"]},
            "files": {
                "type": "object",
                "propertyNames": {"pattern": r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}\.yaml$"},
                "additionalProperties": {"type": "string", "maxLength": MAX_FILE_CHARACTERS},
                "maxProperties": MAX_FILES,
            },
        },
        "required": ["do"],
        "additionalProperties": False,
    }
)
