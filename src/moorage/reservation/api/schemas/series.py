"""Recurring leases and maintenance windows on the wire (from microversion 1.1 on)."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from moorage.core.errors import Invalid
from moorage.reservation.api.schemas import lease
from moorage.reservation.capacity.lease_update import NewLease, period_of
from moorage.reservation.model.leases import Lease
from moorage.reservation.model.reservation_requests import PHYSICAL_HOST
from moorage.wire.body import Schema

_MOST = 100

CREATE = Schema(
    {
        "type": "object",
        "required": [*lease.CREATE.document["required"], "every_days", "count"],
        "properties": {
            **lease.CREATE_OURS.document["properties"],
            "name": {"type": "string", "minLength": 1, "maxLength": 240},
            "every_days": {"type": "integer", "minimum": 1, "maximum": 366},
            "count": {"type": "integer", "minimum": 1, "maximum": _MOST},
        },
        "additionalProperties": False,
    }
)

MAINTENANCE = Schema(
    {
        "type": "object",
        "required": ["name", "start_date", "end_date", "hosts"],
        "properties": {
            "name": lease.NAME,
            "start_date": {"type": "string"},
            "end_date": {"type": "string"},
            "hosts": {
                "type": "array",
                "items": {"type": "string", "minLength": 1, "maxLength": 255},
                "minItems": 1,
                "maxItems": 50,
                "uniqueItems": True,
            },
        },
        "additionalProperties": False,
    }
)

_SHOWN = ("id", "name", "project_id", "start_date", "end_date", "status")


def decode(body: Mapping[str, Any], now: datetime) -> list[NewLease]:
    """One lease after another; the first is as the body has it, the others are so many days later (in UTC)."""
    plain = {name: value for name, value in body.items() if name not in ("every_days", "count")}
    first, count, step = lease.decode_create(plain), int(body["count"]), timedelta(days=int(body["every_days"]))
    start, end = period_of(first, now)
    if count > 1 and end - start > step:
        raise Invalid("each lease would overlap the next: every_days is less than a lease lasts")
    return [
        replace(
            first,
            name=f"{first.name} {number + 1}/{count}",
            start_date=start + step * number,
            end_date=end + step * number,
            before_end_date=None if first.before_end_date is None else first.before_end_date + step * number,
        )
        for number in range(count)
    ]


def decode_maintenance(body: Mapping[str, Any]) -> tuple[NewLease, Sequence[str]]:
    """(a lease of these hosts as a whole, their names)"""
    names = body["hosts"]
    whole = {
        "resource_type": PHYSICAL_HOST,
        "min": len(names),
        "max": len(names),
        "hypervisor_properties": json.dumps(["in", "$hypervisor_hostname", list(names)]),
        "resource_properties": "",
    }
    plain = {name: body[name] for name in ("name", "start_date", "end_date")}
    return lease.decode_create({**plain, "reservations": [whole]}), names


def encode_touched(found: Sequence[Lease]) -> list[dict[str, Any]]:
    """Leases as who looks after hosts needs them."""
    encoded = (lease.encode(each) for each in found)
    return [{key: each[key] for key in _SHOWN} for each in encoded]
