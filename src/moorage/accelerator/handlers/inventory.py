"""Devices, deployables and accelerator requests: what hosts have told."""

from moorage.accelerator.handlers import shapes
from moorage.accelerator.service import AcceleratorService
from moorage.core.errors import Invalid
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


def list_requests(call: Call[AcceleratorService]) -> Reply:
    """All requests that hosts report are resolved, so ``bind_state=resolved`` filters none out."""
    bind_state = call.query.first("bind_state")
    if bind_state not in (None, "resolved"):
        raise Invalid(f"Accelerator requests with bind_state {bind_state} cannot be listed; use resolved.")
    rows = call.service.requests(call.caller, call.query.first("instance"))
    return Reply(body={"arqs": [shapes.request(row, call.base_url) for row in rows]})


def show_request(call: Call[AcceleratorService], uuid: str) -> Reply:
    return Reply(body=shapes.request(call.service.request(call.caller, uuid), call.base_url))
