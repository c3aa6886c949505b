"""Names of resource classes and traits: one spelling is published, and all known spellings are read."""

from dataclasses import replace

import pytest

from moorage.accelerator.drivers.simulated import default_simulated_host
from moorage.accelerator.model.devices import Bitstream, DeviceType, Function
from moorage.accelerator.model.inventory import provider_nodes
from moorage.accelerator.model.naming import (
    NameScheme,
    ParsedTrait,
    TraitKind,
    canonical_id,
    function_trait,
    parse_trait,
    region_trait,
    resource_class,
    same_id,
    spec_class,
    traits_of,
    type_of_class,
)
from moorage.core.names import is_custom

REGION = "9926ab6d-6c92-5a68-aabc-a7d84c545738"
COMPACT = "9926ab6d6c925a68aabca7d84c545738"
JOINED = "9926AB6D_6C92_5A68_AABC_A7D84C545738"


def test_the_resource_class_is_the_one_of_the_specification():
    """R8: CUSTOM_ACCELERATOR_<TYPE>."""
    assert resource_class(DeviceType.FPGA) == "CUSTOM_ACCELERATOR_FPGA"
    assert type_of_class("CUSTOM_ACCELERATOR_GPU") == "GPU"
    assert type_of_class("CUSTOM_ACCELERATOR_") is None
    assert type_of_class("FPGA") is None


@pytest.mark.parametrize(
    ("kind", "cyborgs"),
    [("FPGA", "FPGA"), ("GPU", "PGPU"), ("VGPU", "VGPU"), ("QAT", "CUSTOM_QAT"), ("HPTS", "CUSTOM_HPTS")],
)
def test_with_the_name_scheme_cyborg_a_host_has_the_classes_of_cyborg(kind, cyborgs):
    """A3: the class is chosen per host, and both names in profiles are read."""
    assert resource_class(DeviceType(kind), NameScheme.CYBORG) == cyborgs
    assert spec_class(cyborgs) == spec_class(f"CUSTOM_ACCELERATOR_{kind}") == f"CUSTOM_ACCELERATOR_{kind}"


def test_other_resource_classes_are_not_translated():
    for name in ("VCPU", "CUSTOM_GOLD", "CUSTOM_ACCELERATOR_FPGA", "SRIOV_NET_VF"):
        assert spec_class(name) == name


def test_with_the_name_scheme_cyborg_a_host_publishes_one_class_and_traits_in_both_spellings():
    """A3: two classes for one unit could be allocated twice."""
    aes = Bitstream("00", functions=(Function(REGION), Function(name="aes")))
    card = default_simulated_host()[0]
    part = replace(card.deployables[0], bitstream=aes)
    card = replace(card, deployables=(part,))
    for names, classes in ((NameScheme.SPEC, {"CUSTOM_ACCELERATOR_FPGA"}), (NameScheme.CYBORG, {"FPGA"})):
        (node,) = provider_nodes("compute-1", [card], {}, names=names)
        assert set(node.inventories) == classes
    added = traits_of(card, part, NameScheme.CYBORG) - traits_of(card, part)
    assert added == {
        f"CUSTOM_FPGA_REGION_INTEL_{part.region_type.upper().replace('-', '_')}",
        f"CUSTOM_FPGA_FUNCTION_ID_INTEL_{JOINED}",
        "CUSTOM_FPGA_FUNCTION_ID_INTEL_AES",
    }
    for trait in added:
        assert parse_trait(trait) is not None


def test_region_and_function_traits_are_those_of_the_specification_and_valid_in_placement():
    """R9: CUSTOM_FPGA_<vendor>_REGION_<uuid> and CUSTOM_FPGA_<vendor>_FUNCTION_<uuid>."""
    assert region_trait("intel", REGION) == f"CUSTOM_FPGA_INTEL_REGION_{JOINED}"
    assert function_trait("intel", Function(REGION)) == f"CUSTOM_FPGA_INTEL_FUNCTION_{JOINED}"
    by_name = function_trait("intel", Function(name="aes (fast)"))
    assert by_name == "CUSTOM_FPGA_INTEL_FUNCTION_AES_FAST_"
    assert is_custom(by_name)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (f"CUSTOM_FPGA_INTEL_REGION_{JOINED}", TraitKind.REGION),
        (f"CUSTOM_FPGA_REGION_INTEL_{JOINED}", TraitKind.REGION),
        (f"CUSTOM_FPGA_REGION_INTEL_{COMPACT.upper()}", TraitKind.REGION),
        (f"CUSTOM_FPGA_INTEL_FUNCTION_{JOINED}", TraitKind.FUNCTION),
        (f"CUSTOM_FPGA_FUNCTION_INTEL_{JOINED}", TraitKind.FUNCTION),
        (f"CUSTOM_FPGA_FUNCTION_ID_INTEL_{JOINED}", TraitKind.FUNCTION),
        (f"custom_fpga_intel_function_{REGION}", TraitKind.FUNCTION),
    ],
)
def test_all_known_spellings_of_a_trait_are_read(text, kind):
    """A3: the spelling differs in five places."""
    assert parse_trait(text) == ParsedTrait(kind, "intel", COMPACT)


@pytest.mark.parametrize("text", ["CUSTOM_FPGA_INTEL", "HW_CPU_X86_AVX", "CUSTOM_REGION_ONE", ""])
def test_a_trait_of_another_form_is_not_read_as_a_region_or_function(text):
    assert parse_trait(text) is None


def test_ids_with_hyphens_underscores_or_neither_are_equal():
    assert same_id(REGION, JOINED)
    assert same_id(REGION.upper(), COMPACT)
    assert not same_id("", "")
    assert canonical_id(JOINED) == REGION
    assert canonical_id("aes") == "aes"
