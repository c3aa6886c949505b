"""What agents tell. Not part of the peer's API."""

from typing import TypeVar

import msgspec

from moorage.accelerator.model.reports import AttachmentReport, DeviceReport
from moorage.accelerator.service.service import AcceleratorService
from moorage.core.errors import Invalid
from moorage.wire.http import Call, Reply

T = TypeVar("T")


def put_devices(call: Call[AcceleratorService], host: str) -> Reply:
    call.service.report_devices(host, _decoded(call.json["devices"], list[DeviceReport]))
    return Reply(204)


def put_attachments(call: Call[AcceleratorService], host: str) -> Reply:
    call.service.report_attachments(host, _decoded(call.json["attachments"], list[AttachmentReport]))
    return Reply(204)


def _decoded(document: object, kind: type[T]) -> T:
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise Invalid(f"the report cannot be read: {error}") from error
