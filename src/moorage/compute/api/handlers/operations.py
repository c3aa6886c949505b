"""Actions that have arguments or answers of their own: rebuild, rescue, password, images of the disk."""

from typing import Any

from moorage.compute.api.handlers.server_view import rebuilt
from moorage.compute.api.handlers.views import ComputeRequest, amount
from moorage.compute.model import lifecycle
from moorage.compute.servers.operate_service import NewImage, Rebuild
from moorage.wire.http import Response

#: Columns of a server by the names that a rebuild request has for them.
_CHANGES = ("name", "metadata", "description", "key_name", "user_data", "hostname")


def rebuild(request: ComputeRequest, server_id: str, argument: Any) -> Response:
    wanted = Rebuild(_id_of(argument["imageRef"]), {name: argument[name] for name in _CHANGES if name in argument})
    request.service.operations.rebuild(request.caller, request.request_id, server_id, wanted)
    server = request.service.servers.get(request.caller, server_id)
    password = argument.get("adminPass") or request.service.operations.new_password()
    headers = {"location": f"{request.base_url}/v2.1/servers/{server_id}"}
    return Response(202, {"server": {**rebuilt(request, server), "adminPass": password}}, headers)


def rescue(request: ComputeRequest, server_id: str, argument: Any) -> Response:
    wanted = argument or {}
    image = wanted.get("rescue_image_ref")
    password = wanted.get("adminPass") or request.service.operations.new_password()
    request.service.operations.rescue(request.caller, request.request_id, server_id, image and _id_of(image), password)
    return Response(200, {"adminPass": password})


def change_password(request: ComputeRequest, server_id: str, argument: Any) -> Response:
    request.service.operations.operate(
        request.caller, request.request_id, server_id, lifecycle.CHANGE_PASSWORD, {"password": argument["adminPass"]}
    )
    return Response(202)


def create_image(request: ComputeRequest, server_id: str, argument: Any) -> Response:
    return _image(request, server_id, NewImage(argument["name"], argument.get("metadata", {})))


def create_backup(request: ComputeRequest, server_id: str, argument: Any) -> Response:
    wanted = NewImage(
        argument["name"],
        argument.get("metadata", {}),
        argument["backup_type"],
        amount(argument["rotation"], "rotation"),
    )
    return _image(request, server_id, wanted)


def _image(request: ComputeRequest, server_id: str, wanted: NewImage) -> Response:
    image_id = request.service.operations.make_image(request.caller, request.request_id, server_id, wanted)
    if request.version >= (2, 45):
        return Response(202, {"image_id": image_id})
    return Response(202, headers={"location": f"{request.base_url}/images/{image_id}"})


def _id_of(reference: str) -> str:
    """An id, or a link that ends in one."""
    return reference.rpartition("/")[2]
