"""A process of the reservation service dies at each of its requests; another one finishes the work (D7)."""

from datetime import UTC, datetime, timedelta

import pytest

from moorage.core.caller import Caller
from moorage.db.session import read
from moorage.reservation.api.schemas.lease import decode_create
from moorage.reservation.model.leases import EventType
from moorage.reservation.store import event_store
from tests.plane import Killed
from tests.wire.reservation.plane import class_of, instance, lease
from tests.wire.reservation.processes import ADD_INVENTORY

STARTS, ENDS = datetime(2026, 3, 5, 10, tzinfo=UTC), datetime(2026, 3, 6, 10, tzinfo=UTC)
LATER = {"start": "2026-03-05 10:00", "end": "2026-03-06 10:00"}

MEMBER = Caller("user", "demo", frozenset({"member"}))

#: An upper limit: each of these operations makes fewer requests.
ENOUGH = 60


@pytest.fixture
def two(plane):
    """Two registered hosts."""
    plane.add_host("compute-2")
    plane.register()
    plane.register("compute-2")
    return plane


def dying(plane, number, moment):
    """A process that dies at its request number `number` (from 0), before or after the answer."""

    def die(call):
        if len(process.calls) == number + 1:
            raise Killed(call.name)

    process = plane.new_process(**{moment: die})
    return process


def at_every_request(plane, directory, moment, doomed, *, least=4):
    """Yields a copy of the plane for each request at which `doomed(process)` can die, just after its death."""
    for number, copy in zip(range(ENOUGH), plane.copies(directory), strict=False):
        try:
            doomed(copy, dying(copy, number, moment))
        except Killed:
            yield copy
        else:
            assert number >= least, "it never came to a request at all"
            return
    raise AssertionError("it makes more requests than this test counts on")


def create(plane):
    return plane.ask("POST", "/v1/leases", lease(instance(12), **LATER), status=201)["lease"]


def finish(plane):
    """Another process takes over after the dead one's claim has ended."""
    plane.run_for(200)


def check_active(plane, made):
    reservation = made["reservations"][0]
    shown = plane.lease(made["id"])
    assert (shown["status"], shown["reservations"][0]["status"]) == ("ACTIVE", "active")
    totals = [plane.inventory(name, class_of(reservation)).total for name in ("compute-1", "compute-2")]
    assert sorted(totals) == [4, 8]
    assert plane.access(reservation["id"]) == ["demo"]


def check_nothing_left(plane, reservation):
    assert not plane.has_class(class_of(reservation))
    assert plane.flavor(reservation["id"]) is None
    assert [plane.inventory(name, class_of(reservation)) for name in ("compute-1", "compute-2")] == [None, None]


BEFORE_AND_AFTER = pytest.mark.parametrize("moment", ["before", "after"])


@pytest.mark.slow
@BEFORE_AND_AFTER
def test_a_start_survives_a_crash_at_every_request(two, tmp_path, moment):
    """R32 (instance-reservation), D7: the peer's lease stays STARTING, and cannot even be deleted."""
    made = create(two)
    two.clock.advance_to(STARTS)

    def start(_plane, process):
        process.runner.run_once()

    for plane in at_every_request(two, tmp_path / "copies", moment, start):
        assert plane.lease(made["id"])["status"] == "STARTING"
        finish(plane)
        check_active(plane, made)


@pytest.mark.slow
@BEFORE_AND_AFTER
def test_an_end_survives_a_crash_at_every_request(two, tmp_path, moment):
    """R32 (instance-reservation), D7: with a server on it."""
    made = create(two)
    two.run_until(STARTS)
    two.boot("s", made["reservations"][0]["id"])
    two.clock.advance_to(ENDS)
    two.stop_runner()

    def end(plane, process):
        process.runner.run_once()  # requests the deletion of the server, which continues in the background
        plane.settle()
        plane.clock.advance_to(ENDS + timedelta(seconds=20))
        process.runner.run_once()

    for plane in at_every_request(two, tmp_path / "copies", moment, end):
        assert plane.lease(made["id"])["status"] == "TERMINATING"
        plane.start_runner()
        finish(plane)
        assert plane.lease(made["id"])["status"] == "TERMINATED"
        check_nothing_left(plane, made["reservations"][0])


@BEFORE_AND_AFTER
def test_a_creation_survives_a_crash_at_every_request(two, tmp_path, moment):
    """R12, A7 (instance-reservation): the next process finishes the admitted lease; none is left half created."""

    def make(_plane, process):
        process.leases.create_lease(MEMBER, decode_create(lease(instance(12), **LATER)))

    admitted = 0
    for plane in at_every_request(two, tmp_path / "copies", moment, make, least=4):
        found = plane.ask("GET", "/v1/leases")["leases"]
        if not found:  # it died while it asked Placement for the capacity; later requests come after the decision
            assert admitted == 0
            continue
        (made,) = found
        admitted += 1
        assert made["status"] == "CREATING"
        finish(plane)
        assert plane.lease(made["id"])["status"] == "PENDING"
        plane.run_until(STARTS)
        check_active(plane, made)
    assert admitted >= 3


@pytest.mark.slow
@BEFORE_AND_AFTER
def test_a_deletion_survives_a_crash_at_every_request(two, tmp_path, moment):
    """R32 (instance-reservation)."""
    made = create(two)

    def delete(_plane, process):
        process.leases.delete_lease(MEMBER, made["id"])

    for plane in at_every_request(two, tmp_path / "copies", moment, delete):
        assert plane.lease(made["id"])["status"] == "DELETING"
        finish(plane)
        assert plane.ask("GET", "/v1/leases")["leases"] == []
        check_nothing_left(plane, made["reservations"][0])


def look(clock, watches, seconds):
    """Each process looks at the others once a second."""
    for _ in range(seconds):
        for watch in watches:
            watch.run_once()
        clock.sleep(1)


def test_the_claims_of_a_dead_process_are_taken_over_within_5_seconds(two):
    """Issue 18, point 11: the claims are free as soon as its heartbeats are missing, not after their 60 s."""
    made = [two.ask("POST", "/v1/leases", lease(instance(1), **LATER), status=201)["lease"] for _ in range(5)]
    two.stop_runner()
    process = dying(two, 3, "after")
    watches = [process.worker_watch(), two.process.worker_watch()]
    look(two.clock, watches, 3)
    two.clock.advance_to(STARTS)
    with pytest.raises(Killed):
        process.runner.run_once()
    assert {two.lease(each["id"])["status"] for each in made} == {"STARTING"}
    look(two.clock, watches[1:], 1)
    two.runner.run_once()
    assert {two.lease(each["id"])["status"] for each in made} == {"STARTING"}, "the process may be slow"
    look(two.clock, watches[1:], 4)
    assert two.clock.now() == STARTS + timedelta(seconds=5)
    two.runner.run_once()
    assert {two.lease(each["id"])["status"] for each in made} == {"ACTIVE"}


def test_a_process_that_was_taken_for_dead_writes_nothing(two):
    """It was paused for longer than its heartbeats may be missing, and continues while another does its work."""
    made = create(two)
    two.stop_runner()
    two.clock.advance_to(STARTS)
    paused = []

    def pause(call):
        if call.name == ADD_INVENTORY and not paused:
            paused.append(call.name)
            look(two.clock, [other], 5)
            two.runner.run_once()
            check_active(two, made)

    process = two.new_process(after=pause)
    process.worker_watch()
    other = two.process.worker_watch()
    process.runner.run_once()
    writes = [(call.name, call.status) for call in process.calls if call.request.method != "GET"]
    assert writes == [(ADD_INVENTORY, 201), (ADD_INVENTORY, 409)], "it loses its claim before it gives access"
    check_active(two, made)
    with read(two.engine) as connection:
        events = event_store.of_leases(connection, [made["id"]])[made["id"]]
    (event,) = [each for each in events if each.type is EventType.START]
    assert (event.attempt, event.epoch, event.status) == (2, 2, "DONE")


def test_a_process_that_sends_heartbeats_keeps_its_claims_during_a_slow_request(two):
    made = create(two)
    two.stop_runner()
    two.clock.advance_to(STARTS)

    def wait(call):
        if call.name == ADD_INVENTORY:
            look(two.clock, watches, 20)
            two.runner.run_once()

    process = two.new_process(after=wait)
    watches = [process.worker_watch(), two.process.worker_watch()]
    process.runner.run_once()
    check_active(two, made)
    assert [call.status for call in process.calls if call.name == ADD_INVENTORY] == [201, 201]


def test_a_lease_whose_start_was_interrupted_can_be_deleted(two):
    """D7: in the peer, DELETE of a lease that is stuck in STARTING is 500. The deletion waits for the dead worker's
    claim.
    """
    made = create(two)
    two.clock.advance_to(STARTS)
    with pytest.raises(Killed):
        dying(two, 3, "after").runner.run_once()
    two.ask("DELETE", f"/v1/leases/{made['id']}", status=204)
    assert two.lease(made["id"])["status"] == "DELETING"
    with read(two.engine) as connection:
        due = event_store.unfinished(connection, two.clock.now())
    (deletion,) = [event for event in due if event.type is EventType.DELETE]
    assert two.process.service.executor.run_events([deletion]) == {deletion.event_id}, "the dead worker's claim lasts"
    finish(two)
    assert two.ask("GET", "/v1/leases")["leases"] == []
    check_nothing_left(two, made["reservations"][0])


def test_a_worker_whose_claim_expired_writes_nothing(two):
    """D9: it waits for an answer until its claim expires; another worker does the work; the first one is fenced."""
    made = create(two)
    two.clock.advance_to(STARTS)
    hung = []

    def hang(call):
        if call.name == ADD_INVENTORY and not hung:
            hung.append(call.name)
            two.clock.sleep(300)
            two.runner.run_once()
            check_active(two, made)

    slow = two.new_process(after=hang)
    slow.runner.run_once()
    writes = [(call.name, call.status) for call in slow.calls if call.request.method != "GET"]
    assert writes == [(ADD_INVENTORY, 201), (ADD_INVENTORY, 409)], "the second was there already"
    check_active(two, made)
    events = {event["event_type"]: event["status"] for event in two.lease(made["id"])["events"]}
    assert events["start_lease"] == "DONE"
