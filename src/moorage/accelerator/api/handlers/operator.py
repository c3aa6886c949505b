"""What an operator does with devices, regions and attributes."""

import re

from moorage.accelerator.api.handlers import shapes
from moorage.accelerator.model.profile import ProgramRequest
from moorage.accelerator.service.service import AcceleratorService
from moorage.core.errors import Invalid
from moorage.wire.http import Request, Response

#: As a body names one.
_ID = re.compile(r"[0-9]{1,18}\Z")


def enable_device(request: Request[AcceleratorService], uuid: str) -> Response:
    request.service.operator.offer(uuid, offered=True)
    return Response(204)


def disable_device(request: Request[AcceleratorService], uuid: str) -> Response:
    request.service.operator.offer(uuid, offered=False)
    return Response(204)


def program_deployable(request: Request[AcceleratorService], uuid: str) -> Response:
    """The peer only replaces, by an image that the caller may use; ``remove``, ``wait_s``, functions and ``project_id`` are ours."""
    (operation,) = request.json
    value = operation.get("value", [{}])[0]
    wanted = ProgramRequest(value.get("image_uuid", ""), value.get("function_id", ""), value.get("function_name", ""))
    project_id, empties = value.get("project_id", request.caller.project_id), operation["op"] == "remove"
    wait_s = operation.get("wait_s")
    part = request.service.operator.program(request.caller, uuid, wanted, project_id, empties=empties, wait_s=wait_s)
    return Response(body=shapes.deployable(part, request.base_url, private=True))


def list_attributes(request: Request[AcceleratorService]) -> Response:
    deployable_id = request.query.first("deployable_id")
    if deployable_id is not None and not _ID.match(deployable_id):
        raise Invalid(
            f"deployable_id is {deployable_id[:255]!r}; it takes the number that a deployable has as root_id."
        )
    number = None if deployable_id is None else int(deployable_id)
    rows = request.service.operator.attributes(number, request.query.first("key"))
    return Response(body={"attributes": [shapes.attribute(row, request.base_url) for row in rows]})


def show_attribute(request: Request[AcceleratorService], uuid: str) -> Response:
    return Response(body=shapes.attribute(request.service.operator.attribute(uuid), request.base_url))


def create_attribute(request: Request[AcceleratorService]) -> Response:
    body = request.json.get("attribute", request.json)
    row = request.service.operator.create_attribute(int(body["deployable_id"]), body["key"], body["value"])
    return Response(201, shapes.attribute(row, request.base_url))


def delete_attribute(request: Request[AcceleratorService], uuid: str) -> Response:
    request.service.operator.delete_attribute(uuid)
    return Response(204)
