"""``flavor:instance``: capacity for servers of any flavor."""

import json

import pytest

from moorage.placement.client.placement_client import Inventory
from moorage.reservation.model.limits import counted
from tests.wire.reservation.plane import class_of, instance, lease
from tests.wire.reservation.test_host_reservations import START, create, held

GOLD, SHINY = "CUSTOM_GOLD", "CUSTOM_SHINY"


def flavor(plane, flavor_id="gold", *, specs=None, public=True, vcpus=2):
    body = {"flavor": {"name": flavor_id, "id": flavor_id, "vcpus": vcpus, "ram": 512, "disk": 5}}
    body["flavor"]["os-flavor-access:is_public"] = public
    plane.ask("POST", "/v2.1/flavors", body, service="compute")
    if specs:
        path = f"/v2.1/flavors/{flavor_id}/os-extra_specs"
        plane.ask("POST", path, {"extra_specs": specs}, service="compute")
    return flavor_id


def of_flavor(flavor_id="gold", amount=1, **more):
    """The body of a reservation of a flavor, as stock clients send it."""
    return {
        "resource_type": "flavor:instance",
        "flavor_id": flavor_id,
        "amount": amount,
        "affinity": "None",
        **more,
    }


def with_gold(plane):
    plane.add_host()
    plane.add_host("compute-2")
    add_child(plane, "compute-1", "a", GOLD, 2)
    add_child(plane, "compute-1", "b", GOLD, 2, trait=SHINY)
    for number in (1, 2):
        plane.register(f"compute-{number}", rack=str(number))


def add_child(plane, host, name, resource_class, total, trait=None, uuid=None):
    root = plane.placement.provider_by_name(host)
    child = plane.placement.create_provider(f"{host}_{name}", uuid=uuid, parent_uuid=root.uuid)
    plane.placement.ensure_class(resource_class)
    plane.placement.put_inventory(child.uuid, resource_class, Inventory(total, max_unit=total))
    if trait:
        plane.placement.ensure_trait(trait)
        plane.placement.put_trait(child.uuid, trait, wanted=True)
    return child


def test_a_flavor_with_any_resource_class_can_be_reserved_and_launched(gold):
    """The private flavor equals the named one, and takes a slot in addition."""
    flavor(gold, specs={f"resources:{GOLD}": "1", "hw:watchdog_action": "disabled"})
    made = create(gold, of_flavor(amount=4), start="now", end="2026-03-01 11:00")
    (reservation,) = made["reservations"]
    gold.run_for(10)
    assert gold.lease(made["id"])["status"] == "ACTIVE"
    assert gold.extra_specs(reservation["id"]) == {
        f"resources:{GOLD}": "1",
        "hw:watchdog_action": "disabled",
        f"resources:{class_of(reservation)}": "1",
    }
    servers = [gold.server(gold.boot(f"s{number}", reservation["id"])) for number in range(4)]
    assert {(one["OS-EXT-SRV-ATTR:host"], one["status"]) for one in servers} == {("compute-1", "ACTIVE")}
    gold.run_until(gold.clock.now().replace(hour=11, minute=0, second=5))
    gold.run_for(20)
    assert gold.lease(made["id"])["status"] == "TERMINATED"
    assert gold.flavor(reservation["id"]) is None
    assert not gold.has_class(class_of(reservation))


def test_a_reservation_of_a_flavor_has_blazars_format(gold):
    flavor(gold, specs={f"resources:{GOLD}": "1"})
    (reservation,) = create(gold, of_flavor(amount=2), start=START)["reservations"]
    assert {name: reservation[name] for name in ("vcpus", "memory_mb", "disk_gb", "amount", "affinity")} == {
        "vcpus": 2,
        "memory_mb": 512,
        "disk_gb": 5,
        "amount": 2,
        "affinity": None,
    }
    assert (reservation["flavor_id"], reservation["aggregate_id"]) == (reservation["id"], None)
    shown = json.loads(reservation["resource_properties"])
    assert (shown["id"], shown["extra_specs"]) == ("gold", {f"resources:{GOLD}": "1"})


def test_capacity_counts_how_many_servers_fit_on_each_provider(gold):
    """Two units at a time come from one provider: two servers fit, and a third would not, although four units exist."""
    flavor(gold, "one", specs={f"resources:{GOLD}": "1"}, vcpus=1)
    flavor(gold, "pair", specs={f"resources:{GOLD}": "2"}, vcpus=1)
    create(gold, of_flavor("one"), start=START)
    refused = create(gold, of_flavor("pair", amount=2), start=START, status=409)
    assert "1 fit, on 1 host" in refused["error_message"]
    create(gold, of_flavor("pair"), start=START)
    create(gold, of_flavor("one"), start=START)
    create(gold, of_flavor("one"), start=START, status=409)


def test_traits_and_groups_of_the_flavor_are_respected(gold):
    flavor(gold, "shiny", specs={f"resources1:{GOLD}": "1", "trait1:CUSTOM_SHINY": "required"}, vcpus=1)
    flavor(gold, "dull", specs={f"resources1:{GOLD}": "1", "trait1:CUSTOM_SHINY": "forbidden"}, vcpus=1)
    flavor(gold, "none", specs={"trait:CUSTOM_UNKNOWN": "required"}, vcpus=1)
    create(gold, of_flavor("shiny", amount=3), start=START, status=409)
    create(gold, of_flavor("shiny", amount=2), start=START)
    create(gold, of_flavor("dull", amount=2), start=START)
    create(gold, of_flavor("none"), start=START, status=409)


def test_slots_of_flavors_and_sizes_share_a_host(gold):
    flavor(gold, specs={f"resources:{GOLD}": "1"}, vcpus=4)
    create(gold, instance(5, resource_properties='["=", "$rack", "1"]'), start=START)
    create(gold, of_flavor(), start=START, status=409)


def test_affinity_and_queries_apply(gold):
    flavor(gold, "plain")
    both = create(gold, of_flavor("plain", amount=2, affinity="False"), start=START)["reservations"][0]
    assert held(gold, both) == ["1", "2"]
    one = of_flavor("plain", amount=2, affinity=True, resource_properties='["=", "$rack", "2"]')
    placed = create(gold, one, start=START)["reservations"][0]
    assert held(gold, placed) == ["2", "2"]
    assert placed["resource_properties"] == '["=", "$rack", "2"]'


def test_later_changes_of_the_flavor_do_not_affect_the_reservation(gold):
    flavor(gold, specs={f"resources:{GOLD}": "1"})
    made = create(gold, of_flavor(amount=1), start=START)
    gold.ask("DELETE", "/v2.1/flavors/gold", service="compute", status=202)
    (reservation,) = made["reservations"]
    change = {"reservations": [{"id": reservation["id"], "amount": 3}]}
    gold.ask("PUT", f"/v1/leases/{made['id']}", change)
    assert held(gold, reservation) == ["1", "1", "1"]
    other = {"reservations": [{"id": reservation["id"], "flavor_id": "other"}]}
    refused = gold.ask("PUT", f"/v1/leases/{made['id']}", other, status=409)
    assert refused["error_message"] == "flavor_id cannot be updated"


def test_a_flavor_invisible_to_the_caller_is_not_found(gold):
    """The answer reveals neither its existence nor its contents."""
    flavor(gold, "secret", public=False, specs={"resources:CUSTOM_SECRET": "1"})
    who = {"user": "u", "project": "demo", "roles": ("member",)}
    for name in ("secret", "nowhere"):
        body = lease(of_flavor(name), start=START)
        refused = gold.ask("POST", "/v1/leases", body, status=404, **who)
        assert refused["error_message"] == f"Flavor {name} could not be found."
    gold.compute.add_flavor_access("secret", "demo")
    gold.ask("POST", "/v1/leases", lease(of_flavor("secret"), start=START), status=409, **who)


def test_the_private_flavor_of_a_reservation_cannot_be_reserved(gold):
    (reservation,) = create(gold, instance(), start=START)["reservations"]
    refused = create(gold, of_flavor(reservation["id"]), start=START, status=400)
    assert "belongs to a reservation" in refused["error_message"]


def test_the_error_names_a_missing_device_profile(gold):
    flavor(gold, specs={"accel:device_profile": "nothing"})
    assert "accel:device_profile=nothing" in create(gold, of_flavor(), start=START, status=400)["error_message"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"flavor_id": ""}, "Malformed parameter flavor_id"),
        ({"amount": 0}, "amount must be >= 1"),
        ({"affinity": "maybe"}, "Malformed parameter affinity (must be a bool value or None)"),
    ],
)
def test_malformed_requests_are_refused(shared_gold, values, words):
    assert words in create(shared_gold, of_flavor() | values, start=START, status=400)["error_message"]


def test_a_flavor_id_may_be_a_number(gold):
    """Stock clients turn digits into numbers."""
    flavor(gold, "7")
    create(gold, of_flavor(7), start=START)


def test_an_amount_counts_on_every_provider_of_a_host():
    """Limits of projects count the amount on any provider of the host."""
    assert counted([{GOLD: 1, "VCPU": 1}, {f"{GOLD}#1": 2, "VCPU": 1}]) == {GOLD: 3, "VCPU": 2}
