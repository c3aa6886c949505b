"""Listings, read page by page to the end, compared with a slow, obvious filter and sort."""

import contextlib
import string
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from moorage.core.caller import Caller
from moorage.core.errors import Invalid
from moorage.images import query
from moorage.images.model import Image, ImageStatus, Visibility

START = datetime(2026, 3, 1, tzinfo=UTC)
PROJECTS = ["red", "blue"]

images = st.lists(
    st.builds(
        Image,
        id=st.uuids(version=4).map(str),
        created_at=st.integers(0, 3).map(lambda seconds: START + timedelta(seconds=seconds)),
        updated_at=st.just(START),
        name=st.sampled_from([None, "a", "b"]),
        owner=st.sampled_from([None, *PROJECTS]),
        status=st.sampled_from(ImageStatus),
        visibility=st.sampled_from(Visibility),
        hidden=st.booleans(),
        size_bytes=st.sampled_from([None, 1, 2]),
        tags=st.frozensets(st.sampled_from(["x", "y"])),
        properties=st.dictionaries(st.sampled_from(["p", "q"]), st.sampled_from(["1", "2"])),
    ),
    max_size=8,
    unique_by=lambda image: image.id,
)
callers = st.builds(
    Caller,
    user_id=st.just("u"),
    project_id=st.sampled_from(PROJECTS),
    roles=st.sampled_from([frozenset({"member"}), frozenset({"admin"})]),
)
filters = st.lists(
    st.sampled_from(
        [("name", "a"), ("name", "in:a,b"), ("status", "active"), ("p", "1"), ("q", "2"), ("tag", "x"), ("tag", "y"),
         ("owner", "red"), ("size_min", "2"), ("size_max", "1"), ("os_hidden", "true")]
    ),
    unique=True,
    max_size=3,
)  # fmt: skip
orders = st.sampled_from(
    ["created_at:asc", "created_at:desc", "name:asc,size:desc", "size", "id:asc", "status:desc,id"]
)
visibilities = st.sampled_from([None, "all", *Visibility])


def slow_check(image, name, value):
    if name == "name":
        return image.name in value.removeprefix("in:").split(",")
    if name == "status":
        return image.status == value
    if name == "owner":
        return image.owner == value
    if name == "size_min":
        return image.size_bytes is not None and image.size_bytes >= int(value)
    if name == "size_max":
        return image.size_bytes is not None and image.size_bytes <= int(value)
    return name == "os_hidden" or image.properties.get(name) == value


def slow_list(rows, caller, visibility, wanted, order):
    """The ids of the images in the listing, in order, with one condition checked after the other."""
    hidden = ("os_hidden", "true") in wanted
    result = []
    for image in rows:
        own = image.owner == caller.project_id
        if image.visibility in ("private", "shared") and not own and not caller.is_admin:
            continue
        if visibility is None and image.visibility == "community" and not own:
            continue
        if visibility not in (None, "all", image.visibility.value) or image.hidden != hidden:
            continue
        last = {name: value for name, value in wanted if name != "tag"}
        checks = [value in image.tags for name, value in wanted if name == "tag"]
        for name, value in last.items():
            checks.append(slow_check(image, name, value))
        if all(checks):
            result.append(image)
    keys = {
        "created_at": lambda image: image.created_at.timestamp(),
        "size": lambda image: -1 if image.size_bytes is None else image.size_bytes,
        "name": lambda image: image.name or "",
        "status": lambda image: image.status.value,
        "id": lambda image: image.id,
    }
    result.sort(key=lambda image: image.id, reverse=True)
    parts = [part.partition(":") for part in order.split(",")]
    if "created_at" not in order:
        parts.append(("created_at", ":", "desc"))
    for key, _, direction in reversed(parts):
        result.sort(key=keys[key], reverse=direction != "asc")
    return [image.id for image in result]


@given(images, callers, visibilities, filters, orders, st.integers(1, 4))
def test_the_pages_of_a_listing_together_are_the_whole_list(rows, caller, visibility, wanted, order, limit):
    pairs = [*wanted, ("sort", order), ("limit", str(limit))]
    if visibility is not None:
        pairs.append(("visibility", str(visibility)))
    seen, marker = [], None
    while True:
        page, more = query.list_page(
            rows, query.decode_listing([*pairs, *([("marker", marker)] if marker else [])]), caller
        )
        assert len(page) <= limit
        seen += [image.id for image in page]
        if not more:
            break
        marker = page[-1].id
    assert seen == slow_list(rows, caller, visibility, wanted, order)


@given(st.lists(st.tuples(st.text(string.ascii_letters + "_", min_size=1), st.text(max_size=8)), max_size=4))
def test_any_query_of_a_listing_is_decoded_or_invalid(pairs):
    with contextlib.suppress(Invalid):
        query.decode_listing(pairs)
