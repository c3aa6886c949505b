"""The choice of the image that is programmed, and the reasons why others are rejected."""

from dataclasses import replace

import pytest

from moorage.accelerator.drivers.simulated import REGION_TYPE_CARD_0, REGION_TYPE_CARD_1, default_simulated_host
from moorage.accelerator.model.bitstream import (
    BitstreamTarget,
    bitstream_not_found,
    bitstream_of,
    choose_image,
    functions_of,
    property_filters,
    rejection_reason,
)
from moorage.accelerator.model.devices import Function
from moorage.accelerator.model.errors import MultipleBitstreams
from moorage.accelerator.model.profile import ProgramRequest
from moorage.images.base import ImageRecord

AES = "9aff21a8-3f5b-4a3c-9d0e-0f1c7d1f0a01"
CARD = next(device for device in default_simulated_host() if device.deployables[0].region_type == REGION_TYPE_CARD_0)
TARGET = BitstreamTarget(REGION_TYPE_CARD_0, "mine", CARD, CARD.deployables[0].name)
BY_ID = ProgramRequest(function_id=AES)


def image(identity="i1", *, visibility="public", owner="mine", status="active", **properties) -> ImageRecord:
    properties = {"region_uuid": REGION_TYPE_CARD_0, "function_uuid": AES} | properties
    return ImageRecord(
        identity, f"name of {identity}", visibility, owner, status, 3, "sha512", "ab" * 64, properties, frozenset()
    )


def test_images_are_searched_first_by_function_and_region_type_together():
    """R24: the query carries both filters; A11: Cyborg's property is the fallback."""
    first, second, third = property_filters(BY_ID, TARGET)
    assert first == {"function_uuid": AES, "region_uuid": REGION_TYPE_CARD_0}
    assert second == {"accel:function_id": AES}
    assert third == {"region_uuid": REGION_TYPE_CARD_0}


def test_images_are_also_searched_by_function_name():
    """R5: a function is identified by UUID or by a free name."""
    assert next(property_filters(ProgramRequest(function_name="aes"), TARGET)) == {
        "function_name": "aes",
        "region_uuid": REGION_TYPE_CARD_0,
    }
    named = image(function_uuid="", function_name="aes")
    assert choose_image([named], ProgramRequest(function_name="aes"), TARGET) == named
    assert choose_image([named], ProgramRequest(function_name="AES"), TARGET) is None


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (image(region_uuid=REGION_TYPE_CARD_1), REGION_TYPE_CARD_1),
        (image(region_uuid=""), "none given"),
        (image(function_uuid="0b3ddd11-8f2c-4d0a-a3aa-77c2b8f0f202"), "does not have"),
        (image(vendor="xilinx"), "vendor xilinx"),
        (image(board="U280"), "board U280"),
        (image(shell_id="7d3c8c5a-0000-4000-8000-000000000000"), "shell_id"),
        (image(visibility="private", owner="theirs"), "another project"),
        (image(visibility="shared", owner="theirs"), "another project"),
        (image(visibility="community", owner="theirs"), "ask an operator to publish it"),
        (image(status="deactivated"), "deactivated"),
    ],
)
def test_an_image_that_does_not_fit_is_rejected_with_a_reason(other, reason):
    """A11: vendor, board, shell and region type are compared with the device; only readable images count."""
    assert reason in rejection_reason(other, BY_ID, TARGET)
    assert choose_image([other], BY_ID, TARGET) is None
    told = bitstream_not_found(BY_ID, TARGET, [other]).message
    may_know = other.owner == "mine" or other.visibility == "community"
    assert (reason in told) is may_know, "images of other projects must not be mentioned"


@pytest.mark.parametrize(
    "properties",
    [
        {"vendor": "Intel"},
        {"vendor": "0x8086"},
        {"vendor": "8086", "board": "pac_a10"},
        {"shell_id": CARD.shell_id.upper()},
        {"region_uuid": REGION_TYPE_CARD_0.upper()},
        {"function_uuid": f"0b3ddd11-8f2c-4d0a-a3aa-77c2b8f0f202, {AES}"},
    ],
)
def test_an_image_whose_properties_differ_only_in_spelling_is_chosen(properties):
    fitting = image(**properties)
    assert choose_image([fitting], BY_ID, TARGET) == fitting


def test_two_matching_images_are_an_error_that_names_both():
    """R25: the library does not choose."""
    with pytest.raises(MultipleBitstreams) as caught:
        choose_image([image("i2"), image("i1"), image("i1")], BY_ID, TARGET)
    assert "i1 (name of i1) and i2 (name of i2)" in caught.value.message


def test_an_image_that_is_found_twice_is_chosen():
    assert choose_image([image(), image()], BY_ID, TARGET) == image()


@pytest.mark.parametrize("wanted", [BY_ID, ProgramRequest(bitstream_id="theirs")], ids=["by function", "by id"])
def test_a_community_image_of_another_project_is_not_chosen_and_is_no_second_match(wanted):
    """Otherwise any user could have a bitstream programmed for others, or make their flavor fail by a second match."""
    theirs = image("theirs", visibility="community", owner="theirs")
    assert choose_image([theirs], wanted, TARGET) is None
    assert choose_image([theirs, image()], BY_ID, TARGET) == image()
    own = replace(theirs, owner=TARGET.project_id)
    assert choose_image([own], wanted, TARGET) == own


def test_without_a_project_only_public_images_are_chosen():
    unowned = replace(image(visibility="private"), owner="")
    assert choose_image([unowned], BY_ID, replace(TARGET, project_id="")) is None
    assert choose_image([image()], BY_ID, replace(TARGET, project_id="")) == image()


def test_a_private_image_of_the_project_is_chosen_and_its_bitstream_is_not_public():
    """A12: functions of a private bitstream are not published."""
    own = image(visibility="private")
    assert choose_image([own], BY_ID, TARGET) == own
    assert not bitstream_of(own).public
    assert not bitstream_of(replace(own, visibility="community")).public, "any user can create a community image"


def test_ids_and_names_of_several_functions_are_paired():
    """R4: a bitstream may implement several functions."""
    both = image(function_uuid=f"{AES},0b3ddd11-8f2c-4d0a-a3aa-77c2b8f0f202", function_name="aes,sha,crc")
    assert functions_of(both) == (
        Function(AES, "aes"),
        Function("0b3ddd11-8f2c-4d0a-a3aa-77c2b8f0f202", "sha"),
        Function("", "crc"),
    )
    assert functions_of(image(function_uuid="", **{"accel:function_id": AES})) == (Function(AES, ""),)


def test_the_error_not_found_names_function_and_region_type():
    message = bitstream_not_found(BY_ID, TARGET, []).message
    assert AES in message
    assert REGION_TYPE_CARD_0 in message
    assert "no image matches" in message
