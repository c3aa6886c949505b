"""Leases that start at the same moment start together; how little a start takes, and a new lease. Counted is what it takes; nothing here rests on time.

What a crash or a failing service leaves of it: the scenario `starts` of `test_disturbed`.
"""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import event

from moorage.compute.client import ComputeClient
from moorage.core.errors import RemoteError
from moorage.db.transactions import write
from moorage.placement.client import Inventory, PlacementClient
from moorage.reservation.providers import SlotOffers
from moorage.reservation.service import PLACEMENT_VERSION, ReservationSettings
from moorage.reservation.tables import older_reservations
from tests.wire.reservation.plane import class_of, instance, lease
from tests.wire.reservation.wrapped import Recorded, Wrapped

LATER = {"start": "2026-03-05 10:00", "end": "2026-03-06 10:00"}
STARTS = datetime(2026, 3, 5, 10, tzinfo=UTC)
ENDS = STARTS + timedelta(days=1)

#: Of a round of the runner that starts leases, however many: three transactions write (claim with the journal,
#: inventories done, finish), the others look for what is due and for when it is next.
TRANSACTIONS, STATEMENTS = 6, 28

#: Of one that passes by what is due before ends: the same without journal, requests and states.
PASSED_BY = 4, 16

SPREAD = instance(2, vcpus=1, memory_mb=64, disk_gb=1, affinity="False")
WHOLE_HOST = {
    "resource_type": "physical:host",
    "min": 1,
    "max": 1,
    "hypervisor_properties": "",
    "resource_properties": "",
}


@pytest.fixture
def hosts(plane):
    """Three hosts with room for 60 small servers each."""
    for name in ("compute-2", "compute-3", "compute-4"):
        plane.add_host(name, vcpus=60)
        plane.register(name)
    plane.stop_runner()
    return plane


def create(plane, count, reservation=SPREAD):
    return [plane.ask("POST", "/v1/leases", lease(reservation, **LATER), status=201)["lease"] for _ in range(count)]


def statuses(plane, made):
    return [plane.lease(each["id"])["status"] for each in made]


def check_active(plane, made):
    for each in made:
        (reservation,) = plane.lease(each["id"])["reservations"]
        assert reservation["status"] == "active"
        totals = [plane.inventory(f"compute-{number}", class_of(reservation)) for number in (2, 3, 4)]
        assert sorted(found.total for found in totals if found) == [1, 1]
        assert plane.access(reservation["id"]) == ["demo"]


class Counting:
    """A transport that notes each request, without ids."""

    def __init__(self, transport, counted):
        self._transport, self._counted = transport, counted
        self.base_url = transport.base_url

    def send(self, method, path, headers, body=None):
        service, what = self.base_url.rsplit("/", 1)[1], path.partition("?")[0].rsplit("/", 1)[1]
        what = "a_class" if what.startswith("CUSTOM_") else what
        self._counted[f"{method} {service} {what}"] += 1
        return self._transport.send(method, path, headers, body)


class Work:
    """What a reservation service asks of its database and of others, from now on."""

    def __init__(self, plane):
        self.counted = Counter()

        def client(name):
            return plane.client(name, through=lambda transport: Counting(transport, self.counted))

        placement = PlacementClient(client("placement"), str(PLACEMENT_VERSION))
        self.service = plane.new_service(placement, ComputeClient(client("compute")))
        event.listen(plane.engine, "before_cursor_execute", lambda *_: self.counted.update(["statement"]))
        event.listen(plane.engine, "commit", lambda *_: self.counted.update(["transaction"]))

    def of(self, doing):
        self.counted.clear()
        doing()
        return dict(self.counted)


def started(plane, count, reservation=SPREAD):
    """What it takes to start so many leases that are due at the same moment, by a runner that has been at work."""
    create(plane, 1, reservation)
    work = Work(plane)
    runner = work.service.runner()
    plane.clock.advance_to(STARTS)
    runner.tick()
    plane.ask("GET", "/v1/leases")
    made = create_now(plane, count, reservation)
    taken = work.of(runner.tick)
    assert set(statuses(plane, made)) == {"ACTIVE"}
    return taken


def create_now(plane, count, reservation):
    body = lease(reservation, start="now", end=LATER["end"])
    return [plane.ask("POST", "/v1/leases", body, status=201)["lease"] for _ in range(count)]


def test_a_start_takes_a_request_for_each_host_and_one_for_the_access(hosts):
    """Of a lease that starts alone."""
    taken = started(hosts, 1)
    assert {name: taken[name] for name in taken if name not in ("statement", "transaction")} == {
        "POST placement inventories": 2,
        "POST compute action": 1,
    }
    assert (taken["transaction"], taken["statement"]) == (TRANSACTIONS, STATEMENTS)


def test_many_starts_take_as_many_statements_as_one_and_the_requests_of_a_host_are_joined(hosts):
    """Twenty leases: 40 inventories on 2 hosts are a look and a write each. Only the access is of each lease."""
    taken = started(hosts, 20)
    assert {name: taken[name] for name in taken if name not in ("statement", "transaction")} == {
        "GET placement inventories": 2,
        "PUT placement inventories": 2,
        "POST compute action": 20,
    }
    assert (taken["transaction"], taken["statement"]) == (TRANSACTIONS, STATEMENTS)


def test_leases_that_start_together_have_what_they_reserved(hosts):
    made = create(hosts, 12)
    hosts.clock.advance_to(STARTS)
    hosts.service.runner().tick()
    check_active(hosts, made)
    server = hosts.server(hosts.boot("s", made[7]["reservations"][0]["id"]))
    assert server["status"] == "ACTIVE"


def test_every_inventory_comes_before_the_first_access(hosts):
    """R24 (instance-reservation), of all that start together."""
    create(hosts, 4)
    calls = []
    hosts.clock.advance_to(STARTS)
    hosts.new_service(*Recorded.both(hosts, calls)).runner().tick()
    effects = [name for name, _ in calls if name in ("add_inventory", "put_inventories", "add_flavor_access")]
    assert effects[-4:] == ["add_flavor_access"] * 4
    assert set(effects[:-4]) == {"put_inventories"}


def test_one_that_fails_keeps_nobody_from_starting(hosts):
    """Its class is gone, and with it no inventory of that host can be written in one: each goes on by itself."""
    made = create(hosts, 5)
    victim = made[2]["reservations"][0]
    hosts.placement.delete_class(class_of(victim))
    runner = hosts.service.runner()
    hosts.clock.advance_to(STARTS)
    for _ in range(3):
        due = runner.tick()
        hosts.clock.advance_to(due)
    others = made[:2] + made[3:]
    check_active(hosts, others)
    assert statuses(hosts, [made[2]]) == ["STARTING"]
    hosts.placement.ensure_class(class_of(victim))
    hosts.clock.sleep(60)  # the longest pause before it is tried again
    runner.tick()
    check_active(hosts, made)


def test_an_access_that_fails_is_that_leases_matter(hosts):
    made = create(hosts, 3)
    wrapped = Wrapped(hosts, {"add_flavor_access": RemoteError("no", status=500)}, times=1)
    runner = wrapped.service.runner()
    hosts.clock.advance_to(STARTS)
    due = runner.tick()
    assert sorted(statuses(hosts, made)) == ["ACTIVE", "ACTIVE", "STARTING"]
    hosts.clock.advance_to(due)
    runner.tick()
    check_active(hosts, made)


def test_one_that_is_deleted_meanwhile_is_left_and_the_others_start(hosts):
    """The deletion waits until the round notices that the claim is lost; nothing of it is left behind."""
    made = create(hosts, 4)
    gone, others = made[1], [made[0], *made[2:]]

    def delete(name):
        if name == "put_inventories" and gone["id"] in [
            each["id"] for each in hosts.ask("GET", "/v1/leases")["leases"]
        ]:
            hosts.ask("DELETE", f"/v1/leases/{gone['id']}", status=204)

    calls = []
    runner = hosts.new_service(*Recorded.both(hosts, calls, after=delete), worker="first").runner()
    hosts.clock.advance_to(STARTS)
    runner.tick()
    granted = {arguments[0] for name, arguments in calls if name == "add_flavor_access"}
    assert gone["reservations"][0]["id"] not in granted
    check_active(hosts, others)
    assert hosts.answer("GET", f"/v1/leases/{gone['id']}")[0] == 404
    assert not hosts.has_class(class_of(gone["reservations"][0]))


def test_a_slow_round_keeps_its_claims_and_does_everything_once(hosts):
    """A request takes 10 s here: the claims would be over long before the end. Another runner looks on after each."""
    made = create(hosts, 6)
    other_calls, calls = [], []
    other = hosts.new_service(*Recorded.both(hosts, other_calls), worker="other").runner()

    def slow(name):
        hosts.clock.sleep(10)
        other.tick()

    hosts.clock.advance_to(STARTS)
    hosts.new_service(*Recorded.both(hosts, calls, after=slow), worker="slow").runner().tick()
    check_active(hosts, made)
    assert other_calls == []
    assert [name for name, _ in calls].count("add_flavor_access") == 6


def test_whole_hosts_are_lent_together(hosts):
    made = create(hosts, 3, WHOLE_HOST)
    hosts.clock.advance_to(STARTS)
    taken = Work(hosts)
    found = taken.of(taken.service.runner().tick)
    assert statuses(hosts, made) == ["ACTIVE"] * 3
    assert found["transaction"] == TRANSACTIONS


@pytest.mark.parametrize("count", [1, 20])
def test_what_is_due_before_ends_and_asks_for_nothing_is_one_transaction(hosts, count):
    made = create(hosts, count)
    hosts.clock.advance_to(STARTS)
    hosts.service.runner().tick()
    work = Work(hosts)
    runner = work.service.runner()
    runner.tick()
    hosts.clock.advance_to(ENDS - timedelta(minutes=60))
    assert work.of(runner.tick) == {"transaction": PASSED_BY[0], "statement": PASSED_BY[1]}
    for each in made:
        document = hosts.lease(each["id"])
        assert document["status"] == "ACTIVE"
        assert {event["event_type"]: event["status"] for event in document["events"]} == {
            "start_lease": "DONE",
            "before_end_lease": "DONE",
            "end_lease": "UNDONE",
        }


def test_a_new_lease_takes_two_writing_transactions(hosts):
    """One that decides it, with the journal of what is to be made, and one when that is made; of what is read, two."""
    work = Work(hosts)
    hosts.use(work.service)
    create(hosts, 1)
    assert work.of(lambda: create(hosts, 1)) == {
        "transaction": 4,
        "statement": 29,
        "PUT placement a_class": 1,
        "POST compute flavors": 1,
        "POST compute os-extra_specs": 1,
    }


def test_a_reservation_provider_that_was_made_anew_is_found(hosts):
    """It was remembered by its uuid."""
    create(hosts, 1)
    hosts.clock.advance_to(STARTS)
    runner = hosts.service.runner()
    runner.tick()
    for number in (2, 3, 4):
        if provider := hosts.placement.provider_by_name(f"blazar_compute-{number}"):
            hosts.placement.delete_provider(provider.uuid)
    made = create_now(hosts, 1, SPREAD)
    runner.tick()
    check_active(hosts, made)


def test_an_inventory_whose_answer_was_lost_is_taken_for_done(hosts):
    """R22 (instance-reservation): what was never there is added without a look; that it is there now is an answer."""
    made = create(hosts, 1)
    (reservation,) = made[0]["reservations"]
    hosts.clock.advance_to(STARTS)
    wrapped = Wrapped(hosts, {"add_flavor_access": RemoteError("no", status=500)}, times=1)
    due = wrapped.service.runner().tick()  # by now both inventories are there
    hosts.placement.ensure_class("CUSTOM_OTHER")
    provider = hosts.placement.provider_by_name("blazar_compute-2")
    hosts.placement.put_inventory(provider.uuid, "CUSTOM_OTHER", Inventory(1))
    SlotOffers(hosts.placement).offer("compute-2", {class_of(reservation): 1})
    assert hosts.inventory("compute-2", "CUSTOM_OTHER").total == 1
    hosts.clock.advance_to(due)
    hosts.service.runner().tick()
    check_active(hosts, made)


def test_requests_at_the_same_time_do_the_same(plane):
    """As in operation: eight at once. What fails is still that lease's matter."""
    plane.settings = ReservationSettings(requests_at_once=8)
    for name in ("compute-2", "compute-3", "compute-4"):
        plane.add_host(name, vcpus=60)
        plane.register(name)
    plane.stop_runner()
    made = create(plane, 20)
    refused = {each["reservations"][0]["id"] for each in made[5:8]}

    def refuse(client, name, arguments):
        if name == "add_flavor_access" and arguments[0] in refused:
            refused.remove(arguments[0])
            raise RemoteError("no", status=500)

    runner = plane.new_service(*Recorded.both(plane, [], before=refuse)).runner()
    plane.clock.advance_to(STARTS)
    due = runner.tick()
    assert [number for number, status in enumerate(statuses(plane, made)) if status != "ACTIVE"] == [5, 6, 7]
    plane.clock.advance_to(due)
    runner.tick()
    check_active(plane, made)


def test_one_that_goes_its_own_way_starts_in_the_same_turn(hosts):
    """Of an older system, and nobody has looked what it is: Placement is asked first."""
    made = create(hosts, 4)
    older = {"reservation_id": made[1]["reservations"][0]["id"], "generation": None}
    with write(hosts.engine) as connection:
        connection.execute(older_reservations.insert(), older)
    hosts.clock.advance_to(STARTS)
    calls = []
    hosts.new_service(*Recorded.both(hosts, calls)).runner().tick()
    assert "has_class" in [name for name, _ in calls]
    check_active(hosts, made)


def test_what_another_runner_took_is_left_to_it(hosts):
    """It has claimed them when ours comes to it: one look, no request."""
    made = create(hosts, 5)
    hosts.clock.advance_to(STARTS)
    first, calls = hosts.service.runner(), []
    second = hosts.new_service(*Recorded.both(hosts, calls), worker="second").runner()
    seen = second._turns(set())
    second._turns = lambda lost: [each for each in seen if each.event_id not in lost]
    first.tick()
    second.tick()
    check_active(hosts, made)
    assert calls == []
