"""The part of the Image API v2 that clients and bitstream uploads need, and who may use it.

Not here: import, tasks, stores, caches, locations, metadata definitions.
"""

import html

from moorage.identity.policy import RuleTable, admin, member, reader
from moorage.images.handlers import files, images, members, versions
from moorage.images.schemas.image import IMAGE, worded
from moorage.images.schemas.member import MEMBER_ANSWER, NEW_MEMBER
from moorage.images.service import ImageService
from moorage.wire.app import ServiceApi
from moorage.wire.errors import Problem
from moorage.wire.http import Response, Route


def glance_error(problem: Problem) -> Response:
    """JSON for who asks for it by name, else a small page: clients print the text of either (measured on openstacksdk)."""
    code = f"{problem.status} {problem.title}"
    if "application/json" in problem.accept:
        return Response(problem.status, {"message": problem.message, "code": code, "title": problem.title})
    page = (
        f"<html>\n <head>\n  <title>{code}</title>\n </head>\n <body>\n  <h1>{code}</h1>\n"
        f"  {html.escape(problem.message)}\n </body>\n</html>\n"
    )
    return Response(problem.status, page.encode(), content_type="text/html; charset=UTF-8")


_IMAGE = "/v2/images/{image_id}"

API: ServiceApi[ImageService] = ServiceApi(
    name="image",
    error_shape=glance_error,
    word_schema_error=worded,
    max_json_bytes=1 << 20,
    routes=(
        Route("GET", "/", versions.index, None, reads="none"),
        Route("GET", "/versions", versions.show, None, reads="none"),
        Route("GET", "/v2", versions.show, None, reads="none"),
        Route("GET", "/v2/", versions.show, None, reads="none"),
        Route("GET", "/v2/schemas/image", versions.image_schema, "get_images"),
        Route("GET", "/v2/schemas/images", versions.images_schema, "get_images"),
        Route("GET", "/v2/info/import", versions.import_methods, "get_images"),
        Route("POST", "/v2/images", images.create, "add_image", schema=IMAGE),
        Route("GET", "/v2/images", images.index, "get_images"),
        Route("GET", _IMAGE, images.show, "get_image"),
        Route("PATCH", _IMAGE, images.update, "modify_image", reads="raw"),
        Route("DELETE", _IMAGE, images.delete, "delete_image"),
        Route("PUT", f"{_IMAGE}/file", files.upload, "upload_image", reads="stream"),
        Route("GET", f"{_IMAGE}/file", files.download, "download_image"),
        Route("PUT", f"{_IMAGE}/tags/{{tag}}", images.add_tag, "modify_image", reads="none"),
        Route("DELETE", f"{_IMAGE}/tags/{{tag}}", images.remove_tag, "modify_image", reads="none"),
        Route("POST", f"{_IMAGE}/actions/deactivate", images.deactivate, "deactivate", reads="none"),
        Route("POST", f"{_IMAGE}/actions/reactivate", images.reactivate, "reactivate", reads="none"),
        Route("GET", f"{_IMAGE}/members", members.index, "get_members"),
        Route("POST", f"{_IMAGE}/members", members.add, "add_member", schema=NEW_MEMBER),
        Route("GET", f"{_IMAGE}/members/{{member_id}}", members.show, "get_members"),
        Route("PUT", f"{_IMAGE}/members/{{member_id}}", members.answer, "modify_member", schema=MEMBER_ANSWER),
        Route("DELETE", f"{_IMAGE}/members/{{member_id}}", members.remove, "delete_member"),
    ),
)

#: Glance's defaults (secure RBAC). Whose image it is, is the service's question.
RULES = RuleTable(
    {
        "add_image": member,
        "get_image": reader,
        "get_images": reader,
        "modify_image": member,
        "delete_image": member,
        "upload_image": member,
        "download_image": reader,
        "publicize_image": admin,
        "communitize_image": member,
        "deactivate": admin,
        "reactivate": admin,
        "get_members": reader,
        "add_member": member,
        "modify_member": member,
        "delete_member": member,
    },
    refusal_text="You are not authorized to complete {rule} action.",
)
