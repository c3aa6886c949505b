"""Leases from their creation to their end, with the service's tables in each of the three databases."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from tests.migrated import schema_of
from tests.servers import temporary_database
from tests.store.conftest import on_every_database
from tests.wire.reservation.plane import Plane, class_of, instance, lease


@pytest.fixture
def plane(tmp_path, kind):
    with (
        temporary_database(kind, schema_of("reservation")) as url,
        Plane(tmp_path, database={"reservation": url}) as plane,
    ):
        plane.add_host()
        plane.register(rack="9")
        yield plane


@on_every_database
def test_a_lease_starts_grows_ends_and_is_deleted(plane):
    """From the request until its servers, its resource class and its host registration are deleted."""
    wanted = instance(2, resource_properties='["=", "$rack", "9"]')
    made = plane.ask("POST", "/v1/leases", lease(wanted), status=201)["lease"]
    reservation = made["reservations"][0]
    plane.settle()
    server = plane.boot("s", reservation["id"])
    assert plane.server(server)["status"] == "ACTIVE"
    grown = plane.ask("PUT", f"/v1/leases/{made['id']}", {"reservations": [{"id": reservation["id"], "amount": 4}]})
    assert grown["lease"]["status"] == "ACTIVE"
    assert plane.inventory("compute-1", class_of(reservation)).total == 4
    plane.run_for(60)
    plane.ask("PUT", f"/v1/leases/{made['id']}", {"end_date": "now"})
    plane.run_for(30)
    assert plane.lease(made["id"])["status"] == "TERMINATED"
    assert plane.server(server) is None
    assert not plane.has_class(class_of(reservation))
    plane.ask("DELETE", f"/v1/leases/{made['id']}", status=204)
    plane.ask("DELETE", "/v1/os-hosts/1", status=204)


@on_every_database
def test_concurrent_requests_of_four_services_never_overbook_a_host(plane):
    """R12 (instance-reservation), D3: eight requests for four slots each, on a host with eight slots."""
    processes = [plane.new_process() for _ in range(4)]
    from moorage.core.caller import Caller
    from moorage.core.errors import Conflict
    from moorage.reservation.api.schemas.lease import decode_create

    caller = Caller("user", "demo", frozenset({"member"}))
    new = decode_create(lease(instance(4)))

    def create(number):
        try:
            return processes[number % 4].leases.create_lease(caller, new)
        except Conflict:
            return None

    with ThreadPoolExecutor(4) as pool:
        made = [each for each in pool.map(create, range(8)) if each]
    assert len(made) == 2
    plane.settle()
    totals = [plane.inventory("compute-1", each.reservations[0].resource_class).total for each in made]
    assert totals == [4, 4]


@on_every_database
def test_concurrent_runners_run_each_event_once(plane):
    """D9: four runners work on four leases that start at the same time."""
    leases = [plane.ask("POST", "/v1/leases", lease(instance(2)), status=201)["lease"] for _ in range(4)]
    runners = [plane.new_process().runner for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda runner: runner.run_once(), runners))
    plane.clock.sleep(timedelta(seconds=5).total_seconds())
    for runner in runners:
        runner.run_once()
    for each in leases:
        assert plane.lease(each["id"])["status"] == "ACTIVE"
        assert plane.inventory("compute-1", class_of(each["reservations"][0])).total == 2
