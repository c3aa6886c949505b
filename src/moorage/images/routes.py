"""The part of the Image API v2 that clients and bitstream uploads need: its route table and policy rules.

Not supported: import, tasks, stores, caches, locations, metadata definitions.
"""

import html

from moorage.identity.policy import RuleTable, admin, member, reader
from moorage.images import handlers
from moorage.images.schemas import IMAGE, MEMBER_ANSWER, NEW_MEMBER, schema_error_text
from moorage.images.service import ImageService
from moorage.wire.app import ServiceApi
from moorage.wire.errors import Problem
from moorage.wire.http import Response, Route


def glance_error(problem: Problem) -> Response:
    """JSON if the client accepts JSON explicitly, otherwise a small HTML page. Clients print the text of either
    (measured on openstacksdk).
    """
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
    schema_error_message=schema_error_text,
    max_json_bytes=1 << 20,
    routes=(
        Route("GET", "/", handlers.show_versions, None, reads="none"),
        Route("GET", "/versions", handlers.show_supported_versions, None, reads="none"),
        Route("GET", "/v2", handlers.show_supported_versions, None, reads="none"),
        Route("GET", "/v2/", handlers.show_supported_versions, None, reads="none"),
        Route("GET", "/v2/schemas/image", handlers.show_image_schema, "get_images"),
        Route("GET", "/v2/schemas/images", handlers.show_images_schema, "get_images"),
        Route("GET", "/v2/schemas/member", handlers.show_member_schema, "get_images"),
        Route("GET", "/v2/schemas/members", handlers.show_members_schema, "get_images"),
        Route("GET", "/v2/info/import", handlers.list_import_methods, "get_images"),
        Route("POST", "/v2/images", handlers.create_image, "add_image", schema=IMAGE),
        Route("GET", "/v2/images", handlers.list_images, "get_images"),
        Route("GET", _IMAGE, handlers.show_image, "get_image"),
        Route("GET", f"{_IMAGE}/tasks", handlers.list_image_tasks, "get_image"),
        Route("PATCH", _IMAGE, handlers.update_image, "modify_image", reads="raw"),
        Route("DELETE", _IMAGE, handlers.delete_image, "delete_image"),
        Route("PUT", f"{_IMAGE}/file", handlers.upload_data, "upload_image", reads="stream"),
        Route("GET", f"{_IMAGE}/file", handlers.download_data, "download_image"),
        Route("PUT", f"{_IMAGE}/tags/{{tag}}", handlers.add_tag, "modify_image", reads="none"),
        Route("DELETE", f"{_IMAGE}/tags/{{tag}}", handlers.remove_tag, "modify_image", reads="none"),
        Route("POST", f"{_IMAGE}/actions/deactivate", handlers.deactivate_image, "deactivate", reads="none"),
        Route("POST", f"{_IMAGE}/actions/reactivate", handlers.reactivate_image, "reactivate", reads="none"),
        Route("GET", f"{_IMAGE}/members", handlers.list_members, "get_members"),
        Route("POST", f"{_IMAGE}/members", handlers.add_member, "add_member", schema=NEW_MEMBER),
        Route("GET", f"{_IMAGE}/members/{{member_id}}", handlers.show_member, "get_members"),
        Route("PUT", f"{_IMAGE}/members/{{member_id}}", handlers.update_member, "modify_member", schema=MEMBER_ANSWER),
        Route("DELETE", f"{_IMAGE}/members/{{member_id}}", handlers.remove_member, "delete_member"),
    ),
)

#: Glance's defaults (secure RBAC). The service checks the owner of an image.
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
        "deactivate": member,
        "reactivate": member,
        "get_members": reader,
        "add_member": member,
        "modify_member": member,
        "delete_member": member,
    },
    refusal_text="You are not authorized to complete {rule} action.",
)
