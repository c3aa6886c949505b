"""The host agents' images of disks: see `moorage.images.for_hosts`."""

import msgspec

from moorage.compute.agents.disk_image_service import ServerDisk
from moorage.compute.api.handlers.views import ComputeCall
from moorage.core.errors import Invalid
from moorage.images.for_hosts import DISK_HEADER, chunks_of
from moorage.wire.http import Reply


class _Disk(msgspec.Struct):
    disk_format: str
    properties: dict[str, str] = {}


def upload(call: ComputeCall, host: str, image_id: str) -> Reply:
    length = call.headers.get("content-length", "")
    if not length.isdecimal():
        raise Invalid("a disk is sent with its Content-Length")
    try:
        disk = msgspec.json.decode(call.headers.get(DISK_HEADER, "{}"), type=_Disk)
    except msgspec.DecodeError as error:
        raise Invalid(f"the header {DISK_HEADER} cannot be read: {error}") from error
    found = ServerDisk(disk.disk_format, disk.properties, int(length))
    call.service.disk_images.upload(host, image_id, found, chunks_of(call))
    return Reply(204)


def withdraw(call: ComputeCall, host: str, image_id: str) -> Reply:
    call.service.disk_images.withdraw(host, image_id)
    return Reply(204)
