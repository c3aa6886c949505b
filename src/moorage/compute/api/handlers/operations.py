"""Actions that have arguments or answers of their own: rebuild, rescue, password, images of the disk."""

from typing import Any

from moorage.compute.api.handlers.server_view import rebuilt
from moorage.compute.api.handlers.views import ComputeCall, amount
from moorage.compute.model import lifecycle
from moorage.compute.servers.operate_service import NewImage, Rebuild
from moorage.wire.http import Reply

#: Columns of a server by the names that a rebuild request has for them.
_CHANGES = ("name", "metadata", "description", "key_name", "user_data", "hostname")


def rebuild(call: ComputeCall, server_id: str, argument: Any) -> Reply:
    wanted = Rebuild(_id_of(argument["imageRef"]), {name: argument[name] for name in _CHANGES if name in argument})
    call.service.operations.rebuild(call.caller, call.request_id, server_id, wanted)
    server = call.service.servers.get(call.caller, server_id)
    password = argument.get("adminPass") or call.service.operations.new_password()
    headers = {"location": f"{call.base_url}/v2.1/servers/{server_id}"}
    return Reply(202, {"server": {**rebuilt(call, server), "adminPass": password}}, headers)


def rescue(call: ComputeCall, server_id: str, argument: Any) -> Reply:
    wanted = argument or {}
    image = wanted.get("rescue_image_ref")
    password = wanted.get("adminPass") or call.service.operations.new_password()
    call.service.operations.rescue(call.caller, call.request_id, server_id, image and _id_of(image), password)
    return Reply(200, {"adminPass": password})


def change_password(call: ComputeCall, server_id: str, argument: Any) -> Reply:
    call.service.operations.operate(
        call.caller, call.request_id, server_id, lifecycle.CHANGE_PASSWORD, {"password": argument["adminPass"]}
    )
    return Reply(202)


def create_image(call: ComputeCall, server_id: str, argument: Any) -> Reply:
    return _image(call, server_id, NewImage(argument["name"], argument.get("metadata", {})))


def create_backup(call: ComputeCall, server_id: str, argument: Any) -> Reply:
    wanted = NewImage(
        argument["name"],
        argument.get("metadata", {}),
        argument["backup_type"],
        amount(argument["rotation"], "rotation"),
    )
    return _image(call, server_id, wanted)


def _image(call: ComputeCall, server_id: str, wanted: NewImage) -> Reply:
    image_id = call.service.operations.make_image(call.caller, call.request_id, server_id, wanted)
    if call.version >= (2, 45):
        return Reply(202, {"image_id": image_id})
    return Reply(202, headers={"location": f"{call.base_url}/images/{image_id}"})


def _id_of(reference: str) -> str:
    """An id, or a link that ends in one."""
    return reference.rpartition("/")[2]
