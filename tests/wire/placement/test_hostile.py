"""Requests that once caused a 5xx in fuzzing, one test each."""

import pytest

HOST = "10000000-0000-4000-8000-000000000000"


@pytest.fixture
def host(wire):
    wire.does("POST", "/resource_providers", {"name": "host", "uuid": HOST})
    return f"/resource_providers/{HOST}"


@pytest.mark.parametrize("record", ["", [True], {}, {"total": "many"}, {"total": 1, "reserved": -1}])
def test_an_inventory_under_a_name_that_is_no_class_is_held_against_its_schema_too(wire, host, record):
    offered = {"resource_provider_generation": 0, "inventories": {"no class": record}}
    assert wire.fails("PUT", f"{host}/inventories", offered)[0] == 400
    reshaped = {"inventories": {HOST: offered}, "allocations": {}}
    assert wire.fails("POST", "/reshaper", reshaped, roles="service")[0] == 400


def test_a_sound_inventory_of_a_class_that_cannot_be_is_refused_for_its_class(wire, host):
    offered = {"resource_provider_generation": 0, "inventories": {"no class": {"total": 1}}}
    status, _, detail = wire.fails("PUT", f"{host}/inventories", offered)
    assert (status, "no class" in detail) == (400, True)


@pytest.mark.parametrize("limit", ["9" * 18, "9" * 19, "9" * 5000])
def test_a_limit_beyond_all_numbers_is_no_limit(wire, host, limit):
    wire.does("POST", f"{host}/inventories", {"resource_class": "VCPU", "total": 8, "resource_provider_generation": 0})
    assert len(wire.does("GET", f"/allocation_candidates?resources=VCPU:1&limit={limit}")["allocation_requests"]) == 1


@pytest.mark.parametrize("ratio", [3.4e38, 1e-300])
def test_no_allocation_ratio_keeps_others_from_being_read(wire, host, ratio):
    """One capacity beyond 64 bits caused 500 for every read of every provider, even after a restart."""
    record = {"resource_class": "VCPU", "total": 2**31 - 1, "allocation_ratio": ratio}
    assert wire.does("POST", f"{host}/inventories", record)["allocation_ratio"] == ratio
    found = wire.does("GET", "/allocation_candidates?resources=VCPU:1")
    assert len(found["allocation_requests"]) == (1 if ratio > 1 else 0)
    assert wire.does("GET", f"{host}/usages")["usages"] == {"VCPU": 0}


@pytest.mark.parametrize("ratio", [-3.4e38, -1e300])
def test_no_ratio_below_nothing_overflows(wire, host, ratio):
    record = {"resource_class": "VCPU", "total": 2**31 - 1, "allocation_ratio": ratio}
    assert wire.fails("POST", f"{host}/inventories", record)[0] == 400


@pytest.mark.parametrize("amount", [2**31, 2**63, 10**4000])
def test_nobody_has_room_for_more_than_there_can_be(wire, host, amount):
    wire.does("POST", f"{host}/inventories", {"resource_class": "VCPU", "total": 2**31 - 1, "allocation_ratio": 3e38})
    query = f"?resources=VCPU:{amount}"
    assert wire.does("GET", f"/allocation_candidates{query}")["allocation_requests"] == []
    assert wire.does("GET", f"/resource_providers{query}")["resource_providers"] == []
    assert wire.does("GET", f"/moorage/v1/explain{query}")["candidates"] == 0
