"""Requests that once caused a 5xx in fuzzing, one test each."""

import pytest

HOST = "10000000-0000-4000-8000-000000000000"


@pytest.fixture
def host(wire):
    wire.does("POST", "/resource_providers", {"name": "host", "uuid": HOST})
    return f"/resource_providers/{HOST}"


@pytest.mark.parametrize("record", ["", [True], {}, {"total": "many"}, {"total": 1, "reserved": -1}])
def test_an_invalid_inventory_of_an_unknown_class_is_refused(wire, host, record):
    offered = {"resource_provider_generation": 0, "inventories": {"no class": record}}
    assert wire.fails("PUT", f"{host}/inventories", offered)[0] == 400
    reshaped = {"inventories": {HOST: offered}, "allocations": {}}
    assert wire.fails("POST", "/reshaper", reshaped, roles="service")[0] == 400


def test_a_valid_inventory_with_an_impossible_class_name_is_refused(wire, host):
    offered = {"resource_provider_generation": 0, "inventories": {"no class": {"total": 1}}}
    status, _, detail = wire.fails("PUT", f"{host}/inventories", offered)
    assert (status, "no class" in detail) == (400, True)


@pytest.mark.parametrize("limit", ["9" * 18, "9" * 19, "9" * 5000])
def test_a_huge_limit_returns_all_candidates(wire, host, limit):
    wire.does("POST", f"{host}/inventories", {"resource_class": "VCPU", "total": 8, "resource_provider_generation": 0})
    assert len(wire.does("GET", f"/allocation_candidates?resources=VCPU:1&limit={limit}")["allocation_requests"]) == 1


@pytest.mark.parametrize("ratio", [3.4e38, 1e-300])
def test_a_huge_allocation_ratio_does_not_break_reads_of_other_providers(wire, host, ratio):
    """One capacity beyond 64 bits caused 500 for every read of every provider, even after a restart."""
    record = {"resource_class": "VCPU", "total": 2**31 - 1, "allocation_ratio": ratio}
    assert wire.does("POST", f"{host}/inventories", record)["allocation_ratio"] == ratio
    found = wire.does("GET", "/allocation_candidates?resources=VCPU:1")
    assert len(found["allocation_requests"]) == (1 if ratio > 1 else 0)
    assert wire.does("GET", f"{host}/usages")["usages"] == {"VCPU": 0}


@pytest.mark.parametrize("ratio", [-3.4e38, -1e300])
def test_a_huge_negative_allocation_ratio_is_refused(wire, host, ratio):
    record = {"resource_class": "VCPU", "total": 2**31 - 1, "allocation_ratio": ratio}
    assert wire.fails("POST", f"{host}/inventories", record)[0] == 400


@pytest.mark.parametrize("amount", [2**31, 2**63, 10**4000])
def test_a_request_for_a_huge_amount_has_no_candidates(wire, host, amount):
    wire.does("POST", f"{host}/inventories", {"resource_class": "VCPU", "total": 2**31 - 1, "allocation_ratio": 3e38})
    query = f"?resources=VCPU:{amount}"
    assert wire.does("GET", f"/allocation_candidates{query}")["allocation_requests"] == []
    assert wire.does("GET", f"/resource_providers{query}")["resource_providers"] == []
    assert wire.does("GET", f"/moorage/v1/explain{query}")["candidates"] == 0
