"""Registering and removing hosts, against real placement and compute services."""

from dataclasses import replace

import pytest

from moorage.core.errors import RemoteError, Unavailable
from moorage.core.names import RESERVED_HOST_TRAIT
from moorage.db.session import read
from moorage.reservation.store import host_store
from tests.plane import Killed
from tests.wire.reservation.plane import instance, lease
from tests.wire.reservation.processes import (
    ADD_HOST,
    CREATE_PROVIDER,
    ENSURE_TRAIT,
    READ_TREE,
    REMOVE_HOST,
    WRITE_TRAITS,
)

#: The keys of a host, in the order recorded from Blazar 18.0.0.
HOST_KEYS = [
    "id", "vcpus", "cpu_info", "hypervisor_type", "hypervisor_version", "hypervisor_hostname", "service_name",
    "memory_mb", "local_gb", "status", "availability_zone", "trust_id", "reservable", "created_at", "updated_at",
]  # fmt: skip


def traits(plane, name="compute-1"):
    return plane.placement.traits(plane.placement.provider_by_name(name).uuid)[1]


def freepool(plane):
    aggregate = plane.compute.aggregate_by_name("freepool")
    return [] if aggregate is None else list(aggregate.hosts)


def rows(plane):
    with read(plane.engine) as connection:
        return host_store.all_hosts(connection)


def test_a_host_is_stored_as_nova_shows_it(plane):
    """R1 (instance-reservation): the hypervisor's own values, under the peer's keys."""
    host = plane.register(gpu="True", rack="9")
    assert list(host) == [*HOST_KEYS, "gpu", "rack"]
    assert (host["vcpus"], host["local_gb"], host["hypervisor_hostname"]) == (8, 100, "compute-1")
    assert host["reservable"] is True
    assert host["memory_mb"] == plane.compute.hypervisor("compute-1").memory_mb
    assert host["cpu_info"] == "{}"  # Nova knows nothing about the processor, and Horizon reads this as JSON
    assert plane.ask("GET", "/v1/os-hosts")["hosts"] == [host]
    assert plane.ask("GET", f"/v1/os-hosts/{host['id']}")["host"] == host


def test_host_ids_are_decimal_texts(reserved):
    """Stock clients treat anything else as a name."""
    (host,) = reserved.ask("GET", "/v1/os-hosts")["hosts"]
    assert host["id"].isdecimal()


def test_the_reservation_provider_is_a_child_of_the_compute_node(reserved):
    """R3, A12 (instance-reservation): no trait is needed on it."""
    provider = reserved.placement.provider_by_name("blazar_compute-1")
    assert provider.parent_uuid == reserved.placement.provider_by_name("compute-1").uuid
    assert reserved.placement.traits(provider.uuid)[1] == frozenset()


def test_a_provider_of_that_name_below_the_host_is_adopted(plane):
    """A8 (instance-reservation)."""
    root = plane.placement.provider_by_name("compute-1")
    made = plane.placement.create_provider("blazar_compute-1", parent_uuid=root.uuid)
    plane.register()
    assert plane.placement.provider_by_name("blazar_compute-1").uuid == made.uuid


def test_a_foreign_provider_with_the_name_is_refused_and_not_changed(plane):
    """A8 (instance-reservation): it belongs to another user, so the failed registration must not delete it."""
    made = plane.placement.create_provider("blazar_compute-1")
    status, body = plane.answer("POST", "/v1/os-hosts", {"name": "compute-1"})
    assert status == 409
    assert "exists, but not below" in body["error_message"]
    assert plane.placement.provider_by_name("blazar_compute-1").uuid == made.uuid
    assert rows(plane) == []


def test_a_host_joins_the_freepool_and_its_provider_gets_the_trait(reserved):
    """R4 (instance-reservation)."""
    assert freepool(reserved) == ["compute-1"]
    assert RESERVED_HOST_TRAIT in traits(reserved)


def test_an_ordinary_server_is_not_placed_on_a_registered_host(reserved):
    """A13 (instance-reservation): by Placement alone, without a filter."""
    reserved.compute.create_flavor("small", "small", 1, 512, 1, public=True)
    server = reserved.server(reserved.boot("plain", "small"))
    assert server["status"] == "ERROR"
    assert "No valid host" in server["fault"]["message"]


def test_a_host_without_a_compute_node_provider_is_not_registered(plane):
    """R2 (instance-reservation): nothing is left behind."""
    plane.placement.delete_provider(plane.placement.provider_by_name("compute-1").uuid)
    status, body = plane.answer("POST", "/v1/os-hosts", {"name": "compute-1"})
    assert (status, body["error_code"]) == (404, 404)
    assert "Placement has no resource provider named compute-1" in body["error_message"]
    assert rows(plane) == []
    assert freepool(plane) == []


@pytest.mark.parametrize("request_", [CREATE_PROVIDER, ADD_HOST, ENSURE_TRAIT, WRITE_TRAITS, READ_TREE])
def test_a_failed_registration_is_undone(plane, request_):
    """R5 (instance-reservation): the repeated request then succeeds."""
    plane.use(plane.new_process(fails={request_: Unavailable("it does not answer")}))
    assert plane.answer("POST", "/v1/os-hosts", {"name": "compute-1"})[0] == 503
    assert rows(plane) == []
    assert plane.placement.provider_by_name("blazar_compute-1") is None
    assert freepool(plane) == []
    assert RESERVED_HOST_TRAIT not in traits(plane)
    plane.use()
    plane.register()


@pytest.mark.parametrize(
    ("request_", "has_provider", "is_in_freepool"),
    [(CREATE_PROVIDER, False, False), (ADD_HOST, True, False), (WRITE_TRAITS, True, True)],
)
def test_a_registration_can_be_repeated_after_a_crash(plane, request_, has_provider, is_in_freepool):
    """R5, R1 (instance-reservation): row, provider, free pool, in this order; afterwards one host and one provider."""
    doomed = plane.new_process(fails={request_: Killed()})
    with pytest.raises(Killed):
        doomed.service.hosts.create_host("compute-1", {})
    assert [(host.hypervisor_hostname, host.ready) for host in rows(plane)] == [("compute-1", False)]
    assert (plane.placement.provider_by_name("blazar_compute-1") is not None) is has_provider
    assert freepool(plane) == ["compute-1"] * is_in_freepool
    assert RESERVED_HOST_TRAIT not in traits(plane)
    assert plane.ask("GET", "/v1/os-hosts")["hosts"] == []  # an incompletely registered host is not shown
    (before,) = rows(plane)
    with plane.engine.begin() as connection:  # as if the host had fewer processors when the row was written
        host_store.update_host(connection, replace(before, vcpus=before.vcpus - 1), plane.clock.now())
    plane.register()
    (host,) = plane.ask("GET", "/v1/os-hosts")["hosts"]
    assert host["vcpus"] == before.vcpus
    assert freepool(plane) == ["compute-1"]
    assert RESERVED_HOST_TRAIT in traits(plane)
    assert [host.ready for host in rows(plane)] == [True]


def test_the_undoing_of_a_registration_continues_past_a_step_that_fails(plane):
    """R5 (instance-reservation): what could be undone is undone, and the next registration does the rest."""
    away = Unavailable("it does not answer")
    plane.use(plane.new_process(fails={WRITE_TRAITS: away, REMOVE_HOST: away}))
    assert plane.answer("POST", "/v1/os-hosts", {"name": "compute-1"})[0] == 503
    assert rows(plane) == []
    assert plane.placement.provider_by_name("blazar_compute-1") is None
    assert freepool(plane) == ["compute-1"]
    plane.use()
    plane.register()
    assert freepool(plane) == ["compute-1"]


def test_a_host_cannot_be_registered_twice(reserved):
    status, body = reserved.answer("POST", "/v1/os-hosts", {"name": "compute-1"})
    assert status == 409
    assert body == {
        "error_code": 409,
        "error_message": "Host compute-1 is already registered with id 1",
        "error_name": 409,
    }
    assert reserved.placement.provider_by_name("blazar_compute-1") is not None


def test_an_unknown_host_is_not_found(plane):
    assert plane.answer("POST", "/v1/os-hosts", {"name": "nope"}) == (
        404,
        {"error_code": 404, "error_message": "Host 'nope' not found!", "error_name": 404},
    )


def test_a_host_that_runs_servers_is_refused(plane):
    plane.compute.create_flavor("small", "small", 1, 512, 1, public=True)
    assert plane.server(plane.boot("busy", "small"))["status"] == "ACTIVE"
    status, body = plane.answer("POST", "/v1/os-hosts", {"name": "compute-1"})
    assert status == 409
    assert "busy" in body["error_message"]
    assert rows(plane) == []


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"x": "1"}, 403, "Invalid values for host {'x': '1'}"),
        ({"name": "compute-1", "k" * 65: "1"}, 400, "Extra capability key too long"),
        ({"name": "compute-1", "vcpus": "1"}, 403, "vcpus is a property of every host"),
        ({"name": "compute-1", "rack": ["1"]}, 400, "Malformed parameter rack"),
        ([], 400, "is not of type 'object'"),
    ],
)
def test_malformed_hosts_are_refused(plane, body, status, words):
    got, answer = plane.answer("POST", "/v1/os-hosts", body)
    assert got == status
    assert words in answer["error_message"]


def test_the_capacity_of_a_host_is_that_of_its_inventories_in_placement(plane):
    """A14 (instance-reservation): (total - reserved) * allocation_ratio, not the hypervisor's raw numbers."""
    plane.register()
    with read(plane.engine) as connection:
        (capacity,) = host_store.capacities(connection)
    assert capacity.capacity == {"VCPU": 8, "MEMORY_MB": 16384, "DISK_GB": 100}


def test_extra_capabilities_are_set_and_unset(plane):
    host = plane.register(gpu="True")
    path = f"/v1/os-hosts/{host['id']}"
    changed = plane.ask("PUT", path, {"gpu": None, "rack": 10})["host"]
    assert "gpu" not in changed
    assert changed["rack"] == "10"
    assert changed["updated_at"] is not None
    status, body = plane.answer("PUT", path, {})
    assert (status, body["error_message"]) == (400, "No data to update")


def test_properties_are_listed_and_hidden(plane):
    plane.add_host("compute-2")
    plane.register(gpu="True", rack="9")
    plane.register("compute-2", rack="10")
    path = "/v1/os-hosts/properties"
    assert plane.ask("GET", path)["resource_properties"] == [{"property": "gpu"}, {"property": "rack"}]
    assert plane.ask("GET", path + "?detail=True")["resource_properties"][1] == {
        "property": "rack",
        "private": False,
        "values": ["9", "10"],
    }
    row = plane.ask("PATCH", path + "/gpu", {"private": True})["resource_property"]
    assert list(row) == ["id", "resource_type", "property_name", "private", "created_at", "updated_at"]
    assert plane.ask("GET", path)["resource_properties"] == [{"property": "rack"}]
    assert len(plane.ask("GET", path + "?detail=True&all=True")["resource_properties"]) == 2
    assert plane.answer("PATCH", path + "/nothing", {"private": True})[0] == 404


def test_removing_a_host_leaves_nothing_behind(reserved):
    """R34 (instance-reservation): removes provider, freepool membership, trait and row."""
    reserved.ask("DELETE", "/v1/os-hosts/1", status=204)
    assert reserved.ask("GET", "/v1/os-hosts")["hosts"] == []
    assert rows(reserved) == []
    assert reserved.placement.provider_by_name("blazar_compute-1") is None
    assert freepool(reserved) == []
    assert RESERVED_HOST_TRAIT not in traits(reserved)


def test_a_reserved_host_cannot_be_removed(reserved):
    """R34 (instance-reservation): refused while allocations exist."""
    lease_id = reserved.ask("POST", "/v1/leases", lease(), status=201)["lease"]["id"]
    assert reserved.answer("DELETE", "/v1/os-hosts/1") == (
        409,
        {"error_code": 409, "error_message": "Can't delete host 1. The host is reserved.", "error_name": 409},
    )
    assert len(reserved.ask("GET", "/v1/os-hosts")["hosts"]) == 1
    reserved.ask("DELETE", f"/v1/leases/{lease_id}", status=204)
    reserved.ask("DELETE", "/v1/os-hosts/1", status=204)


def test_a_host_can_be_removed_although_its_provider_is_missing(reserved):
    """R34 (instance-reservation)."""
    reserved.placement.delete_provider(reserved.placement.provider_by_name("blazar_compute-1").uuid)
    reserved.ask("DELETE", "/v1/os-hosts/1", status=204)


@pytest.mark.parametrize("error", [Unavailable("away"), RemoteError("no", status=500)])
def test_a_failed_removal_can_be_repeated(reserved, error):
    """R34 (instance-reservation): the host takes no new leases, and the repetition finishes."""
    reserved.use(reserved.new_process(fails={REMOVE_HOST: error}))
    assert reserved.answer("DELETE", "/v1/os-hosts/1")[0] in (502, 503)
    reserved.use()
    assert reserved.answer("POST", "/v1/leases", lease())[0] == 409
    reserved.ask("DELETE", "/v1/os-hosts/1", status=204)
    assert freepool(reserved) == []


def test_allocations_name_a_reservation_once_per_slot(reserved):
    reserved.add_host("compute-2")
    reserved.register("compute-2")
    one = reserved.ask("POST", "/v1/leases", lease(instance(3, affinity=True)), status=201)["lease"]
    slot = {
        "id": one["reservations"][0]["id"],
        "lease_id": one["id"],
        "start_date": "2026-03-01T09:30:00.000000",
        "end_date": "2026-03-02T10:00:00.000000",
    }
    one_host, other = ({"resource_id": "1", "reservations": [slot] * 3}, {"resource_id": "2", "reservations": []})
    named = slot | {"lease_name": one["name"], "lease_status": "PENDING", "project_id": one["project_id"]}
    for path in ("/v1/os-hosts/allocations?limit=2", "/v1/os-hosts/1/allocation"):
        (found,) = reserved.ask("GET", path, version="1.1").values()
        assert (found[0] if isinstance(found, list) else found)["reservations"] == [named] * 3
    assert reserved.ask("GET", "/v1/os-hosts/1/allocation")["allocation"] == one_host
    assert reserved.ask("GET", "/v1/os-hosts/2/allocation")["allocation"] == other
    for query in ("", f"?reservation_id={slot['id']}", f"?lease_id={one['id']}"):
        assert reserved.ask("GET", f"/v1/os-hosts/allocations{query}")["allocations"] == [one_host, other]


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_the_list_of_allocations_has_every_host(reserved, version):
    """As in Blazar 18, a host without a matching reservation has an empty list."""
    reserved.add_host("compute-2")
    reserved.register("compute-2")
    for query in ("", "?lease_id=other"):
        found = reserved.ask("GET", f"/v1/os-hosts/allocations{query}", version=version)["allocations"]
        assert found == [{"resource_id": "1", "reservations": []}, {"resource_id": "2", "reservations": []}]


def test_only_administrators_may_manage_hosts(plane):
    member = {"user": "user", "roles": ("member",)}
    for method, path, rule in [
        ("GET", "/v1/os-hosts", "get"),
        ("POST", "/v1/os-hosts", "post"),
        ("DELETE", "/v1/os-hosts/1", "delete"),
        ("GET", "/v1/os-hosts/allocations", "get_allocations"),
    ]:
        assert plane.answer(method, path, {} if method == "POST" else None, **member) == (
            403,
            {
                "error_code": 403,
                "error_message": f"Policy doesn't allow blazar:oshosts:{rule} to be performed",
                "error_name": 403,
            },
        )


@pytest.mark.parametrize("host_id", ["99", "x", "-1", "1" * 40])
def test_an_unknown_host_id_is_not_found(shared, host_id):
    status, body = shared.answer("GET", f"/v1/os-hosts/{host_id}")
    assert (status, body["error_message"]) == (404, f"Object with {{'host_id': '{host_id}'}} not found")
