"""The version documents, with which clients discover the API without authentication.

Links start with the address that the client used, because clients follow them: every command fails if a link does not
resolve.
"""

from moorage.accelerator.service.service import AcceleratorService
from moorage.core.json import Json
from moorage.wire.http import Request, Response
from moorage.wire.microversion import Version, VersionRange

VERSIONS = VersionRange("accelerator", Version(2, 0), Version(2, 3), bare_allowed=True, announces_range=True)


def root(request: Request[AcceleratorService]) -> Response:
    described = _described(request, "v2")
    body = {
        "name": "OpenStack Cyborg API",
        "description": "Accelerators: devices, their functions and the servers that use them.",
        "versions": [described],
        "default_version": described,
    }
    return Response(body=body)


def version(request: Request[AcceleratorService]) -> Response:
    return Response(body=_described(request, "v2.0"))


def _described(request: Request[AcceleratorService], identity: str) -> dict[str, Json]:
    return {
        "id": identity,
        "status": "CURRENT",
        "max_version": str(VERSIONS.maximum),
        "min_version": str(VERSIONS.minimum),
        "links": [{"href": f"{request.base_url}/v2/", "rel": "self"}],
    }
