"""Patches compared with a slow, obvious version, and documents converted in both directions."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.core.errors import MoorageError
from moorage.images.attributes import BASE, READ_ONLY
from moorage.images.document import (
    PatchOperation,
    apply_patch,
    decode_patch,
    image_arguments,
    image_document,
    image_from_stored,
    stored_document,
)
from moorage.images.model import Image, ImageStatus, Visibility

names = st.sampled_from(["p", "a:b", "s/t", "u~v", "name", "protected", "size", "id"])
operations = st.lists(
    st.builds(PatchOperation, st.sampled_from(["add", "remove", "replace"]), names, st.sampled_from(["1", "2"])),
    max_size=5,
)
documents = st.dictionaries(names, st.sampled_from(["1", "2"]), max_size=4)


@given(documents, operations)
def test_a_patch_applies_all_its_operations_or_none(document, wanted):
    expected, refused = dict(document), False
    for operation in wanted:
        there = operation.name in expected
        if operation.name in READ_ONLY or (operation.verb != "add" and not there):
            refused = True
            break
        if operation.verb == "remove":
            if operation.name in BASE:
                refused = True
                break
            expected.pop(operation.name)
        else:
            expected[operation.name] = operation.value
    before = dict(document)
    if refused:
        with pytest.raises(MoorageError):
            apply_patch(document, wanted)
    else:
        assert apply_patch(document, wanted) == expected
    assert document == before


@given(names)
def test_a_property_name_survives_the_escaping_in_a_json_pointer(name):
    pointer = "/" + name.replace("~", "~0").replace("/", "~1")
    (operation,) = decode_patch([{"op": "add", "path": pointer, "value": "1"}])
    assert operation.name == name


moments = st.datetimes(timezones=st.just(UTC), min_value=datetime(2000, 1, 1), max_value=datetime(2100, 1, 1))  # noqa: DTZ001 - the strategy adds the zone
text = st.none() | st.text(max_size=5)
whole_images = st.builds(
    Image,
    id=st.uuids(version=4).map(str),
    created_at=moments,
    updated_at=moments,
    name=text,
    owner=text,
    status=st.sampled_from(ImageStatus),
    visibility=st.sampled_from(Visibility),
    protected=st.booleans(),
    hidden=st.booleans(),
    disk_format=st.sampled_from([None, "raw"]),
    container_format=st.sampled_from([None, "bare"]),
    min_disk_gb=st.integers(0, 9),
    min_ram_mb=st.integers(0, 9),
    size_bytes=st.none() | st.integers(0, 2**40),
    md5=text,
    sha512=text,
    tags=st.frozensets(st.text(max_size=3), max_size=3),
    properties=st.dictionaries(
        st.text(max_size=5).filter(lambda name: name not in BASE), st.text(max_size=5), max_size=3
    ),
    upload_id=text,
)


@given(whole_images)
def test_a_stored_image_reads_back_the_same(image):
    assert image_from_stored(stored_document(image)) == image


@given(whole_images)
def test_the_document_of_an_image_decodes_to_the_settings_of_that_image(image):
    assert all(getattr(image, name) == value for name, value in image_arguments(image_document(image)).items())
