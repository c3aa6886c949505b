"""The wire format of reservations: the keys of all types, and those of each type."""

from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Literal, TypedDict, cast

import orjson

from moorage.core.errors import Invalid
from moorage.core.json import Json
from moorage.reservation.api.schemas.common import encode_time, peer_wording
from moorage.reservation.capacity.resource_types.floating_ip import check_amount
from moorage.reservation.capacity.resource_types.physical_host import check_range
from moorage.reservation.model.leases import Reservation
from moorage.reservation.model.reservation_requests import (
    BEFORE_END,
    FLAVOR_INSTANCE,
    PHYSICAL_HOST,
    RESOURCE_ANY,
    VIRTUAL_FLOATING_IP,
    VIRTUAL_INSTANCE,
    AnyRequest,
    FlavorRequest,
    FloatingIpRequest,
    InstanceRequest,
    ReservationChange,
    Size,
    UnresolvedFlavorRequest,
    UnresolvedRequest,
    WholeHostRequest,
)
from moorage.wire.body import Schema

_LARGEST = 2**31 - 1

#: Of a number that is sent as text.
_MAX_DIGITS = 9

_INSTANCE = {
    "resource_type": {"type": "string"},
    # The compute service refuses flavors with less.
    "vcpus": {"type": "integer", "minimum": 1, "maximum": _LARGEST},
    "memory_mb": {"type": "integer", "minimum": 1, "maximum": _LARGEST},
    "disk_gb": {"type": "integer", "minimum": 0, "maximum": _LARGEST},
    "amount": {"type": "integer", "minimum": 1, "maximum": 100_000},
    "affinity": {"type": ["string", "boolean", "integer", "null"]},
    "resource_properties": {"type": ["string", "null"]},
}

_INSTANCE_CREATE = Schema(
    {
        "type": "object",
        "required": ["vcpus", "memory_mb", "disk_gb", "amount"],
        "properties": _INSTANCE,
        "additionalProperties": False,
    }
)

_FLAVOR = {
    "resource_type": {"type": "string"},
    "flavor_id": {
        "type": ["string", "integer"],
        "minLength": 1,
        "maxLength": 255,
    },  # clients send an id of digits as a number
    "amount": _INSTANCE["amount"],
    "affinity": _INSTANCE["affinity"],
    "resource_properties": _INSTANCE["resource_properties"],
}

_FLAVOR_CREATE = Schema(
    {"type": "object", "required": ["flavor_id", "amount"], "properties": _FLAVOR, "additionalProperties": False}
)

_HOST = {
    "resource_type": {"type": "string"},
    # Clients may send text. `_count` refuses invalid values, with the peer's message.
    "min": {"type": ["integer", "string"]},
    "max": {"type": ["integer", "string"]},
    "hypervisor_properties": {"type": ["string", "null"]},
    "resource_properties": {"type": ["string", "null"]},
    "before_end": {"type": ["string", "null"]},
}

_HOST_CREATE = Schema(
    {"type": "object", "required": ["min", "max"], "properties": _HOST, "additionalProperties": False}
)

_IMAGE = "^([0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12})?$"
#: A UUID in any spelling, or the function's trait.
_FUNCTION = "^[A-Za-z0-9_-]{0,255}$"
_NAMES = {"pattern": "^[A-Z0-9_]{1,240}$"}

_ANY = {
    "resource_type": {"type": "string"},
    "resources": {
        "type": "object",
        "propertyNames": _NAMES,
        "additionalProperties": {"type": "integer", "minimum": 1, "maximum": _LARGEST},
        "minProperties": 1,
        "maxProperties": 50,
    },
    "traits": {
        "type": "object",
        "propertyNames": _NAMES,
        "additionalProperties": {"enum": ["required", "forbidden"]},
        "maxProperties": 50,
    },
    "amount": _INSTANCE["amount"],
    "affinity": _INSTANCE["affinity"],
    "hypervisor_properties": _HOST["hypervisor_properties"],
    "resource_properties": _HOST["resource_properties"],
    "bitstream_id": {"type": "string", "pattern": _IMAGE},
    "function_id": {"type": "string", "pattern": _FUNCTION},
    "function_name": {"type": "string", "maxLength": 255, "pattern": "^[^\\x00-\\x1f\\x7f]*$"},
}

_ANY_CREATE = Schema(
    {"type": "object", "required": ["resources", "amount"], "properties": _ANY, "additionalProperties": False}
)

_FLOATING_IP = {
    "resource_type": {"type": "string"},
    "network_id": {"type": "string", "minLength": 1, "maxLength": 255},
    "amount": {"type": ["integer", "string"], "minimum": 1, "maximum": 10_000},  # the peer accepts numbers as text
    "required_floatingips": {"type": "array", "items": {"type": "string"}, "maxItems": 1000},
}

_FLOATING_IP_CREATE = Schema(
    {
        "type": "object",
        "required": ["network_id", "amount"],
        "properties": _FLOATING_IP,
        "additionalProperties": False,
    }
)

#: Types that the peer does not have.
_OURS = (RESOURCE_ANY,)


def _described(kind: str, schema: Schema) -> str:
    needed = schema.document["required"]
    names = (
        name if name in needed else f"{name}?" for name in schema.document["properties"] if name != "resource_type"
    )
    return f"`{kind}`{' (from 1.1 on)' if kind in _OURS else ''}: {', '.join(names)}"


#: For the published document only; the schema of the resource type refuses invalid values.
DESCRIPTION = "Keys for each `resource_type`; a ? marks optional keys. " + "; ".join(
    _described(kind, schema)
    for kind, schema in (
        (VIRTUAL_INSTANCE, _INSTANCE_CREATE),
        (FLAVOR_INSTANCE, _FLAVOR_CREATE),
        (PHYSICAL_HOST, _HOST_CREATE),
        (RESOURCE_ANY, _ANY_CREATE),
        (VIRTUAL_FLOATING_IP, _FLOATING_IP_CREATE),
    )
)

#: Keys of answers that no update changes, so a reservation that was read can be sent back. Their values are ignored.
_FIXED = (
    "lease_id",
    "resource_id",
    "status",
    "missing_resources",
    "resources_changed",
    "created_at",
    "updated_at",
    "aggregate_id",
    "server_group_id",
)

_UPDATE = Schema(
    {
        "type": "object",
        "required": ["id"],
        "properties": {
            **{key: {} for key in _FIXED},
            "id": {"type": "string"},
            **_FLOATING_IP,
            **_INSTANCE,
            **_FLAVOR,
            **_HOST,
            **_ANY,
        },
        "additionalProperties": False,
    }
)

_TRUE = {"1", "t", "true", "on", "y", "yes"}
_FALSE = {"0", "f", "false", "off", "n", "no"}


class ReservationBody(TypedDict, total=False):
    """A reservation in a request; the schema of its type tells which keys it has. Numbers may be texts."""

    id: str
    resource_type: str
    vcpus: int | str
    memory_mb: int | str
    disk_gb: int | str
    amount: int | str
    affinity: bool | str | None
    resource_properties: str
    min: int | str
    max: int | str
    hypervisor_properties: str
    before_end: str
    flavor_id: int | str
    resources: dict[str, int | str]
    traits: dict[str, str]
    bitstream_id: str
    function_id: str
    function_name: str
    network_id: str
    required_floatingips: list[str]


def decode_create(body: ReservationBody, *, as_peer: bool = False) -> UnresolvedRequest:
    """Raises `Invalid`. `as_peer`: accept only the peer's types, and ignore unknown keys, as in microversion 1.0."""
    kind = body.get("resource_type")
    if kind is None:
        raise Invalid("Missing parameter resource_type")
    if kind not in _DECODERS:
        raise Invalid(f"The {kind} resource type is not supported")
    if as_peer and kind in _OURS:
        raise Invalid(
            f"{kind} reservations require microversion 1.1: send the header OpenStack-API-Version: reservation 1.1"
        )
    schema, decode = _DECODERS[kind]
    accepted = _accepted(body, schema, as_peer=as_peer)
    schema.validate(accepted, peer_wording)
    return decode(accepted)


def decode_change(body: ReservationBody, *, as_peer: bool = False) -> ReservationChange:
    """Raises `Invalid`. `as_peer`: ignore unknown keys, as in microversion 1.0."""
    if "id" not in body:
        raise Invalid("Missing parameter reservation ID")
    body = _accepted(body, _UPDATE, as_peer=as_peer)
    _UPDATE.validate(body, peer_wording)
    return ReservationChange(
        id=body["id"],
        resource_type=body.get("resource_type"),
        vcpus=_number(body, "vcpus"),
        memory_mb=_number(body, "memory_mb"),
        disk_gb=_number(body, "disk_gb"),
        amount=_number(body, "amount"),
        affinity=decode_affinity(body.get("affinity")),
        affinity_given="affinity" in body,
        resource_properties=body.get("resource_properties"),
        min=_count(body, "min") if "min" in body else None,
        max=_count(body, "max") if "max" in body else None,
        hypervisor_properties=body.get("hypervisor_properties"),
        before_end=_before_end(body) if "before_end" in body else None,
        flavor_id=str(body["flavor_id"]) if "flavor_id" in body else None,
        resources=_amounts(body) if "resources" in body else None,
        traits=body.get("traits"),
        bitstream_id=body.get("bitstream_id"),
        function_id=body.get("function_id"),
        function_name=body.get("function_name"),
        network_id=body.get("network_id"),
        required_floatingips=_addresses(body) if "required_floatingips" in body else None,
        as_peer=as_peer,
    )


def _accepted(body: ReservationBody, schema: Schema, *, as_peer: bool) -> ReservationBody:
    """The body with a number for an `amount` of digits, which the peer accepts. `as_peer`: without unknown keys."""
    accepted: dict[str, object] = dict(body)
    if as_peer:
        accepted = {name: value for name, value in accepted.items() if name in schema.document["properties"]}
    amount = accepted.get("amount")
    if isinstance(amount, str) and amount.isascii() and amount.isdecimal() and len(amount) <= _MAX_DIGITS:
        accepted["amount"] = int(amount)
    return cast(ReservationBody, accepted)


def _number(body: ReservationBody, name: Literal["vcpus", "memory_mb", "disk_gb", "amount"]) -> int | None:
    return int(body[name]) if name in body else None


def encode(reservation: Reservation) -> dict[str, Json]:
    return {
        "id": reservation.id,
        "lease_id": reservation.lease_id,
        "resource_id": reservation.resource_id,
        "resource_type": reservation.resource_type,
        "status": reservation.status,
        "missing_resources": reservation.missing_resources,
        "resources_changed": reservation.resources_changed,
        "created_at": encode_time(reservation.created_at),
        "updated_at": encode_time(reservation.updated_at),
        **_shown(reservation),
    }


def decode_affinity(value: object) -> bool | None:
    """Accepts true, false, null and texts for them: clients send the text ``None`` (R15)."""
    text = str(value).strip().lower()
    if value is None or text == "none":
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise Invalid("Malformed parameter affinity (must be a bool value or None)")


def _decode_instance(body: ReservationBody) -> InstanceRequest:
    return InstanceRequest(
        size=Size(int(body["vcpus"]), int(body["memory_mb"]), int(body["disk_gb"])),
        amount=int(body["amount"]),
        affinity=decode_affinity(body.get("affinity")),
        resource_properties=body.get("resource_properties") or "",
    )


def _decode_flavor(body: ReservationBody) -> UnresolvedFlavorRequest:
    return UnresolvedFlavorRequest(
        str(body["flavor_id"]),
        int(body["amount"]),
        decode_affinity(body.get("affinity")),
        body.get("resource_properties") or "",
    )


def _decode_host(body: ReservationBody) -> WholeHostRequest:
    request = WholeHostRequest(
        _count(body, "min"),
        _count(body, "max"),
        body.get("hypervisor_properties") or "",
        body.get("resource_properties") or "",
        _before_end(body),
    )
    check_range(request.least, request.most)
    return request


def _decode_any(body: ReservationBody) -> AnyRequest:
    return AnyRequest(
        _amounts(body),
        int(body["amount"]),
        body.get("traits", {}),
        decode_affinity(body.get("affinity")),
        body.get("hypervisor_properties") or "",
        body.get("resource_properties") or "",
        body.get("bitstream_id", ""),
        body.get("function_id", ""),
        body.get("function_name", ""),
    )


def _decode_floating_ip(body: ReservationBody) -> FloatingIpRequest:
    amount = _count(body, "amount")
    if amount < 1:
        raise Invalid("amount must be >= 1")
    request = FloatingIpRequest(body["network_id"], amount, _addresses(body))
    check_amount(request)
    return request


def _addresses(body: ReservationBody) -> tuple[str, ...]:
    """The addresses in the spelling of registered ones: an IPv6 address can be written in several ways."""
    try:
        return tuple(dict.fromkeys(str(ip_address(text)) for text in body.get("required_floatingips", ())))
    except ValueError as error:
        raise Invalid(f"Malformed parameter required_floatingips: {error}") from None


def _amounts(body: ReservationBody) -> dict[str, int]:
    return {name: int(amount) for name, amount in body["resources"].items()}


def _count(body: ReservationBody, name: Literal["amount", "max", "min"]) -> int:
    """An integer, which may be sent as text."""
    text = str(body[name])
    if not text.removeprefix("-").isdecimal() or len(text) > _MAX_DIGITS:
        raise Invalid(f"Malformed parameter {name}")
    return int(text)


def _before_end(body: ReservationBody) -> str:
    given = body.get("before_end")
    if given is not None and given not in BEFORE_END:
        raise Invalid("Malformed parameter before_end")
    return "default" if given is None else str(given)


def _shown(reservation: Reservation) -> dict[str, Json]:
    request = reservation.request
    if isinstance(request, WholeHostRequest):
        return {
            "hypervisor_properties": request.hypervisor_properties,
            "resource_properties": request.resource_properties,
            "before_end": request.before_end,
            "min": request.least,
            "max": request.most,
        }
    if isinstance(request, FloatingIpRequest):
        return {
            "network_id": request.network_id,
            "amount": request.amount,
            "required_floatingips": list(request.required),
        }
    if isinstance(request, AnyRequest):
        return {
            "resources": request.resources,
            "traits": request.traits,
            "bitstream_id": request.bitstream_id,
            "function_id": request.function_id,
            "function_name": request.function_name,
            "amount": request.amount,
            "affinity": request.affinity,
            "hypervisor_properties": request.hypervisor_properties,
            "resource_properties": request.resource_properties,
            "flavor_id": reservation.flavor_id,
        }
    if isinstance(request, FlavorRequest):
        vcpus, memory_mb, disk_gb = request.source.vcpus, request.source.memory_mb, request.source.disk_gb
    else:
        vcpus, memory_mb, disk_gb = request.size.vcpus, request.size.memory_mb, request.size.disk_gb
    return {
        "vcpus": vcpus,
        "memory_mb": memory_mb,
        "disk_gb": disk_gb,
        "amount": request.amount,
        "affinity": request.affinity,
        "resource_properties": _properties(request),
        "flavor_id": reservation.flavor_id,
        "aggregate_id": reservation.aggregate_id,
        "server_group_id": reservation.server_group_id,
    }


def _properties(request: InstanceRequest | FlavorRequest) -> str:
    """The reserved flavor as JSON, or the query if there is one, like the peer."""
    if isinstance(request, InstanceRequest) or request.resource_properties:
        return request.resource_properties
    source = request.source
    shown = {
        "id": source.id,
        "name": source.name,
        "vcpus": source.vcpus,
        "ram": source.memory_mb,
        "disk": source.disk_gb,
        "OS-FLV-EXT-DATA:ephemeral": source.ephemeral_gb,
        "swap": source.swap_mb,
        "extra_specs": dict(source.extra_specs),
    }
    return orjson.dumps(shown).decode()


#: {resource type: (the schema of a new reservation of it, the function that decodes one)}
_DECODERS: Mapping[str, tuple[Schema, Callable[[ReservationBody], UnresolvedRequest]]] = {
    VIRTUAL_INSTANCE: (_INSTANCE_CREATE, _decode_instance),
    FLAVOR_INSTANCE: (_FLAVOR_CREATE, _decode_flavor),
    PHYSICAL_HOST: (_HOST_CREATE, _decode_host),
    RESOURCE_ANY: (_ANY_CREATE, _decode_any),
    VIRTUAL_FLOATING_IP: (_FLOATING_IP_CREATE, _decode_floating_ip),
}
