"""A process of the reservation service dies at every call it makes; the next one brings the work to its end (D7)."""

from datetime import UTC, datetime, timedelta

import pytest

from moorage.db.transactions import read
from moorage.reservation import event_store
from moorage.reservation.model import EventType
from tests.wire.reservation.plane import Plane, class_of, instance, lease
from tests.wire.reservation.wrapped import Recorded

STARTS, ENDS = datetime(2026, 3, 5, 10, tzinfo=UTC), datetime(2026, 3, 6, 10, tzinfo=UTC)
LATER = {"start": "2026-03-05 10:00", "end": "2026-03-06 10:00"}

#: More calls than any of these events makes.
ENOUGH = 60


class Crash(BaseException):
    """The process is gone: nothing of ours catches it."""


def dying(plane, number, moment, calls):
    """A service that dies at its call number `number` (from 0), before or after the call."""

    def die(name):
        if len(calls) == number + 1:
            raise Crash(name)

    hooks = {
        "before": {"before": lambda client, name, arguments: die(name)},
        "after": {"after": die},
    }[moment]
    return plane.new_service(*Recorded.both(plane, calls, **hooks), worker="doomed")


def new_plane(folder):
    plane = Plane(folder)
    plane.add_host()
    plane.add_host("compute-2")
    plane.register()
    plane.register("compute-2")
    return plane


def at_every_call(tmp_path, moment, prepare, doomed):
    """Yield a plane per call at which `doomed(service)` can die, just after it died there."""
    for number in range(ENOUGH):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        plane = new_plane(folder)
        made = prepare(plane)
        calls = []
        try:
            doomed(dying(plane, number, moment, calls), made)
        except Crash:
            yield plane, made
        else:
            assert number > 3, "it never came to a call at all"
            return
    raise AssertionError("it makes more calls than this test counts on")


def create(plane):
    return plane.ask("POST", "/v1/leases", lease(instance(12), **LATER), status=201)["lease"]


def finish(plane):
    """Another process takes over: the dead one's claim runs out first."""
    plane.use(plane.new_service(worker="next"))
    plane.run_for(10)
    plane.run_until(plane.clock.now() + timedelta(minutes=3))
    plane.run_for(20)


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


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_start_survives_a_crash_at_every_call(tmp_path, moment):
    """R32 (instance-reservation), D7: the peer's lease stays STARTING, and cannot even be deleted."""

    def doomed(service, made):
        service.runner().tick()

    def prepare(plane):
        made = create(plane)
        plane.clock.advance_to(STARTS)
        return made

    for plane, made in at_every_call(tmp_path, moment, prepare, doomed):
        assert plane.lease(made["id"])["status"] == "STARTING"
        finish(plane)
        check_active(plane, made)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_end_survives_a_crash_at_every_call(tmp_path, moment):
    """R32 (instance-reservation), D7: with a server on it."""

    def doomed(service, made):
        service.runner().tick()  # asks for the server's deletion, which takes its time
        planes[-1].settle()
        planes[-1].clock.advance_to(ENDS + timedelta(seconds=20))
        service.runner().tick()

    planes = []

    def prepare(plane):
        made = create(plane)
        planes.append(plane)
        plane.run_until(STARTS)
        plane.boot("s", made["reservations"][0]["id"])
        plane.clock.advance_to(ENDS)
        plane.stop_runner()
        return made

    for plane, made in at_every_call(tmp_path, moment, prepare, doomed):
        assert plane.lease(made["id"])["status"] == "TERMINATING"
        runner = plane.use(plane.new_service(worker="next"))
        for _ in range(40):
            plane.settle()
            plane.clock.advance_to(runner.tick() or plane.clock.now())
        assert plane.lease(made["id"])["status"] == "TERMINATED"
        check_nothing_left(plane, made["reservations"][0])


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_creation_survives_a_crash_at_every_call(tmp_path, moment):
    """R12, A7 (instance-reservation): the next process finishes what was admitted; nobody is left half created."""

    def doomed(service, made):
        from moorage.core.caller import Caller
        from moorage.reservation.schemas.lease import decode_create

        caller = Caller("user", "demo", frozenset({"member"}))
        service.leases.create(caller, decode_create(lease(instance(12), **LATER)))

    for number, moment_ in ((0, moment), (1, moment), (2, moment)):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        plane = new_plane(folder)
        with pytest.raises(Crash):
            doomed(dying(plane, number, moment_, []), None)
        (made,) = plane.ask("GET", "/v1/leases")["leases"]
        assert made["status"] == "CREATING"
        finish(plane)
        assert plane.lease(made["id"])["status"] == "PENDING"
        plane.run_until(STARTS)
        check_active(plane, made)


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_deletion_survives_a_crash_at_every_call(tmp_path, moment):
    """R32 (instance-reservation)."""

    def doomed(service, made):
        from moorage.core.caller import Caller

        service.leases.delete(Caller("admin", "demo", frozenset({"admin"})), made["id"])

    for plane, made in at_every_call(tmp_path, moment, create, doomed):
        assert plane.lease(made["id"])["status"] == "DELETING"
        finish(plane)
        assert plane.ask("GET", "/v1/leases")["leases"] == []
        check_nothing_left(plane, made["reservations"][0])


def test_a_lease_whose_start_was_interrupted_can_be_deleted(tmp_path):
    """D7: DELETE of a lease that is stuck in STARTING is the peer's 500. The claim of the dead is waited for."""
    plane = new_plane(tmp_path)
    made = create(plane)
    plane.clock.advance_to(STARTS)
    with pytest.raises(Crash):
        dying(plane, 3, "after", []).runner().tick()
    plane.ask("DELETE", f"/v1/leases/{made['id']}", status=204)
    assert plane.lease(made["id"])["status"] == "DELETING"
    with read(plane.engine) as connection:
        due = event_store.unfinished(connection, plane.clock.now())
    (deletion,) = [event for event in due if event.type is EventType.DELETE]
    assert plane.service.operations.claim(deletion) is None
    finish(plane)
    assert plane.ask("GET", "/v1/leases")["leases"] == []
    check_nothing_left(plane, made["reservations"][0])


def test_a_worker_that_was_slow_writes_nothing_when_it_comes_back(tmp_path):
    """D9: it hangs in a call until its claim is over; another one does the work; the first one finds itself fenced."""
    plane = new_plane(tmp_path)
    made = create(plane)
    plane.clock.advance_to(STARTS)
    other = plane.new_service(worker="other").runner()
    hung = []

    def hang(name):
        if name == "add_inventory":
            hung.append(name)
            plane.clock.sleep(300)
            other.tick()
            check_active(plane, made)

    slow = plane.new_service(*Recorded.both(plane, [], after=hang), worker="slow")
    slow.runner().tick()
    assert hung == ["add_inventory"], "it did nothing more after that"
    check_active(plane, made)
    events = {event["event_type"]: event["status"] for event in plane.lease(made["id"])["events"]}
    assert events["start_lease"] == "DONE"
