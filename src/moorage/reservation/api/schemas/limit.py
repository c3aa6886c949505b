"""Limits of projects on the wire (from microversion 1.1 on)."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from moorage.reservation.model.limits import ProjectLimits
from moorage.wire.body import Schema

_AMOUNTS = {
    "type": "object",
    "maxProperties": 100,
    "propertyNames": {"type": "string", "pattern": "^[A-Z0-9_]{1,255}$"},
    "additionalProperties": {"type": "integer", "minimum": 0, "maximum": 2**53},
}

#: Null: the limits of who has none of its own.
UPDATE = Schema(
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


def decode(body: Mapping[str, Any]) -> ProjectLimits | None:
    limits = body["limits"]
    return None if limits is None else ProjectLimits(limits.get("now", {}), limits.get("hours", {}))


def encode(project_id: str, limits: ProjectLimits, period: timedelta) -> dict[str, Any]:
    return {
        "limits": {
            "project_id": project_id,
            "now": dict(limits.now),
            "hours": dict(limits.hours),
            "period_days": period.days,
        }
    }
