"""The unauthenticated documents by which clients find the API.

Links are built from the address the client used: discovery follows them, and a link that does not resolve makes
every command fail.
"""

from typing import Any

from moorage.accelerator.service.service import AcceleratorService
from moorage.wire.http import Call, Reply
from moorage.wire.microversion import Version, VersionRange

VERSIONS = VersionRange("accelerator", Version(2, 0), Version(2, 3), bare_allowed=True, announces_range=True)


def root(call: Call[AcceleratorService]) -> Reply:
    described = _described(call, "v2")
    body = {
        "name": "OpenStack Cyborg API",
        "description": "Accelerators: devices, what they carry, who holds them.",
        "versions": [described],
        "default_version": described,
    }
    return Reply(body=body)


def version(call: Call[AcceleratorService]) -> Reply:
    return Reply(body=_described(call, "v2.0"))


def _described(call: Call[AcceleratorService], identity: str) -> dict[str, Any]:
    return {
        "id": identity,
        "status": "CURRENT",
        "max_version": str(VERSIONS.maximum),
        "min_version": str(VERSIONS.minimum),
        "links": [{"href": f"{call.base_url}/v2/", "rel": "self"}],
    }
