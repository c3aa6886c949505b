"""The version documents, which everybody may read."""

from typing import Any

from moorage.compute.api.handlers.views import ComputeRequest
from moorage.wire.http import Response
from moorage.wire.microversion import Version, VersionRange

#: 2.100 is the newest of the 2025 releases. What came since is volumes, and unknown query parameters refused everywhere.
VERSIONS = VersionRange(
    service_type="compute",
    minimum=Version(2, 1),
    maximum=Version(2, 100),
    legacy_header="X-OpenStack-Nova-API-Version",
)


def index(request: ComputeRequest) -> Response:
    return Response(body={"versions": [_document(request)]})


def show(request: ComputeRequest) -> Response:
    document = _document(request)
    document["links"].append({"rel": "describedby", "type": "text/html", "href": "https://docs.openstack.org/"})
    document["media-types"] = [
        {"base": "application/json", "type": "application/vnd.openstack.compute+json;version=2.1"}
    ]
    return Response(body={"version": document})


def _document(request: ComputeRequest) -> dict[str, Any]:
    return {
        "id": "v2.1",
        "status": "CURRENT",
        "version": str(VERSIONS.maximum),
        "min_version": str(VERSIONS.minimum),
        "updated": "2013-07-23T11:33:21Z",
        "links": [{"rel": "self", "href": f"{request.base_url}/v2.1/"}],
    }
