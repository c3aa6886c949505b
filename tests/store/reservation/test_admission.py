"""Admission of leases: concurrent requests never overbook a host.

Concurrent requests, and reading what other processes wrote, are tested on all three databases. What fits is decided in
memory, so SQLite suffices for the other tests.
"""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import sqlalchemy as sa

from moorage.core.clock import VirtualClock
from moorage.core.ids import SeededIds
from moorage.db.session import read, write
from moorage.reservation.booking.admission import Admission, Booking, NotEnoughHostsAvailable
from moorage.reservation.booking.enforcement import moved_by_service
from moorage.reservation.capacity.calendar import Calendar
from moorage.reservation.capacity.host_selection import CapacityRequest
from moorage.reservation.model.leases import Allocation
from moorage.reservation.model.reservation_requests import InstanceRequest, Size
from moorage.reservation.model.slot_demand import SlotDemand
from moorage.reservation.store import host_store, lease_store
from tests.migrated import migrated_engine
from tests.store.conftest import on_every_database
from tests.store.reservation.worlds import END, NOW, START, add_host, new_lease


@pytest.fixture
def database(kind):
    with migrated_engine("reservation", kind) as engine:
        yield engine


def admit(engine, admission, seed, amount=1, *, vcpus=8, affinity=None, start=START, end=END):
    """Admits a lease of one reservation and writes it, as `lease_service.create` does."""
    ids = SeededIds(seed)
    request = InstanceRequest(Size(vcpus, 1024, 1), amount, affinity)
    lease = new_lease(ids, request, start=start, end=end)
    reservation = lease.reservations[0]

    def commit(connection, plan):
        lease_store.insert_lease(connection, lease)
        placing = plan[reservation.id]
        rows = [
            Allocation(ids.uuid(), host, reservation.id, start, end, amounts)
            for host, slots in placing.items()
            for amounts in slots
        ]
        host_store.insert_allocations(connection, rows, NOW)
        return {host: len(slots) for host, slots in placing.items()}

    ask = CapacityRequest(reservation.id, SlotDemand(request.size.resources()), amount, affinity)
    return admission.admit(Booking([ask], start, end), limits=moved_by_service, commit=commit)


def peak_of(engine):
    """The highest use of CPUs per host, from the database."""
    with read(engine) as connection:
        calendar = Calendar(host_store.capacities(connection), host_store.live_usages(connection, NOW))
    return calendar.peak(START - timedelta(days=9), END + timedelta(days=9))[:, calendar.classes.index("VCPU")].tolist()


def test_every_slot_of_a_reservation_counts_against_the_host(database):
    """D1: the peer counts only one slot of a reservation, so it accepts 26 slots on a host with capacity for 8."""
    add_host(database)
    admission = Admission(database, VirtualClock(NOW))
    accepted = []
    for seed, amount in enumerate((7, 6, 5, 1)):
        try:
            accepted.append(admit(database, admission, seed, amount, vcpus=1))
        except NotEnoughHostsAvailable:
            accepted.append(None)
    assert accepted == [{1: 7}, None, None, {1: 1}]
    assert peak_of(database) == [8]


@on_every_database
def test_concurrent_requests_never_overbook_a_host(database):
    """R19 (instance-reservation), D3: the peer accepts all twelve, up to eleven of them on one host.

    Six `Admission` objects act as six processes: each has its own calendar, which the others make stale.
    """
    for name in ("compute-1", "compute-2", "compute-3"):
        add_host(database, name)
    admissions = [Admission(database, VirtualClock(NOW)) for _ in range(6)]
    for admission in admissions:
        admission.calendar()

    def request(number):
        try:
            return admit(database, admissions[number % 6], number)
        except NotEnoughHostsAvailable:
            return None

    with ThreadPoolExecutor(6) as pool:
        accepted = [picked for picked in pool.map(request, range(12)) if picked]
    assert len(accepted) == 3
    assert peak_of(database) == [8, 8, 8]


@on_every_database
def test_a_request_whose_attempts_all_conflict_is_decided_with_all_hosts_locked(database, monkeypatch):
    """The last decision cannot conflict, so a request is refused only if it does not fit."""
    monkeypatch.setattr("moorage.reservation.booking.admission.ATTEMPTS", 0)
    for name in ("compute-1", "compute-2"):
        add_host(database, name)
    admissions = [Admission(database, VirtualClock(NOW)) for _ in range(4)]

    def request(number):
        try:
            return admit(database, admissions[number % 4], number)
        except NotEnoughHostsAvailable as refusal:
            return refusal.fields["free"]

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(request, range(6)))
    assert sorted(answers, key=str) == [0, 0, 0, 0, {1: 1}, {2: 1}]
    assert peak_of(database) == [8, 8]


@on_every_database
def test_concurrent_requests_for_several_hosts_do_not_deadlock(database):
    """Each request locks its hosts in the order of their ids."""
    for number in range(4):
        add_host(database, f"compute-{number}")
    admissions = [Admission(database, VirtualClock(NOW)) for _ in range(4)]

    def request(number):
        try:
            return admit(database, admissions[number % 4], number, 4, vcpus=2, affinity=False)
        except NotEnoughHostsAvailable:
            return None

    with ThreadPoolExecutor(4) as pool:
        accepted = [picked for picked in pool.map(request, range(8)) if picked]
    assert len(accepted) == 4
    assert peak_of(database) == [8, 8, 8, 8]


def test_back_to_back_leases_fit(database):
    """A16 (instance-reservation), D5."""
    add_host(database)
    admission = Admission(database, VirtualClock(NOW))
    assert admit(database, admission, 1) == {1: 1}
    assert admit(database, admission, 2, start=END, end=END + timedelta(hours=1)) == {1: 1}
    assert admit(database, admission, 3, start=START - timedelta(hours=1), end=START) == {1: 1}
    with pytest.raises(NotEnoughHostsAvailable):
        admit(database, admission, 4, start=END - timedelta(minutes=1), end=END)


def test_a_stale_calendar_refuses_nothing_that_fits(database):
    add_host(database)
    here, elsewhere = Admission(database, VirtualClock(NOW)), Admission(database, VirtualClock(NOW))
    assert admit(database, here, 1) == {1: 1}
    with write(database) as connection:  # another process ends that lease
        host_store.delete_allocations_of(
            connection, [lease.reservations[0].id for lease in lease_store.all_leases(connection)]
        )
    assert admit(database, here, 2) == {1: 1}
    with pytest.raises(NotEnoughHostsAvailable) as refusal:
        admit(database, elsewhere, 3)
    assert "Not enough hosts available: 1 instance of 8 VCPU" in refusal.value.message
    assert refusal.value.fields["free"] == 0


def test_a_refused_request_writes_nothing(database):
    """R6 (instance-reservation)."""
    add_host(database)
    with pytest.raises(NotEnoughHostsAvailable):
        admit(database, Admission(database, VirtualClock(NOW)), 1, 2)
    with read(database) as connection:
        assert lease_store.all_leases(connection) == []


def test_a_host_that_is_not_ready_gets_no_reservation(database):
    host_id = add_host(database)
    admission = Admission(database, VirtualClock(NOW))
    admission.calendar()
    with write(database) as connection:
        host_store.set_ready(connection, host_id, ready=False)
    with pytest.raises(NotEnoughHostsAvailable):
        admit(database, admission, 1)


@on_every_database
def test_after_changes_of_other_processes_the_calendar_equals_the_database(database):
    """Only hosts with a changed revision are read again, and the result is exact."""
    hosts = [add_host(database, f"compute-{n}") for n in range(4)]
    here, elsewhere = Admission(database, VirtualClock(NOW)), Admission(database, VirtualClock(NOW))
    here.calendar()
    for number in range(6):
        admit(database, elsewhere, number, 1, vcpus=1 + number % 3, start=START + timedelta(hours=number))
        if number % 2:
            admit(database, here, 100 + number, 2, vcpus=2, affinity=False)
        with read(database) as connection:
            taken = lease_store.all_leases(connection)[number // 2]
        if number == 4:
            with write(database) as connection:
                host_store.delete_allocations_of(connection, [each.id for each in taken.reservations])
                lease_store.delete_lease(connection, taken.id)
        with read(database) as connection:
            whole = Calendar(host_store.capacities(connection), host_store.live_usages(connection, NOW))
        for hour in range(0, 40, 5):
            window = START + timedelta(hours=hour - 5), START + timedelta(hours=hour)
            assert here.calendar().peak(*window).tolist() == whole.peak(*window).tolist()
    assert [host for host in hosts if host not in whole.hosts] == []


@on_every_database
def test_the_calendar_reads_only_hosts_that_other_processes_changed(database):
    for number in range(20):
        add_host(database, f"compute-{number}")
    add_host(database, "compute-far", wanted_id=10 * host_store.PART)
    here, elsewhere = Admission(database, VirtualClock(NOW)), Admission(database, VirtualClock(NOW))
    here.calendar()
    for number in range(3):
        admit(database, elsewhere, number, 1)
    seen = []
    sa.event.listen(database, "before_cursor_execute", lambda *args: seen.append((args[2], args[3])))
    here.calendar()
    (asked,) = [given for said, given in seen if "FROM computehost_allocations" in said]
    assert len(asked) <= 4, "parameters: a time and three hosts"
    (asked,) = [given for said, given in seen if "BETWEEN" in said]
    assert len(asked) == 2, "parameters: the first and last id of one part of the hosts"
    seen.clear()
    here.calendar()
    assert not any("FROM computehost_allocations" in said for said, _ in seen)
