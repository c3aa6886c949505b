"""Handlers of the Image API: each decodes a request, calls the service and encodes the answer, in Glance's shapes."""

from collections.abc import Iterator
from typing import BinaryIO
from urllib.parse import urlencode

from moorage.core.errors import Invalid, NotFound, TooLarge, UnsupportedMedia
from moorage.core.json import Json
from moorage.images import document, query
from moorage.images.base import CHUNK_BYTES
from moorage.images.document import image_document, member_document
from moorage.images.model import MemberStatus
from moorage.images.schemas import IMAGE, IMAGES_DOCUMENT, MEMBER_DOCUMENT, MEMBERS_DOCUMENT, schema_error_text
from moorage.images.service import ImageService
from moorage.wire.body import decode_json
from moorage.wire.http import Request, Response

_MAX_PATCH_BYTES = 1 << 20
#: Of a length in bytes. Python does not convert texts with thousands of digits.
_MAX_DIGITS = 100


_BINARY = "application/octet-stream"


#: Glance's API versions differ only in features that we do not have (stores, import, caches), so all can be listed.
_VERSIONS = (17, 15, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)


def show_versions(request: Request[ImageService]) -> Response:
    """Status 300 at the root, as in Glance."""
    return Response(300, _versions_document(request.base_url))


def show_supported_versions(request: Request[ImageService]) -> Response:
    return Response(body=_versions_document(request.base_url))


def show_image_schema(request: Request[ImageService]) -> Response:
    return Response(body=IMAGE.document)


def show_images_schema(request: Request[ImageService]) -> Response:
    return Response(body=IMAGES_DOCUMENT)


def show_member_schema(request: Request[ImageService]) -> Response:
    return Response(body=MEMBER_DOCUMENT)


def show_members_schema(request: Request[ImageService]) -> Response:
    return Response(body=MEMBERS_DOCUMENT)


def list_import_methods(request: Request[ImageService]) -> Response:
    """There are none: data is uploaded only with ``PUT /v2/images/{id}/file``."""
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


def create_image(request: Request[ImageService]) -> Response:
    image = request.service.create_image(request.caller, request.json, request.allowed)
    return Response(201, image_document(image), {"location": f"{request.base_url}/v2/images/{image.id}"})


def list_images(request: Request[ImageService]) -> Response:
    pairs = [(name, value) for name, value in request.query.pairs if value != "None"]
    images, more = request.service.list_images(request.caller, query.decode_listing(pairs))
    body: dict[str, Json] = {
        "images": [image_document(image) for image in images],
        "first": _list_link([pair for pair in pairs if pair[0] != "marker"]),
        "schema": "/v2/schemas/images",
    }
    if more:
        body["next"] = _list_link([*(pair for pair in pairs if pair[0] != "marker"), ("marker", images[-1].id)])
    return Response(body=body)


def show_image(request: Request[ImageService], image_id: str) -> Response:
    return Response(body=image_document(request.service.get_image(request.caller, image_id)))


def list_image_tasks(request: Request[ImageService], image_id: str) -> Response:
    """There are none, because nothing is imported; clients that wait for the end of an image's tasks ask for them."""
    request.service.get_image(request.caller, image_id)
    return Response(body={"tasks": []})


def update_image(request: Request[ImageService], image_id: str) -> Response:
    """`moorage.wire` decodes only ``application/json``, so the patch is read from the stream."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in document.PATCH_MEDIA_TYPES:
        raise UnsupportedMedia(f"Image PATCH expects Content-Type one of: {', '.join(document.PATCH_MEDIA_TYPES)}")
    raw = request.stream.read(_MAX_PATCH_BYTES + 1)
    if len(raw) > _MAX_PATCH_BYTES:
        raise TooLarge(f"a patch may have at most {_MAX_PATCH_BYTES} bytes")
    operations = document.decode_patch(decode_json(raw), media_type)
    image = request.service.update_image(
        request.caller, image_id, operations, lambda wanted: IMAGE.validate(wanted, schema_error_text), request.allowed
    )
    return Response(body=image_document(image))


def delete_image(request: Request[ImageService], image_id: str) -> Response:
    request.service.delete_image(request.caller, image_id)
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


def upload_data(request: Request[ImageService], image_id: str) -> Response:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != _BINARY:
        raise UnsupportedMedia(f"Invalid content type {media_type or '(none)'}, use {_BINARY}")
    chunks = iter(lambda: request.stream.read(CHUNK_BYTES), b"")
    request.service.upload_data(request.caller, image_id, chunks, _announced_size_bytes(request))
    return Response(204)


def download_data(request: Request[ImageService], image_id: str) -> Response:
    try:
        image, file = request.service.open_data(request.caller, image_id)
    except NotFound as error:
        if error.error_code == "images.no_data":  # as Glance: the image exists but has no data
            return Response(204)
        raise
    headers = {"content-length": str(image.size_bytes), "content-md5": str(image.md5)}
    return Response(200, headers=headers, stream=_Chunks(file), content_type=_BINARY)


def _announced_size_bytes(request: Request[ImageService]) -> int | None:
    """The announced length of the data. None: the end of a chunked body shows that the data is complete.

    Other uploads without a length are refused: a server that does not decode chunked bodies itself does not report that
    the sender has died, and half an image would become active.
    """
    for name in ("x-openstack-image-size", "content-length"):
        text = request.headers.get(name)
        if text:
            if not text.isascii() or not text.isdigit():
                raise Invalid(f"the header {name} must hold a number of bytes, not {text!r}")
            if len(text) > _MAX_DIGITS:
                raise TooLarge(f"the header {name} has {len(text)} digits; no image is as large")
            return int(text)
    if request.has_chunked_body:
        return None
    raise Invalid(
        "send the data with Content-Length or X-OpenStack-Image-Size, or chunked to a server that decodes chunked "
        "bodies; otherwise a broken upload cannot be distinguished from a complete one",
        code="images.no_length",
    )


class _Chunks:
    """The file's data in chunks. The file is closed with the answer, also if the answer is interrupted."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def __iter__(self) -> Iterator[bytes]:
        while chunk := self._file.read(CHUNK_BYTES):
            yield chunk

    def close(self) -> None:
        self._file.close()


def list_members(request: Request[ImageService], image_id: str) -> Response:
    image, projects = request.service.list_members(request.caller, image_id)
    rows = [member_document(image, project) for project in projects]
    return Response(body={"members": rows, "schema": "/v2/schemas/members"})


def add_member(request: Request[ImageService], image_id: str) -> Response:
    project = request.json["member"]
    return Response(body=member_document(request.service.add_member(request.caller, image_id, project), project))


def show_member(request: Request[ImageService], image_id: str, member_id: str) -> Response:
    image, projects = request.service.list_members(request.caller, image_id)
    if member_id not in projects:
        raise NotFound(f"Project {member_id} is not a member of image {image_id}.")
    return Response(body=member_document(image, member_id))


def update_member(request: Request[ImageService], image_id: str, member_id: str) -> Response:
    status = MemberStatus(request.json["status"])
    image = request.service.answer_sharing(request.caller, image_id, member_id, status)
    return Response(body=member_document(image, member_id))


def remove_member(request: Request[ImageService], image_id: str, member_id: str) -> Response:
    request.service.remove_member(request.caller, image_id, member_id)
    return Response(204)
