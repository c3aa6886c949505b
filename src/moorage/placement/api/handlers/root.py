"""GET /"""

from moorage.placement.api.handlers.answers import PlacementApiRequest, answer
from moorage.wire.http import Response
from moorage.wire.microversion import Version, VersionRange

VERSIONS = VersionRange(service_type="placement", minimum=Version(1, 0), maximum=Version(1, 39), loose=True)


def show(request: PlacementApiRequest) -> Response:
    version = {
        "id": f"v{VERSIONS.minimum}",
        "max_version": str(VERSIONS.maximum),
        "min_version": str(VERSIONS.minimum),
        "status": "CURRENT",
        "links": [{"rel": "self", "href": ""}],
    }
    return answer(request, {"versions": [version]})
