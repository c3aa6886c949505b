"""Placement has less than leases were promised: admission notices, leases are moved or flagged, and both are reported."""

from dataclasses import replace
from datetime import timedelta

import pytest

from moorage.core.errors import NotFound, RemoteError
from moorage.db.session import read
from moorage.reservation.store import host_store
from tests.wire.reservation.listeners import Hooks, Mailbox
from tests.wire.reservation.plane import instance, lease
from tests.wire.reservation.processes import READ_CHANGES
from tests.wire.reservation.test_any_reservations import of_any
from tests.wire.reservation.test_flavor_reservations import GOLD, SHINY, add_child
from tests.wire.reservation.test_healing import STARTS, create, fail, flags, look, on, total
from tests.wire.reservation.test_host_reservations import whole
from tests.wire.reservation.test_timeline import timeline

FULL = {"status": 409}


def _two(plane):
    for number in (1, 2):
        plane.add_host(f"compute-{number}")
        plane.register(f"compute-{number}")


def _one(plane):
    plane.add_host()
    plane.register()


@pytest.fixture
def pair(new_plane):
    """A plane with two hosts of 8 CPUs; the host monitor runs only when a test calls it."""
    return new_plane(_two)


@pytest.fixture
def single(new_plane):
    return new_plane(_one)


def set_inventory(plane, provider_name, resource_class, **changes):
    """Changes an inventory in Placement, as an operator or an agent does."""
    provider = plane.placement.provider_by_name(provider_name)
    now = plane.placement.inventories(provider.uuid)[1][resource_class]
    plane.placement.put_inventory(provider.uuid, resource_class, replace(now, **changes))


def refused(plane, *reservations, **values):
    period = {"start": "2026-03-01 10:00", "end": "2026-03-02 10:00"} | values
    return plane.ask("POST", "/v1/leases", lease(*reservations, **period), status=409)


def gold_of(plane, amount=1, *, status=201, **more):
    """A lease that takes `amount` slots of one unit of gold, and its reservation; or the refusal."""
    reservation = of_any(amount, {GOLD: 1, "VCPU": 1}, **more)
    body = lease(reservation, start="2026-03-01 10:00", end="2026-03-02 10:00")
    body.pop("events")
    document = plane.ask("POST", "/v1/leases", body, status=status, version="1.1")
    return (document["lease"], document["lease"]["reservations"][0]) if status == 201 else document


# --- admission


@pytest.mark.parametrize("less", [{"total": 4}, {"reserved": 4}, {"max_unit": 1}], ids=lambda less: next(iter(less)))
def test_a_lease_is_not_booked_into_capacity_that_placement_no_longer_has(single, less):
    set_inventory(single, "compute-1", "VCPU", **less)
    refused(single, instance(4, vcpus=2))
    set_inventory(single, "compute-1", "VCPU", total=8, reserved=0, max_unit=8)
    create(single, instance(4, vcpus=2))


def test_a_lease_uses_capacity_that_was_added_in_placement(single):
    refused(single, instance(10))
    set_inventory(single, "compute-1", "VCPU", total=16)
    create(single, instance(10))


def test_a_lease_is_not_booked_on_a_device_that_is_gone(gold):
    gold.placement.delete_provider(gold.placement.provider_by_name("compute-1_b").uuid)
    gold_of(gold, 3, status=409)
    gold_of(gold, 2)


def test_admission_asks_placement_once_if_nothing_has_changed(pair):
    create(pair, instance())
    process = pair.new_process()
    pair.use(process)
    create(pair, instance())
    seen = len(process.asked)
    create(pair, instance())
    reads = [name for name in process.asked[seen:] if name.startswith("GET placement")]
    assert reads == [READ_CHANGES]


def test_another_process_notices_the_change_as_well(single):
    process = single.new_process()
    single.use(process)
    create(single, instance())
    set_inventory(single, "compute-1", "VCPU", total=2)
    refused(single, instance(2))
    single.use()
    refused(single, instance(2))


def test_without_placement_a_lease_is_refused_and_the_calendar_is_shown(single):
    process = single.new_process(fails={READ_CHANGES: RemoteError("Placement is away", status=503)})
    single.use(process)
    single.ask("POST", "/v1/leases", lease(instance(), start="2026-03-01 10:00"), status=502)
    shown = single.ask("GET", "/v1/calendar", version="1.1")["calendar"]
    assert shown["capacity"]["VCPU"] == 8


def test_the_calendar_shows_the_capacity_that_is_left(single):
    set_inventory(single, "compute-1", "VCPU", total=3)
    assert single.ask("GET", "/v1/calendar", version="1.1")["calendar"]["capacity"]["VCPU"] == 3


# --- flags and healing of leases that have not started


def test_a_pending_lease_is_moved_to_another_host(pair):
    made, reservation = create(pair, instance(6))
    assert on(pair, reservation) == {1: 6}
    set_inventory(pair, "compute-1", "VCPU", total=5)
    look(pair)
    assert on(pair, reservation) == {1: 5, 2: 1}
    assert flags(pair, made) == (False, False, False)
    pair.run_until(STARTS)
    assert (total(pair, "compute-1", reservation), total(pair, "compute-2", reservation)) == (5, 1)


def test_a_lease_that_starts_much_later_is_moved_or_flagged_at_once(pair):
    """Less capacity in Placement is no outage that might be over by then."""
    later = {"start": "2026-05-01 10:00", "end": "2026-05-02 10:00"}
    made, reservation = create(pair, instance(6), **later)
    set_inventory(pair, "compute-1", "VCPU", max_unit=5, total=1)
    look(pair)
    assert on(pair, reservation) == {1: 1, 2: 5}
    set_inventory(pair, "compute-2", "VCPU", total=2)
    look(pair)
    assert flags(pair, made) == (True, True, False)


def test_the_lease_that_was_created_last_loses_its_capacity(single):
    first, _ = create(single, instance(3), name="first")
    single.clock.advance_to(single.clock.now() + timedelta(seconds=1))
    second, _ = create(single, instance(3), name="second")
    single.clock.advance_to(single.clock.now() + timedelta(seconds=1))
    third, _ = create(single, instance(2), name="third")
    set_inventory(single, "compute-1", "VCPU", total=6)
    look(single)
    assert [flags(single, each)[0] for each in (first, second, third)] == [False, False, True]
    set_inventory(single, "compute-1", "VCPU", total=4)
    look(single)
    assert [flags(single, each)[0] for each in (first, second, third)] == [False, True, True]
    set_inventory(single, "compute-1", "VCPU", total=8)
    look(single)
    assert [flags(single, each) for each in (first, second, third)] == [(False, False, False)] * 3


def test_a_running_lease_keeps_its_capacity_before_an_older_one_that_waits(single):
    waiting, _ = create(single, instance(4), start="2026-03-01 12:00")
    single.clock.advance_to(single.clock.now() + timedelta(seconds=1))
    running, _ = create(single, instance(4))
    single.run_until(STARTS)
    set_inventory(single, "compute-1", "VCPU", total=4)
    look(single)
    assert [flags(single, each)[:2] for each in (waiting, running)] == [(True, True), (False, False)]


def test_leases_at_other_times_are_not_affected(single):
    now, _ = create(single, instance(4))
    later, _ = create(single, instance(4), start="2026-03-05 10:00", end="2026-03-06 10:00")
    set_inventory(single, "compute-1", "VCPU", total=4)
    look(single)
    assert [flags(single, each)[0] for each in (now, later)] == [False, False]


def test_a_slot_larger_than_max_unit_is_lost(single):
    made, _ = create(single, instance(1, vcpus=4))
    set_inventory(single, "compute-1", "VCPU", max_unit=2)
    look(single)
    assert flags(single, made) == (True, True, False)


def test_a_device_that_is_gone_is_replaced_by_another_one_of_the_host(gold):
    _, other = gold_of(gold, 2)
    made, reservation = gold_of(gold, 1)
    gone = next(name for name in ("a", "b") if _held(gold, f"compute-1_{name}", reservation))
    gold.placement.delete_provider(gold.placement.provider_by_name(f"compute-1_{gone}").uuid)
    look(gold)
    assert flags(gold, made)[0], "the older lease has the rest"
    gold.ask("DELETE", f"/v1/leases/{other['lease_id']}", status=204)
    look(gold)
    assert flags(gold, made) == (False, False, False)
    gold.run_until(STARTS)
    assert gold.server(gold.boot("s", reservation["id"]))["status"] == "ACTIVE"


def test_a_required_trait_that_is_taken_away_costs_the_lease_its_slot(gold):
    made, _ = gold_of(gold, traits={SHINY: "required"})
    shiny = gold.placement.provider_by_name("compute-1_b").uuid
    gold.placement.put_trait(shiny, SHINY, wanted=False)
    look(gold)
    assert flags(gold, made) == (True, True, False)
    gold.placement.put_trait(shiny, SHINY, wanted=True)
    look(gold)
    assert flags(gold, made) == (False, False, False)


def test_a_whole_host_that_leaves_placement_is_replaced(pair):
    made = pair.ask("POST", "/v1/leases", lease(whole(), start="2026-03-01 10:00"), status=201)["lease"]
    (reservation,) = made["reservations"]
    (host,) = on(pair, reservation)
    _remove_tree(pair, f"compute-{host}")
    look(pair)
    assert on(pair, reservation) == {3 - host: 1}
    _remove_tree(pair, f"compute-{3 - host}")
    look(pair)
    assert flags(pair, made) == (True, True, False)


# --- active leases


def test_free_slots_of_an_active_lease_are_moved_and_those_of_servers_stay(pair):
    made, reservation = create(pair, instance(6))
    pair.run_until(STARTS)
    servers = [pair.boot(f"s{number}", reservation["id"]) for number in range(2)]
    set_inventory(pair, "compute-1", "VCPU", total=3)
    look(pair)
    assert on(pair, reservation) == {1: 3, 2: 3}
    assert flags(pair, made) == (False, False, True)
    assert (total(pair, "compute-1", reservation), total(pair, "compute-2", reservation)) == (3, 3)
    set_inventory(pair, "compute-1", "VCPU", total=2, reserved=2)
    look(pair)
    assert on(pair, reservation) == {1: 2, 2: 4}
    assert flags(pair, made) == (True, True, True), "the servers' slots are on a host that has nothing left"
    assert [pair.server(each)["status"] for each in servers] == ["ACTIVE", "ACTIVE"]
    assert {pair.server(each)["OS-EXT-SRV-ATTR:host"] for each in servers} == {"compute-1"}
    set_inventory(pair, "compute-1", "VCPU", total=8, reserved=0)
    look(pair)
    assert flags(pair, made) == (False, False, True)
    assert pair.lease(made["id"])["status"] == "ACTIVE"


def test_the_device_of_a_running_server_is_never_taken_away(gold):
    """A sick device: its agent reserves all units. The slot of the server stays there, the other one is moved."""
    add_child(gold, "compute-2", "c", GOLD, 2)
    made, reservation = gold_of(gold, 2)
    gold.run_until(STARTS)
    server = gold.boot("s", reservation["id"])
    (device,) = (name for name in _gold_held(gold, server))
    set_inventory(gold, device, GOLD, reserved=2)
    look(gold)
    assert device in _gold_held(gold, server)
    shown = flags(gold, made)
    assert shown[:2] == (True, True)
    assert gold.server(server)["status"] == "ACTIVE"
    assert gold.server(gold.boot("other", reservation["id"]))["status"] == "ACTIVE"
    set_inventory(gold, device, GOLD, reserved=0)
    look(gold)
    assert flags(gold, made)[:2] == (False, False)


def test_a_host_that_was_out_of_placement_gets_its_slots_again(single):
    made, reservation = create(single, instance(4))
    single.run_until(STARTS)
    inventories = _remove_tree(single, "compute-1")
    look(single)
    assert flags(single, made) == (True, True, False)
    root = single.placement.create_provider("compute-1")
    single.placement.set_inventories(root.uuid, root.generation, inventories)
    look(single)
    assert flags(single, made) == (False, False, False)
    assert total(single, "compute-1", reservation) == 4


def test_a_lease_starts_with_what_is_left(pair):
    made, reservation = create(pair, instance(12))
    _remove_tree(pair, "compute-2")
    look(pair)
    pair.run_until(STARTS)
    assert pair.lease(made["id"])["status"] == "ACTIVE"
    assert flags(pair, made) == (True, True, False)
    assert total(pair, "compute-1", reservation) == 8


def test_a_lease_that_is_being_changed_is_examined_again(single):
    made, _ = create(single, instance(4))
    single.stop_runner()
    single.clock.advance_to(STARTS)
    away = {"POST placement/resource_providers/*/inventories": RemoteError("Placement is away", status=503)}
    single.new_process(fails=away).runner.run_once()
    assert single.lease(made["id"])["status"] == "STARTING"
    set_inventory(single, "compute-1", "VCPU", total=2)
    look(single)
    single.start_runner()
    single.run_for(120)
    assert single.lease(made["id"])["status"] == "ACTIVE"
    look(single)
    assert flags(single, made) == (True, True, False)


def test_two_losses_at_once_do_not_block_each_other(pair):
    """The slots that another lease has lost use no capacity when a lease is moved. The older lease is moved first."""
    first, of_first = create(pair, instance(10))
    pair.clock.advance_to(pair.clock.now() + timedelta(seconds=1))
    second, _ = create(pair, instance(6))
    pair.run_until(STARTS)
    pair.add_host("compute-3", vcpus=2)
    pair.register("compute-3")
    set_inventory(pair, "compute-1", "VCPU", total=6)
    set_inventory(pair, "compute-2", "VCPU", total=4)
    look(pair)
    assert on(pair, of_first) == {1: 6, 2: 2, 3: 2}
    assert flags(pair, first)[:2] == (False, False)
    assert flags(pair, second)[:2] == (True, True)


def test_a_host_that_is_down_and_a_smaller_inventory_are_reported_together(pair):
    made, _ = create(pair, instance(8))
    other, _ = create(pair, instance(8))
    set_inventory(pair, "compute-2", "VCPU", total=4)
    fail(pair, "compute-1")
    assert flags(pair, made)[:2] == (True, True)
    assert flags(pair, other)[:2] == (True, True)


# --- Placement without a change log


def test_openstack_placement_is_read_regularly(pair):
    """It has no change log, so the host monitor reads the hosts."""
    process = pair.new_process(before=_without(NotFound("no such path"), "/moorage/v1/"))
    _, reservation = create(pair, instance(6))
    set_inventory(pair, "compute-1", "VCPU", total=5)
    look(pair, process)
    assert on(pair, reservation) == {1: 5, 2: 1}
    set_inventory(pair, "compute-1", "VCPU", total=4)
    look(pair, process)
    assert on(pair, reservation) == {1: 4, 2: 2}


def test_a_position_that_is_no_longer_retained_makes_all_hosts_read(single):
    create(single, instance())
    set_inventory(single, "compute-1", "VCPU", total=2)
    gone = {READ_CHANGES: RemoteError("gone", status=410)}
    single.use(single.new_process(fails=gone, times=1))
    refused(single, instance(2))


# --- reports


def test_the_timeline_tells_what_happened_to_the_resources(single):
    made, _ = create(single, instance(4))
    set_inventory(single, "compute-1", "VCPU", total=2)
    look(single)
    look(single)
    single.clock.sleep(1)  # entries of one moment are in no particular order
    set_inventory(single, "compute-1", "VCPU", total=8)
    look(single)
    entries = [each for each in timeline(single, made, roles=("admin",)) if "resources" in each["event_type"]]
    assert [each["event_type"] for each in entries] == ["resources_lost", "resources_restored"]
    assert entries[0]["error"] == "host compute-1: VCPU of compute-1 has only 2 units left"
    shown = [each for each in timeline(single, made) if "resources" in each["event_type"]]
    assert [each["error"] for each in shown] == [None, None], "names of hosts are for administrators"


def test_the_lease_s_webhook_and_mail_address_are_told(new_plane):
    with Hooks() as hooks, Mailbox() as mailbox:
        plane = new_plane(
            before_end={
                "webhook_origins": hooks.origin,
                "mail_domains": "example.com",
                "smtp_security": "none",
                "smtp_server": f"127.0.0.1:{mailbox.port}",
                "mail_sender": "leases@example.org",
            }
        )
        _one(plane)
        actions = [
            {"action": "webhook", "url": f"{hooks.origin}/hook"},
            {"action": "email", "to": "somebody@example.com"},
        ]
        body = lease(instance(4), start="2026-03-01 10:00", before_end_actions=actions)
        body.pop("events")
        made = plane.ask("POST", "/v1/leases", body, status=201, version="1.1")["lease"]
        set_inventory(plane, "compute-1", "VCPU", total=2)
        look(plane)
        look(plane)
        set_inventory(plane, "compute-1", "VCPU", total=8)
        look(plane)
        told = [(path, body["event_type"], body["lease"]["id"]) for path, body in hooks.seen]
        assert told == [("/hook", "resources_lost", made["id"]), ("/hook", "resources_restored", made["id"])]
        subjects = [message["Subject"] for _, _, message in mailbox.seen]
        assert subjects == ["Lease lease has lost resources", "Lease lease has all of its resources again"]


def _without(error, part):
    def before(call):
        if part in call.request.path:
            raise error

    return before


def _held(plane, provider_name, reservation):
    """Whether slots of the reservation are on this provider."""
    with read(plane.engine) as connection:
        rows = host_store.allocations_of(connection, [reservation["id"]])
        places = {each.host: each.providers for each in host_store.capacities(connection)}
    return any(places[row.host_id].get(place) == provider_name for row in rows for place in row.resources)


def _gold_held(plane, server_id):
    """Names of the providers from which the server has gold."""
    names = {each.uuid: each.name for each in plane.placement.providers([])}
    return [names[uuid] for uuid, units in plane.placement.allocations(server_id).items() if GOLD in units]


def _remove_tree(plane, host):
    """Deletes the host's providers, children first; returns the inventories of its root."""
    root = plane.placement.provider_by_name(host)
    inventories = plane.placement.inventories(root.uuid)[1]
    for provider in plane.placement.tree(root.uuid):
        if provider.uuid != root.uuid:
            plane.placement.delete_provider(provider.uuid)
    plane.placement.delete_provider(root.uuid)
    return inventories
