"""The texts of explanations that users read when no host is found."""

from moorage.placement.explain.explanation import explain
from moorage.placement.forest.forest import Forest
from moorage.placement.forest.model import SHARING_TRAIT, Inventory, NameTable, Provider
from moorage.placement.search.request import parse_request

TREE = [
    Provider(
        1,
        "u1",
        "compute-1",
        0,
        0,
        None,
        1,
        {"VCPU": Inventory(16), "DISK_GB": Inventory(100, max_unit=50, step_size=10)},
        {"VCPU": 15},
        frozenset({"CUSTOM_FAST"}),
        frozenset({"g1"}),
    ),
    Provider(2, "u2", "compute-1_gpu", 0, 0, 1, 1, {"PGPU": Inventory(1)}, {}, frozenset({"CUSTOM_GPU"})),
    Provider(3, "u3", "compute-2", 0, 0, None, 3, {"VCPU": Inventory(4)}, {}, frozenset({"CUSTOM_RESERVATION_HOST"})),
    Provider(4, "u4", "storage", 0, 0, None, 4, {"DISK_GB": Inventory(999)}, {}, frozenset({SHARING_TRAIT})),
]


def text(*pairs):
    return explain(Forest.build(TREE, NameTable(), 0), parse_request(pairs, (1, 39))).text


def test_without_hosts_the_explanation_says_so():
    nothing = explain(Forest.build([], NameTable(), 0), parse_request([("resources", "VCPU:1")], (1, 39)))
    assert nothing.text == "No valid host: there are no hosts at all."


def test_each_constraint_that_excluded_hosts_is_named_in_order():
    assert text(("resources", "VCPU:2"), ("root_required", "!CUSTOM_RESERVATION_HOST")) == (
        "No valid host: 2 hosts considered; root_required=!CUSTOM_RESERVATION_HOST left 1 "
        "(compute-2 has CUSTOM_RESERVATION_HOST); resources:VCPU=2 left 0 (compute-1 has 15 of 16 in use)."
    )


def test_a_class_that_no_host_has_is_explained():
    assert "left 0 (compute-1 has no FPGA, compute-2 has no FPGA)" in text(("resources", "FPGA:1"))


def test_an_amount_that_breaks_the_unit_rules_is_explained():
    assert "(compute-1 gives one consumer 1 to 50 units in steps of 10, compute-2 has no DISK_GB)" in text(
        ("resources", "DISK_GB:60")
    )


def test_missing_and_forbidden_traits_and_aggregates_are_explained():
    assert "required=CUSTOM_GPU left 0 (compute-1 has no CUSTOM_GPU where the resources are)" in text(
        ("resources", "DISK_GB:10"), ("required", "CUSTOM_GPU")
    )
    assert "required=!CUSTOM_FAST left 0 (compute-1 has CUSTOM_FAST)" in text(
        ("resources", "DISK_GB:10"), ("required", "!CUSTOM_FAST")
    )
    other = "4d17d41a-830d-47b2-91c7-4f9fc0ae611e"
    assert f"member_of={other} left 0 (compute-1 is not in {other})" in text(
        ("resources", "DISK_GB:10"), ("member_of", other)
    )


def test_groups_that_fit_alone_but_not_together_are_explained():
    assert text(("resources1", "PGPU:1"), ("resources2", "PGPU:1"), ("group_policy", "isolate")) == (
        "No valid host: 2 hosts considered; resources1:PGPU=1 left 1 (compute-2 has no PGPU); all groups together, "
        "group_policy=isolate left 0 (compute-1 can serve each group alone but not all of them at once)."
    )


def test_a_granular_group_that_no_single_provider_can_serve_is_explained():
    assert "resources1:PGPU=1 left 0 (compute-1_gpu has PGPU but not the rest of the group, " in text(
        ("resources1", "VCPU:1,PGPU:1")
    )


def test_a_request_with_candidates_is_explained_with_their_number():
    assert text(("resources", "VCPU:1")) == "2 candidates on 2 of 2 hosts."


def test_each_step_names_the_excluded_hosts_with_the_reason():
    explanation = explain(Forest.build(TREE, NameTable(), 0), parse_request([("resources", "PGPU:1")], (1, 39)))
    first, last = explanation.steps
    assert (first.constraint, first.before, first.after) == ("resources:PGPU=1", 2, 1)
    assert [(removed.provider, removed.reason) for removed in first.removed] == [("compute-2", "compute-2 has no PGPU")]
    assert (last.constraint, last.before, last.after) == ("all groups together", 1, 1)
    assert explanation.candidates == 1


def test_sharing_providers_are_not_counted_as_hosts():
    """Three of the four candidates use only sharing providers."""
    stores = [
        Provider(
            number, f"u{number}", f"store-{number}", 0, 0, None, number, {"DISK_GB": Inventory(999)}, {},
            frozenset({SHARING_TRAIT}), frozenset({"g1"}),
        )
        for number in (5, 6, 7)
    ]  # fmt: skip
    forest = Forest.build([*TREE[:3], *stores], NameTable(), 0)
    assert (
        explain(forest, parse_request([("resources", "DISK_GB:10")], (1, 39))).text == "4 candidates on 1 of 2 hosts."
    )


def test_a_limit_of_candidates_does_not_limit_the_counted_hosts():
    assert text(("resources", "VCPU:1"), ("limit", "1")) == "at least 1 candidate on 2 of 2 hosts."
