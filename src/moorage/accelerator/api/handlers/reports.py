"""What agents tell. Not part of the peer's API."""

from typing import TypeVar

import msgspec

from moorage.accelerator.model.reports import AttachmentReport, DeviceReport
from moorage.accelerator.service.service import AcceleratorService
from moorage.core.errors import Invalid
from moorage.wire.http import Request, Response

T = TypeVar("T")


def put_devices(request: Request[AcceleratorService], host: str) -> Response:
    request.service.report_devices(host, _decoded(request.json["devices"], list[DeviceReport]))
    return Response(204)


def put_attachments(request: Request[AcceleratorService], host: str) -> Response:
    request.service.report_attachments(host, _decoded(request.json["attachments"], list[AttachmentReport]))
    return Response(204)


def _decoded(document: object, kind: type[T]) -> T:
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise Invalid(f"the report cannot be read: {error}") from error
