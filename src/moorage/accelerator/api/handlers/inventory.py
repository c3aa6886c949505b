"""Devices and deployables: what hosts have told."""

from moorage.accelerator.api.handlers import shapes
from moorage.accelerator.service.service import AcceleratorService
from moorage.wire.http import Request, Response
from moorage.wire.microversion import Version

STATUS_SINCE = Version(2, 3)


def list_devices(request: Request[AcceleratorService]) -> Response:
    query = request.query
    rows = request.service.devices(query.first("hostname"), query.first("type"), query.first("vendor"))
    with_status = request.version >= STATUS_SINCE
    return Response(body={"devices": [shapes.device(row, request.base_url, with_status=with_status) for row in rows]})


def show_device(request: Request[AcceleratorService], uuid: str) -> Response:
    row = request.service.device(uuid)
    return Response(body=shapes.device(row, request.base_url, with_status=request.version >= STATUS_SINCE))


def list_deployables(request: Request[AcceleratorService]) -> Response:
    rows = request.service.deployables()
    return Response(
        body={"deployables": [shapes.deployable(row, request.base_url, private=_sees_private_bitstreams(request)) for row in rows]}
    )


def show_deployable(request: Request[AcceleratorService], uuid: str) -> Response:
    return Response(body=shapes.deployable(request.service.deployable(uuid), request.base_url, private=_sees_private_bitstreams(request)))


def _sees_private_bitstreams(request: Request[AcceleratorService]) -> bool:
    """Others than operators and services learn nothing of the private bitstreams of a project."""
    return request.caller.is_admin or request.caller.is_service
