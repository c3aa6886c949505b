"""A2 (instance-reservation): server groups as the peer makes them, if the operator wants them."""

from datetime import timedelta

import pytest

from moorage.core.errors import RemoteError
from moorage.db import migrations
from tests.wire.reservation.plane import NOW, instance, lease
from tests.wire.reservation.processes import CREATE_FLAVOR, CREATE_GROUP, ENSURE_CLASS

SOON, END = {"start": "2026-03-01 10:00", "end": "2026-03-01 12:00"}, NOW.replace(hour=12, minute=1)


@pytest.fixture
def grouped(new_plane):
    """A plane with two registered hosts, where server groups are enabled."""
    return new_plane(_two, reservation={"compat_server_groups": True})


def _two(plane):
    for name in ("compute-1", "compute-2"):
        plane.add_host(name)
        plane.register(name)


def groups(plane):
    """{name: (id, policy)} of the reservation service's groups."""
    found = plane.ask("GET", "/v2.1/os-server-groups", service="compute", project="service", version="2.64")
    return {each["name"]: (each["id"], each["policy"]) for each in found["server_groups"]}


def create(plane, affinity):
    made = plane.ask("POST", "/v1/leases", lease(instance(2, affinity=affinity), **SOON), status=201)["lease"]
    return made, made["reservations"][0]


def boot(plane, name, flavor, group, project="demo"):
    body = {
        "server": {"name": name, "flavorRef": flavor, "imageRef": plane.image, "networks": "none"},
        "os:scheduler_hints": {"group": group},
    }
    return plane.answer(
        "POST",
        "/v2.1/servers",
        body,
        service="compute",
        user="user",
        project=project,
        roles=("member",),
        version="2.64",
    )


@pytest.mark.parametrize(("affinity", "policy"), [("True", "affinity"), ("False", "anti-affinity")])
def test_a_reservation_with_a_policy_has_a_group_from_its_creation_to_its_end(grouped, affinity, policy):
    made, reservation = create(grouped, affinity)
    name = f"reservation:{reservation['id']}"
    assert groups(grouped) == {name: (reservation["server_group_id"], policy)}
    assert reservation["aggregate_id"] is None
    (listed,) = grouped.ask("GET", "/v1/leases")["leases"]
    assert listed["reservations"][0]["server_group_id"] == reservation["server_group_id"]
    grouped.run_until(END)
    assert grouped.lease(made["id"])["status"] == "TERMINATED"
    assert groups(grouped) == {}


def test_a_reservation_without_policy_has_none(grouped):
    _, reservation = create(grouped, "None")
    assert (reservation["server_group_id"], groups(grouped)) == (None, {})


def test_without_the_option_no_server_group_is_created(reserved):
    made = reserved.ask("POST", "/v1/leases", lease(instance(1, affinity="False"), **SOON), status=201)["lease"]
    assert made["reservations"][0]["server_group_id"] is None
    assert groups(reserved) == {}


def test_servers_are_launched_with_the_group_as_a_hint(grouped):
    """Old tests of the peer do so. The group belongs to the reservation service; nobody else has access to it."""
    _, reservation = create(grouped, "False")
    _, other = create(grouped, "False")
    grouped.run_until(NOW.replace(hour=10, minute=1))
    group = reservation["server_group_id"]
    for name in ("one", "two"):
        status, document = boot(grouped, name, reservation["id"], group)
        assert status == 202, document
    grouped.settle()
    servers = grouped.ask("GET", "/v2.1/servers/detail?all_tenants=1", service="compute")["servers"]
    assert sorted(each["OS-EXT-SRV-ATTR:host"] for each in servers) == ["compute-1", "compute-2"]
    status, document = boot(grouped, "three", other["id"], group)
    assert (status, "belongs to another project" in str(document)) == (403, True)


def test_the_group_follows_the_affinity_until_the_start(grouped):
    made, reservation = create(grouped, "True")
    for affinity, policies in (("False", ["anti-affinity"]), (None, []), ("True", ["affinity"])):
        change = {"reservations": [{"id": reservation["id"], "affinity": affinity}]}
        grouped.ask("PUT", f"/v1/leases/{made['id']}", change)
        grouped.settle()
        assert [policy for _, policy in groups(grouped).values()] == policies
        ids = [each for each, _ in groups(grouped).values()]
        assert grouped.lease(made["id"])["reservations"][0]["server_group_id"] == (ids[0] if ids else None)
    grouped.ask("DELETE", f"/v1/leases/{made['id']}", status=204)
    assert groups(grouped) == {}


@pytest.mark.parametrize("request_", [CREATE_GROUP, ENSURE_CLASS, CREATE_FLAVOR])
def test_a_creation_that_fails_leaves_no_group(grouped, request_):
    grouped.use(grouped.new_process(fails={request_: RemoteError("no", status=500)}))
    grouped.ask("POST", "/v1/leases", lease(instance(2, affinity="True"), **SOON), status=503)
    grouped.settle()
    assert groups(grouped) == {}


def test_a_group_created_before_a_crash_is_used(grouped):
    """The group was created but not recorded; the next process and the end of the lease find it by its name."""
    made, reservation = create(grouped, "True")
    with grouped.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM older_reservations")
    assert grouped.lease(made["id"])["reservations"][0]["server_group_id"] is None
    change = {"reservations": [{"id": reservation["id"], "amount": 1}]}
    grouped.ask("PUT", f"/v1/leases/{made['id']}", change)
    assert grouped.lease(made["id"])["reservations"][0]["server_group_id"] == reservation["server_group_id"]
    with grouped.engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM older_reservations")
    grouped.ask("DELETE", f"/v1/leases/{made['id']}", status=204)
    assert groups(grouped) == {}


def test_server_groups_do_not_block_the_end_of_an_upgrade(grouped):
    """R35: a reservation with a group does not belong to an older system."""
    made, reservation = create(grouped, "True")
    migrations.upgrade(grouped.engine, "reservation", "0099")
    assert grouped.lease(made["id"])["reservations"][0]["server_group_id"] == reservation["server_group_id"]
    grouped.run_until(END + timedelta(minutes=1))
    assert groups(grouped) == {}
