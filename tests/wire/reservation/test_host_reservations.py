"""``physical:host``: whole hosts of the free pool for one project."""

import pytest

from tests.wire.reservation.plane import instance, lease
from tests.wire.reservation.test_healing import fail
from tests.wire.reservation.test_timeline import timeline

START, END = "2026-03-01 12:00", "2026-03-02 10:00"


def whole(least=1, most=1, **more):
    """The body of a reservation of whole hosts, as stock clients send it."""
    return {
        "resource_type": "physical:host",
        "min": least,
        "max": most,
        "hypervisor_properties": "",
        "resource_properties": "",
        **more,
    }


@pytest.fixture
def three(new_plane):
    """A plane with compute-1 to compute-3, registered, each in its own rack."""
    return new_plane(_three)


@pytest.fixture(scope="module")
def shared_three(new_shared):
    """Like `three`; one plane per module, for tests that change nothing."""
    return new_shared(_three)


def _three(plane):
    plane.add_host()
    plane.add_host("compute-2", vcpus=16)
    plane.add_host("compute-3")
    for number in (1, 2, 3):
        plane.register(f"compute-{number}", rack=str(number))


def create(plane, *reservations, status=201, **more):
    document = plane.ask("POST", "/v1/leases", lease(*reservations, **more), status=status)
    return document["lease"] if status == 201 else document


def aggregates(plane):
    """{name: (hosts, owner)}"""
    rows = plane.ask("GET", "/v2.1/os-aggregates", service="compute")["aggregates"]
    return {row["name"]: (sorted(row["hosts"]), row["metadata"].get("blazar:owner")) for row in rows}


def boot(plane, reservation, project="demo"):
    """Creates a server with an ordinary flavor and the hint; returns its host and status."""
    flavor = {"name": f"f{plane.ids.uuid()}", "vcpus": 1, "ram": 64, "disk": 1}
    made = plane.ask("POST", "/v2.1/flavors", {"flavor": flavor}, service="compute")["flavor"]
    body = {
        "server": {"name": "s", "flavorRef": made["id"], "imageRef": plane.image},
        **({"os:scheduler_hints": {"reservation": reservation["id"]}} if reservation else {}),
    }
    who = {"user": "user", "project": project, "roles": ("member",)}
    status, document = plane.answer("POST", "/v2.1/servers", body, service="compute", **who)
    assert status == 202, document
    plane.settle()
    shown = plane.server(document["server"]["id"])
    return shown["OS-EXT-SRV-ATTR:host"], shown["status"]


def held(plane, reservation):
    """The ids of the hosts of a reservation."""
    rows = plane.ask("GET", "/v1/os-hosts/allocations")["allocations"]
    return sorted(row["resource_id"] for row in rows for each in row["reservations"] if each["id"] == reservation["id"])


def test_a_reservation_of_hosts_has_blazars_format(three):
    made = create(three, whole(1, 2), start=START)
    (reservation,) = made["reservations"]
    assert {key: reservation[key] for key in ("min", "max", "before_end", "hypervisor_properties")} == {
        "min": 1,
        "max": 2,
        "before_end": "default",
        "hypervisor_properties": "",
    }
    assert "flavor_id" not in reservation
    assert len(held(three, reservation)) == 2
    assert aggregates(three)[reservation["id"]] == ([], None)


def test_reserved_hosts_belong_to_the_project_from_the_start_to_the_end(three):
    made = create(three, whole(2, 2), start="now", end="2026-03-01 11:00")
    (reservation,) = made["reservations"]
    three.run_for(10)
    assert three.lease(made["id"])["status"] == "ACTIVE"
    hosts, owner = aggregates(three)[reservation["id"]]
    assert (len(hosts), owner) == (2, "demo")
    assert set(aggregates(three)["freepool"][0]) == {"compute-1", "compute-2", "compute-3"} - set(hosts)
    host, status = boot(three, reservation)
    assert (host in hosts, status) == (True, "ACTIVE")
    assert boot(three, reservation, project="other")[1] == "ERROR"
    assert boot(three, None)[1] == "ERROR"
    three.run_until(three.clock.now().replace(hour=11, minute=0, second=5))
    three.run_for(20)
    assert three.lease(made["id"])["status"] == "TERMINATED"
    assert aggregates(three) == {"freepool": (["compute-1", "compute-2", "compute-3"], None)}
    assert three.compute.servers_of_host(host) == []
    assert held(three, reservation) == []


def in_zone(plane, zone, host):
    """Puts the host into an operator's aggregate with this availability zone; returns the aggregate's path."""
    body = {"aggregate": {"name": f"of {zone}", "availability_zone": zone}}
    made = plane.ask("POST", "/v2.1/os-aggregates", body, service="compute")["aggregate"]
    path = f"/v2.1/os-aggregates/{made['id']}"
    plane.ask("POST", f"{path}/action", {"add_host": {"host": host}}, service="compute")
    return path


def test_hosts_in_availability_zones_can_be_reserved_and_stay_in_their_zones(three):
    in_zone(three, "rack-1", "compute-1")
    in_zone(three, "rack-2", "compute-2")
    before = aggregates(three)
    made = create(three, whole(3, 3), start="now", end="2026-03-01 11:00")
    (reservation,) = made["reservations"]
    three.run_for(10)
    assert three.lease(made["id"])["status"] == "ACTIVE"
    assert aggregates(three)[reservation["id"]] == (["compute-1", "compute-2", "compute-3"], "demo")
    assert boot(three, reservation)[1] == "ACTIVE"
    assert boot(three, reservation, project="other")[1] == "ERROR"
    assert boot(three, None)[1] == "ERROR"
    three.run_until(three.clock.now().replace(hour=11, minute=0, second=5))
    three.run_for(20)
    assert three.lease(made["id"])["status"] == "TERMINATED"
    assert aggregates(three) == before


def test_a_host_put_into_a_zone_after_the_lease_was_made_is_named_until_it_is_out_of_it(three):
    made = create(three, whole(3, 3), start=START)
    zone = in_zone(three, "rack-1", "compute-1")
    three.run_until(three.clock.now().replace(hour=12, minute=0, second=10))
    assert three.lease(made["id"])["status"] == "STARTING"
    events = timeline(three, made, roles=("admin",))
    (error,) = {step["error"] for event in events for step in event["steps"]} - {None}
    assert "host compute-1 has been put into availability zone rack-1 (aggregate of rack-1)" in error
    three.ask("POST", f"{zone}/action", {"remove_host": {"host": "compute-1"}}, service="compute")
    three.run_for(120)
    assert three.lease(made["id"])["status"] == "ACTIVE"


def test_a_reserved_host_is_not_in_another_reservation_at_the_same_time(three):
    create(three, whole(1, 1, hypervisor_properties='["=", "$rack", "1"]'), start=START)
    create(three, instance(1, resource_properties='["=", "$rack", "2"]'), start=START)
    refused = create(three, whole(2, 2), start=START, status=409)
    assert "2 whole hosts cannot be reserved in that period; 1 is free" in refused["error_message"]
    create(three, instance(1, resource_properties='["=", "$rack", "1"]'), start=START, status=409)
    (reservation,) = create(three, whole(1, 3), start=START)["reservations"]
    assert held(three, reservation) == ["3"]


def test_a_host_must_match_both_queries(three):
    both = {"hypervisor_properties": '[">=", "$vcpus", "16"]', "resource_properties": '["in", "$rack", ["1", "2"]]'}
    (reservation,) = create(three, whole(1, 3, **both), start=START)["reservations"]
    assert held(three, reservation) == ["2"]


def test_reservations_of_several_types_are_planned_together(three):
    """The lease is refused unless both the servers and the hosts fit."""
    made = create(three, instance(10), whole(2, 3), start=START)
    servers, hosts = made["reservations"]
    assert not set(held(three, servers)) & set(held(three, hosts))
    assert len(held(three, hosts)) == 2
    before = aggregates(three)
    create(three, instance(17, vcpus=8), whole(1, 1), start=START, status=409)
    assert aggregates(three) == before


def test_servers_on_a_host_are_deleted_before_its_reservation_starts(three):
    """Such a server exists if an operator forced it to the host."""
    made = create(three, whole(1, 1, hypervisor_properties='["=", "$rack", "1"]'), start=START)
    aggregate = three.compute.create_aggregate("past")
    three.compute.add_host(aggregate.id, "compute-1")
    three.compute.set_aggregate_metadata(aggregate.id, {"blazar:owner": "demo"})
    host, status = boot(three, {"id": "past"})
    assert (host, status) == ("compute-1", "ACTIVE")
    three.run_until(three.clock.now().replace(hour=12, minute=0, second=5))
    three.run_for(20)
    assert three.lease(made["id"])["status"] == "ACTIVE"
    assert three.compute.servers_of_host("compute-1") == []


def test_a_lease_deleted_before_its_start_changes_no_host(three):
    """Another lease uses the host until the start of this one."""
    rack = '["=", "$rack", "1"]'
    now = create(three, instance(1, resource_properties=rack), start="now", end=START)
    made = create(three, whole(1, 1, hypervisor_properties=rack), start=START)
    three.run_for(10)
    three.boot("s", now["reservations"][0]["id"])
    three.ask("DELETE", f"/v1/leases/{made['id']}", status=204)
    assert len(three.compute.servers_of_host("compute-1")) == 1
    assert aggregates(three) == {"freepool": (["compute-1", "compute-2", "compute-3"], None)}


def test_an_active_reservation_can_get_more_hosts_but_not_fewer(three):
    made = create(three, whole(1, 1), start="now")
    three.run_for(10)
    (reservation,) = made["reservations"]
    first = held(three, reservation)
    path = f"/v1/leases/{made['id']}"
    three.ask("PUT", path, {"reservations": [{"id": reservation["id"], "min": 2, "max": 2}]})
    assert set(first) < set(held(three, reservation))
    assert len(aggregates(three)[reservation["id"]][0]) == 2
    refused = three.ask("PUT", path, {"reservations": [{"id": reservation["id"], "min": 1, "max": 1}]}, status=409)
    assert "cannot be kept" in refused["error_message"]
    assert three.lease(made["id"])["status"] == "ACTIVE"
    three.ask("PUT", path, {"end_date": "2026-03-03 10:00"})
    assert len(held(three, reservation)) == 2


def test_before_the_start_every_value_can_be_changed(three):
    made = create(three, whole(1, 1), start=START)
    (reservation,) = made["reservations"]
    change = {"id": reservation["id"], "min": 1, "max": 3, "resource_properties": '["!=", "$rack", "1"]'}
    three.ask("PUT", f"/v1/leases/{made['id']}", {"reservations": [change], "start_date": "2026-03-01 13:00"})
    assert held(three, reservation) == ["2", "3"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"min": 2}, "Invalid values for min/max of hosts. Max must be equal to or larger than min."),
        ({"min": 0}, "Malformed parameter min and max (must be greater than or equal to 1)"),
        ({"min": ""}, "Malformed parameter min"),
        ({"before_end": "email"}, "Malformed parameter before_end"),
        ({"hypervisor_properties": '["=", "$rack"]'}, "Malformed requirements"),
    ],
)
def test_malformed_requests_are_refused(shared_three, values, words):
    assert words in create(shared_three, whole(1, 1) | values, status=400)["error_message"]


def test_a_value_of_another_type_is_refused_in_an_update(three):
    made = create(three, whole(1, 1), start=START)
    change = {"id": made["reservations"][0]["id"], "amount": 2}
    path = f"/v1/leases/{made['id']}"
    refused = three.ask("PUT", path, {"reservations": [change]}, status=400, version="1.1")
    assert "Unknown parameter amount" in refused["error_message"]


def test_failed_hosts_are_replaced_and_the_other_hosts_keep_their_servers(three):
    """The project's servers on the remaining hosts are not touched."""
    made = create(three, whole(2, 2, resource_properties='["in", "$rack", ["1", "2"]]'), start="now")
    (reservation,) = made["reservations"]
    three.run_for(10)
    host, _ = boot(three, reservation)
    change = {"id": reservation["id"], "resource_properties": ""}
    three.ask("PUT", f"/v1/leases/{made['id']}", {"reservations": [change]})
    (failed,) = {"compute-1", "compute-2"} - {host}
    fail(three, failed)
    three.run_for(10)
    assert aggregates(three)[reservation["id"]][0] == sorted([host, "compute-3"])
    assert [server.status for server in three.compute.servers_of_host(host)] == ["ACTIVE"]
