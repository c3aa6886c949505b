"""Hosts fail and return. Future leases are moved, active ones get slots on other hosts, and both show the change."""

from datetime import UTC, datetime, timedelta

import pytest

from moorage.core.errors import RemoteError
from moorage.db.session import read
from moorage.reservation.store import host_store
from tests.wire.reservation.plane import NOW, Plane, class_of, instance, lease
from tests.wire.reservation.processes import ADD_INVENTORY, READ_HOSTS
from tests.wire.reservation.test_older import aggregate_of, older

SOON = {"start": "2026-03-01 10:00", "end": "2026-03-02 10:00"}
STARTS, ENDS = datetime(2026, 3, 1, 10, tzinfo=UTC), datetime(2026, 3, 2, 10, tzinfo=UTC)


@pytest.fixture
def pool(new_plane) -> Plane:
    """A plane with three hosts of 8 CPUs; the host monitor runs only when a test calls it."""
    return new_plane(_three, reservation={"healing_interval_s": 7200})


def _three(plane):
    for number in (1, 2, 3):
        plane.add_host(f"compute-{number}")
        plane.register(f"compute-{number}")


def set_host(plane, name, *, up):
    body = {"host": name, "binary": "nova-compute"}
    plane.ask("PUT", f"/v2.1/os-services/{'enable' if up else 'disable'}", body, service="compute")


def fail(plane, *names):
    for name in names:
        set_host(plane, name, up=False)
    look(plane)


def look(plane, process=None):
    (process or plane.process).watch.run_once()


def create(plane, *reservations, **values):
    made = plane.ask("POST", "/v1/leases", lease(*reservations, **{**SOON, **values}), status=201)["lease"]
    return made, made["reservations"][0]


def on(plane, reservation):
    """{host id: number of slots}"""
    with read(plane.engine) as connection:
        rows = host_store.allocations_of(connection, [reservation["id"]])
    return {host: sum(row.host_id == host for row in rows) for host in sorted({row.host_id for row in rows})}


def flags(plane, made):
    """(degraded, missing_resources, resources_changed) of a lease with one reservation"""
    shown = plane.lease(made["id"])
    (reservation,) = shown["reservations"]
    return shown["degraded"], reservation["missing_resources"], reservation["resources_changed"]


def total(plane, host, reservation):
    inventory = plane.inventory(host, class_of(reservation))
    return inventory.total if inventory else None


def test_a_lease_that_starts_soon_is_moved_off_a_failed_host(pool):
    made, reservation = create(pool, instance(4))
    assert on(pool, reservation) == {1: 4}
    fail(pool, "compute-1")
    assert on(pool, reservation) == {2: 4}
    assert flags(pool, made) == (False, False, False)
    pool.run_until(STARTS)
    assert (total(pool, "compute-1", reservation), total(pool, "compute-2", reservation)) == (None, 4)
    pool.run_until(ENDS)
    assert pool.lease(made["id"])["status"] == "TERMINATED"


def test_a_lease_that_starts_much_later_is_not_moved(pool):
    """The host may have returned before its start."""
    _, reservation = create(pool, instance(4), start="2026-03-01 12:00")
    fail(pool, "compute-1")
    assert on(pool, reservation) == {1: 4}
    pool.clock.advance_to(NOW + timedelta(hours=1))
    look(pool)
    assert on(pool, reservation) == {2: 4}


def test_a_failed_host_gets_no_new_reservations(pool):
    fail(pool, "compute-1", "compute-2")
    assert not pool.ask("GET", "/v1/os-hosts/1")["host"]["reservable"]
    _, reservation = create(pool, instance(8))
    assert on(pool, reservation) == {3: 8}
    pool.ask("POST", "/v1/leases", lease(instance(1), **SOON), status=409)
    set_host(pool, "compute-1", up=True)
    look(pool)
    _, reservation = create(pool, instance(8))
    assert on(pool, reservation) == {1: 8}


def test_an_active_lease_gets_slots_on_other_hosts_and_shows_it(pool):
    made, reservation = create(pool, instance(4))
    pool.run_until(STARTS)
    servers = [pool.boot(f"s{number}", reservation["id"]) for number in range(2)]
    fail(pool, "compute-1")
    assert on(pool, reservation) == {2: 4}
    assert flags(pool, made) == (True, False, True)
    assert pool.lease(made["id"])["status"] == "ACTIVE"
    assert total(pool, "compute-2", reservation) == 4
    assert total(pool, "compute-1", reservation) == 2, "what servers hold there stays, and no more"
    assert pool.server(pool.boot("s3", reservation["id"]))["status"] == "ACTIVE"
    set_host(pool, "compute-1", up=True)
    look(pool)
    assert flags(pool, made) == (False, False, True)
    pool.run_until(ENDS)
    pool.run_for(30)
    assert pool.lease(made["id"])["status"] == "TERMINATED"
    assert [pool.server(each) for each in servers] == [None, None]
    assert not pool.has_class(class_of(reservation)), "also on the host that failed nothing is left"


def test_a_failed_host_without_servers_loses_the_reservations_inventory(pool):
    made, reservation = create(pool, instance(4))
    pool.run_until(STARTS)
    fail(pool, "compute-1")
    assert (total(pool, "compute-1", reservation), total(pool, "compute-2", reservation)) == (None, 4)
    pool.ask("DELETE", f"/v1/leases/{made['id']}", status=204)
    assert not pool.has_class(class_of(reservation))


@pytest.mark.parametrize("moment", [NOW, STARTS], ids=["pending", "active"])
def test_a_lease_that_fits_on_no_other_host_waits_for_its_host(pool, moment):
    others = [create(pool, instance(8))[1] for _ in range(2)]
    made, reservation = create(pool, instance(8))
    assert [[*on(pool, each)] for each in (*others, reservation)] == [[1], [2], [3]]
    pool.run_until(moment)
    fail(pool, "compute-3")
    assert on(pool, reservation) == {3: 8}
    assert flags(pool, made) == (True, True, False)
    set_host(pool, "compute-3", up=True)
    look(pool)
    assert flags(pool, made) == (False, False, False)
    assert pool.lease(made["id"])["status"] in ("PENDING", "ACTIVE")


def test_as_many_slots_are_moved_as_fit_elsewhere(pool):
    made, reservation = create(pool, instance(8))
    create(pool, instance(11))
    assert on(pool, reservation) == {1: 8}
    pool.run_until(STARTS)
    fail(pool, "compute-1")
    assert on(pool, reservation) == {1: 3, 3: 5}
    assert flags(pool, made) == (True, True, True)
    assert (total(pool, "compute-1", reservation), total(pool, "compute-3", reservation)) == (3, 5)


def test_moved_slots_respect_anti_affinity(pool):
    made, reservation = create(pool, instance(2, affinity=False))
    pool.run_until(STARTS)
    assert on(pool, reservation) == {1: 1, 2: 1}
    fail(pool, "compute-1")
    assert on(pool, reservation) == {2: 1, 3: 1}
    fail(pool, "compute-2")
    assert on(pool, reservation) == {2: 1, 3: 1}, "no third host"
    assert flags(pool, made) == (True, True, True)


def test_an_older_reservation_is_moved_with_its_aggregate(pool):
    pool.ask("DELETE", "/v1/os-hosts/2", status=204)
    pool.ask("DELETE", "/v1/os-hosts/3", status=204)
    made = older(pool, has_class=True)
    pool.register("compute-2")
    pool.run_until(made.start_date + timedelta(minutes=1))
    fail(pool, "compute-1")
    assert pool.inventory("compute-2", made.reservations[0].resource_class).total == 2
    assert "compute-2" in aggregate_of(pool, made).hosts


def test_an_unavailable_compute_service_does_not_make_hosts_fail(pool):
    _, reservation = create(pool, instance(4))
    set_host(pool, "compute-1", up=False)
    look(pool, pool.new_process(fails={READ_HOSTS: RemoteError("compute is away", status=503)}))
    assert on(pool, reservation) == {1: 4}
    look(pool)
    assert on(pool, reservation) == {2: 4}


def test_two_processes_heal_a_lease_only_once(pool):
    made, reservation = create(pool, instance(4))
    pool.run_until(STARTS)
    fail(pool, "compute-1")
    other = pool.new_process()
    look(pool, other)
    assert READ_HOSTS in other.asked
    assert [call.name for call in other.calls if call.request.method != "GET"] == []
    assert on(pool, reservation) == {2: 4}
    assert flags(pool, made) == (True, False, True)


def test_an_outage_of_placement_only_delays_the_healing(pool):
    made, reservation = create(pool, instance(4))
    pool.run_until(STARTS)
    set_host(pool, "compute-1", up=False)
    away = {ADD_INVENTORY: RemoteError("Placement is away", status=503)}
    look(pool, pool.new_process(fails=away, times=1))
    assert pool.lease(made["id"])["status"] == "UPDATING"
    pool.run_for(20)
    assert pool.lease(made["id"])["status"] == "ACTIVE"
    assert total(pool, "compute-2", reservation) == 4
    assert flags(pool, made) == (True, False, True)


def test_a_host_without_heartbeats_counts_as_failed(new_plane):
    """The reservation service learns it from compute's public API."""
    plane = new_plane(compute={"host_down_after_s": 60})
    for name in ("compute-1", "compute-2"):
        plane.add_host(name)
        plane.register(name)
    _, reservation = create(plane, instance(4))
    dead, alive = plane.hosts
    assert on(plane, reservation) == {1: 4}
    plane.clock.sleep(61)
    alive.heartbeat()
    look(plane)
    assert on(plane, reservation) == {2: 4}
    dead.heartbeat()
    look(plane)
    assert plane.ask("GET", "/v1/os-hosts/1")["host"]["reservable"]
