"""/resource_classes"""

from moorage.placement.api.handlers.answers import PlacementApiRequest, answer, done, fresh, path, word_body_error
from moorage.placement.api.schemas import names as schemas
from moorage.wire.http import Response


def index(request: PlacementApiRequest) -> Response:
    found = request.service.names.classes()
    modified = max((one.created_at for one in found), default=None)
    return answer(request, {"resource_classes": [_encode(request, one.name) for one in found]}, modified)


def create(request: PlacementApiRequest) -> Response:
    name = request.json["name"]
    request.service.names.create_class(name)
    return done(request, 201, location=f"/resource_classes/{name}")


def show(request: PlacementApiRequest, name: str) -> Response:
    found = request.service.names.resource_class(name)
    return answer(request, _encode(request, name), found.created_at)


def rename(request: PlacementApiRequest, name: str) -> Response:
    """Until 1.6."""
    new_name = request.json["name"]
    request.service.names.rename_class(name, new_name)
    return Response(200, _encode(request, new_name), fresh(request))


def ensure(request: PlacementApiRequest, name: str) -> Response:
    """From 1.7 on: there it is, or there it is now."""
    schemas.RESOURCE_CLASS.validate({"name": name}, word_body_error)
    is_new = request.service.names.ensure_class(name)
    return done(request, 201 if is_new else 204, location=f"/resource_classes/{name}")


def delete(request: PlacementApiRequest, name: str) -> Response:
    request.service.names.delete_class(name)
    return done(request)


def _encode(request: PlacementApiRequest, name: str) -> dict[str, object]:
    return {"name": name, "links": [{"rel": "self", "href": path(request, f"/resource_classes/{name}")}]}
