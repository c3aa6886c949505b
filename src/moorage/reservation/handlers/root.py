from typing import Any

from moorage.core.errors import NotBuilt
from moorage.reservation.service import ReservationService
from moorage.wire.call import Call, Reply


def versions(call: Call[ReservationService]) -> Reply:
    """300, and without a token: some clients look here before they have one."""
    return Reply(300, {"versions": [_version(call)]})


def version(call: Call[ReservationService]) -> Reply:
    return Reply(200, {"version": _version(call)})


def floating_ips(call: Call[ReservationService], **_params: str) -> Reply:
    raise NotBuilt("Reservations of floating IPs are not built yet; this service reserves virtual:instance")


def _version(call: Call[ReservationService]) -> dict[str, Any]:
    return {
        "id": "v1.0",
        "status": "CURRENT",
        "links": [{"href": f"{call.base_url}/v1", "rel": "self"}],
        "min_version": "1.0",
        "max_version": "1.0",
    }
