"""What an operator does with devices, regions and attributes."""

import re

from moorage.accelerator.api.handlers import shapes
from moorage.accelerator.model.profile import ProgramRequest
from moorage.accelerator.service.service import AcceleratorService
from moorage.core.errors import Invalid
from moorage.wire.http import Call, Reply

#: As a body names one.
_ID = re.compile(r"[0-9]{1,18}\Z")


def enable(call: Call[AcceleratorService], uuid: str) -> Reply:
    call.service.operator.offer(uuid, offered=True)
    return Reply(204)


def disable(call: Call[AcceleratorService], uuid: str) -> Reply:
    call.service.operator.offer(uuid, offered=False)
    return Reply(204)


def program(call: Call[AcceleratorService], uuid: str) -> Reply:
    """The peer only replaces, by an image that the caller may use; ``remove``, ``wait_s``, functions and ``project_id`` are ours."""
    (operation,) = call.json
    value = operation.get("value", [{}])[0]
    wanted = ProgramRequest(value.get("image_uuid", ""), value.get("function_id", ""), value.get("function_name", ""))
    project_id, empties = value.get("project_id", call.caller.project_id), operation["op"] == "remove"
    wait_s = operation.get("wait_s")
    part = call.service.operator.program(call.caller, uuid, wanted, project_id, empties=empties, wait_s=wait_s)
    return Reply(body=shapes.deployable(part, call.base_url, private=True))


def index_attributes(call: Call[AcceleratorService]) -> Reply:
    deployable_id = call.query.first("deployable_id")
    if deployable_id is not None and not _ID.match(deployable_id):
        raise Invalid(
            f"deployable_id is {deployable_id[:255]!r}; it takes the number that a deployable has as root_id."
        )
    number = None if deployable_id is None else int(deployable_id)
    rows = call.service.operator.attributes(number, call.query.first("key"))
    return Reply(body={"attributes": [shapes.attribute(row, call.base_url) for row in rows]})


def show_attribute(call: Call[AcceleratorService], uuid: str) -> Reply:
    return Reply(body=shapes.attribute(call.service.operator.attribute(uuid), call.base_url))


def create_attribute(call: Call[AcceleratorService]) -> Reply:
    body = call.json.get("attribute", call.json)
    row = call.service.operator.create_attribute(int(body["deployable_id"]), body["key"], body["value"])
    return Reply(201, shapes.attribute(row, call.base_url))


def delete_attribute(call: Call[AcceleratorService], uuid: str) -> Reply:
    call.service.operator.delete_attribute(uuid)
    return Reply(204)
