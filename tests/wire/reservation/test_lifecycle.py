"""A lease from creation to end, against real placement and compute services."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import event

from moorage.core.errors import RemoteError, Unavailable
from moorage.db.session import read
from moorage.placement.client.placement_client import Inventory
from moorage.reservation.model.leases import EventStatus, EventType
from moorage.reservation.store import event_store, host_store
from tests.plane import failing
from tests.wire.reservation.plane import class_of, instance, lease
from tests.wire.reservation.processes import (
    ADD_INVENTORY,
    CREATE_FLAVOR,
    DELETE_CLASS,
    DELETE_FLAVOR,
    DELETE_INVENTORY,
    ENSURE_CLASS,
    GRANT,
    LIST_SERVERS,
    SET_EXTRA_SPECS,
    TRIES,
    WRITE_INVENTORIES,
)

LATER = {"start": "2026-03-05 10:00", "end": "2026-03-06 10:00"}
STARTS, ENDS = datetime(2026, 3, 5, 10, tzinfo=UTC), datetime(2026, 3, 6, 10, tzinfo=UTC)


def create(plane, *reservations, **values):
    made = plane.ask("POST", "/v1/leases", lease(*reservations, **values), status=201)["lease"]
    return made, made["reservations"][0] if made["reservations"] else None


def traces(plane, reservation, *hosts):
    """The objects of a reservation that still exist in placement and compute."""
    return [
        what
        for what, is_there in [
            ("class", plane.has_class(class_of(reservation))),
            ("flavor", plane.flavor(reservation["id"])),
            *((host, plane.inventory(host, class_of(reservation))) for host in hosts or ("compute-1",)),
        ]
        if is_there
    ]


def test_creating_a_lease_creates_a_class_and_a_private_flavor(reserved):
    """R8, R9, A10 (instance-reservation): the flavor requests one unit of the class, besides its ordinary size."""
    _, reservation = create(reserved, instance(3, vcpus=2, memory_mb=512, disk_gb=5), **LATER)
    assert reserved.has_class(class_of(reservation))
    flavor = reserved.flavor(reservation["id"])
    assert flavor["name"] == f"reservation:{reservation['id']}"
    assert (flavor["vcpus"], flavor["ram"], flavor["disk"], flavor["os-flavor-access:is_public"]) == (2, 512, 5, False)
    assert reserved.extra_specs(reservation["id"]) == {f"resources:{class_of(reservation)}": "1"}


@pytest.mark.parametrize("affinity", ["None", "True", "False"])
def test_no_aggregate_and_no_server_group_is_created(reserved, affinity):
    """R10 (instance-reservation): the peer still makes both."""
    create(reserved, instance(1, affinity=affinity), **LATER)
    rows = reserved.ask("GET", "/v2.1/os-aggregates", service="compute")["aggregates"]
    assert [row["name"] for row in rows] == ["freepool"]


def test_before_the_start_there_is_no_inventory_and_no_access(reserved):
    """R11 (instance-reservation)."""
    _, reservation = create(reserved, instance(2), **LATER)
    reserved.run_until(STARTS - timedelta(seconds=1))
    assert reserved.inventory("compute-1", class_of(reservation)) is None
    assert reserved.access(reservation["id"]) == []


def test_slots_are_written_one_by_one(reserved):
    """R7 (instance-reservation)."""
    _, reservation = create(reserved, instance(3), **LATER)
    with read(reserved.engine) as connection:
        rows = host_store.allocations_of(connection, [reservation["id"]])
    assert [row.host_id for row in rows] == [1, 1, 1]


@pytest.mark.parametrize("request_", [ENSURE_CLASS, CREATE_FLAVOR, SET_EXTRA_SPECS])
def test_a_lease_that_cannot_be_created_leaves_nothing(reserved, request_):
    """R12 (instance-reservation): no row, no class, no flavor; and its capacity is free again."""
    failing = reserved.new_process(fails={request_: RemoteError("no", status=500)})
    reserved.use(failing)
    status, body = reserved.answer("POST", "/v1/leases", lease(instance(8)))
    assert status == 503
    assert "all changes were undone" in body["error_message"]
    assert reserved.ask("GET", "/v1/leases")["leases"] == []
    (class_name,) = {call.request.path.rsplit("/", 1)[1] for call in failing.calls if call.name == DELETE_CLASS}
    reservation = {"id": class_name.removeprefix("CUSTOM_RESERVATION_").replace("_", "-").lower()}
    assert traces(reserved, reservation) == []
    reserved.use()
    create(reserved, instance(8))


def test_a_lease_starts_when_it_is_due(reserved):
    """R20, R22, A9 (instance-reservation): total = the number of the reservation's slots on the host."""
    made, reservation = create(reserved, instance(3), **LATER)
    reserved.run_until(STARTS)
    inventory = reserved.inventory("compute-1", class_of(reservation))
    assert (inventory.total, inventory.min_unit, inventory.max_unit, inventory.step_size) == (3, 1, 1, 1)
    assert (inventory.reserved, inventory.allocation_ratio) == (0, 1.0)
    shown = reserved.lease(made["id"])
    assert shown["status"] == "ACTIVE"
    assert shown["reservations"][0]["status"] == "active"
    assert {event["event_type"]: event["status"] for event in shown["events"]} == {
        "start_lease": "DONE",
        "before_end_lease": "UNDONE",
        "end_lease": "UNDONE",
    }


def test_the_inventory_is_written_before_access_is_granted(reserved):
    """R24, A6 (instance-reservation): the peer has the other order, and a race."""
    reserved.add_host("compute-2")
    reserved.register("compute-2")
    process = reserved.new_process()
    create(reserved, instance(12), **LATER)
    reserved.clock.advance_to(STARTS)
    process.runner.run_once()
    effects = [name for name in process.asked if name in (ADD_INVENTORY, GRANT)]
    assert effects == [ADD_INVENTORY, ADD_INVENTORY, GRANT]


def test_a_missing_reservation_provider_is_created_at_the_start(reserved):
    """R21, A11 (instance-reservation): hosts registered before reservation providers existed."""
    _, reservation = create(reserved, instance(2), **LATER)
    reserved.placement.delete_provider(reserved.placement.provider_by_name("blazar_compute-1").uuid)
    reserved.run_until(STARTS)
    assert reserved.inventory("compute-1", class_of(reservation)).total == 2


def test_inventories_of_other_reservations_survive(reserved):
    """R22 (instance-reservation): on start and on end."""
    _, first = create(reserved, instance(2), start="2026-03-05 10:00", end="2026-03-08 10:00")
    _, second = create(reserved, instance(3), **LATER)
    reserved.run_until(STARTS)
    assert reserved.inventory("compute-1", class_of(first)).total == 2
    assert reserved.inventory("compute-1", class_of(second)).total == 3
    reserved.run_until(ENDS + timedelta(minutes=1))
    assert reserved.inventory("compute-1", class_of(first)).total == 2
    assert traces(reserved, second) == []


class Races:
    """Another client updates the provider between the read and the write of a step, `left` times."""

    def __init__(self, placement, left):
        self.placement, self.left = placement, left

    def __call__(self, call):
        if call.name == WRITE_INVENTORIES and self.left:
            self.placement.ensure_class(f"CUSTOM_RACE_{self.left}")
            provider_uuid = call.request.path.split("/")[2]
            self.placement.put_inventory(provider_uuid, f"CUSTOM_RACE_{self.left}", Inventory(5))
            self.left -= 1


def test_after_a_concurrent_update_of_the_provider_the_step_reads_again(reserved):
    """R23, A3 (instance-reservation)."""
    made = [create(reserved, instance(2), **LATER)[1] for _ in range(3)]
    races = Races(reserved.placement, 2)
    runner = reserved.new_process(before=races).runner
    reserved.clock.advance_to(STARTS)
    runner.run_once()
    assert races.left == 0
    assert [reserved.inventory("compute-1", class_of(reservation)).total for reservation in made] == [2, 2, 2]
    assert reserved.inventory("compute-1", "CUSTOM_RACE_2").total == 5


def test_a_step_with_too_many_concurrent_updates_is_retried_later(reserved):
    """R23, A3 (instance-reservation): after a limited number of repetitions, the step waits for its retry."""
    made = [create(reserved, instance(2), **LATER) for _ in range(3)]
    races = Races(reserved.placement, 20)
    runner = reserved.new_process(before=races).runner
    reserved.clock.advance_to(STARTS)
    runner.run_once()
    assert races.left == 15
    assert {reserved.lease(lease["id"])["status"] for lease, _ in made} == {"STARTING"}
    reserved.run_for(60)
    assert [reserved.inventory("compute-1", class_of(reservation)).total for _, reservation in made] == [2, 2, 2]


def test_as_many_servers_can_be_launched_as_slots_are_reserved(reserved):
    """R26 (instance-reservation): three servers on three slots, the fourth has no valid host; no hint is needed."""
    _, reservation = create(reserved, instance(3))
    reserved.settle()
    servers = [reserved.server(reserved.boot(f"s{number}", reservation["id"])) for number in range(4)]
    assert [server["status"] for server in servers] == ["ACTIVE", "ACTIVE", "ACTIVE", "ERROR"]
    assert "No valid host" in servers[3]["fault"]["message"]
    provider = reserved.placement.provider_by_name("blazar_compute-1")
    assert reserved.placement.usages(provider.uuid)[class_of(reservation)] == 3


def test_a_launch_asks_for_no_aggregate_and_no_server_group(reserved):
    """R28 (instance-reservation): the class in the flavor is enough, so a new reservation needs neither filter."""
    _, reservation = create(reserved, instance(1))
    reserved.settle()
    asked = reserved.cloud.ways["placement"]
    asked.requests.clear()
    assert reserved.server(reserved.boot("vm", reservation["id"]))["status"] == "ACTIVE"
    (query,) = [request.path for request in asked.requests if request.path.startswith("/allocation_candidates")]
    assert f"{class_of(reservation)}:1" in query
    assert "member_of" not in query
    assert reserved.compute.flavor(reservation["id"]).extra_specs.keys() == {f"resources:{class_of(reservation)}"}


def test_another_project_cannot_use_the_flavor(reserved):
    _, reservation = create(reserved, instance(1))
    reserved.settle()
    body = {"server": {"name": "x", "flavorRef": reservation["id"], "imageRef": "", "networks": []}}
    status, _ = reserved.answer(
        "POST", "/v2.1/servers", body, service="compute", user="x", project="other", roles=("member",)
    )
    assert status in (400, 403, 404)


@pytest.mark.parametrize(
    ("affinity", "spread"), [("True", [[4]]), ("False", [[1, 1]]), ("None", [[4], [2, 2], [1, 3]])]
)
def test_affinity_is_enforced_by_the_inventories_themselves(plane, affinity, spread):
    """A2, R17 (instance-reservation)."""
    plane.add_host("compute-2")
    plane.register()
    plane.register("compute-2")
    _, reservation = create(plane, instance(sum(spread[0]), affinity=affinity))
    plane.settle()
    totals = [plane.inventory(name, class_of(reservation)) for name in ("compute-1", "compute-2")]
    assert sorted(each.total for each in totals if each) in spread


def test_a_lease_ends_when_it_is_due_and_leaves_nothing(reserved):
    """R29, R30, R31 (instance-reservation): servers, flavor, inventory and class are gone; lease and reservation remain
    visible.
    """
    made, reservation = create(reserved, instance(2), **LATER)
    reserved.run_until(STARTS)
    servers = [reserved.boot(f"s{number}", reservation["id"]) for number in range(2)]
    assert {reserved.server(server)["status"] for server in servers} == {"ACTIVE"}
    reserved.run_until(ENDS)
    assert reserved.lease(made["id"])["status"] == "TERMINATING"
    reserved.run_for(60)
    assert [reserved.server(server) for server in servers] == [None, None]
    assert traces(reserved, reservation) == []
    shown = reserved.lease(made["id"])
    assert (shown["status"], shown["reservations"][0]["status"]) == ("TERMINATED", "deleted")
    assert {event["status"] for event in shown["events"]} == {"DONE"}
    assert reserved.ask("GET", "/v1/os-hosts/1/allocation")["allocation"]["reservations"] == []


def test_the_end_has_the_order_of_steps_of_the_specification(reserved):
    """R32 (instance-reservation): servers gone, flavor, inventory once per host, class."""
    reserved.add_host("compute-2")
    reserved.register("compute-2")
    create(reserved, instance(12), **LATER)
    reserved.run_until(STARTS)
    process = reserved.new_process()
    reserved.clock.advance_to(ENDS)
    process.runner.run_once()
    wanted = (LIST_SERVERS, DELETE_FLAVOR, DELETE_INVENTORY, DELETE_CLASS)
    assert [name for name in process.asked if name in wanted] == [
        LIST_SERVERS,
        DELETE_FLAVOR,
        DELETE_INVENTORY,
        DELETE_INVENTORY,
        DELETE_CLASS,
    ]


def test_an_end_that_waits_for_servers_does_not_block_other_leases(reserved):
    """R29 (instance-reservation), D10: the flavor stays until the last server is gone; others start meanwhile."""
    reserved.add_host("compute-2")
    reserved.register("compute-2")
    slow, first = create(reserved, instance(2, vcpus=4, affinity=True), **LATER)
    reserved.run_until(STARTS)
    server = reserved.boot("slow", first["id"])
    (host,) = [host for host in reserved.hosts if host.host == reserved.server(server)["OS-EXT-SRV-ATTR:host"]]
    host.is_stopped = True  # the host does no more jobs
    other, _ = create(reserved, instance(8), start="2026-03-06 10:00", end="2026-03-07 10:00")
    reserved.run_until(ENDS)
    reserved.run_for(180)
    assert reserved.lease(slow["id"])["status"] == "TERMINATING"
    assert reserved.flavor(first["id"]) is not None
    assert reserved.inventory(host.host, class_of(first)) is not None
    assert reserved.lease(other["id"])["status"] in ("ACTIVE", "PENDING")
    reserved.start_hosts()
    reserved.run_for(120)
    assert reserved.lease(slow["id"])["status"] == "TERMINATED"
    assert reserved.lease(other["id"])["status"] == "ACTIVE"
    assert traces(reserved, first, "compute-1", "compute-2") == []


def test_inventory_in_use_is_retried_and_never_skipped(reserved):
    """R32, A5 (instance-reservation): the peer takes the 409 for "missing" and leaks inventory and class."""
    made, reservation = create(reserved, instance(1), **LATER)
    reserved.run_until(STARTS)
    provider = reserved.placement.provider_by_name("blazar_compute-1")
    foreign = reserved.ids.uuid()  # the consumer of an allocation that belongs to no server
    body = {
        "allocations": {provider.uuid: {"resources": {class_of(reservation): 1}}},
        "consumer_generation": None,
        "consumer_type": "INSTANCE",
        "project_id": "demo",
        "user_id": "demo",
    }
    reserved.ask("PUT", f"/allocations/{foreign}", body, service="placement", status=204)
    reserved.run_until(ENDS + timedelta(minutes=2))
    assert reserved.lease(made["id"])["status"] == "TERMINATING"
    assert "inventory" not in traces(reserved, reservation)
    assert traces(reserved, reservation) == ["class", "compute-1"]
    with read(reserved.engine) as connection:
        (end,) = [e for e in event_store.of_leases(connection, [made["id"]])[made["id"]] if e.type is EventType.END]
    assert "1 of CUSTOM_RESERVATION_" in end.last_error
    reserved.placement.release(foreign)
    reserved.run_for(60)
    assert reserved.lease(made["id"])["status"] == "TERMINATED"
    assert traces(reserved, reservation) == []


def test_objects_that_are_already_deleted_do_not_fail_the_end(reserved):
    """R32 (instance-reservation): 404 is tolerated at every step."""
    made, reservation = create(reserved, instance(1), **LATER)
    reserved.run_until(STARTS)
    provider = reserved.placement.provider_by_name("blazar_compute-1")
    reserved.compute.delete_flavor(reservation["id"])
    reserved.placement.delete_inventory(provider.uuid, class_of(reservation))
    reserved.placement.delete_class(class_of(reservation))
    reserved.placement.delete_provider(provider.uuid)
    reserved.run_until(ENDS + timedelta(seconds=1))
    assert reserved.lease(made["id"])["status"] == "TERMINATED"


def test_deleting_a_pending_lease_leaves_nothing(reserved):
    """R29, R30, R31, R32 (instance-reservation): a deletion has the steps of the end."""
    made, reservation = create(reserved, instance(2), **LATER)
    reserved.ask("DELETE", f"/v1/leases/{made['id']}", status=204)
    assert reserved.answer("GET", f"/v1/leases/{made['id']}")[0] == 404
    assert traces(reserved, reservation) == []
    create(reserved, instance(8), **LATER)


def test_deleting_an_active_lease_deletes_its_servers_after_the_answer(reserved):
    """R29 (instance-reservation)."""
    made, reservation = create(reserved, instance(2))
    reserved.settle()
    server = reserved.boot("s", reservation["id"])
    reserved.ask("DELETE", f"/v1/leases/{made['id']}", status=204)
    assert reserved.lease(made["id"])["status"] == "DELETING"
    reserved.ask("DELETE", f"/v1/leases/{made['id']}", status=204)  # a repeated request is accepted and changes nothing
    reserved.run_for(30)
    assert reserved.answer("GET", f"/v1/leases/{made['id']}")[0] == 404
    assert reserved.server(server) is None
    assert traces(reserved, reservation) == []


def test_deleting_an_ended_lease_sends_no_request_to_other_services(reserved):
    made, _ = create(reserved, instance(2), **LATER)
    reserved.run_until(ENDS + timedelta(minutes=1))
    process = reserved.new_process()
    reserved.use(process)
    reserved.ask("DELETE", f"/v1/leases/{made['id']}", status=204)
    assert process.calls == []


def test_a_failed_start_is_retried(reserved):
    """D8: one 503 of Placement puts the peer's lease into ERROR for ever."""
    made, reservation = create(reserved, instance(2), **LATER)
    away = dict.fromkeys((ADD_INVENTORY, WRITE_INVENTORIES), Unavailable("away"))
    runner = reserved.new_process(fails=away, times=3 * TRIES).runner
    reserved.clock.advance_to(STARTS)
    for _ in range(3):
        due = runner.run_once()
        shown = reserved.lease(made["id"])
        assert shown["status"] == "STARTING"
        assert due > reserved.clock.now()
        reserved.clock.advance_to(due)
    runner.run_once()
    assert reserved.lease(made["id"])["status"] == "ACTIVE"
    assert reserved.access(reservation["id"]) == ["demo"]


def test_a_start_fails_at_its_deadline_and_is_cleaned_up_at_the_end(reserved):
    made, reservation = create(reserved, instance(2), **LATER)
    runner = reserved.new_process(fails={GRANT: RemoteError("no", status=500)}).runner
    reserved.clock.advance_to(STARTS)
    while (due := runner.run_once()) <= STARTS + timedelta(hours=1):
        assert reserved.lease(made["id"])["status"] == "STARTING"
        reserved.clock.advance_to(due)
    shown = reserved.lease(made["id"])
    assert (shown["status"], shown["reservations"][0]["status"]) == ("ERROR", "error")
    with read(reserved.engine) as connection:
        (start,) = [e for e in event_store.of_leases(connection, [made["id"]])[made["id"]] if e.type is EventType.START]
    assert start.status is EventStatus.ERROR
    assert start.last_error.startswith("not finished by the deadline 2026-03-05 11:00; grant_access: ")
    while (due := runner.run_once()) <= ENDS + timedelta(minutes=1):
        reserved.clock.advance_to(due)
    assert reserved.lease(made["id"])["status"] == "TERMINATED"
    assert reserved.clock.now() <= ENDS + timedelta(minutes=1)
    assert traces(reserved, reservation) == []


def test_a_lease_that_passed_while_the_service_was_down_is_cleaned_up(reserved):
    """The plane is down from before the start of the lease until after its end."""
    made, reservation = create(reserved, instance(2), **LATER)
    reserved.clock.advance_to(ENDS + timedelta(hours=1))
    reserved.settle()
    assert reserved.lease(made["id"])["status"] == "TERMINATED"
    assert traces(reserved, reservation) == []


def test_a_lease_of_thirty_days_starts_and_ends_in_virtual_time(reserved):
    made, _ = create(reserved, instance(2), start="2026-03-02 10:00", end="2026-04-01 10:00")
    ticks = []
    tick = reserved.runner.run_once
    reserved.runner.run_once = lambda: ticks.append(reserved.clock.now()) or tick()
    reserved.run_until(datetime(2026, 4, 2, tzinfo=UTC))
    assert reserved.lease(made["id"])["status"] == "TERMINATED"
    assert len(ticks) < 10


def test_a_day_without_events_causes_no_statement_and_no_request(reserved):
    """G5: the runner sleeps until the next due time, without statements or requests."""
    create(reserved, instance(2), start="2026-03-20 10:00", end="2026-03-21 10:00")
    reserved.settle()
    asked = []
    event.listen(reserved.engine, "before_cursor_execute", lambda *words: asked.append(words[2]))
    reserved.run_until(reserved.clock.now() + timedelta(days=1))
    assert asked == []


def test_a_cleaning_time_keeps_hosts_free_after_a_lease(new_plane):
    """A16 (instance-reservation): the stored end is later than the lease's, but not in queries."""
    plane = new_plane(reservation={"cleaning_time_s": 600})
    plane.add_host()
    plane.register()
    create(plane, instance(8), **LATER)
    too_early = lease(instance(8), start="2026-03-06 10:05", end="2026-03-06 12:00")
    assert plane.answer("POST", "/v1/leases", too_early)[0] == 409
    create(plane, instance(8), start="2026-03-06 10:10", end="2026-03-06 12:00")
    (allocation,) = plane.ask("GET", "/v1/os-hosts/allocations")["allocations"]
    assert allocation["reservations"][0]["end_date"] == "2026-03-06T10:00:00.000000"


@pytest.mark.parametrize("error", [
    Unavailable("http://10.0.0.5:8774 does not answer", url="http://10.0.0.5:8774"),
    RemoteError("compute answered 500 to POST /v2.1/flavors: no", status=500, peer="compute", detail="no"),
], ids=["away", "failed"])  # fmt: skip
def test_members_see_only_the_name_of_a_service_that_failed_a_creation(reserved, error):
    reserved.cloud.ways["compute"].on("POST /v2.1/flavors", failing(error), times=99)

    def refused(*roles):
        status, document = reserved.answer("POST", "/v1/leases", lease(instance(), **LATER), user="u", roles=roles)
        assert status == 503
        return document["error_message"]

    undone = "The lease could not be created, and all changes were undone: "
    assert refused("admin") == f"{undone}{error.message}"
    said = refused("member")
    assert said.startswith(f"{undone}the compute service ")
    assert "(the log says more under req-" in said
    assert "10.0.0.5" not in said
    assert "/v2.1" not in said
