"""/resource_classes, /traits and /resource_providers/{uuid}/traits"""

from collections.abc import Iterable
from datetime import datetime

from moorage.core.errors import Invalid, NotFound
from moorage.placement.api.handlers.answers import (
    PlacementApiRequest,
    answer,
    answer_without_body,
    body_error_text,
    checked_query,
    freshness_headers,
    link_path,
)
from moorage.placement.api.schemas import names as schemas
from moorage.placement.forest.model import Name
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


_BAD_NAME = (
    "The trait is invalid. A valid trait must be no longer than 255 characters, start with the prefix "
    '"CUSTOM_" and use following characters: "A"-"Z", "0"-"9" and "_"'
)


def list_traits(request: PlacementApiRequest) -> Response:
    values = checked_query(request, schemas.LIST_TRAITS)
    prefix, among = _name_filter(values["name"]) if "name" in values else (None, None)
    associated = None
    if "associated" in values:
        if values["associated"].lower() not in ("true", "false"):
            raise Invalid('The query parameter "associated" only accepts "true" or "false"')
        associated = values["associated"].lower() == "true"
    found = request.service.names.traits(prefix=prefix, among=among, associated=associated)
    return answer(request, {"traits": [trait.name for trait in found]}, _newest(found))


def _name_filter(text: str) -> tuple[str | None, list[str] | None]:
    operator, colon, value = text.partition(":")
    if not colon:
        raise Invalid(
            "Badly formatted name parameter. Expected name query string parameter in form: "
            f'?name=[in|startswith]:[name1,name2|prefix]. Got: "{text}"'
        )
    if operator == "in":
        return None, value.split(",")
    return (value, None) if operator == "startswith" else (None, None)


def show_trait(request: PlacementApiRequest, name: str) -> Response:
    return Response(204, None, freshness_headers(request, request.service.names.trait(name).created_at))


def create_trait(request: PlacementApiRequest, name: str) -> Response:
    schemas.CUSTOM_TRAIT.validate(name, lambda _: _BAD_NAME)
    trait, is_new = request.service.names.ensure_trait(name)
    response = answer_without_body(request, 201 if is_new else 204, location=f"/traits/{name}")
    response.headers |= freshness_headers(request, trait.created_at)
    return response


def delete_trait(request: PlacementApiRequest, name: str) -> Response:
    request.service.names.delete_trait(name)
    return answer_without_body(request)


def show_provider_traits(request: PlacementApiRequest, uuid: str) -> Response:
    forest = request.service.providers.forest()
    provider = forest.by_uuid(uuid)
    if provider is None:
        raise NotFound(f"No resource provider with uuid {uuid} found: No resource provider with uuid {uuid} found")
    found = forest.names.sorted_traits(provider.traits)
    return _provider_traits_reply(request, provider.generation, found)


def set_provider_traits(request: PlacementApiRequest, uuid: str) -> Response:
    provider, found = request.service.providers.set_traits(
        uuid, request.json["resource_provider_generation"], request.json["traits"]
    )
    return _provider_traits_reply(request, provider.generation, found)


def clear_provider_traits(request: PlacementApiRequest, uuid: str) -> Response:
    request.service.providers.set_traits(uuid, None, ())
    return answer_without_body(request)


def _provider_traits_reply(request: PlacementApiRequest, generation: int, found: list[Name]) -> Response:
    body = {"traits": [trait.name for trait in found], "resource_provider_generation": generation}
    return answer(request, body, _newest(found))


def _newest(found: Iterable[Name]) -> datetime | None:
    return max((trait.created_at for trait in found), default=None)
