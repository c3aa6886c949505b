"""Leases on the wire."""

from collections.abc import Mapping
from typing import Any

from moorage.core.errors import Invalid, NotBuilt
from moorage.reservation.model import (
    TYPES_NOT_BUILT,
    VIRTUAL_INSTANCE,
    WIRE_EVENTS,
    Event,
    InstanceRequest,
    Lease,
    Reservation,
    Size,
)
from moorage.reservation.schemas.common import decode_date, decode_when, encode_date, encode_time, word
from moorage.reservation.update import LeaseChange, NewLease, ReservationChange
from moorage.wire.body import Schema

_LARGEST = 2**31 - 1

_NAME = {"type": "string", "minLength": 1, "maxLength": 255}
_DATE = {"type": "string"}
#: Stock clients send null for what was not given.
_OPTIONAL_DATE = {"type": ["string", "null"]}
_RESERVATIONS = {"type": "array", "items": {"type": "object"}, "maxItems": 100}

CREATE = Schema(
    {
        "type": "object",
        "required": ["start_date", "end_date", "name"],
        "properties": {
            "name": _NAME,
            "start_date": _DATE,
            "end_date": _DATE,
            "before_end_date": _OPTIONAL_DATE,
            "reservations": _RESERVATIONS,
            "events": {"type": "array"},
        },
        "additionalProperties": False,
    }
)

UPDATE = Schema(
    {
        "type": "object",
        "properties": {
            "name": _NAME,
            "start_date": _DATE,
            "end_date": _DATE,
            "before_end_date": _OPTIONAL_DATE,
            "reservations": _RESERVATIONS,
        },
        "additionalProperties": False,
    }
)

_INSTANCE = {
    "resource_type": {"type": "string"},
    "vcpus": {"type": "integer", "minimum": 0, "maximum": _LARGEST},
    "memory_mb": {"type": "integer", "minimum": 0, "maximum": _LARGEST},
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

_INSTANCE_UPDATE = Schema(
    {
        "type": "object",
        "required": ["id"],
        "properties": {"id": {"type": "string"}, **_INSTANCE},
        "additionalProperties": False,
    }
)

_TRUE = {"1", "t", "true", "on", "y", "yes"}
_FALSE = {"0", "f", "false", "off", "n", "no"}


def decode_create(body: Mapping[str, Any]) -> NewLease:
    if body.get("events"):
        raise Invalid("Events of a lease cannot be given; use before_end_date for the one before its end")
    before_end = body.get("before_end_date")
    return NewLease(
        name=body["name"],
        start_date=decode_when(body["start_date"]),
        end_date=decode_when(body["end_date"]),
        before_end_date=decode_date(before_end) if before_end else None,
        reservations=tuple(_request(each) for each in body.get("reservations", ())),
    )


def decode_update(body: Mapping[str, Any]) -> LeaseChange:
    before_end = body.get("before_end_date")
    return LeaseChange(
        name=body.get("name"),
        start_date=decode_when(body["start_date"]) if "start_date" in body else None,
        end_date=decode_when(body["end_date"]) if "end_date" in body else None,
        before_end_date=decode_date(before_end) if before_end else None,
        reservations=tuple(_change(each) for each in body.get("reservations", ())),
    )


def decode_affinity(value: object) -> bool | None:
    """R15: true, false, null, and every text that means one of them (clients send the text ``None``)."""
    text = str(value).strip().lower()
    if value is None or text == "none":
        return None
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise Invalid("Malformed parameter affinity (must be a bool value or None)")


def encode(lease: Lease) -> dict[str, Any]:
    return {
        "id": lease.id,
        "name": lease.name,
        "user_id": lease.user_id,
        "project_id": lease.project_id,
        "start_date": encode_date(lease.start_date),
        "end_date": encode_date(lease.end_date),
        "trust_id": lease.trust_id,
        "status": lease.status,
        "degraded": lease.degraded,
        "created_at": encode_time(lease.created_at),
        "updated_at": encode_time(lease.updated_at),
        "reservations": [_encode_reservation(each) for each in lease.reservations],
        "events": [_encode_event(each) for each in lease.events if each.type in WIRE_EVENTS],
    }


def _request(body: Mapping[str, Any]) -> InstanceRequest:
    kind = body.get("resource_type")
    if kind is None:
        raise Invalid("Missing parameter resource_type")
    if kind in TYPES_NOT_BUILT:
        raise NotBuilt(f"{kind} reservations are not built yet; this service reserves {VIRTUAL_INSTANCE}")
    if kind != VIRTUAL_INSTANCE:
        raise Invalid(f"The {kind} resource type is not supported")
    _INSTANCE_CREATE.check(body, word)
    return InstanceRequest(
        size=Size(int(body["vcpus"]), int(body["memory_mb"]), int(body["disk_gb"])),
        amount=int(body["amount"]),
        affinity=decode_affinity(body.get("affinity")),
        resource_properties=body.get("resource_properties") or "",
    )


def _change(body: Mapping[str, Any]) -> ReservationChange:
    if "id" not in body:
        raise Invalid("Missing parameter reservation ID")
    _INSTANCE_UPDATE.check(body, word)
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
    )


def _number(body: Mapping[str, Any], name: str) -> int | None:
    return int(body[name]) if name in body else None


def _encode_reservation(reservation: Reservation) -> dict[str, Any]:
    request = reservation.request
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
        "vcpus": request.size.vcpus,
        "memory_mb": request.size.memory_mb,
        "disk_gb": request.size.disk_gb,
        "amount": request.amount,
        "affinity": request.affinity,
        "resource_properties": request.resource_properties,
        "flavor_id": reservation.flavor_id,
        "aggregate_id": reservation.aggregate_id,
        "server_group_id": reservation.server_group_id,
    }


def _encode_event(event: Event) -> dict[str, Any]:
    return {
        "id": event.id,
        "lease_id": event.lease_id,
        "event_type": event.type,
        "time": encode_date(event.time),
        "status": event.status,
        "created_at": encode_time(event.created_at),
        "updated_at": encode_time(event.updated_at),
    }
