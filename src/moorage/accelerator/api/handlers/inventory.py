"""Devices and deployables: what hosts have told."""

from moorage.accelerator.api.handlers import shapes
from moorage.accelerator.service.service import AcceleratorService
from moorage.wire.http import Call, Reply
from moorage.wire.microversion import Version

STATUS_SINCE = Version(2, 3)


def list_devices(call: Call[AcceleratorService]) -> Reply:
    query = call.query
    rows = call.service.devices(query.first("hostname"), query.first("type"), query.first("vendor"))
    with_status = call.version >= STATUS_SINCE
    return Reply(body={"devices": [shapes.device(row, call.base_url, with_status=with_status) for row in rows]})


def show_device(call: Call[AcceleratorService], uuid: str) -> Reply:
    row = call.service.device(uuid)
    return Reply(body=shapes.device(row, call.base_url, with_status=call.version >= STATUS_SINCE))


def list_deployables(call: Call[AcceleratorService]) -> Reply:
    rows = call.service.deployables()
    return Reply(body={"deployables": [shapes.deployable(row, call.base_url, private=_all(call)) for row in rows]})


def show_deployable(call: Call[AcceleratorService], uuid: str) -> Reply:
    return Reply(body=shapes.deployable(call.service.deployable(uuid), call.base_url, private=_all(call)))


def _all(call: Call[AcceleratorService]) -> bool:
    """Others than operators and services learn nothing of the private bitstreams of a project."""
    return call.caller.is_admin or call.caller.is_service
