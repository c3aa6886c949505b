"""The version documents, which everybody may read: clients discover without credentials."""

from moorage.images.schemas.image import IMAGE, IMAGES_DOCUMENT
from moorage.images.service import ImageService
from moorage.wire.http import Request, Response

#: Glance's versions of the API differ in what we have not (stores, import, caches), so they can all be named.
_VERSIONS = (17, 15, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)


def show_versions(request: Request[ImageService]) -> Response:
    """300 at the root, as Glance."""
    return Response(300, _versions_document(request.base_url))


def show_versions_under_v2(request: Request[ImageService]) -> Response:
    return Response(body=_versions_document(request.base_url))


def show_image_schema(request: Request[ImageService]) -> Response:
    return Response(body=IMAGE.document)


def show_images_schema(request: Request[ImageService]) -> Response:
    return Response(body=IMAGES_DOCUMENT)


def list_import_methods(request: Request[ImageService]) -> Response:
    """None: data comes with ``PUT /v2/images/{id}/file`` only."""
    methods = {"description": "Import methods available.", "type": "array", "value": []}
    return Response(body={"import-methods": methods})


def _versions_document(base_url: str) -> dict[str, object]:
    return {
        "versions": [
            {
                "id": f"v2.{minor}",
                "status": "CURRENT" if minor == _VERSIONS[0] else "SUPPORTED",
                "links": [{"rel": "self", "href": f"{base_url}/v2/"}],
            }
            for minor in _VERSIONS
        ]
    }
