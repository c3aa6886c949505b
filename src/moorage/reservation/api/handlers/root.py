from typing import Any

from moorage.reservation.service import ReservationService
from moorage.wire.http import Call, Reply
from moorage.wire.microversion import Version, VersionRange

#: 1.0 is the peer's, byte for byte. 1.1 has what the peer has not; docs/wire/reservation.md lists it.
VERSIONS = VersionRange("reservation", Version(1, 0), Version(1, 1))


def versions(call: Call[ReservationService]) -> Reply:
    """300, and without a token: some clients look here before they have one."""
    return Reply(300, {"versions": [_version(call)]})


def version(call: Call[ReservationService]) -> Reply:
    return Reply(200, {"version": _version(call)})


def _version(call: Call[ReservationService]) -> dict[str, Any]:
    return {
        "id": "v1.0",
        "status": "CURRENT",
        "links": [{"href": f"{call.base_url}/v1", "rel": "self"}],
        "min_version": str(VERSIONS.minimum),
        "max_version": str(VERSIONS.maximum),
    }
