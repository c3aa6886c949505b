"""The steps of `diff`, applied to a simulated Placement.

They must reach the wanted tree and keep the data of other writers, and a second `diff` must find nothing to do.
"""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from moorage.agent.tree.provider_tree import ProviderNode, ProviderTree, SeenProvider
from moorage.agent.tree.provider_tree_diff import (
    CreateProvider,
    DropProvider,
    PublishedProvider,
    PutInventories,
    PutTraits,
    diff,
    providers_losing_classes,
    with_foreign_providers,
    with_uuids,
)
from moorage.core.ids import SeededIds
from moorage.core.inventories import Inventory

OURS = ("CUSTOM_A", "CUSTOM_B", "VCPU")
FOREIGN = ("CUSTOM_RESERVATION_X",)
TRAITS = ("CUSTOM_T", "HW_T")
FOREIGN_TRAITS = ("CUSTOM_RESERVATION_HOST",)


@st.composite
def wanted_trees(draw):
    """A root and some devices below it; classes and traits differ from tree to tree."""
    nodes = [ProviderNode("host", inventories=draw(inventories()), traits=draw(traits()))]
    for name, parent in (("dev1", "host"), ("dev2", "host"), ("dev3", "dev1"), ("dev4", "dev3")):
        # The agent does not move a provider: it warns, and the operator decides (tests/unit/agent).
        if parent in {node.name for node in nodes} and draw(st.booleans()):
            nodes.append(ProviderNode(name, parent, draw(inventories()), draw(traits())))
    return ProviderTree(nodes).marked_native()


def inventories():
    return st.dictionaries(st.sampled_from(OURS), st.integers(1, 3).map(Inventory), max_size=3)


def traits():
    return st.sets(st.sampled_from(TRAITS)).map(frozenset)


@st.composite
def foreign_writes(draw):
    """Writes of other services, by name of the provider.

    Each value says: add a foreign class, add a foreign trait, classes of ours that get allocations, add a child.
    """
    return {
        name: (draw(st.booleans()), draw(st.booleans()), draw(st.sets(st.sampled_from(OURS))), draw(st.booleans()))
        for name in draw(st.sets(st.sampled_from(["host", "dev1", "dev2", "dev3", "dev4"])))
    }


class Placement:
    """The part of Placement on which `diff` relies; it refuses the same writes as the real one."""

    def __init__(self):
        self.providers = {}
        self.used = {}

    def write(self, steps):
        for step in steps:
            match step:
                case CreateProvider(uuid, name, parent):
                    assert parent is None or parent in self.providers
                    assert name not in {provider.name for provider in self.providers.values()}
                    self.providers[uuid] = SeenProvider(uuid, name, 0, parent)
                case PutInventories(uuid, inventories, _):
                    gone = self.providers[uuid].inventories.keys() - inventories.keys()
                    assert not any(self.used.get(uuid, {}).get(name) for name in gone), "in use"
                    self.change(uuid, inventories=inventories)
                case PutTraits(uuid, traits, _):
                    self.change(uuid, traits=traits)
                case DropProvider(uuid, _):
                    assert not any(provider.parent_uuid == uuid for provider in self.providers.values())
                    assert not any(self.used.get(uuid, {}).values())
                    del self.providers[uuid]

    def change(self, uuid, **what):
        provider = self.providers[uuid]
        self.providers[uuid] = replace(provider, generation=provider.generation + 1, **what)

    def write_foreign(self, marks):
        for provider in list(self.providers.values()):
            if provider.name in marks:
                foreign_class, foreign_trait, used, child = marks[provider.name]
                if foreign_class:
                    self.change(provider.uuid, inventories={**provider.inventories, FOREIGN[0]: Inventory(9)})
                if foreign_trait:
                    self.change(provider.uuid, traits=provider.traits | set(FOREIGN_TRAITS))
                self.used[provider.uuid] = dict.fromkeys(used & provider.inventories.keys(), 1)
                if child and f"blazar_{provider.name}" not in {one.name for one in self.providers.values()}:
                    uuid = f"child-of-{provider.uuid}"
                    self.providers[uuid] = SeenProvider(uuid, f"blazar_{provider.name}", 0, provider.uuid)

    def foreign(self):
        """(provider name, class, trait or provider) of all data that an agent must not change."""
        return {
            (provider.name, thing)
            for provider in self.providers.values()
            for thing in [*provider.inventories, *provider.traits, provider.name]
            if thing in FOREIGN + FOREIGN_TRAITS or thing.startswith("blazar_")
        }


def one_round(placement, tree, published, ids):
    seen = list(placement.providers.values())
    known = with_foreign_providers(with_uuids(tree, seen, ids), seen, published)
    needed = providers_losing_classes(known, seen, published)
    return diff(known, seen, published, {uuid: placement.used.get(uuid, {}) for uuid in needed})


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(wanted_trees(), foreign_writes()), min_size=1, max_size=4))
def test_diff_reaches_the_wanted_tree_keeps_foreign_data_and_then_finds_nothing_to_do(history):
    placement, published, ids = Placement(), {}, SeededIds(1)
    for tree, marks in history:
        untouchable = placement.foreign()
        changes = one_round(placement, tree, published, ids)
        placement.write(changes.steps)
        published = changes.published
        by_name = {provider.name: provider for provider in placement.providers.values()}
        for node in tree:
            seen = by_name[node.name]
            assert all(seen.inventories[name] == inventory for name, inventory in node.inventories.items())
            assert node.traits <= seen.traits
        kept = {(name, thing) for name, thing in untouchable if name in by_name}
        gone = {name for name, _ in untouchable} - by_name.keys()
        assert kept <= placement.foreign()
        # A vanished device is removed even if it has a foreign trait; with a foreign inventory or child it stays.
        assert not any((name, FOREIGN[0]) in untouchable or name.startswith("blazar_") for name in gone)
        assert one_round(placement, tree, published, ids).steps == ()
        placement.write_foreign(marks)


@settings(max_examples=200, deadline=None)
@given(wanted_trees(), wanted_trees())
def test_data_that_only_the_agent_wrote_is_removed_when_it_is_no_longer_wanted(before, after):
    placement, ids = Placement(), SeededIds(1)
    published = {}
    for tree in (before, after):
        changes = one_round(placement, tree, published, ids)
        placement.write(changes.steps)
        published = changes.published
    assert {provider.name for provider in placement.providers.values()} == {node.name for node in after}
    for provider in placement.providers.values():
        assert provider.inventories == after[provider.name].inventories
        assert provider.traits == after[provider.name].traits
    assert all(isinstance(row, PublishedProvider) and row.created for row in published.values())
