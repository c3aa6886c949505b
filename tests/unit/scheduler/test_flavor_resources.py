"""Flavors as placement requests: the rules F1 to F5, and the rest of the syntax in reference/compute.md 2.2."""

import pytest

from moorage.core.errors import Invalid
from moorage.core.names import RESERVED_REGION_TRAIT
from moorage.scheduler.candidate_query import SearchScope, candidate_query
from moorage.scheduler.flavor_resources import FlavorFields, FlavorGroup, request_for


def flavor(specs=None, **fields):
    return FlavorFields(**({"vcpus": 2, "memory_mb": 512, "root_gb": 10} | fields), extra_specs=specs or {})


def asked(specs=None, **fields):
    """Resources of the group without a suffix."""
    return dict(request_for(flavor(specs, **fields)).groups.get("", FlavorGroup()).resources)


BASE = {"DISK_GB": 10, "MEMORY_MB": 512, "VCPU": 2}
ZEROS = {"resources:VCPU": "0", "resources:MEMORY_MB": "0", "resources:DISK_GB": "0"}


def test_without_extra_specs_the_fields_of_the_flavor_are_requested():
    """F3 (flavor-resources): start from the base flavor attributes."""
    assert asked() == BASE


def test_a_custom_class_is_added_to_the_request():
    """F1 (flavor-resources): `resources:$CUSTOM_RESOURCE_CLASS=$N` is added to the request."""
    assert asked({"resources:CUSTOM_GOLD": "1"}) == BASE | {"CUSTOM_GOLD": 1}


@pytest.mark.parametrize("name", ["VCPU", "MEMORY_MB", "DISK_GB"])
def test_a_standard_class_of_zero_is_not_requested(name):
    """F2 (flavor-resources): `resources:$STANDARD_RESOURCE_CLASS=0` avoids scheduling on that field."""
    assert asked({f"resources:{name}": "0"}) == {key: value for key, value in BASE.items() if key != name}


def test_amounts_in_extra_specs_override_the_fields_of_the_flavor():
    """F3 (flavor-resources): then adjust amounts of existing classes."""
    assert asked({"resources:VCPU": "5", "resources:MEMORY_MB": " 64 "}) == BASE | {"VCPU": 5, "MEMORY_MB": 64}


def test_three_zeros_and_a_custom_class_request_only_that_class():
    """F4 (flavor-resources)."""
    assert asked(ZEROS | {"resources:CUSTOM_GOLD": "1"}) == {"CUSTOM_GOLD": 1}


def test_all_requested_amounts_are_one_parameter_of_the_query():
    """F5 (flavor-resources): what is requested is one parameter, and the allocation follows from it."""
    request = request_for(flavor({"resources:CUSTOM_LLC": "2", "resources:VCPU": "0"}))
    assert candidate_query(request)[0] == ("resources", "CUSTOM_LLC:2,DISK_GB:10,MEMORY_MB:512")


def test_the_requested_disk_is_root_plus_ephemeral_plus_swap_rounded_up():
    """F2, F3"""
    assert asked(ephemeral_gb=5, swap_mb=1025)["DISK_GB"] == 17
    assert "DISK_GB" not in asked(root_gb=0)


def test_a_custom_class_of_zero_is_ignored():
    assert asked({"resources:CUSTOM_GOLD": "0"}) == BASE


def test_dedicated_processors_replace_the_shared_ones():
    """F3"""
    assert asked({"resources:PCPU": "2"}) == {"DISK_GB": 10, "MEMORY_MB": 512, "PCPU": 2}
    assert asked({"resources:VGPU": "1"}) == BASE | {"VGPU": 1}


@pytest.mark.parametrize("amount", ["2", "0"])
def test_an_amount_in_any_group_overrides_the_field_of_the_flavor(amount):
    specs = {"resources1:VCPU": amount, "resources1:CUSTOM_A": "1"}
    groups = request_for(flavor(specs)).groups
    assert "VCPU" not in groups[""].resources
    assert groups["1"].resources.get("VCPU", 0) == int(amount)


def test_each_suffix_is_a_separate_group():
    specs = {
        "resources_NUMA-0:CUSTOM_A": "1",
        "trait_NUMA-0:CUSTOM_T": "required",
        "trait_NUMA-0:CUSTOM_U": "forbidden",
    }
    assert request_for(flavor(specs)).groups["_NUMA-0"] == FlavorGroup({"CUSTOM_A": 1}, ("CUSTOM_T",), ("CUSTOM_U",))


def test_other_extra_specs_are_ignored():
    others = {
        "bitstream_1": "x",
        "bitstream:8f7c3f5e": "required",
        "function_name": "gzip",
        "function_nameS:gzip": "required",
        "hw:numa_nodes": "2",
        "resource:VCPU": "nonsense",
        "a:b": "c",
    }
    assert asked(others) == BASE


@pytest.mark.parametrize(
    ("specs", "said"),
    [
        ({"resources:CUSTOM_A": "-1"}, "resources:CUSTOM_A=-1: an amount is a whole number from 0"),
        ({"resources:CUSTOM_A": "1.5"}, "resources:CUSTOM_A=1.5"),
        ({"resources:CUSTOM_A": "many"}, "resources:CUSTOM_A=many"),
        ({"resources:CUSTOM_A": ""}, "resources:CUSTOM_A="),
        ({"resources:CUSTOM_A": "2147483648"}, "2147483647"),
        ({"resources:CUSTOM_A": "\u0663"}, "an amount is a whole number"),
        ({"resources:NO_SUCH": "1"}, "there is no resource class 'NO_SUCH'; use a standard class"),
        ({"resources:vcpu": "1"}, "there is no resource class 'vcpu'"),
        ({"resources:CUSTOM_gold": "1"}, "there is no resource class 'CUSTOM_gold'"),
        ({"resources:CUSTOM_": "1"}, "there is no resource class 'CUSTOM_'"),
        ({"resources:CUSTOM_" + "A" * 249: "1"}, "there is no resource class"),
        ({"trait:NO_SUCH": "required"}, "there is no trait 'NO_SUCH'"),
        ({"trait:CUSTOM_T": "preferred"}, "trait:CUSTOM_T=preferred: a trait is either required or forbidden"),
        ({"trait:in:CUSTOM_T,CUSTOM_U": "forbidden"}, "only single traits can be forbidden"),
        ({"trait1:CUSTOM_T": "required"}, "add resources1:CLASS=AMOUNT"),
        ({"resources" + "S" * 65 + ":CUSTOM_A": "1"}, "a group suffix is 1 to 64"),
        ({"resources.1:CUSTOM_A": "1"}, "a group suffix is 1 to 64"),
        ({"resources1:CUSTOM_A": "1", "resources2:CUSTOM_A": "1"}, "the groups 1, 2 need group_policy"),
        ({"group_policy": "spread"}, "group_policy=spread: use none or isolate"),
        (ZEROS, "all 0 and nothing else is requested"),
        ({"resources:VCPU": "1", "resources:PCPU": "1"}, "exclude each other"),
        (
            {"resources_A:CUSTOM_A": "1", "same_subtree": "_A,_B"},
            "same_subtree: there is no group with the suffix '_B'",
        ),
        ({"same_subtree": ""}, "there is no group with the suffix ''"),
        ({"resources_A:CUSTOM_A": "0", "same_subtree": "_A"}, "the group '_A' requests nothing"),
        ({"root_required": "NO_SUCH"}, "root_required=NO_SUCH: there is no trait 'NO_SUCH'"),
        ({"root_required": "in:CUSTOM_A,CUSTOM_B"}, "name single traits"),
        ({"root_required": "CUSTOM_A,!CUSTOM_A"}, "CUSTOM_A is required and forbidden"),
    ],
)
def test_invalid_extra_specs_are_refused_with_the_reason(specs, said):
    with pytest.raises(Invalid) as refusal:
        request_for(flavor(specs))
    assert said in refusal.value.message


def test_extra_specs_that_contradict_the_fields_of_the_flavor_are_refused():
    """F1, F2, F3: a server of such a flavor could never be scheduled."""
    with pytest.raises(Invalid, match="the number of dedicated processors must be the same"):
        request_for(flavor({"resources:PCPU": "3"}))
    with pytest.raises(Invalid, match="requests nothing"):
        request_for(flavor({"resources:VCPU": "0", "resources:MEMORY_MB": "0"}, root_gb=0))
    with pytest.raises(Invalid, match="the group without a suffix requests no resources"):
        request_for(flavor(ZEROS | {"resources1:CUSTOM_A": "1", "trait:CUSTOM_T": "required"}))


def test_traits_of_the_image_are_also_required():
    request = request_for(flavor({"trait:CUSTOM_T": "required"}), {"trait:CUSTOM_U": "required", "os_type": "linux"})
    assert request.groups[""].required == ("CUSTOM_T", "CUSTOM_U")
    with pytest.raises(Invalid, match="an image can only require"):
        request_for(flavor(), {"trait:CUSTOM_U": "forbidden"})


def test_with_a_device_profile_the_trait_compute_accelerators_is_required():
    specs = {"accel:device_profile": "dp", "root_required": "HW_CPU_X86_AVX2"}
    assert request_for(flavor(specs)).root_required == ("HW_CPU_X86_AVX2", "COMPUTE_ACCELERATORS")
    again = {"accel:device_profile": "dp", "root_required": "COMPUTE_ACCELERATORS"}
    assert request_for(flavor(again)).root_required == ("COMPUTE_ACCELERATORS",)


def test_the_parameters_of_a_query_have_a_stable_order():
    specs = {
        "resources_N:CUSTOM_X": "1",
        "resources_M:CUSTOM_X": "1",
        "group_policy": "isolate",
        "trait:CUSTOM_B": "forbidden",
        "trait:HW_CPU_X86_AVX2": "required",
        "trait:in:CUSTOM_C,CUSTOM_D": "required",
    }
    assert candidate_query(request_for(flavor(specs))) == [
        ("resources", "DISK_GB:10,MEMORY_MB:512,VCPU:2"),
        ("required", "HW_CPU_X86_AVX2,!CUSTOM_B"),
        ("required", "in:CUSTOM_C,CUSTOM_D"),
        ("resources_M", "CUSTOM_X:1"),
        ("resources_N", "CUSTOM_X:1"),
        ("group_policy", "isolate"),
        ("root_required", "!CUSTOM_RESERVATION_HOST,!COMPUTE_STATUS_DISABLED"),
    ]


def test_a_requested_host_sets_in_tree_for_each_group():
    query = candidate_query(request_for(flavor({"resources1:CUSTOM_X": "1"})), SearchScope(in_tree="tree"))
    assert [pair for pair in query if pair[0].startswith("in_tree")] == [("in_tree", "tree"), ("in_tree1", "tree")]


def test_same_subtree_and_root_required_are_passed_to_the_query():
    """A group in `same_subtree` may consist of traits only; it names the provider above the others."""
    specs = {
        "resources_A:CUSTOM_A": "1",
        "resources_B:CUSTOM_B": "1",
        "trait_N:HW_NUMA_ROOT": "required",
        "group_policy": "none",
        "same_subtree": "_A,_N;_B,_N",
        "root_required": "CUSTOM_RACK_1,!CUSTOM_OLD",
    }
    query = candidate_query(request_for(flavor(specs)), SearchScope(in_tree="tree", member_of=("in:x,y", "!in:z")))
    assert [pair for pair in query if not pair[0].startswith("resources")] == [
        ("in_tree", "tree"),
        ("member_of", "in:x,y"),
        ("member_of", "!in:z"),
        ("in_tree_A", "tree"),
        ("in_tree_B", "tree"),
        ("required_N", "HW_NUMA_ROOT"),
        ("group_policy", "none"),
        ("same_subtree", "_A,_N"),
        ("same_subtree", "_B,_N"),
        ("root_required", "CUSTOM_RACK_1,!CUSTOM_OLD,!CUSTOM_RESERVATION_HOST,!COMPUTE_STATUS_DISABLED"),
    ]


def test_member_of_is_set_on_the_first_group_if_there_is_none_without_suffix():
    request = request_for(
        flavor(ZEROS | {"resources_B:CUSTOM_A": "1", "resources_C:CUSTOM_A": "1", "group_policy": "none"})
    )
    query = candidate_query(request, SearchScope(member_of=("in:x",)))
    assert [pair for pair in query if pair[0].startswith("member_of")] == [("member_of_B", "in:x")]


def test_the_names_of_a_request_are_its_classes_and_traits():
    specs = {"resources:CUSTOM_A": "1", "trait:in:CUSTOM_T,CUSTOM_U": "required", "root_required": "!CUSTOM_R"}
    assert request_for(flavor(specs)).names == (
        {"CUSTOM_A", "DISK_GB", "MEMORY_MB", "VCPU"},
        {"CUSTOM_T", "CUSTOM_U", "CUSTOM_R"},
    )


def test_a_request_for_a_reservation_does_not_exclude_reserved_hosts():
    request = request_for(flavor({"resources:CUSTOM_RESERVATION_1": "1"}))
    assert request.is_for_reserved
    assert ("root_required", "!COMPUTE_STATUS_DISABLED") in candidate_query(request)


FPGA, OWN, OTHERS = "CUSTOM_ACCELERATOR_FPGA", "CUSTOM_RESERVATION_1", "CUSTOM_RESERVATION_2"


@pytest.mark.parametrize(
    ("specs", "image", "is_kept_off"),
    [
        ({f"resources:{FPGA}": "1", f"resources:{OWN}": "1"}, {}, True),
        ({f"resources:{FPGA}": "1", f"resources:{OWN}": "1", f"trait:{OWN}": "required"}, {}, False),
        ({f"resources:{FPGA}": "1", f"resources:{OWN}": "1"}, {f"trait:{OTHERS}": "required"}, True),
        ({f"resources:{OWN}": "1"}, {}, False),
        ({f"resources:{FPGA}": "1"}, {}, False),  # such a request excludes reserved hosts anyway
    ],
    ids=["any region", "its own", "its image asks for another's", "no region", "of no reservation"],
)
def test_a_request_for_a_reservation_excludes_regions_reserved_by_others(specs, image, is_kept_off):
    query = dict(candidate_query(request_for(flavor(specs), image)))
    assert (f"!{RESERVED_REGION_TRAIT}" in query.get("required", "").split(",")) is is_kept_off


def test_regions_reserved_by_others_are_excluded_in_the_group_that_requests_a_region():
    query = dict(candidate_query(request_for(flavor({f"resources1:{FPGA}": "1", f"resources:{OWN}": "1"}))))
    assert (query["required1"], "required" in query) == (f"!{RESERVED_REGION_TRAIT}", False)
