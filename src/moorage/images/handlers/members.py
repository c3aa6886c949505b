"""``/v2/images/{image_id}/members``: projects that an image is shared with."""

from moorage.core.errors import NotFound
from moorage.images.document import shown_member
from moorage.images.model import MemberStatus
from moorage.images.service import ImageService
from moorage.wire.http import Call, Reply


def index(call: Call[ImageService], image_id: str) -> Reply:
    image, projects = call.service.members(call.caller, image_id)
    rows = [shown_member(image, project) for project in projects]
    return Reply(body={"members": rows, "schema": "/v2/schemas/members"})


def add(call: Call[ImageService], image_id: str) -> Reply:
    project = call.json["member"]
    return Reply(body=shown_member(call.service.add_member(call.caller, image_id, project), project))


def show(call: Call[ImageService], image_id: str, member_id: str) -> Reply:
    image, projects = call.service.members(call.caller, image_id)
    if member_id not in projects:
        raise NotFound(f"Project {member_id} is no member of image {image_id}.")
    return Reply(body=shown_member(image, member_id))


def answer(call: Call[ImageService], image_id: str, member_id: str) -> Reply:
    status = MemberStatus(call.json["status"])
    image = call.service.answer_sharing(call.caller, image_id, member_id, status)
    return Reply(body=shown_member(image, member_id))


def remove(call: Call[ImageService], image_id: str, member_id: str) -> Reply:
    call.service.remove_member(call.caller, image_id, member_id)
    return Reply(204)
