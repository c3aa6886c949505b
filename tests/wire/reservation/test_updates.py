"""Updates of leases over the API: changes of time and amount, and refusals, which leave the lease unchanged."""

from datetime import UTC, datetime, timedelta

import pytest

from moorage.core.errors import Unavailable
from moorage.db.session import read
from moorage.reservation.store import host_store
from tests.wire.reservation.plane import class_of, instance, lease
from tests.wire.reservation.processes import GRANT, TRIES, WRITE_INVENTORIES

LATER = {"start": "2026-03-05 10:00", "end": "2026-03-06 10:00"}
STARTS, ENDS = datetime(2026, 3, 5, 10, tzinfo=UTC), datetime(2026, 3, 6, 10, tzinfo=UTC)


def create(plane, *reservations, **values):
    made = plane.ask("POST", "/v1/leases", lease(*reservations, **values), status=201)["lease"]
    return made, made["reservations"][0]


def update(plane, made, status=200, **body):
    got, document = plane.answer("PUT", f"/v1/leases/{made['id']}", body)
    assert got == status, document
    return document["lease"] if status == 200 else document["error_message"]


def change(reservation, **values):
    return [{"id": reservation["id"], **values}]


def times(made):
    return {event["event_type"]: event["time"] for event in made["events"]}


def slots(plane, reservation):
    with read(plane.engine) as connection:
        rows = host_store.allocations_of(connection, [reservation["id"]])
    return [(row.host_id, row.resources["VCPU"], row.start_date, row.end_date) for row in rows]


def test_a_lease_is_renamed(reserved):
    made, _ = create(reserved, **LATER)
    assert update(reserved, made, name="other")["name"] == "other"
    assert update(reserved, made)["name"] == "other"  # an empty update is accepted, as in the peer


def test_the_dates_of_a_pending_lease_can_be_changed(reserved):
    made, reservation = create(reserved, instance(8), **LATER)
    moved = update(reserved, made, start_date="2026-03-04 10:00", end_date="2026-03-07 10:00")
    assert (moved["status"], moved["start_date"]) == ("PENDING", "2026-03-04T10:00:00.000000")
    assert times(moved) == {
        "start_lease": "2026-03-04T10:00:00.000000",
        "before_end_lease": "2026-03-07T09:00:00.000000",
        "end_lease": "2026-03-07T10:00:00.000000",
    }
    periods = {row[2:] for row in slots(reserved, reservation)}
    assert periods == {(STARTS - timedelta(days=1), ENDS + timedelta(days=1))}
    reserved.run_until(STARTS - timedelta(days=1))
    assert reserved.lease(made["id"])["status"] == "ACTIVE"


def test_an_active_lease_is_prolonged_on_its_hosts(reserved):
    made, reservation = create(reserved, instance(8))
    reserved.settle()
    longer = update(reserved, made, end_date="2026-03-08 10:00")
    assert (longer["status"], longer["end_date"]) == ("ACTIVE", "2026-03-08T10:00:00.000000")
    assert reserved.answer("POST", "/v1/leases", lease(**LATER))[0] == 409
    reserved.run_until(datetime(2026, 3, 2, 10, 1, tzinfo=UTC))
    assert reserved.inventory("compute-1", class_of(reservation)).total == 8
    reserved.run_until(datetime(2026, 3, 8, 10, 1, tzinfo=UTC))
    assert reserved.lease(made["id"])["status"] == "TERMINATED"


def test_an_active_lease_is_not_prolonged_onto_other_hosts(plane):
    """Its servers run on the first host, so it cannot use a second host that is free."""
    plane.register()
    made, _ = create(plane, instance(8))
    create(plane, instance(8), **LATER)
    plane.add_host("compute-2")
    plane.register("compute-2")
    plane.settle()
    assert "cannot be kept" in update(plane, made, 409, end_date="2026-03-05 11:00")
    shown = plane.lease(made["id"])
    assert (shown["status"], shown["end_date"]) == ("ACTIVE", "2026-03-02T10:00:00.000000")


def test_a_pending_lease_is_moved_to_another_host_if_necessary(plane):
    plane.register()
    made, reservation = create(plane, instance(8), start="2026-03-04 10:00", end="2026-03-05 10:00")
    create(plane, instance(8), **LATER)
    plane.add_host("compute-2")
    plane.register("compute-2")
    update(plane, made, end_date="2026-03-05 11:00")
    assert {row[0] for row in slots(plane, reservation)} == {2}


def test_a_shortened_lease_frees_its_capacity(reserved):
    made, _ = create(reserved, instance(8), **LATER)
    update(reserved, made, end_date="2026-03-05 12:00")
    create(reserved, instance(8), start="2026-03-05 12:00", end="2026-03-06 10:00")


def test_end_now_ends_an_active_lease(reserved):
    made, reservation = create(reserved, instance(2))
    reserved.run_for(120)
    ended = update(reserved, made, end_date="now")
    assert ended["end_date"] == "2026-03-01T09:32:00.000000"
    reserved.run_for(10)
    assert reserved.lease(made["id"])["status"] == "TERMINATED"
    assert reserved.inventory("compute-1", class_of(reservation)) is None


def test_end_now_in_the_first_minute_takes_effect_at_its_end(reserved):
    """D14: the peer ends with start == end, or refuses."""
    made, _ = create(reserved)
    reserved.settle()
    assert update(reserved, made, end_date="now")["end_date"] == "2026-03-01T09:31:00.000000"
    reserved.run_for(60)
    assert reserved.lease(made["id"])["status"] == "TERMINATED"


def test_start_now_starts_a_pending_lease(reserved):
    made, _ = create(reserved, **LATER)
    update(reserved, made, start_date="now")
    reserved.settle()
    assert reserved.lease(made["id"])["status"] == "ACTIVE"


def test_a_completed_before_end_event_is_scheduled_again_after_a_change(reserved):
    made, _ = create(reserved, **LATER)
    reserved.run_until(ENDS - timedelta(minutes=30))
    events = {event["event_type"]: event for event in reserved.lease(made["id"])["events"]}
    assert events["before_end_lease"]["status"] == "DONE"
    longer = update(reserved, made, end_date="2026-03-07 10:00")
    events = {event["event_type"]: event for event in longer["events"]}
    assert events["before_end_lease"]["status"] == "UNDONE"
    assert events["before_end_lease"]["time"] == "2026-03-07T09:00:00.000000"


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"end_date": "2020-01-01 00:00"}, 400, "End date must be later than current and start date"),
        ({"end_date": "Bogus"}, 400, "Bogus is an invalid date. Required format: %Y-%m-%d %H:%M"),
        ({"start_date": "2026-03-01 12:00"}, 400, "Cannot modify the start date of already started leases"),
        ({"before_end_date": "2026-03-09 10:00"}, 403, "Datetime is out of lease limits"),
        (
            {"reservations": [{"id": "zz", "amount": 2}]},
            400,
            "Please enter valid reservation IDs. Invalid reservation IDs are: zz",
        ),
        ({"reservations": [{"amount": 2}]}, 400, "Missing parameter reservation ID"),
    ],
)
def test_refused_updates_leave_the_lease_active(reserved, body, status, message):
    """D13: some of them put the peer's lease into ERROR."""
    made, _ = create(reserved)
    reserved.settle()
    before = reserved.lease(made["id"])
    assert update(reserved, made, status, **body) == message
    assert reserved.lease(made["id"]) == before


def test_the_amount_of_an_active_reservation_grows(reserved):
    """A15, R18 (instance-reservation): rows are added, the inventory follows, and the slots can be used."""
    made, reservation = create(reserved, instance(2))
    reserved.settle()
    grown = update(reserved, made, reservations=change(reservation, amount=5))
    assert (grown["status"], grown["reservations"][0]["amount"]) == ("ACTIVE", 5)
    assert reserved.inventory("compute-1", class_of(reservation)).total == 5
    assert len(slots(reserved, reservation)) == 5
    servers = [reserved.boot(f"s{number}", reservation["id"]) for number in range(5)]
    assert {reserved.server(server)["status"] for server in servers} == {"ACTIVE"}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"vcpus": 2}, "only accepts to update amount"),
        ({"affinity": "True"}, "only accepts to update amount"),
        ({"amount": 99}, "Not enough hosts available"),
    ],
)
def test_other_changes_of_an_active_reservation_are_refused(reserved, values, words):
    """A15 (instance-reservation), D13: 409, and the lease stays ACTIVE as it was."""
    made, reservation = create(reserved, instance(2))
    reserved.settle()
    before = reserved.lease(made["id"])
    assert words in update(reserved, made, 409, reservations=change(reservation, **values))
    assert reserved.lease(made["id"]) == before
    assert len(slots(reserved, reservation)) == 2


def test_the_amount_of_a_pending_reservation_goes_up_and_down(reserved):
    """R18 (instance-reservation): a decrease removes exactly the surplus rows."""
    made, reservation = create(reserved, instance(3), **LATER)
    with read(reserved.engine) as connection:
        first = {row.id for row in host_store.allocations_of(connection, [reservation["id"]])}
    update(reserved, made, reservations=change(reservation, amount=6))
    with read(reserved.engine) as connection:
        second = {row.id for row in host_store.allocations_of(connection, [reservation["id"]])}
    update(reserved, made, reservations=change(reservation, amount=2))
    with read(reserved.engine) as connection:
        third = {row.id for row in host_store.allocations_of(connection, [reservation["id"]])}
    assert (len(first), len(second), len(third)) == (3, 6, 2)
    assert first < second > third
    assert reserved.lease(made["id"])["status"] == "PENDING"
    create(reserved, instance(6), **LATER)


def test_the_size_of_a_pending_reservation_changes_with_its_flavor(reserved):
    made, reservation = create(reserved, instance(2), **LATER)
    resized = update(reserved, made, reservations=change(reservation, vcpus=4, memory_mb=2048))
    assert (resized["status"], resized["reservations"][0]["vcpus"]) == ("PENDING", 4)
    flavor = reserved.flavor(reservation["id"])
    assert (flavor["vcpus"], flavor["ram"], flavor["disk"]) == (4, 2048, 10)
    assert reserved.extra_specs(reservation["id"]) == {f"resources:{class_of(reservation)}": "1"}
    assert [row[:2] for row in slots(reserved, reservation)] == [(1, 4), (1, 4)]
    assert reserved.answer("POST", "/v1/leases", lease(**LATER))[0] == 409
    assert "1 fit, on 1 host" in update(reserved, made, 409, reservations=change(reservation, vcpus=5))


def test_the_affinity_of_a_pending_reservation_changes(plane):
    plane.add_host("compute-2")
    plane.register()
    plane.register("compute-2")
    made, reservation = create(plane, instance(2, affinity=True), **LATER)
    spread = update(plane, made, reservations=change(reservation, affinity="False"))
    assert spread["reservations"][0]["affinity"] is False
    assert sorted(row[0] for row in slots(plane, reservation)) == [1, 2]


def test_an_ended_lease_can_only_be_renamed(reserved):
    made, _ = create(reserved, **LATER)
    reserved.run_until(ENDS + timedelta(minutes=1))
    assert update(reserved, made, name="memory")["status"] == "TERMINATED"
    assert "only its name" in update(reserved, made, 409, end_date="2026-03-09 10:00")


def test_an_update_that_cannot_finish_continues_after_the_answer(reserved):
    made, reservation = create(reserved, instance(2))
    reserved.settle()
    reserved.use(reserved.new_process(fails={WRITE_INVENTORIES: Unavailable("away")}, times=TRIES))
    assert update(reserved, made, reservations=change(reservation, amount=4))["status"] == "UPDATING"
    assert "is UPDATING" in update(reserved, made, 409, name="x")
    reserved.run_for(10)
    assert reserved.lease(made["id"])["status"] == "ACTIVE"
    assert reserved.inventory("compute-1", class_of(reservation)).total == 4


def test_an_update_is_decided_again_if_the_lease_starts_meanwhile(reserved):
    """The runner starts the lease between decision and commit: a change for a pending lease is then refused."""
    made, reservation = create(reserved, instance(2), **LATER)
    process = reserved.new_process()
    calendar = process.service.booking.admission._calendar

    def start_meanwhile(*args, **values):
        reserved.clock.advance_to(STARTS)
        reserved.settle()
        return calendar(*args, **values)

    process.service.booking.admission._calendar = start_meanwhile
    reserved.use(process)
    message = update(reserved, made, 409, reservations=change(reservation, vcpus=2))
    assert message == "An active reservation only accepts to update amount."
    assert reserved.lease(made["id"])["status"] == "ACTIVE"


def test_several_runners_start_a_lease_once(reserved):
    """D9: the peer starts it twice."""
    create(reserved, instance(2), **LATER)
    processes = [reserved.new_process() for _ in range(3)]
    reserved.clock.advance_to(STARTS)
    for process in processes:
        process.runner.run_once()
    assert [name for process in processes for name in process.asked].count(GRANT) == 1
