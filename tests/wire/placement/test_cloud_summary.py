"""The summary of the cloud, pages of trees, and one tree with its consumers, now and at past times."""

from datetime import timedelta

import pytest

from moorage.placement.forest.change_entries import iso_utc
from tests.wire.placement.test_history import CONSUMER, claim, delete_old_entries, host, later, offer

RACK = "11111111-0000-4000-8000-000000000000"


def child(wire, parent, name, **inventories):
    uuid = wire.does("POST", "/resource_providers", {"name": name, "parent_provider_uuid": parent})["uuid"]
    body = {"resource_provider_generation": 0, "inventories": {key: {"total": n} for key, n in inventories.items()}}
    wire.does("PUT", f"/resource_providers/{uuid}/inventories", body)
    return uuid


def in_rack(wire, uuid):
    generation = wire.does("GET", f"/resource_providers/{uuid}")["generation"]
    body = {"resource_provider_generation": generation, "aggregates": [RACK]}
    wire.does("PUT", f"/resource_providers/{uuid}/aggregates", body)


def units(name, providers, capacity, used):
    return {"name": name, "providers": providers, "capacity": capacity, "used": used}


def test_the_summary_has_totals_by_class_and_by_aggregate(wire):
    one, two = host(wire, "host-1", 8), host(wire, "host-2", 4)
    child(wire, one, "card", FPGA=1)
    in_rack(wire, one)
    claim(wire, two, 3)
    found = wire.does("GET", "/moorage/v1/survey")
    assert (found["trees"], found["providers"]) == (2, 3)
    assert found["resource_classes"] == [units("VCPU", 2, 12, 3), units("FPGA", 1, 1, 0)]
    rack = {"uuid": RACK, "trees": 1, "resource_classes": [units("VCPU", 1, 8, 0), units("FPGA", 1, 1, 0)]}
    assert found["aggregates"] == [rack]
    (only_fpgas,) = wire.does("GET", "/moorage/v1/survey?resource_class=FPGA,CUSTOM_NONE")["aggregates"]
    assert only_fpgas["resource_classes"] == [units("FPGA", 1, 1, 0)]


def test_an_empty_cloud_has_a_summary(wire):
    found = wire.does("GET", "/moorage/v1/survey")
    assert (found["trees"], found["resource_classes"], found["aggregates"]) == (0, [], [])


def names(answer):
    return [row["name"] for row in answer["trees"]]


def test_trees_are_listed_in_pages_in_natural_order(wire):
    for number in (10, 9, 1):
        host(wire, f"host-{number}")
    first = wire.does("GET", "/moorage/v1/trees?limit=2")
    assert (names(first), first["matching"], first["next"]) == (["host-1", "host-9"], 3, "host-9")
    second = wire.does("GET", f"/moorage/v1/trees?limit=2&after={first['next']}")
    assert (names(second), second["matching"], second["next"]) == (["host-10"], 3, None)


def test_a_page_can_begin_after_a_host_that_was_deleted(wire):
    host(wire, "host-1"), host(wire, "host-3")
    assert names(wire.does("GET", "/moorage/v1/trees?after=host-2")) == ["host-3"]


@pytest.mark.parametrize(
    "query", ["search=CARD", "search={uuid}", "resource_class=FPGA", "required=CUSTOM_FAST", f"member_of={RACK}"]
)
def test_a_tree_is_found_by_the_properties_of_any_of_its_providers(wire, query):
    one = host(wire, "host-1")
    host(wire, "host-2")
    card = child(wire, one, "the card", FPGA=1)
    wire.does("PUT", "/traits/CUSTOM_FAST")
    body = {"resource_provider_generation": 1, "traits": ["CUSTOM_FAST"]}
    wire.does("PUT", f"/resource_providers/{card}/traits", body)
    in_rack(wire, card)
    found = wire.does("GET", f"/moorage/v1/trees?{query.format(uuid=card)}")
    assert (names(found), found["matching"]) == (["host-1"], 1)
    assert found["trees"][0]["providers"] == 2


def test_a_tree_is_shown_with_all_its_allocations(wire):
    one = host(wire, "host-1", 8)
    card = child(wire, one, "card", FPGA=1)
    claim(wire, one, 3)
    found = wire.does("GET", f"/moorage/v1/trees/{card}")
    assert [(row["name"], row["parent_provider_uuid"], row["usages"]) for row in found["providers"]] == [
        ("host-1", None, {"VCPU": 3}),
        ("card", one, {}),
    ]
    assert found["holders"] == [
        {
            "consumer": CONSUMER,
            "project_id": "red",
            "user_id": "alice",
            "consumer_type": "INSTANCE",
            "allocations": {one: {"VCPU": 3}},
        }
    ]
    assert (found["at"], found["is_cut"]) == (None, False)


def test_a_tree_is_shown_at_a_past_time(wire, clock):
    one = host(wire, "host-1", 8)
    then = later(clock)
    child(wire, one, "card", FPGA=1)
    offer(wire, one, 1, 16)
    claim(wire, one, 3)
    found = wire.does("GET", f"/moorage/v1/trees/{one}?at={then}")
    assert [(row["name"], row["inventories"]["VCPU"]["total"], row["usages"]) for row in found["providers"]] == [
        ("host-1", 8, {})
    ]
    assert (found["at"], found["holders"]) == (then, None)


def test_a_deleted_tree_is_shown_at_a_time_when_it_existed(wire, clock):
    one = host(wire, "host-1", 8)
    then = later(clock)
    wire.does("DELETE", f"/resource_providers/{one}")
    assert wire.fails("GET", f"/moorage/v1/trees/{one}")[0] == 404
    assert [row["name"] for row in wire.does("GET", f"/moorage/v1/trees/{one}?at={then}")["providers"]] == ["host-1"]
    before = iso_utc(clock.now() - timedelta(days=1))
    assert wire.fails("GET", f"/moorage/v1/trees/{one}?at={before}")[0] == 404


def test_a_tree_at_a_time_before_the_kept_range_is_410(wire, clock, plane):
    one = host(wire, "host-1", 8)
    then = later(clock)
    later(clock)
    offer(wire, one, 1, 16)
    later(clock)
    delete_old_entries(plane.engine("placement"), clock, minutes=1)
    assert wire.fails("GET", f"/moorage/v1/trees/{one}?at={then}")[0] == 410


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=201", f"after={'9' * 5000}", "search=", "resource_class=vcpu", "nonsense=1"]
)
def test_invalid_parameters_are_refused(wire, query):
    assert wire.fails("GET", f"/moorage/v1/trees?{query}")[0] == 400


@pytest.mark.parametrize("path", ["survey", "trees", f"trees/{RACK}"])
def test_only_operators_and_services_may_read_the_summary(wire, path):
    assert wire.fails("GET", f"/moorage/v1/{path}", roles="member,reader")[0] == 403
