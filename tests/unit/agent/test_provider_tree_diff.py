"""The writes for each kind of difference between the wanted tree and Placement."""

from moorage.agent.tree.provider_tree import ProviderNode, ProviderTree, SeenProvider
from moorage.agent.tree.provider_tree_diff import (
    CreateProvider,
    DropProvider,
    PublishedProvider,
    PutInventories,
    PutTraits,
    diff,
    with_foreign_providers,
    with_uuids,
)
from moorage.core.ids import SeededIds
from moorage.core.inventories import Inventory

ONE, TWO = Inventory(1), Inventory(2)


def tree(*nodes):
    return ProviderTree(nodes).marked_native()


def host(**what):
    return ProviderNode("host", uuid="h", **what)


def device(**what):
    return ProviderNode("dev", "host", uuid="d", **what)


def published(name="host", created=True, classes=(), traits=()):
    return PublishedProvider(name, created, frozenset(classes), frozenset(traits))


SEEN_HOST = SeenProvider("h", "host", 5)


def test_the_providers_of_a_new_host_are_created_from_the_root_down():
    changes = diff(
        tree(host(inventories={"VCPU": ONE}), device(inventories={"CUSTOM_FPGA": ONE}, traits=frozenset({"CUSTOM_T"}))),
        [], {}, {},
    )  # fmt: skip
    assert changes.steps == (
        CreateProvider("h", "host", None),
        PutInventories("h", {"VCPU": ONE}, ()),
        CreateProvider("d", "dev", "h"),
        PutInventories("d", {"CUSTOM_FPGA": ONE}, ("CUSTOM_FPGA",)),
        PutTraits("d", frozenset({"CUSTOM_T"}), ("CUSTOM_T",)),
    )


def test_an_unchanged_tree_needs_no_writes():
    seen = SeenProvider("h", "host", 5, inventories={"VCPU": ONE}, traits=frozenset({"CUSTOM_T"}))
    changes = diff(tree(host(inventories={"VCPU": ONE}, traits=frozenset({"CUSTOM_T"}))), [seen], {}, {})
    assert changes.steps == ()
    assert changes.published == {"h": published(classes={"VCPU"}, traits={"CUSTOM_T"})}


def test_classes_and_traits_of_others_are_kept_when_ours_change():
    seen = SeenProvider(
        "h", "host", 5,
        inventories={"VCPU": ONE, "CUSTOM_RESERVATION_X": ONE},
        traits=frozenset({"CUSTOM_RESERVATION_HOST", "CUSTOM_OLD"}),
    )  # fmt: skip
    changes = diff(
        tree(host(inventories={"VCPU": TWO}, traits=frozenset({"CUSTOM_NEW"}))),
        [seen], {"h": published(classes={"VCPU"}, traits={"CUSTOM_OLD"})}, {},
    )  # fmt: skip
    assert changes.steps == (
        PutInventories("h", {"VCPU": TWO, "CUSTOM_RESERVATION_X": ONE}, ()),
        PutTraits("h", frozenset({"CUSTOM_RESERVATION_HOST", "CUSTOM_NEW"}), ("CUSTOM_NEW",)),
    )


def test_a_trait_that_others_had_set_before_is_kept_when_the_file_no_longer_lists_it():
    seen = SeenProvider("h", "host", 5, traits=frozenset({"CUSTOM_T"}))
    wanted = ProviderTree([host(traits=frozenset({"CUSTOM_T"}))])  # added by a file, so not native
    first = diff(wanted, [seen], {}, {})
    second = diff(ProviderTree([host()]), [seen], first.published, {})
    assert second.steps == ()


def test_a_trait_is_removed_when_the_file_no_longer_lists_it():
    """G8: Nova keeps the trait, so the host still matches requests for it."""
    first = diff(ProviderTree([host(traits=frozenset({"CUSTOM_T"}))]), [SEEN_HOST], {}, {})
    seen = SeenProvider("h", "host", 6, traits=frozenset({"CUSTOM_T"}))
    assert diff(ProviderTree([host()]), [seen], first.published, {}).steps == (PutTraits("h", frozenset(), ()),)


def test_a_class_in_use_becomes_fully_reserved_instead_of_being_removed():
    """G7: in this case Nova does not start."""
    before = {"h": published(classes={"CUSTOM_LLC"})}
    seen = SeenProvider("h", "host", 5, inventories={"CUSTOM_LLC": Inventory(22, reserved=2)})
    changes = diff(tree(host()), [seen], before, {"h": {"CUSTOM_LLC": 4}})
    assert changes.steps == (PutInventories("h", {"CUSTOM_LLC": Inventory(22, reserved=22)}, ()),)
    assert "4 are in use" in changes.warnings[0]
    assert changes.published == before


def test_a_fully_reserved_class_is_removed_when_its_last_allocation_is_released():
    before = {"h": published(classes={"CUSTOM_LLC"})}
    closed = SeenProvider("h", "host", 5, inventories={"CUSTOM_LLC": Inventory(22, reserved=22)})
    assert diff(tree(host()), [closed], before, {"h": {"CUSTOM_LLC": 4}}).steps == ()
    assert diff(tree(host()), [closed], before, {"h": {}}).steps == (PutInventories("h", {}, ()),)


def test_the_providers_of_a_missing_device_are_deleted_children_first():
    before = {"d": published("dev"), "e": published("part"), "h": published()}
    seen = [SEEN_HOST, SeenProvider("d", "dev", 1, "h"), SeenProvider("e", "part", 1, "d")]
    assert diff(tree(host()), seen, before, {}).steps == (DropProvider("e", "part"), DropProvider("d", "dev"))


def test_the_provider_of_a_missing_device_in_use_becomes_fully_reserved_and_stays_published():
    before = {"d": published("dev", classes={"CUSTOM_FPGA"}), "h": published()}
    seen = [SEEN_HOST, SeenProvider("d", "dev", 1, "h", {"CUSTOM_FPGA": ONE})]
    changes = diff(tree(host()), seen, before, {"d": {"CUSTOM_FPGA": 1}})
    assert changes.steps == (PutInventories("d", {"CUSTOM_FPGA": ONE.fully_reserved()}, ()),)
    assert changes.published["d"] == before["d"]


def test_the_provider_of_a_missing_device_with_children_of_others_loses_only_its_inventory():
    before = {"d": published("dev", classes={"CUSTOM_FPGA"}), "h": published()}
    seen = [SEEN_HOST, SeenProvider("d", "dev", 1, "h", {"CUSTOM_FPGA": ONE}), SeenProvider("f", "foreign", 1, "d")]
    changes = diff(with_foreign_providers(tree(host()), seen, before), seen, before, {})
    assert changes.steps == (PutInventories("d", {}, ()),)
    assert changes.published["d"].created


def test_a_provider_of_others_is_never_deleted():
    seen = [SEEN_HOST, SeenProvider("b", "blazar_host", 1, "h", {"CUSTOM_RESERVATION_X": ONE})]
    assert diff(with_foreign_providers(tree(host()), seen, {}), seen, {}, {}).steps == ()


def test_the_provider_of_a_compute_node_that_left_this_agent_is_not_changed():
    """R23 (provider-config): a node that moved belongs to its new agent."""
    before = {"h": published(classes={"VCPU"})}
    seen = [SeenProvider("h", "host", 5, inventories={"VCPU": ONE})]
    changes = diff(ProviderTree(), seen, before, {})
    assert changes.steps == ()
    assert changes.published == {}


def test_a_provider_below_an_unexpected_parent_is_not_moved_and_gives_a_warning():
    seen = [SEEN_HOST, SeenProvider("d", "dev", 1, "elsewhere")]
    changes = diff(tree(host(), device()), seen, {}, {})
    assert changes.steps == ()
    assert "provider dev is below elsewhere" in changes.warnings[0]


def test_providers_that_placement_knows_by_name_keep_their_uuid():
    named = with_uuids(tree(ProviderNode("host", uuid="mine"), ProviderNode("new", "host")), [SEEN_HOST], SeededIds(1))
    assert named["host"].uuid == "h"
    assert named["new"].uuid == SeededIds(1).uuid()
