"""The proxy to images that Nova has up to 2.35, their metadata up to 2.38: reads only, in the caller's own view."""

import json
from collections.abc import Callable
from datetime import UTC

from moorage.compute.api.handlers.views import (
    ComputeRequest,
    format_seconds,
    next_link,
    page_size,
    parse_moment,
    resource_links,
)
from moorage.core.errors import Invalid, NotFound
from moorage.core.json import Json
from moorage.images.attributes import is_filter_property
from moorage.images.base import ImageRecord
from moorage.images.client import DatedImage
from moorage.wire.body import encode_json
from moorage.wire.http import Response

_STATUSES = {
    "active": "ACTIVE",
    "queued": "SAVING",
    "saving": "SAVING",
    "deleted": "DELETED",
    "pending_delete": "DELETED",
    "killed": "ERROR",
}
_PROGRESS = {"queued": 25, "saving": 50, "active": 100}
#: Parameters of a list: {Nova's name: the Image API's}.
_FILTERS = {"name": "name", "minRam": "min_ram", "minDisk": "min_disk", "type": "image_type"}
_PROPERTY = "property-"
_TRUE = frozenset({"1", "t", "true", "on", "y", "yes"})
#: Properties in JSON, which are shown decoded.
_DECODED = ("block_device_mapping", "mappings")


def index(request: ComputeRequest) -> Response:
    return _list_response(request, _brief)


def detail(request: ComputeRequest) -> Response:
    return _list_response(request, _full)


def show(request: ComputeRequest, image_id: str) -> Response:
    return Response(body={"image": _full(request, request.service.image_proxy.show(request.caller, image_id))})


def index_metadata(request: ComputeRequest, image_id: str) -> Response:
    return Response(body={"metadata": _metadata(request.service.image_proxy.show(request.caller, image_id).record)})


def show_metadata_item(request: ComputeRequest, image_id: str, key: str) -> Response:
    metadata = _metadata(request.service.image_proxy.show(request.caller, image_id).record)
    if key not in metadata:
        raise NotFound("The resource could not be found.")
    return Response(body={"meta": {key: metadata[key]}})


def _list_response(request: ComputeRequest, view: Callable[[ComputeRequest, DatedImage], dict[str, Json]]) -> Response:
    """As in Nova, a full page links to the next one, which may be empty."""
    limit, marker = page_size(request), request.query.first("marker")
    images = request.service.image_proxy.page(request.caller, _filters(request), limit=limit, marker=marker)
    body: dict[str, Json] = {"images": [view(request, image) for image in images]}
    if images and len(images) == limit:
        body["images_links"] = next_link(request, images[-1].record.id)
    return Response(body=body)


def _filters(request: ComputeRequest) -> list[tuple[str, str]]:
    """Of the Image API. Raises `Invalid` for a property that is none: it could widen the list or its page."""
    first = request.query.first
    filters = [(name, value) for nova_name, name in _FILTERS.items() if (value := first(nova_name)) is not None]
    if (status := first("status")) is not None:
        filters.append(("status", status.lower()))
    if (since := first("changes-since")) is not None:
        filters.append(("updated_at", f"gte:{format_seconds(parse_moment(since, 'changes-since').astimezone(UTC))}"))
    if (server := first("server")) is not None:
        filters.append(("instance_uuid", server.rpartition("/")[2]))
    for parameter, value in request.query.pairs:
        name = parameter.removeprefix(_PROPERTY)
        if name == parameter:
            continue
        if not is_filter_property(name):
            raise Invalid(f"Invalid filter field: {parameter}. {name!r} is not a property of images.")
        filters.append((name, value))
    return filters


def _brief(request: ComputeRequest, image: DatedImage) -> dict[str, Json]:
    key = image.record.id
    alternate = {
        "rel": "alternate",
        "type": "application/vnd.openstack.image",
        "href": f"{request.service.image_proxy.address}/images/{key}",
    }
    return {"id": key, "name": image.record.name, "links": [*resource_links(request, "images", key), alternate]}


def _full(request: ComputeRequest, image: DatedImage) -> dict[str, Json]:
    record = image.record
    metadata = _metadata(record)
    view = _brief(request, image) | {
        "minRam": record.min_ram_mb,
        "minDisk": record.min_disk_gb,
        "metadata": metadata,
        "created": image.created_at,
        "updated": image.updated_at,
        "status": _STATUSES.get(record.status, "UNKNOWN"),
        "progress": _PROGRESS.get(record.status, 0),
        "OS-EXT-IMG-SIZE:size": record.size_bytes or 0,
    }
    if server := record.properties.get("instance_uuid"):
        view["server"] = {"id": server, "links": resource_links(request, "servers", server)}
    if (configures := record.properties.get("auto_disk_config")) is not None:
        view["OS-DCF:diskConfig"] = "AUTO" if configures.strip().lower() in _TRUE else "MANUAL"
    return view


def _metadata(record: ImageRecord) -> dict[str, Json]:
    return {name: _decoded(value) if name in _DECODED else value for name, value in record.properties.items()}


def _decoded(text: str) -> Json:
    """The text itself if it is not JSON, or if an answer cannot hold it: an owner may set any property to any text.

    An answer cannot hold integers beyond 64 bits, lone surrogates and deep nesting.
    """
    try:
        value: Json = json.loads(text)
        encode_json({"images": [{"metadata": {"": value}}]})  # as deep as in the answer
    except (ValueError, TypeError, RecursionError):
        return text
    return value
