"""No address is given out twice under concurrency, on all three databases, because their locks decide."""

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


def take(engine, lease):
    """Whether it got its addresses."""
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
def test_no_address_is_given_out_twice(database):
    """Twelve requests at once want one of five addresses for the same time."""
    register(database, ADDRESSES)
    leases = [lease_of(seed, FloatingIpRequest(NETWORK, 1)) for seed in range(LEASES)]
    with ThreadPoolExecutor(6) as pool:
        got = list(pool.map(lambda each: take(database, each), leases))
    assert got.count(True) == ADDRESSES
    with read(database) as connection:
        ids = [each.reservations[0].id for each in leases]
        found = address_store.of_reservations(connection, ids)
        taken = address_store.taken(connection, [NETWORK], NOW)
    assert len({each.id for mine in found.values() for each in mine}) == ADDRESSES == len(taken)


@on_every_database
def test_what_a_lease_asks_for_is_read_again(database):
    register(database, 2)
    request = FloatingIpRequest(NETWORK, 2, ("192.0.2.1",))
    made = lease_of(1, request)
    assert take(database, made)
    with read(database) as connection:
        found = lease_store.find_lease(connection, made.id)
    assert found.reservations[0].request == request


@on_every_database
def test_a_deleted_lease_leaves_nothing(database):
    register(database, 1)
    made = lease_of(1, FloatingIpRequest(NETWORK, 1))
    assert take(database, made)

    def delete(connection):
        address_store.release_all(connection, [made.reservations[0].id])
        lease_store.delete_lease(connection, made.id)
        address_store.delete_floating_ip(connection, f"{0:036}")

    in_transaction(database, delete)
    with read(database) as connection:
        assert address_store.all_floating_ips(connection) == []
