"""Filters and their reasons, weighers and the order of hosts, and the messages about rejected hosts."""

import math
from dataclasses import replace

import pytest

from moorage.scheduler.filters import FILTERS, HostState, ServerRequirements, rejects
from moorage.scheduler.host_ranking import HostRanking
from moorage.scheduler.reasons import Reasons, RejectionCount
from moorage.scheduler.server_groups import (
    GroupPolicy,
    ServerGroupView,
    affinity_root,
    group_preference,
    group_rejection,
)
from moorage.scheduler.weighers import HostFacts, WeigherInput, carries_function, multipliers_in, wanted_functions

GOOD = HostState("h", "r", "nova", is_up=True, is_enabled=True, hypervisor_type="QEMU", architecture="x86_64")
ANY = ServerRequirements("server")
ROOTS = ["a", "b", "c"]


@pytest.mark.parametrize(
    ("host", "wanted", "verdict"),
    [
        (GOOD, ANY, None),
        (replace(GOOD, is_up=False), ANY, ("service_is_up", "its compute service is down")),
        (replace(GOOD, is_enabled=False), ANY, ("service_is_enabled", "its compute service is disabled")),
        (replace(GOOD, is_occupied=True), ANY, ("is_unoccupied", "it is a bare-metal node and has a server")),
        (GOOD, ServerRequirements("server", zone="east"), ("in_wanted_zone", "not in availability zone east")),
        (GOOD, ServerRequirements("server", host="other"), ("is_wanted_host", "another host was requested")),
        (GOOD, ServerRequirements("server", zone="nova", host="h"), None),
        (GOOD, ServerRequirements("server", excluded_hosts={"h": "it is there"}), ("is_not_ruled_out", "it is there")),
        (GOOD, ServerRequirements("server", beside=frozenset({"h", "i"})), None),
        (
            GOOD,
            ServerRequirements("server", beside=frozenset({"i"})),
            ("is_beside_wanted_servers", "none of the servers in the hint same_host is on it"),
        ),
        (
            GOOD,
            ServerRequirements("server", architecture="aarch64"),
            ("runs_the_image", "the image is for aarch64 processors"),
        ),
        (replace(GOOD, architecture=None), ServerRequirements("server", architecture="aarch64"), None),
        (
            GOOD,
            ServerRequirements("server", hypervisor_type="xen"),
            ("runs_the_image", "the image is for the hypervisor xen"),
        ),
        (GOOD, ServerRequirements("server", hypervisor_type="qemu"), None),
        (GOOD, ServerRequirements("server", guest_settings=("hw:boot_menu",)), None),
        (
            replace(GOOD, applies_settings=False),
            ServerRequirements("server", guest_settings=("hw:boot_menu",)),
            ("applies_guest_settings", "it cannot apply hw:boot_menu"),
        ),
        (
            GOOD,
            ServerRequirements("server", aggregate_metadata={"ssd": "true"}),
            (
                "is_in_wanted_aggregate",
                "none of its aggregates has the metadata that aggregate_instance_extra_specs:ssd demands",
            ),
        ),
        (
            replace(GOOD, metadata={"ssd": frozenset({"true,fast"})}),
            ServerRequirements("server", aggregate_metadata={"ssd": "true"}),
            None,
        ),
        (
            GOOD,
            ServerRequirements("server", group=ServerGroupView(GroupPolicy.ANTI_AFFINITY, {"r": 1})),
            ("keeps_the_group", "its server group allows 1 server on a host"),
        ),
    ],
)
def test_each_filter_rejects_a_host_with_its_reason(host, wanted, verdict):
    assert rejects(host, wanted) == verdict


def test_every_filter_is_covered_by_the_test_above():
    assert {passes.__name__ for passes in FILTERS} == {
        "is_wanted_host", "is_not_ruled_out", "is_beside_wanted_servers", "in_wanted_zone", "service_is_enabled",
        "service_is_up", "is_unoccupied", "runs_the_image", "applies_guest_settings",
        "is_in_wanted_aggregate", "keeps_the_group",
    }  # fmt: skip


def ranking_of(facts, *, weigher_input=None, multipliers=None, aggregate_multipliers=None, roots=ROOTS):
    return HostRanking(
        roots, lambda root: facts[root], weigher_input or WeigherInput(), multipliers, aggregate_multipliers
    )


def order(made, server="server", group=None):
    return list(made.order(server, group))


@pytest.mark.parametrize(
    ("field", "best_first"),
    [
        ("free_memory_mb", "cba"),
        ("free_processors", "cba"),
        ("free_disk_gb", "cba"),
        ("jobs", "abc"),
        ("failed_builds", "abc"),
    ],
)
def test_each_weigher_orders_hosts(field, best_first):
    facts = {root: HostFacts(**{field: number}) for number, root in enumerate(ROOTS)}
    assert order(ranking_of(facts)) == list(best_first)


def test_hosts_with_free_accelerators_are_preferred_only_by_servers_that_request_them():
    """R10 (accelerator-attach): hosts are ranked by available accelerators; 0, 1 and 4 free: 4 first."""
    facts = {
        "a": HostFacts(free_accelerators=0),
        "b": HostFacts(free_accelerators=1),
        "c": HostFacts(free_accelerators=4),
    }
    assert order(ranking_of(facts, weigher_input=WeigherInput(wants_accelerators=True))) == ["c", "b", "a"]
    assert order(ranking_of(facts)) == ["a", "b", "c"]


def test_a_host_where_the_function_is_already_loaded_is_preferred():
    facts = {
        "a": HostFacts(free_accelerators=4),
        "b": HostFacts(free_accelerators=1, has_function=True),
        "c": HostFacts(),
    }
    assert order(ranking_of(facts, weigher_input=WeigherInput(wants_accelerators=True)))[0] == "b"


def test_a_loaded_function_outweighs_free_resources_and_free_accelerators():
    """A15, R10 (accelerator-attach): hosts with the function come first, then hosts with more free accelerators."""
    full = {"free_memory_mb": 9.0, "free_processors": 9.0, "free_disk_gb": 9.0}
    facts = {
        "a": HostFacts(**full, free_accelerators=4),
        "b": HostFacts(free_accelerators=1, has_function=True, jobs=5),
        "c": HostFacts(**full, free_accelerators=3),
    }
    assert order(ranking_of(facts, weigher_input=WeigherInput(wants_accelerators=True))) == ["b", "a", "c"]


def test_a_failed_build_outweighs_any_free_resources():
    facts = {"a": HostFacts(free_memory_mb=1e6, failed_builds=1), "b": HostFacts(), "c": HostFacts(free_memory_mb=1)}
    assert order(ranking_of(facts)) == ["c", "b", "a"]


def test_weight_multipliers_come_from_options_and_aggregates():
    facts = {root: HostFacts(free_memory_mb=number) for number, root in enumerate(ROOTS)}
    assert order(ranking_of(facts, multipliers={"ram": -1.0})) == ["a", "b", "c"]
    packed = multipliers_in({"ram_weight_multiplier": "-2", "other": "x", "cpu_weight_multiplier": "many"})
    assert packed == {"ram": -2.0}
    weights = dict(zip(ROOTS, ranking_of(facts, aggregate_multipliers={"c": packed}).weights(), strict=True))
    assert weights == {"a": 0.0, "b": 0.5, "c": -2.0}
    assert order(ranking_of(facts, multipliers={"ram": 0.0}, aggregate_multipliers={"c": packed}))[-1] == "c"


def test_an_unknown_value_of_a_weigher_adds_no_weight():
    facts = {root: HostFacts(jobs=number) for number, root in enumerate(ROOTS)}
    more = {"outside": lambda facts, _: (math.nan, 1.0, 3.0)[facts.jobs], "silent": lambda facts, _: math.nan}
    for multiplier, weights in ((2.0, [0.0, 0.0, 2.0]), (-2.0, [0.0, 0.0, -2.0])):
        made = HostRanking(
            ROOTS, facts.get, WeigherInput(), {"io_ops": 0.0, "outside": multiplier}, plugin_weighers=more
        )
        assert made.weights().tolist() == weights


def test_soft_group_policies_order_hosts_and_hard_ones_reject_them():
    members = {"a": 2, "b": 1}
    facts = {root: HostFacts() for root in ROOTS}
    together, apart = (
        ServerGroupView(policy, members) for policy in (GroupPolicy.SOFT_AFFINITY, GroupPolicy.SOFT_ANTI_AFFINITY)
    )
    assert order(ranking_of(facts), group=together) == ["a", "b", "c"]
    assert order(ranking_of(facts), group=apart) == ["c", "b", "a"]
    hard = ServerGroupView(GroupPolicy.AFFINITY, members)
    assert (affinity_root(hard), affinity_root(apart), affinity_root(ServerGroupView(GroupPolicy.AFFINITY))) == (
        "a",
        None,
        None,
    )
    assert [group_rejection(hard, root) is None for root in ROOTS] == [True, True, False]
    two = ServerGroupView(GroupPolicy.ANTI_AFFINITY, members, max_server_per_host=2)
    assert [group_rejection(two, root) is None for root in ROOTS] == [False, True, True]
    assert group_preference(two, "a") == 0.0
    assert group_rejection(ServerGroupView(GroupPolicy.AFFINITY), "a") is None


def test_a_host_is_weighed_again_after_it_was_refreshed():
    facts = {"a": HostFacts(free_memory_mb=10), "b": HostFacts(free_memory_mb=9), "c": HostFacts()}
    made = ranking_of(facts)
    assert order(made)[0] == "a"
    facts["a"] = HostFacts(free_memory_mb=8)
    made.refresh_root("a")
    assert order(made)[0] == "b"


def test_equal_hosts_have_a_different_order_for_each_server():
    roots = list("abcdef")
    made = ranking_of({root: HostFacts() for root in roots}, roots=roots)
    firsts = [order(made, f"server-{number}")[0] for number in range(50)]
    assert len(set(firsts)) > 3
    assert order(made, "server-1") == order(made, "server-1")


def test_the_first_host_is_chosen_randomly_from_the_best_ones():
    facts = {root: HostFacts(free_memory_mb=-number) for number, root in enumerate(ROOTS)}
    made = ranking_of(facts)
    firsts = {next(made.order(f"server-{number}", subset=2)) for number in range(40)}
    assert firsts == {"a", "b"}
    assert list(made.order("server", subset=100)) != []
    assert list(ranking_of({}, roots=[]).order("server")) == []


def test_functions_are_recognised_in_all_spellings():
    specs = {
        "function_A:9aff01-02": "required",
        "functionB": "CUSTOM_FPGA_INTEL_FUNCTION_GZIP",
        "accel_C:function_id": "beef",
        "function_name_D:sha": "required",
        "accel:device_profile": "dp",
        "hw:cpu_policy": "shared",
    }
    assert wanted_functions(specs) == {"9AFF0102", "CUSTOMFPGAINTELFUNCTIONGZIP", "BEEF", "SHA"}
    assert carries_function(["CUSTOM_FPGA_INTEL_FUNCTION_9AFF_0102"], frozenset({"9AFF0102"}))
    assert not carries_function(["CUSTOM_FPGA_INTEL_REGION_9AFF_0102", "HW_CPU_X86_AVX"], frozenset({"9AFF0102"}))


def test_the_message_for_users_has_the_reasons_with_counts_and_without_host_names():
    down, zone = ("service_is_up", "its compute service is down"), ("in_wanted_zone", "not in availability zone x")
    reasons = Reasons(
        "resources=VCPU:1",
        (RejectionCount("resources:VCPU=1", 5, 3, ("node-1 has 0",)),),
        rejected={"node-2": down, "node-3": down, "node-4": zone},
    )
    assert reasons.user_message() == (
        "5 hosts considered; resources:VCPU=1 left 3. Placement has capacity, but: 2 hosts: its compute service is down; "
        "1 host: not in availability zone x."
    )
    assert "node" not in reasons.user_message()
    assert reasons.filter_counts() == [("in_wanted_zone", 3, 2), ("service_is_up", 2, 0)]
    text = reasons.admin_details()
    assert "node-1 has 0" in text
    assert "node-2: its compute service is down" in text


def test_refused_claims_and_notes_are_part_of_the_messages():
    assert (
        Reasons("q", refused_claims={"h": 2}).user_message() == "all of 2 claims were overtaken by others; try again."
    )
    assert Reasons("q", note="there is no host").user_message() == "there is no host."
    full = Reasons("q", closest=("h: lacks 1 VCPU",), change="1 VCPU less on h", refused_claims={"h": 2})
    assert full.admin_details().splitlines()[1:] == [
        "h: 2 claims refused",
        "closest: h: lacks 1 VCPU",
        "would fit: 1 VCPU less on h",
    ]


def test_the_former_name_of_excluded_hosts_works_with_a_deprecation_warning():
    requirements = ServerRequirements("server", excluded_hosts={"h": "full"})
    with pytest.warns(DeprecationWarning, match="excluded_hosts"):
        assert requirements.not_hosts == {"h": "full"}


def test_the_former_name_of_plugin_weighers_works_with_a_deprecation_warning():
    weighers = {"outside": lambda fact, _: fact.free_memory_mb}
    with pytest.warns(DeprecationWarning, match="plugin_weighers"):
        ranking = HostRanking(
            ["a", "b"], lambda root: HostFacts(free_memory_mb=float(root == "b")), WeigherInput(), more=weighers
        )
    assert list(ranking.order("seed")) == ["b", "a"]
