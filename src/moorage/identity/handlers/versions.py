"""The version documents, which everybody may read: clients discover without credentials."""

from moorage.identity.service import IdentityService
from moorage.wire.http import Request, Response


def index(request: Request[IdentityService]) -> Response:
    """300, as Keystone does: clients pick from ``versions.values``."""
    document = {"versions": {"values": [_version(request.base_url)]}}
    return Response(300, document, {"location": f"{request.base_url}/v3/"})


def show(request: Request[IdentityService]) -> Response:
    return Response(body={"version": _version(request.base_url)})


def _version(base_url: str) -> dict[str, object]:
    return {
        "id": "v3.14",
        "status": "stable",
        "updated": "2020-04-07T00:00:00Z",
        "links": [{"rel": "self", "href": f"{base_url}/v3/"}],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}],
    }
