"""The writes for each kind of difference between the wanted and the published tree."""

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


def test_a_fresh_host_is_created_from_the_root_down():
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


def test_nothing_to_do_is_nothing_written():
    seen = SeenProvider("h", "host", 5, inventories={"VCPU": ONE}, traits=frozenset({"CUSTOM_T"}))
    changes = diff(tree(host(inventories={"VCPU": ONE}, traits=frozenset({"CUSTOM_T"}))), [seen], {}, {})
    assert changes.steps == ()
    assert changes.published == {"h": published(classes={"VCPU"}, traits={"CUSTOM_T"})}


def test_foreign_classes_and_traits_stay_when_ours_change():
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


def test_a_trait_that_somebody_else_put_first_is_not_taken_away_with_the_file():
    seen = SeenProvider("h", "host", 5, traits=frozenset({"CUSTOM_T"}))
    wanted = ProviderTree([host(traits=frozenset({"CUSTOM_T"}))])  # by a file: not native
    first = diff(wanted, [seen], {}, {})
    second = diff(ProviderTree([host()]), [seen], first.published, {})
    assert second.steps == ()


def test_a_trait_of_a_file_is_taken_away_with_the_file():
    """G8: Nova leaves it for good, and it goes on attracting servers."""
    first = diff(ProviderTree([host(traits=frozenset({"CUSTOM_T"}))]), [SEEN_HOST], {}, {})
    seen = SeenProvider("h", "host", 6, traits=frozenset({"CUSTOM_T"}))
    assert diff(ProviderTree([host()]), [seen], first.published, {}).steps == (PutTraits("h", frozenset(), ()),)


def test_a_class_in_use_is_closed_instead_of_removed():
    """G7: Nova refuses to start."""
    before = {"h": published(classes={"CUSTOM_LLC"})}
    seen = SeenProvider("h", "host", 5, inventories={"CUSTOM_LLC": Inventory(22, reserved=2)})
    changes = diff(tree(host()), [seen], before, {"h": {"CUSTOM_LLC": 4}})
    assert changes.steps == (PutInventories("h", {"CUSTOM_LLC": Inventory(22, reserved=22)}, ()),)
    assert "4 are in use" in changes.warnings[0]
    assert changes.published == before


def test_a_closed_class_goes_when_it_is_released():
    before = {"h": published(classes={"CUSTOM_LLC"})}
    closed = SeenProvider("h", "host", 5, inventories={"CUSTOM_LLC": Inventory(22, reserved=22)})
    assert diff(tree(host()), [closed], before, {"h": {"CUSTOM_LLC": 4}}).steps == ()
    assert diff(tree(host()), [closed], before, {"h": {}}).steps == (PutInventories("h", {}, ()),)


def test_a_device_that_is_gone_is_dropped_children_first():
    before = {"d": published("dev"), "e": published("part"), "h": published()}
    seen = [SEEN_HOST, SeenProvider("d", "dev", 1, "h"), SeenProvider("e", "part", 1, "d")]
    assert diff(tree(host()), seen, before, {}).steps == (DropProvider("e", "part"), DropProvider("d", "dev"))


def test_a_device_that_is_gone_but_in_use_is_closed_and_remembered():
    before = {"d": published("dev", classes={"CUSTOM_FPGA"}), "h": published()}
    seen = [SEEN_HOST, SeenProvider("d", "dev", 1, "h", {"CUSTOM_FPGA": ONE})]
    changes = diff(tree(host()), seen, before, {"d": {"CUSTOM_FPGA": 1}})
    assert changes.steps == (PutInventories("d", {"CUSTOM_FPGA": ONE.fully_reserved()}, ()),)
    assert changes.published["d"] == before["d"]


def test_a_device_that_is_gone_stays_below_what_others_hung_there():
    before = {"d": published("dev", classes={"CUSTOM_FPGA"}), "h": published()}
    seen = [SEEN_HOST, SeenProvider("d", "dev", 1, "h", {"CUSTOM_FPGA": ONE}), SeenProvider("f", "foreign", 1, "d")]
    changes = diff(with_foreign_providers(tree(host()), seen, before), seen, before, {})
    assert changes.steps == (PutInventories("d", {}, ()),)
    assert changes.published["d"].created


def test_a_provider_of_others_is_never_dropped():
    seen = [SEEN_HOST, SeenProvider("b", "blazar_host", 1, "h", {"CUSTOM_RESERVATION_X": ONE})]
    assert diff(with_foreign_providers(tree(host()), seen, {}), seen, {}, {}).steps == ()


def test_a_compute_node_that_is_gone_is_left_to_its_next_agent():
    """R23 (provider-config): a node that moved belongs to the agent that has it now."""
    before = {"h": published(classes={"VCPU"})}
    seen = [SeenProvider("h", "host", 5, inventories={"VCPU": ONE})]
    changes = diff(ProviderTree(), seen, before, {})
    assert changes.steps == ()
    assert changes.published == {}


def test_a_provider_below_another_parent_is_left_there_with_a_warning():
    seen = [SEEN_HOST, SeenProvider("d", "dev", 1, "elsewhere")]
    changes = diff(tree(host(), device()), seen, {}, {})
    assert changes.steps == ()
    assert "provider dev is below elsewhere" in changes.warnings[0]


def test_names_that_placement_knows_keep_their_uuid():
    named = with_uuids(tree(ProviderNode("host", uuid="mine"), ProviderNode("new", "host")), [SEEN_HOST], SeededIds(1))
    assert named["host"].uuid == "h"
    assert named["new"].uuid == SeededIds(1).uuid()
