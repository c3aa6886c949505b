"""The host agents' images of disks: see `moorage.images.for_hosts`."""

import msgspec

from moorage.compute.agents.disk_image_service import ServerDisk
from moorage.compute.api.handlers.views import ComputeRequest
from moorage.core.errors import Invalid
from moorage.images.for_hosts import DISK_HEADER, chunks_of
from moorage.wire.http import Response


class _Disk(msgspec.Struct):
    disk_format: str
    properties: dict[str, str] = {}


def upload(request: ComputeRequest, host: str, image_id: str) -> Response:
    length = request.headers.get("content-length", "")
    if not length.isdecimal():
        raise Invalid("a disk is sent with its Content-Length")
    try:
        disk = msgspec.json.decode(request.headers.get(DISK_HEADER, "{}"), type=_Disk)
    except msgspec.DecodeError as error:
        raise Invalid(f"the header {DISK_HEADER} cannot be read: {error}") from error
    found = ServerDisk(disk.disk_format, disk.properties, int(length))
    request.service.disk_images.upload(host, image_id, found, chunks_of(request))
    return Response(204)


def withdraw(request: ComputeRequest, host: str, image_id: str) -> Response:
    request.service.disk_images.withdraw(host, image_id)
    return Response(204)
