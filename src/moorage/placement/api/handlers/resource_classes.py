"""/resource_classes"""

from moorage.placement.api.handlers.answers import (
    PlacementApiRequest,
    answer,
    answer_without_body,
    body_error_text,
    freshness_headers,
    link_path,
)
from moorage.placement.api.schemas import names as schemas
from moorage.wire.http import Response


def list_classes(request: PlacementApiRequest) -> Response:
    found = request.service.names.classes()
    modified = max((one.created_at for one in found), default=None)
    return answer(request, {"resource_classes": [_encode(request, one.name) for one in found]}, modified)


def create_class(request: PlacementApiRequest) -> Response:
    name = request.json["name"]
    request.service.names.create_class(name)
    return answer_without_body(request, 201, location=f"/resource_classes/{name}")


def show_class(request: PlacementApiRequest, name: str) -> Response:
    found = request.service.names.resource_class(name)
    return answer(request, _encode(request, name), found.created_at)


def rename_class(request: PlacementApiRequest, name: str) -> Response:
    """The route until 1.6."""
    new_name = request.json["name"]
    request.service.names.rename_class(name, new_name)
    return Response(200, _encode(request, new_name), freshness_headers(request))


def ensure_class(request: PlacementApiRequest, name: str) -> Response:
    """The route from 1.7 on: creates the class unless it exists."""
    schemas.RESOURCE_CLASS.validate({"name": name}, body_error_text)
    is_new = request.service.names.ensure_class(name)
    return answer_without_body(request, 201 if is_new else 204, location=f"/resource_classes/{name}")


def delete_class(request: PlacementApiRequest, name: str) -> Response:
    request.service.names.delete_class(name)
    return answer_without_body(request)


def _encode(request: PlacementApiRequest, name: str) -> dict[str, object]:
    return {"name": name, "links": [{"rel": "self", "href": link_path(request, f"/resource_classes/{name}")}]}
