"""Devices and deployables: what hosts have told."""

from moorage.accelerator.handlers import shapes
from moorage.accelerator.service import AcceleratorService
from moorage.wire.call import Call, Reply
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
    return Reply(body={"deployables": [shapes.deployable(row, call.base_url) for row in call.service.deployables()]})


def show_deployable(call: Call[AcceleratorService], uuid: str) -> Reply:
    return Reply(body=shapes.deployable(call.service.deployable(uuid), call.base_url))
