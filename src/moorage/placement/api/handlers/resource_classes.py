"""/resource_classes"""

from moorage.placement.api.handlers.answers import PlacementCall, answer, done, fresh, path, word_body_error
from moorage.placement.api.schemas import names as schemas
from moorage.wire.http import Reply


def index(call: PlacementCall) -> Reply:
    found = call.service.names.classes()
    modified = max((one.created_at for one in found), default=None)
    return answer(call, {"resource_classes": [_encode(call, one.name) for one in found]}, modified)


def create(call: PlacementCall) -> Reply:
    name = call.json["name"]
    call.service.names.create_class(name)
    return done(call, 201, location=f"/resource_classes/{name}")


def show(call: PlacementCall, name: str) -> Reply:
    found = call.service.names.resource_class(name)
    return answer(call, _encode(call, name), found.created_at)


def rename(call: PlacementCall, name: str) -> Reply:
    """Until 1.6."""
    new_name = call.json["name"]
    call.service.names.rename_class(name, new_name)
    return Reply(200, _encode(call, new_name), fresh(call))


def ensure(call: PlacementCall, name: str) -> Reply:
    """From 1.7 on: there it is, or there it is now."""
    schemas.RESOURCE_CLASS.check({"name": name}, word_body_error)
    is_new = call.service.names.ensure_class(name)
    return done(call, 201 if is_new else 204, location=f"/resource_classes/{name}")


def delete(call: PlacementCall, name: str) -> Reply:
    call.service.names.delete_class(name)
    return done(call)


def _encode(call: PlacementCall, name: str) -> dict[str, object]:
    return {"name": name, "links": [{"rel": "self", "href": path(call, f"/resource_classes/{name}")}]}
