"""``resource:any``: capacity for servers with classes and traits that the reservation itself names."""

import json

import pytest

from moorage.reservation.capacity.resource_types.registry import TYPES
from tests.wire.reservation.plane import class_of, instance, lease
from tests.wire.reservation.test_flavor_reservations import GOLD, SHINY, flavor, of_flavor
from tests.wire.reservation.test_host_reservations import START, held, whole


def of_any(amount=1, resources=None, **more):
    return {"resource_type": "resource:any", "resources": resources or {GOLD: 1, "VCPU": 2}, "amount": amount, **more}


def create(plane, *reservations, status=201, version="1.1", **more):
    body = lease(*reservations, **more)
    if version == "1.1":
        body.pop("events")
    document = plane.ask("POST", "/v1/leases", body, status=status, version=version)
    return document["lease"] if status == 201 else document


def change(plane, made, *, status=200, **values):
    body = {"reservations": [{"id": made["reservations"][0]["id"], **values}]}
    return plane.ask("PUT", f"/v1/leases/{made['id']}", body, status=status, version="1.1")


def test_the_named_resources_are_reserved_and_released_at_the_end(gold):
    """The server is launched with the reservation's flavor, as stock clients do."""
    made = create(gold, of_any(2, {GOLD: 1, "VCPU": 2, "MEMORY_MB": 512, "DISK_GB": 5}), end="2026-03-01 11:00")
    (reservation,) = made["reservations"]
    gold.run_for(10)
    assert gold.lease(made["id"])["status"] == "ACTIVE"
    own = gold.flavor(reservation["id"])
    assert (own["vcpus"], own["ram"], own["disk"]) == (2, 512, 5)
    assert gold.extra_specs(reservation["id"]) == {f"resources:{GOLD}": "1", f"resources:{class_of(reservation)}": "1"}
    assert gold.access(reservation["id"]) == ["demo"]
    servers = [gold.server(gold.boot(f"s{number}", reservation["id"])) for number in range(3)]
    assert [one["status"] for one in servers] == ["ACTIVE", "ACTIVE", "ERROR"]
    assert {one["OS-EXT-SRV-ATTR:host"] for one in servers[:2]} == {"compute-1"}
    gold.run_until(gold.clock.now().replace(hour=11, minute=0, second=5))
    gold.run_for(20)
    assert gold.lease(made["id"])["status"] == "TERMINATED"
    assert gold.flavor(reservation["id"]) is None
    assert not gold.has_class(class_of(reservation))
    assert held(gold, reservation) == []
    assert gold.compute.servers_of_host("compute-1") == []


def test_resources_that_are_not_named_are_not_reserved(gold):
    """Other servers use all processors of the host, but none of its gold."""
    everything = instance(8, memory_mb=2048, disk_gb=1, resource_properties='["=", "$rack", "1"]')
    create(gold, everything, version="1.0", end="2026-03-01 11:00")
    (reservation,) = create(gold, of_any(1, {GOLD: 2}), end="2026-03-01 11:00")["reservations"]
    gold.run_for(10)
    assert gold.extra_specs(reservation["id"]) == {
        f"resources:{GOLD}": "2",
        "resources:VCPU": "0",
        "resources:MEMORY_MB": "0",
        f"resources:{class_of(reservation)}": "1",
    }
    assert gold.server(gold.boot("s", reservation["id"]))["status"] == "ACTIVE"


def test_dedicated_processors_are_reserved_as_pcpu(gold):
    root = gold.placement.provider_by_name("compute-2")
    gold.placement.put_inventory(root.uuid, "PCPU", gold.placement.inventories(root.uuid)[1]["VCPU"])
    gold.ask("PUT", "/v1/os-hosts/2", {"rack": "2"})
    made = create(gold, of_any(2, {"PCPU": 4}), start=START)
    (reservation,) = made["reservations"]
    assert held(gold, reservation) == ["2", "2"]
    assert gold.flavor(reservation["id"])["vcpus"] == 4
    assert "resources:VCPU" not in gold.extra_specs(reservation["id"])


def test_a_reservation_is_shown_as_it_was_requested(gold):
    """Clients of microversion 1.0 see it the same way."""
    asked = of_any(1, traits={SHINY: "required"}, affinity=True, hypervisor_properties='[">", "$vcpus", "1"]')
    made = create(gold, asked, start=START)
    (reservation,) = gold.lease(made["id"])["reservations"]
    assert {name: reservation[name] for name in asked} == asked
    assert (reservation["flavor_id"], reservation["resource_properties"]) == (reservation["id"], "")


def test_a_shortage_is_409_with_the_reason(gold):
    refused = create(gold, of_any(5), start=START, status=409)
    assert (
        f"5 instances of 2 VCPU, 1 {GOLD} cannot be reserved in that period; 4 fit, on 1 host"
        in refused["error_message"]
    )
    create(gold, of_any(3), start=START)
    refused = create(gold, of_any(2), start=START, end="2026-03-02 09:00", status=409)
    assert "1 fit, on 1 host; the whole lease fits from 2026-03-02 10:00 on" in refused["error_message"]


def test_traits_choose_providers(gold):
    create(gold, of_any(3, traits={SHINY: "required"}), start=START, status=409)
    create(gold, of_any(2, traits={SHINY: "required"}), start=START)
    create(gold, of_any(1, traits={SHINY: "required"}), start=START, status=409)
    create(gold, of_any(2, traits={SHINY: "forbidden"}), start=START)


def test_affinity_and_both_queries_apply(gold):
    (spread,) = create(gold, of_any(2, {"VCPU": 1}, affinity=False), start=START)["reservations"]
    assert held(gold, spread) == ["1", "2"]
    queries = {"hypervisor_properties": '[">=", "$vcpus", "8"]', "resource_properties": '["=", "$rack", "2"]'}
    (chosen,) = create(gold, of_any(2, {"VCPU": 1}, affinity="True", **queries), start=START)["reservations"]
    assert held(gold, chosen) == ["2", "2"]


def test_before_the_start_every_value_can_be_changed(gold):
    made = create(gold, of_any(1), start=START)
    (reservation,) = made["reservations"]
    new = {
        "amount": 2,
        "resources": {"VCPU": 3, "DISK_GB": 7},
        "traits": {},
        "affinity": False,
        "hypervisor_properties": "",
        "resource_properties": '["in", "$rack", ["1", "2"]]',
    }
    (shown,) = change(gold, made, **new)["lease"]["reservations"]
    assert {name: shown[name] for name in new} == new
    assert held(gold, reservation) == ["1", "2"]
    own = gold.flavor(reservation["id"])
    assert (own["vcpus"], own["disk"]) == (3, 7)
    assert f"resources:{GOLD}" not in gold.extra_specs(reservation["id"])
    change(gold, made, amount=9, status=409)
    body = {"reservations": [{"id": reservation["id"], "vcpus": 1}]}
    refused = gold.ask("PUT", f"/v1/leases/{made['id']}", body, status=400, version="1.1")["error_message"]
    assert "Unknown parameter vcpus" in refused
    (after,) = gold.lease(made["id"])["reservations"]
    assert {name: after[name] for name in new} == new


def test_only_the_amount_of_an_active_reservation_can_change(gold):
    made = create(gold, of_any(1))
    gold.run_for(10)
    change(gold, made, resources={"VCPU": 1}, status=409)
    change(gold, made, amount=3)
    (reservation,) = made["reservations"]
    assert [gold.server(gold.boot(f"s{n}", reservation["id"]))["status"] for n in range(3)] == ["ACTIVE"] * 3


def test_reservations_of_all_types_in_one_lease_are_planned_together(gold):
    """All or nothing: the whole host is reserved beside the others, not on top of them."""
    flavor(gold, specs={f"resources:{GOLD}": "1"}, vcpus=1)
    gold.add_host("compute-3")
    gold.register("compute-3", rack="3")
    made = create(gold, instance(2), of_flavor(amount=2), of_any(2), whole(1, 1), start=START)
    held_by_type = {each["resource_type"]: held(gold, each) for each in made["reservations"]}
    assert held_by_type["flavor:instance"] == held_by_type["resource:any"] == ["1", "1"]
    assert not set(held_by_type["physical:host"]) & {"1", *held_by_type["virtual:instance"]}
    create(gold, instance(1), of_any(1), start=START, status=409)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"resources": {}}, "Malformed parameter resources"),
        ({"resources": [GOLD]}, "Malformed parameter resources"),
        ({"resources": {GOLD: 0}}, f"{GOLD} must be >= 1"),
        ({"resources": {GOLD: "1"}}, f"Malformed parameter {GOLD}"),
        ({"resources": {"gold": 1}}, "Malformed parameter resources: 'gold' does not match"),
        ({"resources": {"GOLD": 1}}, "resources:GOLD: there is no resource class 'GOLD'"),
        ({"resources": {"VCPU": 1, "PCPU": 1}}, "VCPU and PCPU cannot be combined"),
        ({"resources": {"CUSTOM_RESERVATION_X": 1}}, "CUSTOM_RESERVATION_X belongs to a reservation"),
        ({"traits": {"SHINY": "required"}}, "trait:SHINY: there is no trait 'SHINY'"),
        ({"traits": {SHINY: "wanted"}}, f"Malformed parameter {SHINY}"),
        ({"amount": 0}, "amount must be >= 1"),
        ({"affinity": "maybe"}, "Malformed parameter affinity (must be a bool value or None)"),
        ({"flavor_id": "7"}, "Unknown parameter flavor_id"),
        ({"resource_properties": '["=", "$nothing", "1"]'}, "no host has a property nothing"),
    ],
)
def test_malformed_requests_are_refused(shared_gold, values, words):
    assert words in create(shared_gold, of_any() | values, start=START, status=400)["error_message"]


def test_the_error_names_the_missing_parameter(shared_gold):
    refused = create(shared_gold, {"resource_type": "resource:any"}, start=START, status=400)
    assert refused["error_message"] == "Missing parameter resources, amount"


def test_clients_of_1_0_are_refused_with_the_required_version(shared_gold):
    refused = create(shared_gold, of_any(), start=START, status=400, version="1.0")
    assert refused["error_message"] == (
        "resource:any reservations require microversion 1.1: send the header OpenStack-API-Version: reservation 1.1"
    )


def test_the_openapi_document_describes_the_parameters_of_each_type(gold):
    document = gold.ask("GET", "/moorage/v1/openapi.json", version="1.1")
    said = json.dumps(document["paths"]["/v1/leases"]["post"])
    assert all(f"`{kind}`" in said for kind in TYPES)
    assert "`resource:any` (from 1.1 on): resources, traits?, amount, affinity?, " in said


def test_offers_holds_dry_runs_and_series_work_for_this_type(gold):
    search = {"duration_minutes": 60, "reservations": [of_any(4)]}
    who = {"version": "1.1"}
    assert len(gold.ask("POST", "/v1/offers", search, **who)["offers"]) == 1
    hold = gold.ask("POST", "/v1/holds", search, status=201, **who)["hold"]
    made = gold.ask("POST", "/v1/leases", {"name": "held", "hold_id": hold["id"]}, status=201, **who)["lease"]
    assert made["reservations"][0]["resources"] == {GOLD: 1, "VCPU": 2}
    body = {"name": "x", "start_date": START, "end_date": "2026-03-01 13:00", "reservations": [of_any()]}
    (planned,) = gold.ask("POST", "/v1/leases/dry-run", body, **who)["lease"]["reservations"]
    assert planned["on"] == {"compute-1": 1}
    made = gold.ask("POST", "/v1/leases/series", body | {"every_days": 1, "count": 2}, status=201, **who)
    assert len(made["leases"]) == 2
