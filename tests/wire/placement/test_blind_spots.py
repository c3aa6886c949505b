"""Faults that pass all 1,316 tests of the upstream suite, but must not pass here.

Each fault was put into the code on purpose and was detected here (tests/conformance/README.md lists the faults).
"""

import pytest

HOST, OTHER = (f"00000000-0000-4000-a000-00000000000{number}" for number in (1, 2))
SERVER, SECOND = (f"00000000-0000-4000-b000-00000000000{number}" for number in (1, 2))
AGGREGATE = "00000000-0000-4000-c000-000000000001"
URL = f"/resource_providers/{HOST}"


def provider(wire, uuid=HOST, **inventories):
    """Creates a provider with generation 1."""
    wire.does("POST", "/resource_providers", {"name": uuid, "uuid": uuid})
    body = {"resource_provider_generation": 0, "inventories": inventories}
    wire.does("PUT", f"/resource_providers/{uuid}/inventories", body)


def wish(generation=None, **amounts):
    return {
        "allocations": {HOST: {"resources": amounts}} if amounts else {},
        "project_id": "red",
        "user_id": "alice",
        "consumer_generation": generation,
        "consumer_type": "INSTANCE",
    }


def claim(wire, consumer, body):
    return wire.send("PUT", f"/allocations/{consumer}", body)[0]


def found(wire, resources):
    listed = wire.does("GET", f"/resource_providers?resources={resources}")["resource_providers"]
    candidates = wire.does("GET", f"/allocation_candidates?resources={resources}")["allocation_requests"]
    assert len(listed) == len(candidates), "what is listed and who could take it are one question"
    return len(listed)


# --- the search: each limit alone, on both of its sides -----------------------------------------------------------


@pytest.mark.parametrize(
    ("inventory", "fits", "does_not"),
    [
        ({"total": 4, "allocation_ratio": 1.5}, 6, 7),
        ({"total": 4, "allocation_ratio": 0.5}, 2, 3),
        ({"total": 3, "allocation_ratio": 0.5}, 1, 2),
        ({"total": 4, "reserved": 1}, 3, 4),
        ({"total": 4, "reserved": 1, "allocation_ratio": 2.0}, 6, 7),
        ({"total": 4, "min_unit": 2}, 2, 1),
        ({"total": 4, "max_unit": 3}, 3, 4),
        ({"total": 8, "step_size": 3}, 6, 5),
        ({"total": 4}, 4, 5),
    ],
)
def test_the_search_respects_every_field_of_an_inventory(wire, inventory, fits, does_not):
    provider(wire, VCPU=inventory)
    assert (found(wire, f"VCPU:{fits}"), found(wire, f"VCPU:{does_not}")) == (1, 0)


def test_the_search_counts_only_the_usage_of_the_requested_class(wire):
    provider(wire, VCPU={"total": 4}, MEMORY_MB={"total": 4})
    assert claim(wire, SERVER, wish(VCPU=3)) == 204
    assert (found(wire, "VCPU:1"), found(wire, "VCPU:2"), found(wire, "MEMORY_MB:4")) == (1, 0, 1)


# --- generations are compared, not counted ------------------------------------------------------------------------

OFFER = {"VCPU": {"total": 9}}


@pytest.mark.parametrize("given", [0, 2, 7])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", f"{URL}/inventories", {"inventories": OFFER}),
        ("PUT", f"{URL}/inventories/VCPU", {"total": 9}),
        ("PUT", f"{URL}/traits", {"traits": ["HW_CPU_X86_AVX2"]}),
        ("PUT", f"{URL}/aggregates", {"aggregates": [AGGREGATE]}),
    ],
)
def test_a_write_with_a_wrong_provider_generation_is_refused(wire, method, path, body, given):
    provider(wire, VCPU={"total": 4})
    before = wire.does("GET", path)
    status, code, _ = wire.fails(method, path, body | {"resource_provider_generation": given})
    assert (status, code) == (409, "placement.concurrent_update")
    assert wire.does("GET", path) == before
    assert wire.does(method, path, body | {"resource_provider_generation": 1})["resource_provider_generation"] == 2


@pytest.mark.parametrize("given", [0, 2])
def test_a_reshape_with_a_wrong_provider_generation_is_refused(wire, given):
    provider(wire, VCPU={"total": 4})
    inventories = {HOST: {"resource_provider_generation": given, "inventories": OFFER}}
    body = {"inventories": inventories, "allocations": {SERVER: wish(VCPU=2)}}
    assert wire.fails("POST", "/reshaper", body, roles="service")[:2] == (409, "placement.concurrent_update")
    assert wire.does("GET", f"/allocations/{SERVER}") == {"allocations": {}}
    inventories[HOST]["resource_provider_generation"] = 1
    wire.does("POST", "/reshaper", body, roles="service")


@pytest.mark.parametrize("given", [None, 0, 2])
def test_a_claim_with_a_wrong_consumer_generation_is_refused_by_each_route(wire, given):
    provider(wire, VCPU={"total": 4})
    assert claim(wire, SERVER, wish(VCPU=1)) == 204
    before = wire.does("GET", f"/allocations/{SERVER}")
    assert before["consumer_generation"] == 1
    inventories = {HOST: {"resource_provider_generation": 2, "inventories": OFFER}}
    for body in (wish(given, VCPU=2), wish(given)):
        for method, path, sent in (
            ("PUT", f"/allocations/{SERVER}", body),
            ("POST", "/allocations", {SECOND: wish(VCPU=1), SERVER: body}),
            ("POST", "/reshaper", {"inventories": inventories, "allocations": {SERVER: body}}),
        ):
            refused = wire.fails(method, path, sent, roles="admin,service")
            assert refused[:2] == (409, "placement.concurrent_update"), path
    assert wire.does("GET", f"/allocations/{SERVER}") == before
    assert wire.does("GET", f"/allocations/{SECOND}") == {"allocations": {}}, "all or nothing"
    assert claim(wire, SERVER, wish(1, VCPU=2)) == 204


def test_a_claim_for_a_new_consumer_must_not_have_a_generation(wire):
    provider(wire, VCPU={"total": 4})
    for given in (0, 1):
        status, code, _ = wire.fails("PUT", f"/allocations/{SERVER}", wish(given, VCPU=1))
        assert (status, code) == (409, "placement.concurrent_update")


# --- usage above the capacity -------------------------------------------------------------------------------------


@pytest.fixture
def shrunk(wire):
    """Two servers use 3 units each of an inventory that was reduced from 6 to 2."""
    provider(wire, VCPU={"total": 6})
    assert claim(wire, SERVER, wish(VCPU=3)) == claim(wire, SECOND, wish(VCPU=3)) == 204
    wire.does("PUT", f"{URL}/inventories", {"resource_provider_generation": 3, "inventories": {"VCPU": {"total": 2}}})
    return wire


@pytest.mark.parametrize("amount", [1, 2, 3])
def test_above_the_capacity_a_claim_may_shrink_but_not_grow(shrunk, amount):
    assert claim(shrunk, SERVER, wish(1, VCPU=4)) == 409
    assert claim(shrunk, SERVER, wish(1, VCPU=amount)) == 204


def test_above_the_capacity_the_sum_over_all_consumers_of_a_write_counts(shrunk):
    swapped = {SERVER: wish(1, VCPU=1), SECOND: wish(1, VCPU=5)}
    grown = {SERVER: wish(1, VCPU=2), SECOND: wish(1, VCPU=5)}
    assert shrunk.send("POST", "/allocations", grown)[0] == 409
    assert shrunk.send("POST", "/allocations", swapped)[0] == 204


def test_a_candidate_must_fit_the_sum_of_its_groups(wire):
    provider(wire, VGPU={"total": 3})
    query = "resources1=VGPU:2&resources2=VGPU:{}&group_policy=none"
    for amount, candidates in ((1, 1), (2, 0)):
        answer = wire.does("GET", f"/allocation_candidates?{query.format(amount)}")
        assert len(answer["allocation_requests"]) == candidates
