"""`merge_configs` compared with a slow version that follows the specification's sentences one by one."""

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.agent.provider_config.rules.merge import merge_configs
from moorage.agent.provider_config.rules.model import AdditionalInventory, FilePosition, ProviderConfig, Source
from moorage.agent.tree.provider_tree import ProviderNode, ProviderTree
from moorage.core.inventories import Inventory

CLASSES = ("CUSTOM_A", "CUSTOM_B", "CUSTOM_C")
TRAITS = ("CUSTOM_T", "CUSTOM_U")
SOURCE = Source("f", FilePosition(1, 1))


def uuid_of(number):
    return f"{number:08x}-0000-4000-8000-000000000000"


@st.composite
def trees(draw):
    """Up to five providers, each a root or below an earlier one; the driver has some classes on each."""
    nodes = []
    for number in range(draw(st.integers(1, 5))):
        parent = draw(st.sampled_from([None, *(node.name for node in nodes)]))
        classes = draw(st.sets(st.sampled_from(CLASSES)))
        traits = frozenset(draw(st.sets(st.sampled_from(TRAITS))))
        inventories = {name: Inventory(1) for name in classes}
        native = frozenset(classes)
        nodes.append(ProviderNode(f"p{number}", parent, inventories, traits, uuid_of(number), native))
    return ProviderTree(nodes)


@st.composite
def configurations(draw):
    """Entries with different identifications, as `load` accepts them; some name missing providers."""
    everyone = [(None, None), *((None, f"p{n}") for n in range(7)), *((uuid_of(n), None) for n in range(7))]
    found = []
    for uuid, name in draw(st.lists(st.sampled_from(everyone), unique=True, max_size=6)):
        classes = draw(st.sets(st.sampled_from(CLASSES)))
        inventories = {one: AdditionalInventory(SOURCE, total=draw(st.integers(2, 9))) for one in sorted(classes)}
        found.append(ProviderConfig(SOURCE, uuid, name, inventories, frozenset(draw(st.sets(st.sampled_from(TRAITS))))))
    return found


def names(config, node):
    return config.uuid == node.uuid if config.uuid else config.name == node.name


def expected_merge(tree, configs):
    """{provider: (inventories, traits)} and the number of conflicts."""
    outcome, conflicts = {}, 0
    for node in tree:
        explicit = [config for config in configs if not config.is_for_compute_nodes and names(config, node)]
        if len(explicit) > 1:
            conflicts += len(explicit) - 1
        applied = explicit[:1]
        if not explicit and node.parent is None:
            applied = [config for config in configs if config.is_for_compute_nodes]
        inventories, traits = dict(node.inventories), set(node.traits)
        for config in applied:
            traits |= config.traits
            for name, record in config.inventories.items():
                if name in node.inventories:
                    conflicts += 1
                else:
                    inventories[name] = record.inventory()
        outcome[node.name] = (inventories, traits)
    return outcome, conflicts


@settings(max_examples=300, deadline=None)
@given(trees(), configurations())
def test_the_merge_equals_a_slow_version_of_the_specification(tree, configs):
    """R19, R21, R22, R24 (provider-config)"""
    merged = merge_configs(tree, configs)
    outcome, conflicts = expected_merge(tree, configs)
    assert {node.name: (dict(node.inventories), set(node.traits)) for node in merged.tree} == outcome
    assert len(merged.conflicts) == conflicts
    there = [config for config in configs if config.is_for_compute_nodes or any(names(config, node) for node in tree)]
    assert [config for config in configs if config not in there] == list(merged.absent)
