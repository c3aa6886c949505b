"""A device profile of the Accelerator API becomes part of a server's flavor, and so of its request to Placement."""

import pytest

from moorage.compute.model.servers import Flavor
from moorage.compute.requests.server_request import flavor_fields, with_device_profile
from moorage.core.errors import Invalid
from moorage.scheduler.flavor_resources import FlavorGroup, request_for


def flavor(**specs):
    return Flavor("f", "f", 1, 512, 1, extra_specs=specs)


@pytest.fixture
def profiles(wire):
    groups = [
        {"resources:FPGA": "1", "trait:CUSTOM_FPGA_INTEL": "required", "accel:function_name": "gzip"},
        {"resources:CUSTOM_ACCELERATOR_GPU": "2", "trait:CUSTOM_OLD": "forbidden"},
    ]
    body = [{"name": "two", "groups": groups}]
    assert wire("POST", "/v2/device_profiles", body=body).status == 201
    assert wire("POST", "/v2/device_profiles", body=[{"name": "one", "groups": groups[:1]}]).status == 201
    return wire.client()


def test_the_groups_of_a_profile_are_requested_in_addition_to_the_flavors(profiles):
    made = with_device_profile(flavor(**{"accel:device_profile": "two", "resources_A:CUSTOM_X": "1"}), profiles)
    request = request_for(flavor_fields(made))
    assert request.groups["device_profile_0"] == FlavorGroup({"CUSTOM_ACCELERATOR_FPGA": 1}, ("CUSTOM_FPGA_INTEL",))
    assert request.groups["device_profile_1"] == FlavorGroup({"CUSTOM_ACCELERATOR_GPU": 2}, (), ("CUSTOM_OLD",))
    assert request.groups["_A"] == FlavorGroup({"CUSTOM_X": 1})
    assert request.group_policy == "none"
    assert made.extra_specs["acceldevice_profile_0:function_name"] == "gzip"


def test_a_flavor_with_two_groups_of_its_own_must_set_the_group_policy(profiles):
    """Nova itself sets the policy only if at most one group comes from the flavor."""
    specs = {"accel:device_profile": "one", "resources_A:CUSTOM_X": "1", "resources_B:CUSTOM_X": "1"}
    with pytest.raises(Invalid, match="need group_policy"):
        request_for(flavor_fields(with_device_profile(flavor(**specs), profiles)))
    made = with_device_profile(flavor(**specs, group_policy="isolate"), profiles)
    assert request_for(flavor_fields(made)).group_policy == "isolate"


def test_the_error_names_a_missing_profile(profiles):
    with pytest.raises(Invalid, match="accel:device_profile=nope: there is no device profile of this name"):
        with_device_profile(flavor(**{"accel:device_profile": "nope"}), profiles)


def test_a_flavor_without_a_profile_is_not_changed(profiles):
    plain = flavor(**{"resources:CUSTOM_X": "1"})
    assert with_device_profile(plain, profiles) is plain
