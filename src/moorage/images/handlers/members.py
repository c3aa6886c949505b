"""``/v2/images/{image_id}/members``: projects that an image is shared with."""

from moorage.core.errors import NotFound
from moorage.images.document import shown_member
from moorage.images.model import MemberStatus
from moorage.images.service import ImageService
from moorage.wire.http import Request, Response


def list_members(request: Request[ImageService], image_id: str) -> Response:
    image, projects = request.service.members(request.caller, image_id)
    rows = [shown_member(image, project) for project in projects]
    return Response(body={"members": rows, "schema": "/v2/schemas/members"})


def add_member(request: Request[ImageService], image_id: str) -> Response:
    project = request.json["member"]
    return Response(body=shown_member(request.service.add_member(request.caller, image_id, project), project))


def show_member(request: Request[ImageService], image_id: str, member_id: str) -> Response:
    image, projects = request.service.members(request.caller, image_id)
    if member_id not in projects:
        raise NotFound(f"Project {member_id} is no member of image {image_id}.")
    return Response(body=shown_member(image, member_id))


def update_member(request: Request[ImageService], image_id: str, member_id: str) -> Response:
    status = MemberStatus(request.json["status"])
    image = request.service.answer_sharing(request.caller, image_id, member_id, status)
    return Response(body=shown_member(image, member_id))


def remove_member(request: Request[ImageService], image_id: str, member_id: str) -> Response:
    request.service.remove_member(request.caller, image_id, member_id)
    return Response(204)
