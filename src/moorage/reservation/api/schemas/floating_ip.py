"""Registered addresses on the wire."""

from typing import Any

from moorage.reservation.api.schemas.common import encode_time
from moorage.reservation.capacity.addresses import RegisteredAddress
from moorage.wire.body import Schema

CREATE = Schema(
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


def encode(floating_ip: RegisteredAddress) -> dict[str, Any]:
    return {
        "id": floating_ip.id,
        "floating_network_id": floating_ip.floating_network_id,
        "subnet_id": floating_ip.subnet_id,
        "floating_ip_address": floating_ip.floating_ip_address,
        "reservable": floating_ip.reservable,
        "created_at": encode_time(floating_ip.created_at),
        "updated_at": encode_time(floating_ip.updated_at),
    }
