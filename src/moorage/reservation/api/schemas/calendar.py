"""The calendar on the wire (from microversion 1.1 on)."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from moorage.reservation.api.schemas.common import DATE_TEXT, decode_date, decode_when, encode_date
from moorage.reservation.capacity.lease_update import When
from moorage.reservation.leases.calendar_service import View
from moorage.reservation.model.property_query import MAX_TEXT
from moorage.wire.body import Schema

VIEW = Schema(
    {
        "type": "object",
        "properties": {
            "start_date": {"type": "string"},
            "end_date": DATE_TEXT,
            "resource_properties": {"type": "string", "maxLength": MAX_TEXT},
            "step_minutes": {"type": "string", "pattern": "^[1-9][0-9]{0,5}$"},
        },
        "additionalProperties": False,
    }
)


def decode(values: Mapping[str, str]) -> tuple[When, datetime | None, timedelta, str]:
    """(start, end, step, query that hosts answer)"""
    return (
        decode_when(values.get("start_date", "now")),
        decode_date(values["end_date"]) if "end_date" in values else None,
        timedelta(minutes=int(values.get("step_minutes", "60"))),
        values.get("resource_properties", ""),
    )


def encode(view: View) -> dict[str, Any]:
    return {
        "start_date": encode_date(view.start),
        "end_date": encode_date(view.end),
        "capacity": dict(view.capacity),
        "busy": [
            {"start_date": encode_date(each.start), "end_date": encode_date(each.end), "used": dict(each.used)}
            for each in view.busy
        ],
        "leases": [
            {
                "id": lease.id,
                "name": lease.name,
                "status": lease.status,
                "start_date": encode_date(lease.start_date),
                "end_date": encode_date(lease.end_date),
            }
            for lease in view.leases
        ],
    }
