"""The wire format of hosts, properties, allocations, limits and floating IPs. Extra capabilities are keys of hosts."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, TypedDict

from moorage.core.errors import Forbidden, Invalid
from moorage.core.json import Json
from moorage.reservation.api.schemas.common import encode_date, encode_time, tolerant_at_first
from moorage.reservation.capacity.addresses import RegisteredAddress
from moorage.reservation.model.leases import LeasedSlot, RegisteredHost
from moorage.reservation.model.limits import Account, Limits
from moorage.reservation.store.property_store import HOST_TYPE
from moorage.wire.body import Schema

ANY_OBJECT = Schema({"type": "object"})

PRIVATE = tolerant_at_first(
    Schema(
        {
            "type": "object",
            "required": ["private"],
            "properties": {"private": {"type": "boolean"}},
            "additionalProperties": False,
        }
    )
)


def decode_create(body: Mapping[str, Json]) -> tuple[str, dict[str, str]]:
    """(hypervisor's name, extra capabilities)"""
    name = body.get("name")
    if not isinstance(name, str) or not name:
        raise Forbidden(f"Invalid values for host {dict(body)}")  # 403, like the peer
    return name, {key: _text(key, value) for key, value in body.items() if key != "name"}


def decode_update(body: Mapping[str, Json]) -> dict[str, str | None]:
    """{extra capability: its value; None removes it}"""
    return {key: None if value is None else _text(key, value) for key, value in body.items()}


def encode(host: RegisteredHost) -> dict[str, Json]:
    own: dict[str, Json] = {
        "id": str(host.id),
        "vcpus": host.vcpus,
        "cpu_info": host.cpu_info,
        "hypervisor_type": host.hypervisor_type,
        "hypervisor_version": host.hypervisor_version,
        "hypervisor_hostname": host.hypervisor_hostname,
        "service_name": host.service_name,
        "memory_mb": host.memory_mb,
        "local_gb": host.local_gb,
        "status": host.status,
        "availability_zone": host.availability_zone,
        "trust_id": host.trust_id,
        "reservable": host.reservable,
        "created_at": encode_time(host.created_at),
        "updated_at": encode_time(host.updated_at),
    }
    return own | {key: value for key, value in host.extra.items() if key not in own}


def encode_allocation(host: RegisteredHost, slots: Iterable[LeasedSlot], *, as_peer: bool) -> dict[str, Json]:
    """A reservation appears once for each of its slots on the host. `as_peer`: as in microversion 1.0."""
    return {
        "resource_id": str(host.id),
        "reservations": [_encode_slot(each) | ({} if as_peer else _encode_lease(each)) for each in slots],
    }


def _encode_slot(one: LeasedSlot) -> dict[str, Json]:
    return {
        "id": one.slot.reservation_id,
        "lease_id": one.lease_id,
        "start_date": encode_date(one.slot.start_date),
        "end_date": encode_date(one.slot.end_date),
    }


def _encode_lease(one: LeasedSlot) -> dict[str, Json]:
    return {"lease_name": one.lease_name, "lease_status": one.lease_status, "project_id": one.project_id}


def encode_hosts_of_reservation(reservation_id: str, slots: Mapping[str, int], *, to_admin: bool) -> dict[str, Json]:
    """`slots`: {host name: number of slots}. The keys are those of a dry run; the names are for administrators."""
    counts: dict[str, Json] = {"id": reservation_id, "slots": sum(slots.values()), "hosts": len(slots)}
    return counts | {"on": dict(slots)} if to_admin else counts


def encode_property(name: str, private: bool, values: list[str], *, detail: bool) -> dict[str, Json]:
    return {"property": name, "private": private, "values": values} if detail else {"property": name}


def encode_property_row(row: Mapping[str, Any]) -> dict[str, Json]:
    return {
        "id": row["id"],
        "resource_type": HOST_TYPE,
        "property_name": row["property_name"],
        "private": row["private"],
        "created_at": encode_date(row["created_at"]),
        "updated_at": encode_date(row["updated_at"]),
    }


_AMOUNTS = {
    "type": "object",
    "maxProperties": 100,
    "propertyNames": {"type": "string", "pattern": "^[A-Z0-9_]{1,255}$"},
    "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 2**53},
}

#: Null: the default limits.
UPDATE_LIMITS = Schema(
    {
        "type": "object",
        "required": ["limits"],
        "properties": {
            "limits": {
                "type": ["object", "null"],
                "properties": {"now": _AMOUNTS, "hours": _AMOUNTS},
                "additionalProperties": False,
            }
        },
        "additionalProperties": False,
    }
)


class LimitsBody(TypedDict):
    limits: dict[str, dict[str, int]] | None  #: None: the default limits


def decode_limits(body: LimitsBody) -> Limits | None:
    limits = body["limits"]
    return None if limits is None else Limits(limits.get("now", {}), limits.get("hours", {}))


def encode_limits(account: Account, limits: Limits, period: timedelta) -> dict[str, Json]:
    return {
        "limits": {
            f"{account.kind}_id": account.id,
            "now": dict(limits.now),
            "hours": dict(limits.hours),
            "period_days": period.days,
        }
    }


CREATE_FLOATING_IP = tolerant_at_first(
    Schema(
        {
            "type": "object",
            "required": ["floating_network_id", "floating_ip_address"],
            "properties": {
                "floating_network_id": {"type": "string", "minLength": 1, "maxLength": 255},
                "floating_ip_address": {"type": "string", "minLength": 1, "maxLength": 255},
            },
            "additionalProperties": False,
        }
    )
)


def encode_floating_ip(floating_ip: RegisteredAddress) -> dict[str, Json]:
    return {
        "id": floating_ip.id,
        "floating_network_id": floating_ip.floating_network_id,
        "subnet_id": floating_ip.subnet_id,
        "floating_ip_address": floating_ip.floating_ip_address,
        "reservable": floating_ip.reservable,
        "created_at": encode_time(floating_ip.created_at),
        "updated_at": encode_time(floating_ip.updated_at),
    }


def _text(key: str, value: object) -> str:
    if isinstance(value, str | int | float):
        return str(value)
    raise Invalid(f"Malformed parameter {key}: the value of an extra capability must be a string")
