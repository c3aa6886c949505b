"""Active reservations give up slots that no server uses."""

import pytest

from moorage.core.errors import Unavailable
from moorage.db.session import read
from moorage.reservation.store import host_store
from tests.plane import Killed
from tests.wire.reservation.plane import class_of, instance, lease
from tests.wire.reservation.processes import DELETE_INVENTORY, TRIES, WRITE_INVENTORIES
from tests.wire.reservation.test_flavor_reservations import flavor, of_flavor

KEEPS = "doesn't allow to reduce/replace reserved instance slots"


def active(plane, *reservations):
    made = plane.ask("POST", "/v1/leases", lease(*reservations), status=201)["lease"]
    plane.settle()
    return made, made["reservations"][0]


def resize(plane, made, amount, status=200, **who):
    reservations = [{"id": made["reservations"][0]["id"], "amount": amount}]
    answer = plane.ask("PUT", f"/v1/leases/{made['id']}", {"reservations": reservations}, status=status, **who)
    return answer["lease"] if status == 200 else answer["error_message"]


def slots(plane, reservation):
    with read(plane.engine) as connection:
        return len(host_store.allocations_of(connection, [reservation["id"]]))


def test_unused_slots_of_an_active_lease_are_released(reserved):
    """A15 (instance-reservation). Others can reserve them at once, and the slots that stay can be used."""
    made, reservation = active(reserved, instance(5))
    first = reserved.boot("first", reservation["id"])
    smaller = resize(reserved, made, 3)
    assert (smaller["status"], smaller["reservations"][0]["amount"]) == ("ACTIVE", 3)
    assert (slots(reserved, reservation), reserved.inventory("compute-1", class_of(reservation)).total) == (3, 3)
    active(reserved, instance(5))
    assert reserved.answer("POST", "/v1/leases", lease(instance(1)))[0] == 409
    servers = [first, *(reserved.boot(f"s{number}", reservation["id"]) for number in range(3))]
    assert [reserved.server(server)["status"] for server in servers] == ["ACTIVE", "ACTIVE", "ACTIVE", "ERROR"]


def test_slots_that_servers_use_are_kept(reserved):
    """A15 (instance-reservation)."""
    made, reservation = active(reserved, instance(5))
    servers = [reserved.boot(f"s{number}", reservation["id"]) for number in range(4)]
    message = resize(reserved, made, 3, 409)
    assert KEEPS in message
    assert "Servers use 4 of its slots: delete some, or ask for 4 or more." in message
    assert (slots(reserved, reservation), reserved.lease(made["id"])["reservations"][0]["amount"]) == (5, 5)
    assert resize(reserved, made, 4)["reservations"][0]["amount"] == 4
    assert {reserved.server(server)["status"] for server in servers} == {"ACTIVE"}
    assert KEEPS in resize(reserved, made, 3, 409)


def test_a_host_without_slots_has_no_inventory_of_the_reservation(gold):
    """The slots on the host with the fewest go first."""
    flavor(gold)
    made, reservation = active(gold, of_flavor(amount=2, affinity=False))
    server = gold.boot("one", reservation["id"])
    used = gold.server(server)["OS-EXT-SRV-ATTR:host"]
    (other,) = {"compute-1", "compute-2"} - {used}
    assert resize(gold, made, 1)["reservations"][0]["amount"] == 1
    assert gold.inventory(used, class_of(reservation)).total == 1
    assert gold.inventory(other, class_of(reservation)) is None


def test_a_dry_run_tells_which_slots_would_be_released(reserved):
    made, reservation = active(reserved, instance(5))
    body = {"reservations": [{"id": reservation["id"], "amount": 3}]}
    shown = reserved.ask("POST", f"/v1/leases/{made['id']}/dry-run", body, version="1.1")["lease"]["reservations"]
    assert [(each["slots"], each["removed"]["slots"], each["added"]["slots"]) for each in shown] == [(3, 2, 0)]
    assert slots(reserved, reservation) == 5


@pytest.mark.parametrize("affinity", [True, False])
def test_servers_that_are_launched_meanwhile_keep_their_slots(gold, affinity):
    """They take the slots between the decision and the smaller inventory, or its deletion: all stays as it was."""
    flavor(gold)
    made, reservation = active(gold, of_flavor(amount=2, affinity=affinity))
    hosts = [name for name in ("compute-1", "compute-2") if gold.inventory(name, class_of(reservation))]
    assert len(hosts) == (1 if affinity else 2)
    servers = []

    def launch(call):
        if call.name in (WRITE_INVENTORIES, DELETE_INVENTORY) and not servers:
            gold.use()
            servers.extend(gold.boot(name, reservation["id"]) for name in ("one", "two"))
            gold.use(process)

    process = gold.new_process(before=launch)
    gold.use(process)
    assert "A server was launched in one of them meanwhile" in resize(gold, made, 1, 409)
    shown = gold.lease(made["id"])
    assert (shown["status"], shown["reservations"][0]["amount"], slots(gold, reservation)) == ("ACTIVE", 2, 2)
    assert sum(gold.inventory(host, class_of(reservation)).total for host in hosts) == 2
    assert {gold.server(server)["status"] for server in servers} == {"ACTIVE"}


def test_a_release_that_placement_does_not_answer_continues_after_the_answer(reserved):
    made, reservation = active(reserved, instance(5))
    reserved.use(reserved.new_process(fails={WRITE_INVENTORIES: Unavailable("away")}, times=TRIES))
    assert resize(reserved, made, 3)["status"] == "UPDATING"
    reserved.run_for(10)
    assert reserved.lease(made["id"])["reservations"][0]["amount"] == 3
    assert (slots(reserved, reservation), reserved.inventory("compute-1", class_of(reservation)).total) == (3, 3)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_release_survives_a_kill_at_the_smaller_inventory(reserved, when):
    made, reservation = active(reserved, instance(5))

    def die(call):
        if call.name == WRITE_INVENTORIES:
            raise Killed

    reserved.use(reserved.new_process(**{when: die}))
    with pytest.raises(Killed):
        resize(reserved, made, 3)
    reserved.use()
    reserved.run_for(120)
    shown = reserved.lease(made["id"])
    assert (shown["status"], shown["reservations"][0]["amount"]) == ("ACTIVE", 3)
    assert (slots(reserved, reservation), reserved.inventory("compute-1", class_of(reservation)).total) == (3, 3)


def test_released_slots_no_longer_count_for_limits_but_the_past_hours_do(new_plane):
    plane = new_plane(enforcement={"limits": "VCPU=5", "limit_hours": "VCPU=60"})
    plane.add_host()
    plane.register()
    member = {"user": "user", "project": "demo", "roles": ("member",)}
    body = lease(instance(5), end="2026-03-01 19:30")
    made = plane.ask("POST", "/v1/leases", body, status=201, **member)["lease"]
    plane.run_for(5 * 3600)
    resize(plane, made, 1, **member)
    # 25 hours until now and 5 more until the end are used: 30 of 60.
    more, enough = (lease(instance(4), start="2026-03-01 15:30", end=f"2026-03-01 {end}") for end in ("23:30", "22:30"))
    refused = plane.ask("POST", "/v1/leases", more, status=403, **member)["error_message"]
    assert "on 30.0 are in use, and this request adds 32.0" in refused
    plane.ask("POST", "/v1/leases", enough, status=201, **member)


def test_a_smaller_amount_and_a_later_end_need_two_requests(reserved):
    made, reservation = active(reserved, instance(5))
    body = {"end_date": "2026-03-02 12:00", "reservations": [{"id": reservation["id"], "amount": 3}]}
    refused = reserved.ask("PUT", f"/v1/leases/{made['id']}", body, status=409)["error_message"]
    assert refused == "reduce the amount and prolong the lease in two requests"
    body["end_date"] = "2026-03-02 08:00"
    shorter = reserved.ask("PUT", f"/v1/leases/{made['id']}", body)["lease"]
    assert (shorter["end_date"], shorter["reservations"][0]["amount"]) == ("2026-03-02T08:00:00.000000", 3)


def test_a_reservation_without_capacity_keeps_its_slots(reserved):
    made, _ = active(reserved, instance(5))
    provider = reserved.placement.provider_by_name("compute-1")
    generation, inventories = reserved.placement.inventories(provider.uuid)
    reserved.placement.set_inventories(provider.uuid, generation, {"VCPU": inventories["VCPU"]})
    reserved.process.watch.run_once()
    assert reserved.lease(made["id"])["degraded"]
    assert "Some of them have no capacity now" in resize(reserved, made, 3, 409)
