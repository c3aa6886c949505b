"""The reservation stores: their statements run and give the same rows on all three databases."""

import random
from dataclasses import replace
from datetime import timedelta

import pytest

from moorage.core.errors import Conflict
from moorage.db.session import read, write
from moorage.reservation.model.event_order import schedule_events
from moorage.reservation.model.leases import Allocation, Event, EventStatus, EventType, LeaseStatus, ReservationStatus
from moorage.reservation.model.reservation_requests import InstanceRequest, Size
from moorage.reservation.model.steps import DeleteClass, EnsureClass
from moorage.reservation.store import event_store, host_store, lease_store, property_store
from moorage.reservation.store.event_store import Release, StepState
from tests.migrated import migrated_engine
from tests.store.conftest import on_every_database
from tests.store.reservation.worlds import END, NOW, START, add_host, new_lease


@pytest.fixture
def database(kind):
    with migrated_engine("reservation", kind) as engine:
        yield engine


def slots(ids, lease, host_id, count):
    request = lease.reservations[0].request
    return [
        Allocation(
            ids.uuid(), host_id, lease.reservations[0].id, lease.start_date, lease.end_date, request.size.resources()
        )
        for _ in range(count)
    ]


@on_every_database
@pytest.mark.parametrize("affinity", [None, True, False])
def test_a_stored_lease_reads_back_the_same(database, ids, affinity):
    """R14, R35 (instance-reservation): affinity has three values in the database."""
    lease = new_lease(ids, InstanceRequest(Size(1, 2, 3), 4, affinity, '["=", "$rack", "9"]'))
    with write(database) as connection:
        lease_store.insert_lease(connection, lease)
    with read(database) as connection:
        assert lease_store.find_lease(connection, lease.id) == lease
        assert lease_store.all_leases(connection) == [lease]
        assert lease_store.all_leases(connection, "somebody else") == []
        assert lease_store.find_lease(connection, "nobody") is None


@on_every_database
def test_the_slots_of_reservations_are_counted_by_host_in_the_order_of_hosts(database, ids):
    hosts = [add_host(database, name) for name in ("compute-2", "compute-1", "compute-3")]
    one, other, without = (new_lease(ids) for _ in range(3))
    with write(database) as connection:
        for lease in (one, other, without):
            lease_store.insert_lease(connection, lease)
        for host_id, count in zip(hosts, (2, 1), strict=False):
            host_store.insert_allocations(connection, slots(ids, one, host_id, count), NOW)
        host_store.insert_allocations(connection, slots(ids, other, hosts[0], 1), NOW)
    wanted = [lease.reservations[0].id for lease in (one, without)]
    with read(database) as connection:
        found, services = host_store.slots_of(connection, wanted)
        assert host_store.slots_of(connection, []) == ({}, {})
    assert found == {wanted[0]: {"compute-2": 2, "compute-1": 1}, wanted[1]: {}}
    assert list(found[wanted[0]]) == ["compute-2", "compute-1"]
    assert services == {"compute-2": "compute-2", "compute-1": "compute-1"}


@on_every_database
def test_a_lease_changes_its_status_only_if_no_other_transaction_has_changed_it(database, ids):
    lease = new_lease(ids)
    with write(database) as connection:
        lease_store.insert_lease(connection, lease)
        lease_store.move(connection, [lease.id], LeaseStatus.PENDING, LeaseStatus.STARTING, NOW)
    with pytest.raises(Conflict, match="changed by another"), write(database) as connection:
        lease_store.move(connection, [lease.id], LeaseStatus.PENDING, LeaseStatus.UPDATING, NOW)
    with pytest.raises(Conflict, match="cannot go"), write(database) as connection:
        lease_store.move(connection, [lease.id], LeaseStatus.STARTING, LeaseStatus.PENDING, NOW)


@on_every_database
def test_deleting_a_lease_deletes_its_allocations_events_and_steps(database, ids):
    host_id = add_host(database)
    lease = new_lease(ids)
    with write(database) as connection:
        lease_store.insert_lease(connection, lease)
        host_store.insert_allocations(connection, slots(ids, lease, host_id, 2), NOW)
        event_store.insert_steps(connection, {lease.events[0].id: event_store.new_rows([DeleteClass("r")])}, NOW)
    with write(database) as connection:
        host_store.delete_allocations_of(connection, [each.id for each in lease.reservations])
        lease_store.delete_lease(connection, lease.id)
    with read(database) as connection:
        assert lease_store.all_leases(connection) == []
        assert host_store.leased_slots(connection) == {}
        assert event_store.unfinished(connection, END) == []


@on_every_database
def test_several_slots_of_a_reservation_on_one_host_all_count(database, ids):
    """R7 (instance-reservation): one row per slot; D1: each of them counts."""
    host_id = add_host(database)
    lease = new_lease(ids)
    with write(database) as connection:
        lease_store.insert_lease(connection, lease)
        host_store.insert_allocations(connection, slots(ids, lease, host_id, 3), NOW)
    with read(database) as connection:
        assert host_store.count_allocations(connection, host_id) == 3
        used = host_store.usages_between(connection, [host_id], START, END, ())
        assert sum(usage.amounts["VCPU"] for usage in used) == 3
        assert host_store.usages_between(connection, [host_id], END, END + timedelta(days=1), ()) == []
        assert host_store.usages_between(connection, [host_id], START, END, [lease.reservations[0].id]) == []
        hosts_of_start = event_store.unfinished(connection, START)[0].hosts
    assert hosts_of_start == {host_id}


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("sqlite", 0),
        ("sqlite", 1),
        pytest.param("postgresql", 0, marks=pytest.mark.postgresql),
        pytest.param("mariadb", 0, marks=pytest.mark.mariadb),
    ],
    indirect=["kind"],
)
def test_reading_only_the_first_due_events_does_not_change_which_of_them_run(database, ids, seed):
    """With leases that follow each other on the same hosts; some are being deleted, claimed, or retried later."""
    chance = random.Random(seed)
    hosts = [add_host(database, f"compute-{number}") for number in (1, 2, 3)]
    now = NOW + timedelta(hours=12)
    with write(database) as connection:
        for _ in range(30):
            start = NOW + timedelta(hours=chance.randrange(8))
            lease = new_lease(ids, start=start, end=start + timedelta(hours=chance.randint(1, 5)))
            events = [
                replace(
                    each,
                    status=chance.choice((EventStatus.UNDONE, EventStatus.IN_PROGRESS)),
                    claim_until=chance.choice((None,) * 9 + (now + timedelta(minutes=1),)),
                    retry_at=chance.choice((None,) * 5 + (now + timedelta(seconds=30),)),
                )
                for each in lease.events
            ]
            status = chance.choice((LeaseStatus.PENDING, LeaseStatus.ACTIVE, LeaseStatus.DELETING))
            if status is LeaseStatus.DELETING:
                moment = chance.choice((NOW - timedelta(days=9), lease.end_date))
                events.append(Event(ids.uuid(), lease.id, EventType.DELETE, moment, EventStatus.UNDONE, NOW, None))
            lease = replace(lease, status=status, events=tuple(events))
            lease_store.insert_lease(connection, lease)
            host_store.insert_allocations(connection, slots(ids, lease, chance.choice(hosts), 1), NOW)
    with read(database) as connection:
        every = event_store.unfinished(connection, now)
        would_run = [event.event_id for event in schedule_events(every, now).run]
        assert 5 < len(would_run) < len(every) / 2
        for most in range(1, len(every) + 2):
            found = event_store.unfinished(connection, now, most)
            first = [event.event_id for event in found[:most]]
            assert first == [event.event_id for event in every[:most]]
            run = [event.event_id for event in schedule_events(found, now).run if event.event_id in first]
            assert run == [event_id for event_id in would_run if event_id in first]


@on_every_database
def test_an_event_can_be_claimed_only_once_per_epoch(database, ids):
    lease = new_lease(ids)
    start = lease.event(EventType.START)
    until = START + timedelta(minutes=2)
    with write(database) as connection:
        lease_store.insert_lease(connection, lease)
    with write(database) as connection:
        assert event_store.claim(connection, {start.id: 0}, "a", until, START) == {start.id: 1}
    with pytest.raises(Conflict, match="claimed by another"), write(database) as connection:
        event_store.claim(connection, {start.id: 0}, "b", until, START)
    with read(database) as connection:
        taken = lease_store.find_lease(connection, lease.id).event(EventType.START)
    assert (taken.status, taken.claimed_by, taken.claim_until, taken.attempt) == (
        EventStatus.IN_PROGRESS,
        "a",
        until,
        1,
    )


@on_every_database
def test_a_worker_that_lost_its_claim_on_an_event_cannot_extend_finish_or_release_it(database, ids):
    """D9: two managers of the peer can both run one event."""
    lease = new_lease(ids)
    start = lease.event(EventType.START)
    with write(database) as connection:
        lease_store.insert_lease(connection, lease)
        event_store.insert_steps(connection, {start.id: event_store.new_rows([EnsureClass("r")])}, NOW)
        first = event_store.claim(connection, {start.id: 0}, "slow", START, START)
        second = event_store.claim(connection, first, "quick", START, START)
        before = lease_store.find_lease(connection, lease.id)
    for late in (
        lambda connection: event_store.update_held(connection, first, claim_until=END),
        lambda connection: event_store.finish(connection, first, EventStatus.DONE, NOW),
        lambda connection: event_store.release(connection, [Release(start.id, first[start.id], NOW, "")], NOW),
    ):
        with write(database) as connection:
            assert late(connection) == {}
            assert lease_store.find_lease(connection, lease.id) == before
    with write(database) as connection:
        assert event_store.update_held(connection, second, claim_until=END) == second
        event_store.steps_done(connection, {start.id: 1}, NOW)
        assert event_store.finish(connection, second, EventStatus.DONE, NOW) == second
        assert [row.state for row in event_store.steps_of(connection, [start.id])[start.id]] == [StepState.DONE]


@on_every_database
@pytest.mark.parametrize("write_all", ["extend", "finish", "release"])
def test_only_events_whose_claim_is_still_held_are_extended_finished_or_released(database, ids, write_all):
    leases = [new_lease(ids) for _ in range(4)]
    starts = [lease.event(EventType.START) for lease in leases]
    with write(database) as connection:
        for lease in leases:
            lease_store.insert_lease(connection, lease)
        mine = event_store.claim(connection, {start.id: 0 for start in starts}, "slow", START, START)
        lost = {starts[number].id: 1 for number in (1, 2)}
        event_store.claim(connection, lost, "quick", START, START)
        before = event_store.of_leases(connection, [lease.id for lease in leases])
        written = {
            "extend": lambda: event_store.update_held(connection, mine, claim_until=END),
            "finish": lambda: event_store.finish(connection, mine, EventStatus.DONE, END),
            "release": lambda: event_store.release(
                connection, [Release(event_id, epoch, END, "slow") for event_id, epoch in mine.items()], END
            ),
        }[write_all]()
        after = event_store.of_leases(connection, [lease.id for lease in leases])
    assert written == {starts[0].id: 1, starts[3].id: 1}
    changed = {start.id for lease, start in zip(leases, starts, strict=True) if after[lease.id] != before[lease.id]}
    assert changed == written.keys()


@on_every_database
def test_steps_done_marks_the_steps_up_to_a_number_and_keeps_a_failed_one(database, ids):
    leases = [new_lease(ids) for _ in range(3)]
    starts = [lease.event(EventType.START).id for lease in leases]
    journal = event_store.new_rows([EnsureClass("a"), EnsureClass("b"), EnsureClass("c")])
    with write(database) as connection:
        for lease in leases:
            lease_store.insert_lease(connection, lease)
        event_store.insert_steps(connection, dict.fromkeys(starts, journal), NOW)
        failed = replace(journal[0], state=StepState.FAILED, attempt=3, last_error="no")
        event_store.steps_not_done(connection, {starts[0]: failed, starts[1]: replace(journal[2], attempt=1)}, NOW)
        event_store.steps_done(connection, {starts[0]: 2, starts[1]: 2, starts[2]: 1}, NOW)
        event_store.insert_steps(connection, {starts[2]: event_store.new_rows([DeleteClass("d")], 3)}, NOW)
        found = event_store.steps_of(connection, starts)
    done, undone = StepState.DONE, StepState.UNDONE
    assert {key: [(row.seq, row.state, row.attempt) for row in found[key]] for key in starts} == {
        starts[0]: [(1, StepState.FAILED, 3), (2, done, 0), (3, undone, 0)],
        starts[1]: [(1, done, 0), (2, done, 0), (3, undone, 1)],
        starts[2]: [(1, done, 0), (2, undone, 0), (3, undone, 0), (4, undone, 0)],
    }
    assert found[starts[0]][0].last_error == "no"
    assert found[starts[2]][3].step == DeleteClass("d")


@on_every_database
def test_fencing_the_other_events_of_a_lease_ends_their_claims(database, ids):
    lease = new_lease(ids)
    start, end = lease.event(EventType.START), lease.event(EventType.END)
    with write(database) as connection:
        lease_store.insert_lease(connection, lease)
        claimed = event_store.claim(connection, {start.id: 0}, "a", END, START)
        event_store.fence_others(connection, lease.id, end.id)
    with write(database) as connection:
        assert event_store.update_held(connection, claimed, claim_until=END) == {}
        event_store.drop_claims(connection, [start.id], "a")
        assert lease_store.find_lease(connection, lease.id).event(EventType.START).claim_until is None


@on_every_database
def test_coming_events_are_listed_in_order_of_time(database, ids):
    early, late = new_lease(ids, start=START, end=END), new_lease(ids, start=START - timedelta(hours=1), end=END)
    with write(database) as connection:
        lease_store.insert_lease(connection, early)
        lease_store.insert_lease(connection, late)
    with read(database) as connection:
        assert event_store.unfinished(connection, NOW) == []
        assert [event.time for event in event_store.coming(connection, NOW)][:2] == [START - timedelta(hours=1), START]


@on_every_database
def test_extra_capabilities_of_a_host_are_set_changed_and_removed(database, ids):
    host_id = add_host(database)
    fresh = [ids.uuid() for _ in range(8)]
    with write(database) as connection:
        property_store.set_extra(connection, host_id, {"gpu": "True", "rack": "9"}, fresh[:4], NOW)
        property_store.set_extra(connection, host_id, {"gpu": None, "rack": "10"}, fresh[4:], NOW)
    with read(database) as connection:
        assert host_store.find_host(connection, host_id).extra == {"rack": "10"}
        assert property_store.property_values(connection) == {"rack": ["10"]}
        assert [row.property_name for row in property_store.properties(connection)] in (
            ["gpu", "rack"],
            ["rack", "gpu"],
        )


def test_a_host_that_is_not_ready_has_no_capacity(database):
    host_id = add_host(database)
    with write(database) as connection:
        assert [each.host for each in host_store.capacities(connection)] == [host_id]
        host_store.set_ready(connection, host_id, ready=False)
        assert host_store.capacities(connection) == []


def test_a_reservation_in_error_does_not_become_active(database, ids):
    lease = new_lease(ids)
    with write(database) as connection:
        lease_store.insert_lease(connection, lease)
        ids = [lease.id]
        lease_store.move(connection, ids, LeaseStatus.PENDING, LeaseStatus.STARTING, NOW)
        lease_store.move(connection, ids, LeaseStatus.STARTING, LeaseStatus.ERROR, NOW, ReservationStatus.ERROR)
        lease_store.move(connection, ids, LeaseStatus.ERROR, LeaseStatus.UPDATING, NOW)
        lease_store.move(connection, ids, LeaseStatus.UPDATING, LeaseStatus.ACTIVE, NOW, ReservationStatus.ACTIVE)
    with read(database) as connection:
        assert lease_store.find_lease(connection, lease.id).reservations[0].status is ReservationStatus.ERROR
