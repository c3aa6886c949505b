"""Devices and deployables with their attributes, programming, and the search for bitstreams."""

import re

from moorage.accelerator.api.handlers import shapes
from moorage.accelerator.model.errors import BitstreamNotFound, ChecksumMismatch, MultipleBitstreams
from moorage.accelerator.model.profile import ProgramRequest, function_id_of
from moorage.accelerator.service.operator_service import LoadableBitstream
from moorage.accelerator.service.service import AcceleratorService
from moorage.core.errors import Invalid
from moorage.core.json import Json
from moorage.wire.http import Request, Response
from moorage.wire.microversion import Version

STATUS_SINCE = Version(2, 3)


#: A deployable's number, its `root_id` in the API.
_ID = re.compile(r"[0-9]{1,18}\Z")


_BITSTREAM_KEYS = ("image_uuid", "function_id", "function_name")


def list_devices(request: Request[AcceleratorService]) -> Response:
    query = request.query
    rows = request.service.list_devices(query.first("hostname"), query.first("type"), query.first("vendor"))
    with_status = request.version >= STATUS_SINCE
    return Response(
        body={"devices": [shapes.device_document(row, request.base_url, with_status=with_status) for row in rows]}
    )


def show_device(request: Request[AcceleratorService], uuid: str) -> Response:
    row = request.service.get_device(uuid)
    return Response(body=shapes.device_document(row, request.base_url, with_status=request.version >= STATUS_SINCE))


def list_deployables(request: Request[AcceleratorService]) -> Response:
    rows = request.service.list_deployables()
    return Response(
        body={
            "deployables": [
                shapes.deployable_document(row, request.base_url, private=_sees_private_bitstreams(request))
                for row in rows
            ]
        }
    )


def show_deployable(request: Request[AcceleratorService], uuid: str) -> Response:
    return Response(
        body=shapes.deployable_document(
            request.service.get_deployable(uuid), request.base_url, private=_sees_private_bitstreams(request)
        )
    )


def enable_device(request: Request[AcceleratorService], uuid: str) -> Response:
    request.service.operator.set_device_enabled(uuid, offered=True)
    return Response(204)


def disable_device(request: Request[AcceleratorService], uuid: str) -> Response:
    request.service.operator.set_device_enabled(uuid, offered=False)
    return Response(204)


def program_deployable(request: Request[AcceleratorService], uuid: str) -> Response:
    """Cyborg supports only ``replace``, with an image that the caller may use. Moorage adds ``remove``, ``wait_s``,
    functions and ``project_id``.
    """
    (operation,) = request.json
    value = operation.get("value", [{}])[0]
    wanted = ProgramRequest(value.get("image_uuid", ""), value.get("function_id", ""), value.get("function_name", ""))
    project_id, empties = value.get("project_id", request.caller.project_id), operation["op"] == "remove"
    wait_s = operation.get("wait_s")
    part = request.service.operator.program_deployable(
        request.caller, uuid, wanted, project_id, empties=empties, wait_s=wait_s
    )
    return Response(body=shapes.deployable_document(part, request.base_url, private=True))


def list_attributes(request: Request[AcceleratorService]) -> Response:
    deployable_id = request.query.first("deployable_id")
    if deployable_id is not None and not _ID.match(deployable_id):
        raise Invalid(f"deployable_id is {deployable_id[:255]!r}; use the number in a deployable's root_id.")
    number = None if deployable_id is None else int(deployable_id)
    rows = request.service.operator.list_attributes(number, request.query.first("key"))
    return Response(body={"attributes": [shapes.attribute_document(row, request.base_url) for row in rows]})


def show_attribute(request: Request[AcceleratorService], uuid: str) -> Response:
    return Response(body=shapes.attribute_document(request.service.operator.get_attribute(uuid), request.base_url))


def create_attribute(request: Request[AcceleratorService]) -> Response:
    body = request.json.get("attribute", request.json)
    row = request.service.operator.create_attribute(int(body["deployable_id"]), body["key"], body["value"])
    return Response(201, shapes.attribute_document(row, request.base_url))


def delete_attribute(request: Request[AcceleratorService], uuid: str) -> Response:
    request.service.operator.delete_attribute(uuid)
    return Response(204)


def list_bitstreams(request: Request[AcceleratorService]) -> Response:
    """Answers 200 with the reason if there is no bitstream. A 404 means that the service has no image service."""
    query = request.query
    if unknown := sorted(query.names() - {*_BITSTREAM_KEYS, "project_id", "trait"}):
        raise Invalid(
            f"Unknown query parameters: {', '.join(unknown)}. Bitstreams are searched by {', '.join(_BITSTREAM_KEYS)}, "
            "project_id, trait."
        )
    image_id, function_id, function_name = (query.first(name) or "" for name in _BITSTREAM_KEYS)
    if sum(map(bool, (image_id, function_id, function_name))) != 1:
        raise Invalid(f"Name one of {', '.join(_BITSTREAM_KEYS)}.")
    wanted = ProgramRequest(image_id, function_id_of(function_id), function_name)
    project_id = query.first("project_id") or request.caller.project_id
    found: list[LoadableBitstream] = []
    refusal: dict[str, Json] | None = None
    try:
        found = request.service.bitstreams.find_loadable(wanted, project_id, query.every("trait"))
    except (BitstreamNotFound, MultipleBitstreams, ChecksumMismatch) as error:
        refusal = {"message": error.message, "is_ambiguous": isinstance(error, MultipleBitstreams)}
    return Response(body={"bitstreams": [_bitstream_document(one) for one in found], "refusal": refusal})


def _bitstream_document(one: LoadableBitstream) -> dict[str, Json]:
    return {"image_uuid": one.image.id, "name": one.image.name, "region_type": one.region_type}


def _sees_private_bitstreams(request: Request[AcceleratorService]) -> bool:
    """Only operators and services may see the private bitstreams of projects."""
    return request.caller.is_admin or request.caller.is_service
