"""Lists of images: filters, order, pages and visibility. Pure.

Source: Image API v2 reference, "List images"; answers to invalid values measured on Glance 33.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from moorage.core.caller import Caller
from moorage.core.errors import Invalid
from moorage.core.parsing import parse_time
from moorage.images.model import Image, MemberStatus, Visibility

DEFAULT_LIMIT = 25
MAX_LIMIT = 1000

_SORT_KEYS = ("name", "status", "container_format", "disk_format", "size", "id", "created_at", "updated_at")

#: Query parameters that are not filters by attribute.
_NOT_FILTERS = {"limit", "marker", "sort", "sort_key", "sort_dir", "visibility", "tag", "member_status", "os_hidden"}

#: Base attributes that can be filtered by, as strings.
_TEXTS: Mapping[str, Callable[[Image], str | None]] = {
    "id": lambda image: image.id,
    "name": lambda image: image.name,
    "status": lambda image: image.status,
    "container_format": lambda image: image.container_format,
    "disk_format": lambda image: image.disk_format,
    "owner": lambda image: image.owner,
    "checksum": lambda image: image.md5,
    "os_hash_algo": lambda image: "sha512" if image.sha512 else None,
    "os_hash_value": lambda image: image.sha512,
    "min_ram": lambda image: str(image.min_ram_mb),
    "min_disk": lambda image: str(image.min_disk_gb),
    "size": lambda image: None if image.size_bytes is None else str(image.size_bytes),
}

#: Attributes that also accept ``in:a,b``.
_LISTABLE = {"id", "name", "status", "container_format", "disk_format"}

_COMPARISONS: Mapping[str, Callable[[datetime, datetime], bool]] = {
    "eq": lambda mine, given: mine == given,
    "neq": lambda mine, given: mine != given,
    "gt": lambda mine, given: mine > given,
    "gte": lambda mine, given: mine >= given,
    "lt": lambda mine, given: mine < given,
    "lte": lambda mine, given: mine <= given,
}

Test = Callable[[Image], bool]


@dataclass(frozen=True)
class ImageListRequest:
    """A decoded list request. `order` is applied from the last key to the first: ``[(key, descending)]``."""

    tests: Sequence[Test]
    order: Sequence[tuple[str, bool]]
    limit: int
    marker: str | None
    visibility: str | None  #: a `Visibility`, ``all`` or None
    member_status: str  #: of images that others share with the caller: a `MemberStatus` or ``all``


def decode_listing(pairs: Sequence[tuple[str, str]]) -> ImageListRequest:
    """Raises `Invalid` with Glance's messages."""
    last = dict(pairs)
    visibility = last.get("visibility")
    if visibility is not None and visibility not in {*Visibility, "all"}:
        raise Invalid(f"Invalid visibility value: {visibility}")
    member_status = last.get("member_status", MemberStatus.ACCEPTED)
    if member_status not in {*MemberStatus, "all"}:
        raise Invalid(f"Invalid status: {member_status}")
    hidden = _decode_boolean("os_hidden", last.get("os_hidden", "false"))
    tests: list[Test] = [lambda image: image.hidden == hidden]
    tests += [_tag_test(value) for name, value in pairs if name == "tag"]
    tests += [_property_test(name, value) for name, value in last.items() if name not in _NOT_FILTERS]
    marker = last["marker"].lower() if "marker" in last else None
    return ImageListRequest(tests, _order(pairs), _limit(last.get("limit")), marker, visibility, member_status)


def list_page(images: Iterable[Image], listing: ImageListRequest, caller: Caller) -> tuple[list[Image], bool]:
    """Returns (one page, whether there are more). Raises `Invalid` for a marker that the caller may not see."""
    seen = [image for image in images if listed_for(image, listing, caller) or image.id == listing.marker]
    rows = sorted(seen, key=lambda image: image.id, reverse=True)
    for key, descending in reversed(listing.order):
        rows.sort(key=lambda image: _sort_value(image, key), reverse=descending)
    if listing.marker is not None:
        place = next((place for place, image in enumerate(rows) if image.id == listing.marker), None)
        if place is None or not may_see(rows[place], caller):
            raise Invalid(f"No image found with ID {listing.marker}")
        rows = rows[place + 1 :]
    matching = [image for image in rows if all(test(image) for test in listing.tests)]
    return matching[: listing.limit], len(matching) > listing.limit > 0


def may_see(image: Image, caller: Caller) -> bool:
    """Whether the caller may read the image by its id."""
    return (
        image.visibility in (Visibility.PUBLIC, Visibility.COMMUNITY)
        or caller.is_admin
        or caller.is_service
        or (bool(image.owner) and image.owner == caller.project_id)
        or is_member(image, caller)
    )


def is_member(image: Image, caller: Caller) -> bool:
    return image.visibility == Visibility.SHARED and caller.project_id in image.members


def listed_for(image: Image, listing: ImageListRequest, caller: Caller) -> bool:
    """Whether a list includes the image. Community images of other projects are listed only on request, images that
    another project shares only with the member's answer that is asked for.
    """
    if not may_see(image, caller):
        return False
    if image.owner != caller.project_id:
        if is_member(image, caller):
            status = image.members[caller.project_id].status
            if listing.member_status not in ("all", status):
                return False
        if image.visibility == Visibility.COMMUNITY and listing.visibility is None:
            return False
    return listing.visibility in (None, "all", image.visibility)


def _property_test(name: str, value: str) -> Test:
    if name in _TEXTS:
        attribute = _TEXTS[name]
        value = value.lower() if name == "id" else value
        wanted = {value}
        if name in _LISTABLE and value.startswith("in:"):
            wanted = {part.strip().strip('"') for part in value[3:].split(",")}
        return lambda image: attribute(image) in wanted
    if name == "protected":
        protected = _decode_boolean(name, value)
        return lambda image: image.protected == protected
    if name in ("size_min", "size_max"):
        bound = _decode_integer(value, "Unable to filter on a range with a non-numeric value.")
        if name == "size_min":
            return lambda image: image.size_bytes is not None and image.size_bytes >= bound
        return lambda image: image.size_bytes is not None and image.size_bytes <= bound
    if name in ("created_at", "updated_at"):
        return _time_test(name, value)
    return lambda image: image.properties.get(name) == value


def _tag_test(tag: str) -> Test:
    return lambda image: tag in image.tags


def _time_test(name: str, value: str) -> Test:
    operator, _, text = value.partition(":")
    if operator not in _COMPARISONS:
        operator, text = "eq", value
    try:
        given = parse_time(text)
    except ValueError as error:
        raise Invalid(f'Bad "{name}" query filter format. Use ISO 8601 DateTime notation.') from error
    compare = _COMPARISONS[operator]
    if name == "created_at":
        return lambda image: compare(image.created_at, given)
    return lambda image: compare(image.updated_at, given)


def _order(pairs: Sequence[tuple[str, str]]) -> list[tuple[str, bool]]:
    """From ``sort=name:asc,size`` or from ``sort_key=``/``sort_dir=``, which come in pairs; default: newest first."""
    last = dict(pairs)
    keys = [value for name, value in pairs if name == "sort_key"]
    directions = [value for name, value in pairs if name == "sort_dir"]
    if "sort" in last:
        if keys or directions:
            raise Invalid("Old and new sorting syntax cannot be combined")
        parts = [part.strip().partition(":") for part in last["sort"].split(",")]
        keys = [key for key, _, _ in parts]
        directions = [direction or "desc" for _, _, direction in parts]
    elif len(directions) > 1 and len(directions) != len(keys):
        raise Invalid("Number of sort dirs does not match the number of sort keys")
    for direction in directions:
        if direction not in ("asc", "desc"):
            raise Invalid(f"Invalid sort direction: {direction}")
    for key in keys:
        if key not in _SORT_KEYS:
            raise Invalid(f"Invalid sort key: {key}. It must be one of the following: {', '.join(_SORT_KEYS)}.")
    keys = keys or ["created_at"]
    if len(directions) != len(keys):
        directions = (directions or ["desc"]) * len(keys)
    order: dict[str, bool] = {}
    for key, direction in zip(keys, directions, strict=True):  # only the first occurrence of a key counts
        order.setdefault(key, direction == "desc")
    order.setdefault("created_at", True)
    return list(order.items())


def _sort_value(image: Image, key: str) -> datetime | int | str:
    if key in ("created_at", "updated_at"):
        return image.created_at if key == "created_at" else image.updated_at
    if key == "size":
        return image.size_bytes if image.size_bytes is not None else -1
    return _TEXTS[key](image) or ""


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_LIMIT
    limit = _decode_integer(text, "limit param must be an integer")
    if limit < 0:
        raise Invalid("limit param must be positive")
    return min(limit, MAX_LIMIT)


def _decode_integer(text: str, message: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise Invalid(message) from error


def _decode_boolean(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise Invalid(f"Invalid value '{value}' for '{name}' filter. Valid values are 'true' or 'false'.")
    return value.lower() == "true"
