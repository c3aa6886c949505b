"""Extra specs of a flavor are decoded to groups of accelerators, each with its bitstream or function."""

import pytest

from moorage.accelerator.model.errors import BadRequest
from moorage.accelerator.model.profile import (
    ProgramRequest,
    apply_image_hints,
    from_extra_specs,
    refers_to_accelerators,
)

BITSTREAM = "6b1e7a0e-2b52-4a6e-8f0e-b1f9c0de0001"
FUNCTION = "9aff21a8-3f5b-4a3c-9d0e-0f1c7d1f0a01"
FPGA = {"resources:CUSTOM_ACCELERATOR_FPGA": "1"}


def only_group(specs):
    (group,) = from_extra_specs(specs).groups
    return group


@pytest.mark.parametrize(
    ("specs", "expected"),
    [
        ({"resources:CUSTOM_ACCELERATOR_FPGA": "1"}, True),
        ({"resources2:CUSTOM_ACCELERATOR_GPU": "1"}, True),
        ({"resources_net-1:CUSTOM_ACCELERATOR_GPU": "1"}, True),
        ({"resources:CUSTOM_ACCELERATOR_FPGA": "0"}, False),
        ({"resources:VGPU": "1", "hw:cpu_policy": "dedicated"}, False),
        ({"trait:CUSTOM_FPGA_INTEL_REGION_X": "required"}, False),
        ({}, False),
    ],
)
def test_a_flavor_refers_to_accelerators_if_it_requests_a_unit_of_their_classes(specs, expected):
    """R15: plug and unplug run only when the flavor refers to CUSTOM_ACCELERATOR*."""
    assert refers_to_accelerators(specs) is expected


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        (f"bitstream:{BITSTREAM}", "required", ProgramRequest(bitstream_id=BITSTREAM)),
        ("bitstream", BITSTREAM, ProgramRequest(bitstream_id=BITSTREAM)),
        ("accel:bitstream_id", BITSTREAM.upper(), ProgramRequest(bitstream_id=BITSTREAM)),
        (f"function:{FUNCTION}", "required", ProgramRequest(function_id=FUNCTION)),
        (
            "function:CUSTOM_FPGA_INTEL_FUNCTION_9AFF21A8_3F5B_4A3C_9D0E_0F1C7D1F0A01",
            "required",
            ProgramRequest(function_id=FUNCTION),
        ),
        ("function", FUNCTION, ProgramRequest(function_id=FUNCTION)),
        ("accel:function_id", FUNCTION, ProgramRequest(function_id=FUNCTION)),
        ("function_name:aes 256", "required", ProgramRequest(function_name="aes 256")),
        ("function_name", "aes", ProgramRequest(function_name="aes")),
        ("accel:function_name", "aes", ProgramRequest(function_name="aes")),
    ],
)
def test_all_spellings_of_a_bitstream_or_function_request_are_read(key, value, wanted):
    """A2: bitstream and function as key, as value, or as accel: key."""
    assert only_group(FPGA | {key: value}).wanted == wanted


def test_a_suffix_joins_resources_with_their_bitstream_function_and_traits():
    """A1: the granular group suffix is the join key."""
    specs = {
        "resources_A:CUSTOM_ACCELERATOR_FPGA": "1",
        f"bitstream_A:{BITSTREAM}": "required",
        "resources_b-2:CUSTOM_ACCELERATOR_FPGA": "2",
        "function_name_b-2:aes": "required",
        "trait_b-2:CUSTOM_X": "required",
        "resources:VCPU": "2",
    }
    first, second = from_extra_specs(specs).groups
    assert (first.suffix, first.amounts, first.wanted) == ("_A", {"FPGA": 1}, ProgramRequest(bitstream_id=BITSTREAM))
    assert (second.suffix, second.amounts, second.wanted) == ("_b-2", {"FPGA": 2}, ProgramRequest(function_name="aes"))
    assert second.required_traits == {"CUSTOM_X"}


def test_a_bitstream_without_suffix_belongs_to_the_only_group_with_a_device():
    specs = {"resources1:CUSTOM_ACCELERATOR_FPGA": "1", "bitstream": BITSTREAM}
    assert only_group(specs).wanted.bitstream_id == BITSTREAM


def test_a_bitstream_without_suffix_is_refused_if_several_groups_have_devices():
    """A1: unsuffixed bitstream with several accelerator groups: an error that names the groups."""
    specs = {
        "resources1:CUSTOM_ACCELERATOR_FPGA": "1",
        "resources2:CUSTOM_ACCELERATOR_FPGA": "1",
        "bitstream": BITSTREAM,
    }
    with pytest.raises(BadRequest, match="'1', '2'"):
        from_extra_specs(specs)


def test_bitstream_and_function_in_one_group_are_refused():
    """A2: both a bitstream and a function in one group are an error."""
    with pytest.raises(BadRequest, match="a region can carry only one"):
        from_extra_specs(FPGA | {"bitstream": BITSTREAM, "function": FUNCTION})


def test_a_bitstream_in_a_group_without_a_device_is_refused():
    with pytest.raises(BadRequest, match="'9'"):
        from_extra_specs(FPGA | {"bitstream9": BITSTREAM})


@pytest.mark.parametrize("amount", ["-1", "one", "1.5", ""])
def test_an_amount_that_is_no_number_is_refused(amount):
    with pytest.raises(BadRequest, match="whole number"):
        from_extra_specs({"resources:CUSTOM_ACCELERATOR_FPGA": amount})


def test_a_flavor_without_accelerators_is_refused():
    with pytest.raises(BadRequest, match="requests no accelerator"):
        from_extra_specs({"resources:VCPU": "1"})


def test_a_signature_is_required_for_the_group_of_its_suffix_or_without_suffix_for_all():
    specs = {
        "resources_A:CUSTOM_ACCELERATOR_FPGA": "1", "bitstream_A": BITSTREAM,
        "resources_B:CUSTOM_ACCELERATOR_FPGA": "1", "function_B": FUNCTION,
        "resources_C:CUSTOM_ACCELERATOR_GPU": "1",
    }  # fmt: skip

    def signed(**more):
        return [group.signed for group in from_extra_specs(specs | more).groups]

    assert signed() == [False, False, False]
    assert signed(**{"accel_B:bitstream_signature": "required"}) == [False, True, False]
    assert signed(**{"accel:bitstream_signature": "Required"}) == [True, True, False]


@pytest.mark.parametrize(
    ("specs", "words"),
    [
        (FPGA | {"accel:bitstream_signature": "required"}, "no bitstream or function is named"),
        (FPGA | {"bitstream": BITSTREAM, "accel:bitstream_signature": "no"}, "set it to required"),
        (FPGA | {"bitstream": BITSTREAM, "accel9:bitstream_signature": "required"}, "'9' requires a signature"),
        (
            {"resources1:CUSTOM_ACCELERATOR_GPU": "1", "accel1:bitstream_signature": "required"},
            "names no bitstream or function",
        ),
    ],
)
def test_a_required_signature_without_bitstream_or_function_is_refused(specs, words):
    with pytest.raises(BadRequest, match=words):
        from_extra_specs(specs)


def test_hints_of_the_servers_image_apply_only_if_the_flavor_names_nothing():
    """R18: the image gives hints; the flavor takes precedence."""
    open_one = from_extra_specs(FPGA | {"resources1:CUSTOM_ACCELERATOR_GPU": "1"})
    hint = {"accel:function_id": FUNCTION, "accel:bitstream_signature": "required", "os_type": "linux"}
    hinted = apply_image_hints(open_one, hint).groups[0]
    assert (hinted.wanted, hinted.signed, hinted.hinted) == (ProgramRequest(function_id=FUNCTION), True, True)
    assert apply_image_hints(open_one, hint).groups[1] == open_one.groups[1]
    relies = {f"trait:CUSTOM_FPGA_INTEL_FUNCTION_{FUNCTION}": "required"}
    for specs in ({"bitstream": BITSTREAM}, {"function_name": "aes"}, relies):
        said = from_extra_specs(FPGA | specs)
        assert apply_image_hints(said, hint) == said
    assert apply_image_hints(open_one, {"os_type": "linux", "accel:function_id": " "}) == open_one
    gpus = from_extra_specs({"resources:CUSTOM_ACCELERATOR_GPU": "1"})
    assert apply_image_hints(gpus, hint) == gpus


@pytest.mark.parametrize(
    ("specs", "hint"),
    [
        (FPGA, {"accel:function_id": FUNCTION, "accel:bitstream_id": BITSTREAM}),
        (FPGA | {"resources1:CUSTOM_ACCELERATOR_FPGA": "1"}, {"accel:function_id": FUNCTION}),
    ],
)
def test_an_ambiguous_hint_of_the_servers_image_is_refused(specs, hint):
    """R18"""
    with pytest.raises(BadRequest, match=r"the server's image hints at .*name it in the flavor"):
        apply_image_hints(from_extra_specs(specs), hint)


def test_a_bitstream_key_with_the_value_forbidden_requests_nothing():
    assert not only_group(FPGA | {f"bitstream:{BITSTREAM}": "forbidden"}).wanted
