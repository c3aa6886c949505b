"""``/v2/images/{id}/file``: the data, streamed in both directions."""

from collections.abc import Iterator
from typing import BinaryIO

from moorage.core.errors import Invalid, NotFound, UnsupportedMedia
from moorage.images.base import CHUNK_BYTES
from moorage.images.service import ImageService
from moorage.wire.http import Request, Response

_BINARY = "application/octet-stream"


def upload_data(request: Request[ImageService], image_id: str) -> Response:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != _BINARY:
        raise UnsupportedMedia(f"Invalid content type {media_type or '(none)'}, use {_BINARY}")
    chunks = iter(lambda: request.stream.read(CHUNK_BYTES), b"")
    request.service.upload(request.caller, image_id, chunks, _announced_size_bytes(request))
    return Response(204)


def download_data(request: Request[ImageService], image_id: str) -> Response:
    try:
        image, file = request.service.data(request.caller, image_id)
    except NotFound as error:
        if error.error_code == "images.no_data":  # Glance: the image is there, and it is empty
            return Response(204)
        raise
    headers = {"content-length": str(image.size_bytes), "content-md5": str(image.md5)}
    return Response(200, headers=headers, stream=_Chunks(file), content_type=_BINARY)


def _announced_size_bytes(request: Request[ImageService]) -> int:
    """How long the data must be.

    An upload that announces no length is refused: servers differ in whether they report the death of its sender, and
    where one takes it for the end of the data, half an image would become active.
    """
    for name in ("x-openstack-image-size", "content-length"):
        text = request.headers.get(name)
        if text:
            if not text.isascii() or not text.isdigit():
                raise Invalid(f"the header {name} must hold a number of bytes, not {text!r}")
            return int(text)
    raise Invalid(
        "send Content-Length or X-OpenStack-Image-Size with the data, since without either nobody can tell a broken "
        "upload from a whole one (openstack image create: give the data with --file, not through a pipe)",
        code="images.no_length",
    )


class _Chunks:
    """The file from its start to its end; closed with the answer, also with one that is broken off."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def __iter__(self) -> Iterator[bytes]:
        while chunk := self._file.read(CHUNK_BYTES):
            yield chunk

    def close(self) -> None:
        self._file.close()
