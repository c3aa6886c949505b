"""Spec: docs/evidence/specs/provider-config.md, "Merging": from a tree and entries to the merged tree."""

import pytest

from moorage.agent.provider_config.rules.merge import merge_configs, start_error
from moorage.agent.provider_config.rules.model import AdditionalInventory, FilePosition, ProviderConfig, Source
from moorage.agent.tree.provider_tree import ProviderNode, ProviderTree
from moorage.core.errors import StartError
from moorage.core.inventories import Inventory

ROOT = "11111111-1111-4111-8111-111111111111"
CHILD = "22222222-2222-4222-8222-222222222222"
SOURCE = Source("f.yaml", FilePosition(1, 1))

TREE = ProviderTree(
    [
        ProviderNode("host", inventories={"VCPU": Inventory(4)}, traits=frozenset({"HW_A"}), uuid=ROOT),
        ProviderNode("host_dev", "host", {"CUSTOM_FPGA": Inventory(1)}, uuid=CHILD),
    ]
).marked_native()


def config(uuid=None, name=None, classes=(), traits=()):
    return ProviderConfig(
        SOURCE, uuid, name, {one: AdditionalInventory(SOURCE, total=7) for one in classes}, frozenset(traits)
    )


def compute_node_config(**what):
    return config(**what)


@pytest.mark.parametrize("who", [{"uuid": ROOT}, {"name": "host"}, {}])
def test_inventories_and_traits_are_added_to_what_the_driver_reports(who):
    """R19 (provider-config): by uuid, by name or as the compute node; the driver's data is kept."""
    merged = merge_configs(TREE, [config(**who, classes=["CUSTOM_LLC"], traits=["CUSTOM_P"])])
    assert merged.tree["host"].inventories == {"VCPU": Inventory(4), "CUSTOM_LLC": Inventory(7)}
    assert merged.tree["host"].traits == {"HW_A", "CUSTOM_P"}
    assert merged.tree["host_dev"] == TREE["host_dev"]
    assert merged.conflicts == ()


def test_an_entry_for_a_missing_provider_is_no_conflict():
    """R21 (provider-config): nodes come and go."""
    merged = merge_configs(TREE, [config(name="elsewhere", traits=["CUSTOM_P"])])
    assert merged.tree == TREE
    assert merged.conflicts == ()
    assert [absent.identification for absent in merged.absent] == ["elsewhere"]


def test_a_compute_node_entry_applies_to_every_compute_node():
    """R22 (provider-config)"""
    tree = TREE.with_node(ProviderNode("second"))
    merged = merge_configs(tree, [compute_node_config(traits=["CUSTOM_P"])])
    assert [node.name for node in merged.tree if "CUSTOM_P" in node.traits] == ["host", "second"]


@pytest.mark.parametrize("explicit", [{"uuid": ROOT}, {"name": "host"}])
@pytest.mark.parametrize("first", [True, False])
def test_an_entry_for_a_provider_replaces_the_compute_node_entry(explicit, first):
    """R22 (provider-config)"""
    records = [
        config(**explicit, traits=["CUSTOM_MINE"]),
        compute_node_config(traits=["CUSTOM_ALL"], classes=["CUSTOM_LLC"]),
    ]
    merged = merge_configs(TREE, records if first else records[::-1])
    assert merged.tree["host"].traits == {"HW_A", "CUSTOM_MINE"}
    assert merged.tree["host"].inventories == {"VCPU": Inventory(4)}


def test_an_entry_that_adds_nothing_still_replaces_the_compute_node_entry():
    """R13, R22 (provider-config): Nova drops such records and applies the other one."""
    merged = merge_configs(TREE, [config(name="host"), compute_node_config(traits=["CUSTOM_ALL"])])
    assert merged.tree == TREE


def test_a_class_of_the_driver_is_a_conflict_and_the_rest_of_the_entry_is_applied():
    """R24 (provider-config): the conflicting inventory is ignored, nothing else."""
    merged = merge_configs(TREE, [config(name="host_dev", classes=["CUSTOM_FPGA", "CUSTOM_LLC"], traits=["CUSTOM_P"])])
    assert merged.tree["host_dev"].inventories == {"CUSTOM_FPGA": Inventory(1), "CUSTOM_LLC": Inventory(7)}
    assert merged.tree["host_dev"].traits == {"CUSTOM_P"}
    (sentence,) = merged.conflicts
    assert sentence.startswith("f.yaml:1:1: CUSTOM_FPGA of provider host_dev is managed by")


def test_the_same_class_on_another_provider_is_no_conflict():
    """R24 (provider-config): only the provider for which the driver reports it counts."""
    assert merge_configs(TREE, [config(name="host", classes=["CUSTOM_FPGA"])]).conflicts == ()


def test_two_entries_for_a_provider_by_name_and_by_uuid_are_a_conflict():
    """R7 (provider-config): only the tree shows that both mean one provider. The first entry is applied."""
    merged = merge_configs(TREE, [config(name="host", traits=["CUSTOM_A"]), config(uuid=ROOT, traits=["CUSTOM_B"])])
    assert merged.tree["host"].traits == {"HW_A", "CUSTOM_A"}
    assert len(merged.conflicts) == 1
    assert ROOT in merged.conflicts[0]
    assert "keep one of them" in merged.conflicts[0]


def test_conflicts_become_one_start_error():
    """R25 (provider-config): at start-up the service fails."""
    merged = merge_configs(TREE, [config(name="host_dev", classes=["CUSTOM_FPGA"])])
    error = start_error(merged.conflicts)
    assert isinstance(error, StartError)
    assert merged.conflicts[0] in error.message


def test_a_root_provider_of_others_is_not_a_compute_node_of_this_host():
    tree = TREE.with_node(ProviderNode("foreign", ours=False))
    merged = merge_configs(tree, [compute_node_config(traits=["CUSTOM_P"])])
    assert merged.tree["foreign"].traits == frozenset()


def test_an_entry_can_name_a_provider_of_others():
    """G6: Nova counts the class that it wrote there itself as the driver's, and stops updating the host."""
    tree = TREE.with_node(ProviderNode("blazar_host", "host", ours=False))
    merged = merge_configs(tree, [config(name="blazar_host", classes=["CUSTOM_LLC"])])
    assert merged.conflicts == ()
    assert merged.tree["blazar_host"].inventories == {"CUSTOM_LLC": Inventory(7)}
