from typing import Any

from moorage.reservation.service import ReservationService
from moorage.wire.http import Request, Response
from moorage.wire.microversion import Version, VersionRange

#: 1.0 is the peer's, byte for byte. 1.1 has what the peer has not; docs/wire/reservation.md lists it.
VERSIONS = VersionRange("reservation", Version(1, 0), Version(1, 1))


def versions(request: Request[ReservationService]) -> Response:
    """300, and without a token: some clients look here before they have one."""
    return Response(300, {"versions": [_version(request)]})


def version(request: Request[ReservationService]) -> Response:
    return Response(200, {"version": _version(request)})


def _version(request: Request[ReservationService]) -> dict[str, Any]:
    return {
        "id": "v1.0",
        "status": "CURRENT",
        "links": [{"href": f"{request.base_url}/v1", "rel": "self"}],
        "min_version": str(VERSIONS.minimum),
        "max_version": str(VERSIONS.maximum),
    }
