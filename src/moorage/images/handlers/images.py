"""``/v2/images``: the records."""

from typing import Any
from urllib.parse import urlencode

from moorage.core.errors import TooLarge, UnsupportedMedia
from moorage.images import patch, query
from moorage.images.document import shown
from moorage.images.schemas.image import IMAGE, worded
from moorage.images.service import ImageService
from moorage.wire.body import decode_json
from moorage.wire.http import Call, Reply

_MAX_PATCH_BYTES = 1 << 20


def create(call: Call[ImageService]) -> Reply:
    image = call.service.create(call.caller, call.json, call.allowed)
    return Reply(201, shown(image), {"location": f"{call.base_url}/v2/images/{image.id}"})


def index(call: Call[ImageService]) -> Reply:
    pairs = [(name, value) for name, value in call.query.pairs if value != "None"]
    images, more = call.service.list(call.caller, query.understand(pairs))
    body: dict[str, Any] = {
        "images": [shown(image) for image in images],
        "first": _link([pair for pair in pairs if pair[0] != "marker"]),
        "schema": "/v2/schemas/images",
    }
    if more:
        body["next"] = _link([*(pair for pair in pairs if pair[0] != "marker"), ("marker", images[-1].id)])
    return Reply(body=body)


def show(call: Call[ImageService], image_id: str) -> Reply:
    return Reply(body=shown(call.service.get(call.caller, image_id)))


def update(call: Call[ImageService], image_id: str) -> Reply:
    """The kernel reads ``application/json`` only, so the patch comes as a stream."""
    media_type = call.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != patch.MEDIA_TYPE:
        raise UnsupportedMedia(f"Image PATCH expects Content-Type one of: {patch.MEDIA_TYPE}")
    raw = call.stream.read(_MAX_PATCH_BYTES + 1)
    if len(raw) > _MAX_PATCH_BYTES:
        raise TooLarge(f"a patch has {_MAX_PATCH_BYTES} bytes at most")
    operations = patch.understand(decode_json(raw))
    image = call.service.change(
        call.caller, image_id, operations, lambda wanted: IMAGE.check(wanted, worded), call.allowed
    )
    return Reply(body=shown(image))


def delete(call: Call[ImageService], image_id: str) -> Reply:
    call.service.delete(call.caller, image_id)
    return Reply(204)


def add_tag(call: Call[ImageService], image_id: str, tag: str) -> Reply:
    call.service.add_tag(call.caller, image_id, tag)
    return Reply(204)


def remove_tag(call: Call[ImageService], image_id: str, tag: str) -> Reply:
    call.service.remove_tag(call.caller, image_id, tag)
    return Reply(204)


def deactivate(call: Call[ImageService], image_id: str) -> Reply:
    call.service.set_active(call.caller, image_id, active=False)
    return Reply(204)


def reactivate(call: Call[ImageService], image_id: str) -> Reply:
    call.service.set_active(call.caller, image_id, active=True)
    return Reply(204)


def _link(pairs: list[tuple[str, str]]) -> str:
    return "/v2/images" + (f"?{urlencode(pairs)}" if pairs else "")
