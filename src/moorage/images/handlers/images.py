"""``/v2/images``: the records."""

from typing import Any
from urllib.parse import urlencode

from moorage.core.errors import TooLarge, UnsupportedMedia
from moorage.images import patch, query
from moorage.images.document import shown
from moorage.images.schemas.image import IMAGE, worded
from moorage.images.service import ImageService
from moorage.wire.body import decode_json
from moorage.wire.http import Request, Response

_MAX_PATCH_BYTES = 1 << 20


def create_image(request: Request[ImageService]) -> Response:
    image = request.service.create(request.caller, request.json, request.allowed)
    return Response(201, shown(image), {"location": f"{request.base_url}/v2/images/{image.id}"})


def list_images(request: Request[ImageService]) -> Response:
    pairs = [(name, value) for name, value in request.query.pairs if value != "None"]
    images, more = request.service.list(request.caller, query.decode_listing(pairs))
    body: dict[str, Any] = {
        "images": [shown(image) for image in images],
        "first": _list_link([pair for pair in pairs if pair[0] != "marker"]),
        "schema": "/v2/schemas/images",
    }
    if more:
        body["next"] = _list_link([*(pair for pair in pairs if pair[0] != "marker"), ("marker", images[-1].id)])
    return Response(body=body)


def show_image(request: Request[ImageService], image_id: str) -> Response:
    return Response(body=shown(request.service.get(request.caller, image_id)))


def update_image(request: Request[ImageService], image_id: str) -> Response:
    """The kernel reads ``application/json`` only, so the patch comes as a stream."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != patch.PATCH_MEDIA_TYPE:
        raise UnsupportedMedia(f"Image PATCH expects Content-Type one of: {patch.PATCH_MEDIA_TYPE}")
    raw = request.stream.read(_MAX_PATCH_BYTES + 1)
    if len(raw) > _MAX_PATCH_BYTES:
        raise TooLarge(f"a patch has {_MAX_PATCH_BYTES} bytes at most")
    operations = patch.decode_patch(decode_json(raw))
    image = request.service.change(
        request.caller, image_id, operations, lambda wanted: IMAGE.check(wanted, worded), request.allowed
    )
    return Response(body=shown(image))


def delete_image(request: Request[ImageService], image_id: str) -> Response:
    request.service.delete(request.caller, image_id)
    return Response(204)


def add_tag(request: Request[ImageService], image_id: str, tag: str) -> Response:
    request.service.add_tag(request.caller, image_id, tag)
    return Response(204)


def remove_tag(request: Request[ImageService], image_id: str, tag: str) -> Response:
    request.service.remove_tag(request.caller, image_id, tag)
    return Response(204)


def deactivate_image(request: Request[ImageService], image_id: str) -> Response:
    request.service.set_active(request.caller, image_id, active=False)
    return Response(204)


def reactivate_image(request: Request[ImageService], image_id: str) -> Response:
    request.service.set_active(request.caller, image_id, active=True)
    return Response(204)


def _list_link(pairs: list[tuple[str, str]]) -> str:
    return "/v2/images" + (f"?{urlencode(pairs)}" if pairs else "")
