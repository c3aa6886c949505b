"""Concurrent bookings of addresses, on all three databases, because the result depends on locks."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from moorage.core.clock import VirtualClock
from moorage.core.ids import SeededIds
from moorage.db.session import in_transaction, read
from moorage.reservation.booking.address_booking import AddressBooking, NotEnoughFloatingIps
from moorage.reservation.capacity.addresses import RegisteredAddress
from moorage.reservation.model.reservation_requests import VIRTUAL_FLOATING_IP, FloatingIpRequest
from moorage.reservation.store import address_store, lease_store
from tests.migrated import migrated_engine
from tests.store.conftest import on_every_database
from tests.store.reservation.worlds import END, NOW, START, new_lease

NETWORK, LEASES, ADDRESSES = "network", 12, 5


@pytest.fixture
def database(kind):
    with migrated_engine("reservation", kind) as engine:
        yield engine


def register(engine, count):
    def work(connection):
        for number in range(count):
            values = f"{number:036}", NETWORK, "subnet", f"192.0.2.{number}", True, NOW, None
            address_store.insert_floating_ip(connection, RegisteredAddress(*values))

    in_transaction(engine, work)


def lease_of(seed, request, start=START, end=END):
    made = new_lease(SeededIds(seed), start=start, end=end)
    (reservation,) = made.reservations
    own = replace(reservation, request=request, resource_type=VIRTUAL_FLOATING_IP, flavor_id=None)
    return replace(made, reservations=(own,))


def book_addresses(engine, lease):
    """Writes the lease and books its addresses. Returns whether enough were free."""
    booking = AddressBooking(engine, VirtualClock(NOW), SeededIds(hash(lease.id)))

    def work(connection):
        lease_store.insert_lease(connection, lease)
        booking.allocate_new(connection, [lease])

    try:
        in_transaction(engine, work)
    except NotEnoughFloatingIps:
        return False
    return True


@on_every_database
def test_concurrent_leases_never_get_the_same_address(database):
    """Twelve concurrent leases each want one of five addresses for the same period."""
    register(database, ADDRESSES)
    leases = [lease_of(seed, FloatingIpRequest(NETWORK, 1)) for seed in range(LEASES)]
    with ThreadPoolExecutor(6) as pool:
        got = list(pool.map(lambda each: book_addresses(database, each), leases))
    assert got.count(True) == ADDRESSES
    with read(database) as connection:
        ids = [each.reservations[0].id for each in leases]
        found = address_store.of_reservations(connection, ids)
        taken = address_store.taken(connection, [NETWORK], NOW)
    assert len({each.id for mine in found.values() for each in mine}) == ADDRESSES == len(taken)


@on_every_database
def test_the_address_request_of_a_lease_reads_back_the_same(database):
    register(database, 2)
    request = FloatingIpRequest(NETWORK, 2, ("192.0.2.1",))
    made = lease_of(1, request)
    assert book_addresses(database, made)
    with read(database) as connection:
        found = lease_store.find_lease(connection, made.id)
    assert found.reservations[0].request == request


@on_every_database
def test_after_its_lease_is_deleted_an_address_can_be_deleted(database):
    register(database, 1)
    made = lease_of(1, FloatingIpRequest(NETWORK, 1))
    assert book_addresses(database, made)

    def delete(connection):
        address_store.release_all(connection, [made.reservations[0].id])
        lease_store.delete_lease(connection, made.id)
        address_store.delete_floating_ip(connection, f"{0:036}")

    in_transaction(database, delete)
    with read(database) as connection:
        assert address_store.all_floating_ips(connection) == []
