"""Leases that start at the same moment share transactions and requests. Counts the statements and requests of a start
and of a new lease; no test depends on time.

The scenario `starts` of `test_disturbed` covers crashes and failing services.
"""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import event

from moorage.core.errors import RemoteError
from moorage.db.session import write
from moorage.placement.client.placement_client import Inventory
from moorage.reservation.steps.reservation_providers import SlotPublisher
from moorage.reservation.store.tables import older_reservations
from moorage.wiring import services
from tests.flow_counts import FlowTrace
from tests.wire.reservation.plane import class_of, instance, lease
from tests.wire.reservation.processes import (
    ADD_INVENTORY,
    CREATE_FLAVOR,
    ENSURE_CLASS,
    GRANT,
    READ_CHANGES,
    READ_CLASS,
    READ_INVENTORIES,
    SET_EXTRA_SPECS,
    WRITE_INVENTORIES,
)

LATER = {"start": "2026-03-05 10:00", "end": "2026-03-06 10:00"}
STARTS = datetime(2026, 3, 5, 10, tzinfo=UTC)
ENDS = STARTS + timedelta(days=1)

#: Cost of a round of the runner that starts any number of leases. Three transactions write (claim with journal,
#: inventories done, finish); the others read which events are due, and when the next one is.
TRANSACTIONS, STATEMENTS = 6, 26

#: Cost of a round that completes `before_end` events without actions: no journal, no requests and no states.
PASSED_BY = 4, 15

#: Cost of the end of a lease with slots on two hosts.
END = 10, 50

SPREAD = instance(2, vcpus=1, memory_mb=64, disk_gb=1, affinity="False")
WHOLE_HOST = {
    "resource_type": "physical:host",
    "min": 1,
    "max": 1,
    "hypervisor_properties": "",
    "resource_properties": "",
}


@pytest.fixture
def hosts(new_plane):
    """Three hosts with capacity for 60 small servers each."""
    plane = new_plane(_hosts)
    plane.stop_runner()
    return plane


def _hosts(plane):
    plane.add_host()
    for name in ("compute-2", "compute-3", "compute-4"):
        plane.add_host(name, vcpus=60)
        plane.register(name)


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


class Work:
    """Counts the transactions, statements and requests of a reservation service after its construction."""

    def __init__(self, plane):
        self.counted = Counter()
        self.process = plane.new_process(before=lambda call: self.counted.update([call.name]))
        engine = self.process.plane.engine("reservation")
        event.listen(engine, "before_cursor_execute", lambda *_: self.counted.update(["statement"]))
        event.listen(engine, "commit", lambda *_: self.counted.update(["transaction"]))

    def of(self, doing):
        self.counted.clear()
        doing()
        return dict(self.counted)


def started(plane, count, reservation=SPREAD):
    """The cost of starting this many leases at the same moment, with a runner that has already run once."""
    create(plane, 1, reservation)
    work = Work(plane)
    runner = work.process.runner
    plane.clock.advance_to(STARTS)
    runner.run_once()
    plane.ask("GET", "/v1/leases")
    made = create_now(plane, count, reservation)
    taken = work.of(runner.run_once)
    assert set(statuses(plane, made)) == {"ACTIVE"}
    return taken


def create_now(plane, count, reservation):
    body = lease(reservation, start="now", end=LATER["end"])
    return [plane.ask("POST", "/v1/leases", body, status=201)["lease"] for _ in range(count)]


def test_a_start_needs_one_request_per_host_and_one_for_the_access(hosts):
    """One lease starts."""
    taken = started(hosts, 1)
    assert {name: taken[name] for name in taken if name not in ("statement", "transaction")} == {
        ADD_INVENTORY: 2,
        GRANT: 1,
    }
    assert (taken["transaction"], taken["statement"]) == (TRANSACTIONS, STATEMENTS)


def test_many_starts_need_as_many_statements_as_one_and_one_write_per_host(hosts):
    """Twenty leases: 40 inventories on 2 hosts are one read and one write each. Only the access is per lease."""
    taken = started(hosts, 20)
    assert {name: taken[name] for name in taken if name not in ("statement", "transaction")} == {
        READ_INVENTORIES: 2,
        WRITE_INVENTORIES: 2,
        GRANT: 20,
    }
    assert (taken["transaction"], taken["statement"]) == (TRANSACTIONS, STATEMENTS)


def test_leases_that_start_together_get_their_inventories(hosts):
    made = create(hosts, 12)
    hosts.clock.advance_to(STARTS)
    hosts.runner.run_once()
    check_active(hosts, made)
    server = hosts.server(hosts.boot("s", made[7]["reservations"][0]["id"]))
    assert server["status"] == "ACTIVE"


def test_all_inventories_are_written_before_the_first_access_is_granted(hosts):
    """R24 (instance-reservation), for all leases that start together."""
    create(hosts, 4)
    process = hosts.new_process()
    hosts.clock.advance_to(STARTS)
    process.runner.run_once()
    effects = [name for name in process.asked if name in (ADD_INVENTORY, WRITE_INVENTORIES, GRANT)]
    assert effects[-4:] == [GRANT] * 4
    assert set(effects[:-4]) == {WRITE_INVENTORIES}


def test_a_lease_that_fails_does_not_stop_the_others(hosts):
    """Its resource class was deleted, so one write for the host fails, and each lease continues alone."""
    made = create(hosts, 5)
    victim = made[2]["reservations"][0]
    hosts.placement.delete_class(class_of(victim))
    runner = hosts.runner
    hosts.clock.advance_to(STARTS)
    for _ in range(3):
        due = runner.run_once()
        hosts.clock.advance_to(due)
    others = made[:2] + made[3:]
    check_active(hosts, others)
    assert statuses(hosts, [made[2]]) == ["STARTING"]
    hosts.placement.ensure_class(class_of(victim))
    hosts.clock.sleep(60)  # the longest pause before a retry
    runner.run_once()
    check_active(hosts, made)


def test_a_failed_grant_affects_only_its_lease(hosts):
    made = create(hosts, 3)
    runner = hosts.new_process(fails={GRANT: RemoteError("no", status=500)}, times=1).runner
    hosts.clock.advance_to(STARTS)
    due = runner.run_once()
    assert sorted(statuses(hosts, made)) == ["ACTIVE", "ACTIVE", "STARTING"]
    hosts.clock.advance_to(due)
    runner.run_once()
    check_active(hosts, made)


def pauses(plane, runner, rounds):
    """The seconds from each round of the runner, in which a step fails or waits, to the next one."""
    found = []
    for _ in range(rounds):
        due = runner.run_once()
        found.append((due - plane.clock.now()).total_seconds())
        plane.clock.advance_to(due)
    return found


def test_a_failing_step_is_repeated_after_2_to_60_seconds(hosts):
    create(hosts, 1)
    runner = hosts.new_process(fails={GRANT: RemoteError("no", status=400)}).runner
    hosts.clock.advance_to(STARTS)
    assert pauses(hosts, runner, 7) == [2, 4, 8, 16, 32, 60, 60]


def test_a_step_that_waits_is_repeated_after_50_milliseconds_to_8_seconds(hosts):
    """The end of the lease waits for a server whose host does nothing."""
    (made,) = create(hosts, 1)
    hosts.clock.advance_to(STARTS)
    hosts.runner.run_once()
    hosts.boot("s", made["reservations"][0]["id"])
    hosts.stop_hosts()
    hosts.clock.advance_to(ENDS - timedelta(minutes=60))
    hosts.runner.run_once()
    hosts.clock.advance_to(ENDS)
    assert pauses(hosts, hosts.runner, 10) == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 8, 8]


def test_a_lease_deleted_during_the_start_is_skipped_and_the_others_start(hosts):
    """The deletion waits until the round notices that the claim is lost; nothing of the lease is left behind."""
    made = create(hosts, 4)
    gone, others = made[1], [made[0], *made[2:]]

    def delete(call):
        if call.name == WRITE_INVENTORIES and gone["id"] in [
            each["id"] for each in hosts.ask("GET", "/v1/leases")["leases"]
        ]:
            hosts.ask("DELETE", f"/v1/leases/{gone['id']}", status=204)

    process = hosts.new_process(after=delete)
    hosts.clock.advance_to(STARTS)
    process.runner.run_once()
    granted = [call for call in process.calls if call.name == GRANT]
    assert not any(call.is_about(gone["reservations"][0]["id"]) for call in granted)
    assert len(granted) == len(others)
    check_active(hosts, others)
    assert hosts.answer("GET", f"/v1/leases/{gone['id']}")[0] == 404
    assert not hosts.has_class(class_of(gone["reservations"][0]))


def test_a_slow_round_keeps_its_claims_and_does_everything_once(hosts):
    """Each request takes 10 s, so claims would expire during the round. Another runner runs after each request."""
    made = create(hosts, 6)
    other = hosts.new_process()

    def wait(_call):
        hosts.clock.sleep(10)
        other.runner.run_once()

    hosts.clock.advance_to(STARTS)
    slow = hosts.new_process(after=wait)
    slow.runner.run_once()
    check_active(hosts, made)
    assert other.calls == []
    assert slow.asked.count(GRANT) == 6


def test_leases_of_whole_hosts_start_together(hosts):
    made = create(hosts, 3, WHOLE_HOST)
    hosts.clock.advance_to(STARTS)
    taken = Work(hosts)
    found = taken.of(taken.process.runner.run_once)
    assert statuses(hosts, made) == ["ACTIVE"] * 3
    assert found["transaction"] == TRANSACTIONS - 1, "there are no inventories to record"


@pytest.mark.parametrize("count", [1, 20])
def test_before_end_events_without_actions_are_one_transaction(hosts, count):
    made = create(hosts, count)
    hosts.clock.advance_to(STARTS)
    hosts.runner.run_once()
    work = Work(hosts)
    runner = work.process.runner
    runner.run_once()
    hosts.clock.advance_to(ENDS - timedelta(minutes=60))
    assert work.of(runner.run_once) == {"transaction": PASSED_BY[0], "statement": PASSED_BY[1]}
    for each in made:
        document = hosts.lease(each["id"])
        assert document["status"] == "ACTIVE"
        assert {event["event_type"]: event["status"] for event in document["events"]} == {
            "start_lease": "DONE",
            "before_end_lease": "DONE",
            "end_lease": "UNDONE",
        }


def test_creating_a_lease_needs_two_writing_transactions(hosts):
    """One decides the lease and writes its journal, one records that its steps are done; two more only read."""
    work = Work(hosts)
    hosts.use(work.process)
    create(hosts, 1)
    assert work.of(lambda: create(hosts, 1)) == {
        "transaction": 4,
        "statement": 30,  # one locks the row of the user, whose limits are checked beside those of the project
        READ_CHANGES: 1,  # admission asks whether Placement still has the capacity
        ENSURE_CLASS: 1,
        CREATE_FLAVOR: 1,
        SET_EXTRA_SPECS: 1,
    }


def test_a_recreated_reservation_provider_is_found(hosts):
    """Its old uuid was cached."""
    create(hosts, 1)
    hosts.clock.advance_to(STARTS)
    runner = hosts.runner
    runner.run_once()
    for number in (2, 3, 4):
        if provider := hosts.placement.provider_by_name(f"blazar_compute-{number}"):
            hosts.placement.delete_provider(provider.uuid)
    made = create_now(hosts, 1, SPREAD)
    runner.run_once()
    check_active(hosts, made)


def test_an_inventory_whose_answer_was_lost_counts_as_written(hosts):
    """R22 (instance-reservation): a new inventory is added without a read; if it exists already, the step is done."""
    made = create(hosts, 1)
    (reservation,) = made[0]["reservations"]
    hosts.clock.advance_to(STARTS)
    failing = hosts.new_process(fails={GRANT: RemoteError("no", status=500)}, times=1)
    due = failing.runner.run_once()  # both inventories exist at this point
    hosts.placement.ensure_class("CUSTOM_OTHER")
    provider = hosts.placement.provider_by_name("blazar_compute-2")
    hosts.placement.put_inventory(provider.uuid, "CUSTOM_OTHER", Inventory(1))
    SlotPublisher(hosts.placement).publish("compute-2", {class_of(reservation): 1})
    assert hosts.inventory("compute-2", "CUSTOM_OTHER").total == 1
    hosts.clock.advance_to(due)
    hosts.runner.run_once()
    check_active(hosts, made)


def test_concurrent_requests_have_the_same_result(hosts, monkeypatch):
    """Eight requests run at once, as in production. A failure affects only its own lease."""
    monkeypatch.setattr(services, "requests_at_once", lambda _clock: 8)
    made = create(hosts, 20)
    refused = {each["reservations"][0]["id"] for each in made[5:8]}

    def refuse(call):
        if call.name == GRANT and call.is_about(*refused):
            refused.remove(call.request.path.split("/")[3])
            raise RemoteError("no", status=500)

    runner = hosts.new_process(before=refuse).runner
    hosts.clock.advance_to(STARTS)
    due = runner.run_once()
    assert [number for number, status in enumerate(statuses(hosts, made)) if status != "ACTIVE"] == [5, 6, 7]
    hosts.clock.advance_to(due)
    runner.run_once()
    check_active(hosts, made)


def test_a_lease_that_cannot_be_batched_starts_in_the_same_round(hosts):
    """A lease of an older system whose generation is not known yet: Placement is asked first."""
    made = create(hosts, 4)
    older = {"reservation_id": made[1]["reservations"][0]["id"], "generation": None}
    with write(hosts.engine) as connection:
        connection.execute(older_reservations.insert(), older)
    hosts.clock.advance_to(STARTS)
    process = hosts.new_process()
    process.runner.run_once()
    assert READ_CLASS in process.asked
    check_active(hosts, made)


def test_events_claimed_by_another_runner_are_skipped(hosts):
    """A runner that read due events before another runner claimed them sends no request."""
    made = create(hosts, 5)
    hosts.clock.advance_to(STARTS)
    process = hosts.new_process()
    second = process.runner
    seen = second._runnable_events(set())
    second._runnable_events = lambda lost: [each for each in seen if each.event_id not in lost]
    hosts.runner.run_once()
    second.run_once()
    check_active(hosts, made)
    assert process.calls == []


def test_a_host_that_refuses_its_inventories_delays_only_the_leases_on_it(hosts):
    def on(host):
        return instance(
            1, vcpus=1, memory_mb=64, disk_gb=1, resource_properties=f'["==", "$hypervisor_hostname", "{host}"]'
        )

    there, elsewhere = create(hosts, 3, on("compute-3")), create(hosts, 3, on("compute-4"))
    refusing = hosts.placement.provider_by_name("blazar_compute-3").uuid

    def refuse(call):
        if call.name == WRITE_INVENTORIES and call.is_about(refusing):
            raise RemoteError("no", status=503)

    runner = hosts.new_process(before=refuse).runner
    hosts.clock.advance_to(STARTS)
    due = runner.run_once()
    assert statuses(hosts, there + elsewhere) == ["STARTING"] * 3 + ["ACTIVE"] * 3
    hosts.clock.advance_to(due)
    hosts.runner.run_once()
    assert statuses(hosts, there) == ["ACTIVE"] * 3


def test_an_end_takes_a_transaction_for_each_slow_step(hosts):
    """One claims the event, five record the steps before the last one, one ends the event, three read due events."""
    made = create(hosts, 1)
    hosts.clock.advance_to(STARTS)
    hosts.runner.run_once()
    work = Work(hosts)
    runner = work.process.runner
    hosts.clock.advance_to(ENDS - timedelta(minutes=60))
    runner.run_once()
    hosts.clock.advance_to(ENDS)
    taken = work.of(runner.run_once)
    assert statuses(hosts, made) == ["TERMINATED"]
    assert (taken["transaction"], taken["statement"]) == END


#: Each resource type is an entry of a table; the reader of the flow need not follow them.
TABLES = "reservation/capacity/resource_types/"


def test_a_start_is_40_functions_in_12_modules_without_a_call_back_up(hosts):
    """Issue 17."""
    create(hosts, 1)
    hosts.clock.advance_to(STARTS)
    hosts.runner.run_once()
    create_now(hosts, 3, SPREAD)
    with FlowTrace("reservation/", start="EventExecutor.run_events") as trace:
        hosts.runner.run_once()
    functions = {(file, name) for file, name in trace.functions if not file.startswith(TABLES)}
    assert ("reservation/steps/instance_steps.py", "InstanceSteps.put_inventories") in functions, trace
    assert len(functions) <= 40, str(trace)
    assert len({file for file, _ in functions}) <= 12, str(trace)
    assert trace.calls_up == set(), str(trace)
