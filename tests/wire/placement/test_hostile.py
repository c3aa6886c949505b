"""Requests that fuzzing found an answer 5xx to, each kept as a fact."""

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
