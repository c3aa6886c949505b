"""Leases that an older system created, in each of its three formats."""

from dataclasses import replace
from datetime import timedelta

import pytest

from moorage.core.errors import RemoteError
from moorage.db.session import read, write
from moorage.reservation.model.leases import Allocation, LeaseStatus, ReservationGeneration, ReservationStatus
from moorage.reservation.model.reservation_requests import InstanceRequest, Size
from moorage.reservation.store import host_store, lease_store
from tests.store.reservation.worlds import new_lease
from tests.wire.reservation.plane import NOW, class_of, instance, lease
from tests.wire.reservation.processes import READ_CLASS

START, END = NOW + timedelta(hours=1), NOW + timedelta(hours=3)


def older(plane, *, has_class, group=False, generation=None, status=LeaseStatus.PENDING):
    """The row of a lease as the peer leaves it in its database, Nova and Placement, with two slots on compute-1."""
    made = new_lease(plane.ids, InstanceRequest(Size(1, 512, 1), 2, False if group else None), start=START, end=END)
    made = replace(made, project_id="demo", status=status)
    (reservation,) = made.reservations
    aggregate = plane.compute.create_aggregate(reservation.id)
    tag(plane, aggregate.id, reservation=reservation.id, filter_tenant_id="demo")
    server_group = None
    if group:
        body = {"server_group": {"name": f"reservation:{reservation.id}", "policies": ["anti-affinity"]}}
        path = "/v2.1/os-server-groups"
        server_group = plane.ask("POST", path, body, service="compute")["server_group"]["id"]
    plane.compute.create_flavor(reservation.id, f"reservation:{reservation.id}", 1, 512, 1)
    specs = {"aggregate_instance_extra_specs:reservation": reservation.id}
    if has_class:
        plane.placement.ensure_class(reservation.resource_class)
        specs[f"resources:{reservation.resource_class}"] = "1"
    plane.compute.set_extra_specs(reservation.id, specs)
    reservation = replace(reservation, aggregate_id=aggregate.id, server_group_id=server_group, generation=generation)
    made = replace(made, reservations=(reservation,))
    with write(plane.engine) as connection:
        (host,) = host_store.all_hosts(connection)
        lease_store.insert_lease(connection, made)
        slots = [
            Allocation(plane.ids.uuid(), host.id, reservation.id, START, END, {"VCPU": 1, "MEMORY_MB": 512})
            for _ in range(2)
        ]
        host_store.insert_allocations(connection, slots, NOW)
    return made


def tag(plane, aggregate_id, **metadata):
    body = {"set_metadata": {"metadata": metadata}}
    plane.ask("POST", f"/v2.1/os-aggregates/{aggregate_id}/action", body, service="compute")


def generation_in(plane, lease_id):
    with read(plane.engine) as connection:
        return lease_store.find_lease(connection, lease_id).reservations[0].generation


def aggregate_of(plane, made):
    return plane.compute.aggregate_by_name(made.reservations[0].id)


def groups(plane):
    return plane.ask("GET", "/v2.1/os-server-groups", service="compute")["server_groups"]


@pytest.mark.parametrize("has_class", [True, False], ids=["hybrid", "aggregate"])
def test_a_lease_of_an_older_system_starts_with_its_aggregate(reserved, has_class):
    """R25, A1 (instance-reservation): hosts join its aggregate; Placement tells whether it has an inventory."""
    made = older(reserved, has_class=has_class)
    reserved.run_until(START + timedelta(minutes=1))
    assert reserved.lease(made.id)["status"] == "ACTIVE"
    assert generation_in(reserved, made.id) is (
        ReservationGeneration.HYBRID if has_class else ReservationGeneration.AGGREGATE
    )
    assert aggregate_of(reserved, made).hosts == ("compute-1",)
    inventory = reserved.inventory("compute-1", made.reservations[0].resource_class)
    assert (inventory.total if inventory else None) == (2 if has_class else None)
    assert reserved.access(made.reservations[0].flavor_id or made.reservations[0].id) == ["demo"]


@pytest.mark.parametrize("has_class", [True, False], ids=["hybrid", "aggregate"])
def test_a_lease_of_an_older_system_ends_without_leaving_its_aggregate_and_group(reserved, has_class):
    """R33, A1 (instance-reservation): aggregate and server group are deleted too."""
    made = older(reserved, has_class=has_class, group=True)
    reserved.run_until(START + timedelta(minutes=1))
    assert aggregate_of(reserved, made).hosts == ("compute-1",)
    reserved.run_until(END + timedelta(minutes=1))
    assert reserved.lease(made.id)["status"] == "TERMINATED"
    assert aggregate_of(reserved, made) is None
    assert groups(reserved) == []
    assert reserved.flavor(made.reservations[0].id) is None
    assert not reserved.has_class(made.reservations[0].resource_class)
    assert reserved.compute.aggregate_by_name("freepool").hosts == ("compute-1",)


def test_an_older_lease_shows_its_aggregate_and_its_group(reserved):
    made = older(reserved, has_class=True, group=True)
    (shown,) = reserved.lease(made.id)["reservations"]
    assert shown["aggregate_id"] == made.reservations[0].aggregate_id
    assert shown["server_group_id"] == made.reservations[0].server_group_id


def test_an_older_lease_is_deleted_before_its_start(reserved):
    """R33 (instance-reservation)."""
    made = older(reserved, has_class=True, group=True)
    reserved.ask("DELETE", f"/v1/leases/{made.id}", status=204)
    assert aggregate_of(reserved, made) is None
    assert groups(reserved) == []
    assert not reserved.has_class(made.reservations[0].resource_class)


def test_a_lease_of_an_older_system_waits_until_placement_answers(reserved):
    """A1 (instance-reservation): a wrong guess would leave its class behind for ever."""
    reserved.stop_runner()
    made = older(reserved, has_class=True)
    reserved.run_until(START + timedelta(minutes=1))
    away = {READ_CLASS: RemoteError("Placement is away", status=503)}
    runner = reserved.new_process(fails=away, times=1).runner
    runner.run_once()
    assert reserved.lease(made.id)["status"] == "STARTING"
    assert generation_in(reserved, made.id) is None
    reserved.run_for(10)
    runner.run_once()
    assert reserved.lease(made.id)["status"] == "ACTIVE"
    assert generation_in(reserved, made.id) is ReservationGeneration.HYBRID


def test_the_size_of_an_older_reservation_cannot_be_changed(reserved):
    """R25 (instance-reservation): another system created its flavor; dates and name can change."""
    made = older(reserved, has_class=True)
    body = {"name": "n", "reservations": [{"id": made.reservations[0].id, "vcpus": 2}]}
    refused = reserved.ask("PUT", f"/v1/leases/{made.id}", body, status=409)
    assert "created by an older system" in refused["error_message"]
    assert reserved.ask("PUT", f"/v1/leases/{made.id}", {"name": "n"})["lease"]["name"] == "n"


def test_an_active_older_lease_grows_in_aggregate_and_inventory(reserved):
    """R25, A15 (instance-reservation): also one that was started by the other system."""
    made = older(reserved, has_class=True)
    reserved.run_until(START + timedelta(minutes=1))
    body = {"reservations": [{"id": made.reservations[0].id, "amount": 3}]}
    reserved.ask("PUT", f"/v1/leases/{made.id}", body)
    assert reserved.inventory("compute-1", made.reservations[0].resource_class).total == 3
    assert aggregate_of(reserved, made).hosts == ("compute-1",)


def test_new_leases_beside_older_ones_have_no_aggregate(reserved):
    """A1, R10 (instance-reservation)."""
    older(reserved, has_class=True)
    made = reserved.ask("POST", "/v1/leases", lease(instance(2, memory_mb=64)), status=201)["lease"]
    assert generation_in(reserved, made["id"]) is ReservationGeneration.PURE
    reserved.settle()
    assert reserved.inventory("compute-1", class_of(made["reservations"][0])).total == 2
    with read(reserved.engine) as connection:
        found = lease_store.find_lease(connection, made["id"])
    assert found.reservations[0].status is ReservationStatus.ACTIVE


def boot(plane, flavor_id, hints=None, *, project="demo"):
    """Creates a server; returns (its status, the reason if it failed)."""
    body = {"server": {"name": "s", "flavorRef": flavor_id, "imageRef": plane.image}, "os:scheduler_hints": hints or {}}
    who = {"user": "user", "project": project, "roles": ("member",)}
    server_id = plane.ask("POST", "/v2.1/servers", body, status=202, service="compute", **who)["server"]["id"]
    plane.settle()
    server = plane.server(server_id)
    return server["status"], server.get("fault", {}).get("message", "")


@pytest.mark.parametrize("has_class", [True, False], ids=["hybrid", "aggregate"])
def test_servers_of_an_older_reservation_are_placed_in_its_aggregate(reserved, has_class):
    """R27, R28 (instance-reservation): by the older key of its flavor, and nowhere before its start."""
    reserved.add_host("compute-2")
    made = older(reserved, has_class=has_class)
    reserved.compute.add_flavor_access(made.reservations[0].id, "demo")
    status, why = boot(reserved, made.reservations[0].id)
    assert status == "ERROR"
    assert why
    reserved.run_until(START + timedelta(minutes=1))
    assert boot(reserved, made.reservations[0].id) == ("ACTIVE", "")
    (server,) = [each for each in reserved.compute.servers_of_flavor(made.reservations[0].id) if each.host]
    assert server.host == "compute-1"


def test_the_hint_of_a_host_reservation_works_only_for_its_project(reserved):
    """R27 (instance-reservation): a hint can be sent by anybody, so the aggregate must be the project's."""
    aggregate = reserved.compute.create_aggregate("a-reservation")
    tag(reserved, aggregate.id, **{"blazar:owner": "demo"})
    reserved.compute.add_host(aggregate.id, "compute-1")
    reserved.compute.create_flavor("plain", "plain", 1, 64, 1, public=True)
    assert boot(reserved, "plain")[0] == "ERROR"
    assert boot(reserved, "plain", {"reservation": "freepool"})[0] == "ERROR"
    assert boot(reserved, "plain", {"reservation": "a-reservation"}, project="other")[0] == "ERROR"
    assert boot(reserved, "plain", {"reservation": "a-reservation"}) == ("ACTIVE", "")
