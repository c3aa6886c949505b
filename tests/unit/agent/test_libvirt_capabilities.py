"""libvirt's capabilities of a host become resource providers (libvirt 9.0: `libvirt/*.xml`, shortened)."""

import re
from pathlib import Path

import os_traits
import pytest

from moorage.agent.virt.driver import VirtError
from moorage.agent.virt.libvirt_capabilities import (
    HostShares,
    NumaCell,
    cpu_features,
    cpu_traits,
    guest_cpu,
    providers,
    read_capabilities,
)
from moorage.core.inventories import Inventory

RECORDED = Path(__file__).parent / "libvirt"
CAPABILITIES = (RECORDED / "capabilities.xml").read_text()
DOMAIN_CAPABILITIES = (RECORDED / "domain_capabilities.xml").read_text()
EXPANDED_CPU = (RECORDED / "cpu.xml").read_text()


def two_cells() -> str:
    cell = re.search(r"<cell id.*?</cell>", CAPABILITIES, re.DOTALL)[0]
    return CAPABILITIES.replace(cell, cell + cell.replace('cell id="0"', 'cell id="1"'))


def test_cpus_memory_and_virtualization_types_are_read_from_the_capabilities():
    host = read_capabilities(CAPABILITIES)
    assert host.arch == "x86_64"
    assert host.cells == (NumaCell(0, 6874, 2),)
    assert (host.vcpus, host.memory_mb) == (2, 6874)
    assert host.virt_types == {"qemu", "kvm"}


def test_cpus_and_memory_of_all_numa_nodes_are_added_up():
    host = read_capabilities(two_cells())
    assert (host.vcpus, host.memory_mb) == (4, 2 * 6874)


@pytest.mark.parametrize(
    "xml", ["", "<capabilities/>", CAPABILITIES.replace('arch name="x86_64"', 'arch name="ppc64"')]
)
def test_capabilities_without_a_guest_for_this_host_are_refused(xml):
    with pytest.raises(VirtError, match="libvirt"):
        read_capabilities(xml)


def test_the_provider_tree_is_that_of_nova_plus_a_provider_per_numa_node():
    shares = HostShares(reserved_cpus=1, reserved_memory_mb=512, reserved_disk_gb=10, cpu_allocation_ratio=2.0)
    tree = providers("metal-1", read_capabilities(two_cells()), frozenset({"avx2"}), 100, shares)
    assert [(node.name, node.parent) for node in tree] == [
        ("metal-1", None), ("metal-1_NUMA_0", "metal-1"), ("metal-1_NUMA_1", "metal-1"),
    ]  # fmt: skip
    assert tree["metal-1"].inventories == {
        "VCPU": Inventory(4, 1, max_unit=4, allocation_ratio=2.0),
        "MEMORY_MB": Inventory(13748, 512, max_unit=13748),
        "DISK_GB": Inventory(100, 10, max_unit=100),
    }
    assert {"HW_CPU_X86_AVX2", "HW_ARCH_X86_64", "COMPUTE_IMAGE_TYPE_QCOW2"} <= tree["metal-1"].traits
    assert tree["metal-1_NUMA_1"].traits == {"HW_NUMA_ROOT"}
    assert tree["metal-1_NUMA_1"].inventories == {}


def test_a_disk_of_less_than_a_gigabyte_is_no_inventory():
    tree = providers("metal-1", read_capabilities(CAPABILITIES), frozenset(), 0, HostShares())
    assert "DISK_GB" not in tree["metal-1"].inventories


def test_cpu_traits_are_those_of_the_features_that_a_guest_gets():
    """The host has AVX-512; the emulator does not, and disables some features."""
    features = cpu_features(EXPANDED_CPU)
    assert {"avx2", "sse4.2", "aes"} <= features
    assert not {"avx512f", "sha-ni", "rdseed"} & features
    traits = cpu_traits(features)
    assert {"HW_CPU_X86_AVX2", "HW_CPU_X86_SSE42", "HW_CPU_X86_AESNI", "HW_CPU_X86_SVM"} <= traits
    assert not {"HW_CPU_X86_AVX512F", "HW_CPU_X86_SHA"} & traits


def test_the_guests_cpu_is_the_one_of_the_mode_host_model():
    cpu = guest_cpu(DOMAIN_CAPABILITIES, "x86_64")
    assert re.search(r"<cpu><arch>x86_64</arch>.*<model fallback=.forbid.>EPYC</model>", cpu, re.DOTALL)
    assert (
        guest_cpu(
            DOMAIN_CAPABILITIES.replace('name="host-model" supported="yes"', 'name="host-model" supported="no"'),
            "x86_64",
        )
        is None
    )


def test_the_trait_of_every_known_cpu_feature_is_a_standard_trait():
    """With all CPU features that the mapping knows."""
    from moorage.agent.virt.libvirt_capabilities import _OTHER_NAMES, _SAME_NAMES

    traits = cpu_traits([*_OTHER_NAMES, *_SAME_NAMES])
    assert len(traits) >= len(_OTHER_NAMES) + len(_SAME_NAMES)
    assert traits <= set(os_traits.get_traits("HW_CPU_X86_"))
    assert cpu_traits(["vme", "no-such-feature"]) == frozenset()


def test_all_traits_of_the_provider_tree_are_standard_traits():
    tree = providers("h", read_capabilities(CAPABILITIES), frozenset(), 1, HostShares())
    assert {trait for node in tree for trait in node.traits} <= set(os_traits.get_traits())
