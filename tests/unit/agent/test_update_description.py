"""The descriptions of the changes that an update of the provider tree makes."""

from moorage.agent.tree.provider_tree import ProviderNode, ProviderTree, SeenProvider
from moorage.agent.tree.provider_tree_diff import PublishedProvider as Published
from moorage.agent.tree.provider_tree_diff import diff
from moorage.agent.tree.update_description import ChangeKind, ClassChange, describe_changes
from moorage.core.inventories import Inventory

ONE, TWO = Inventory(1), Inventory(2)


def described_changes(tree, seen, published=None, used=None):
    return describe_changes(diff(ProviderTree(tree), seen, published or {}, used or {}), seen)


def test_a_new_provider_is_described_with_its_inventory_and_traits():
    (row,) = described_changes(
        [ProviderNode("host", uuid="h", inventories={"VCPU": ONE}, traits=frozenset({"HW_T"}))], []
    )
    assert (row.name, row.is_created, row.is_removed) == ("host", True, False)
    assert row.classes == [ClassChange("VCPU", ChangeKind.ADD, None, ONE)]
    assert row.traits_added == ["HW_T"]


def test_added_changed_removed_and_fully_reserved_classes_are_described():
    seen = SeenProvider(
        "h", "host", 1, inventories={"A": ONE, "B": ONE, "C": ONE, "D": TWO}, traits=frozenset({"T", "U"})
    )
    published = {"h": Published("host", True, frozenset("ABCD"), frozenset("TU"))}
    wanted = ProviderNode("host", uuid="h", inventories={"A": TWO, "E": ONE}, traits=frozenset({"U", "V"}))
    (row,) = described_changes([wanted], [seen], published, {"h": {"C": 1}})
    assert row.classes == [
        ClassChange("A", ChangeKind.CHANGE, ONE, TWO),
        ClassChange("B", ChangeKind.REMOVE, ONE, None),
        ClassChange("C", ChangeKind.CLOSE, ONE, Inventory(1, reserved=1)),
        ClassChange("D", ChangeKind.REMOVE, TWO, None),
        ClassChange("E", ChangeKind.ADD, None, ONE),
    ]
    assert (row.traits_added, row.traits_removed) == (["V"], ["T"])


def test_a_class_that_stays_fully_reserved_is_described_although_nothing_is_written():
    closed = Inventory(2, reserved=2)
    seen = SeenProvider("h", "host", 1, inventories={"C": closed})
    published = {"h": Published("host", True, frozenset("C"))}
    (row,) = described_changes([ProviderNode("host", uuid="h")], [seen], published, {"h": {"C": 1}})
    assert row.classes == [ClassChange("C", ChangeKind.CLOSE, closed, closed)]


def test_a_removed_provider_is_described():
    seen = [SeenProvider("h", "host", 1), SeenProvider("d", "dev", 1, "h")]
    published = {"d": Published("dev", True)}
    (row,) = described_changes([ProviderNode("host", uuid="h")], seen, published)
    assert (row.name, row.is_removed) == ("dev", True)


def test_a_class_that_is_fully_reserved_or_gets_less_capacity_needs_its_users():
    assert ClassChange("A", ChangeKind.CLOSE, ONE, ONE).loses_capacity
    assert ClassChange("A", ChangeKind.CHANGE, TWO, ONE).loses_capacity
    assert ClassChange("A", ChangeKind.CHANGE, TWO, Inventory(2, reserved=1)).loses_capacity
    assert ClassChange("A", ChangeKind.CHANGE, TWO, Inventory(2, allocation_ratio=0.5)).loses_capacity
    assert not ClassChange("A", ChangeKind.CHANGE, ONE, TWO).loses_capacity
    assert not ClassChange("A", ChangeKind.REMOVE, ONE, None).loses_capacity
