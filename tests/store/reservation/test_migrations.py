"""R35: `affinity` may be null, and the columns of an older system are dropped when no row uses them, on all three databases."""

from dataclasses import replace

import pytest
import sqlalchemy as sa

from moorage.core.errors import StartError
from moorage.db import migrations
from moorage.db.session import read, write
from moorage.reservation.model.leases import LeaseStatus, ReservationGeneration, ReservationStatus
from moorage.reservation.model.reservation_requests import InstanceRequest, Size
from moorage.reservation.store import lease_store
from tests.store.conftest import on_every_database
from tests.store.reservation.worlds import NOW, new_lease

COLUMNS = {"aggregate_id", "server_group_id"}


@pytest.fixture
def migrated(engine):
    migrations.upgrade(engine, "reservation")
    return engine


def columns(engine):
    return {column["name"]: column["nullable"] for column in sa.inspect(engine).get_columns("instance_reservations")}


def insert(engine, ids, affinity=None, **older):
    """Stores a lease with one reservation; `older`: values of the columns of an older system."""
    lease = new_lease(ids, InstanceRequest(Size(1, 512, 0), 1, affinity))
    lease = replace(lease, reservations=tuple(replace(each, **older) for each in lease.reservations))
    with write(engine) as connection:
        lease_store.insert_lease(connection, lease)
    return lease


def found(engine, lease):
    with read(engine) as connection:
        (reservation,) = lease_store.find_lease(connection, lease.id).reservations
    return reservation


@on_every_database
def test_affinity_may_be_true_false_or_null(migrated, ids):
    """R14, R35 (instance-reservation)."""
    assert columns(migrated)["affinity"] is True
    kept = [insert(migrated, ids, affinity) for affinity in (True, False, None)]
    assert [found(migrated, lease).request.affinity for lease in kept] == [True, False, None]


@on_every_database
def test_an_ordinary_upgrade_does_not_drop_the_older_columns(migrated):
    """R35 (instance-reservation)."""
    assert columns(migrated).keys() >= COLUMNS


@on_every_database
def test_the_older_columns_are_not_dropped_while_reservations_use_them(migrated, ids):
    """R35 (instance-reservation): each generation of an older system; our reservations with a group do not count."""
    with_group = insert(migrated, ids)
    with write(migrated) as connection:
        lease_store.set_server_group(connection, with_group.reservations[0].id, "group")
    for generation in (None, ReservationGeneration.HYBRID, ReservationGeneration.AGGREGATE):
        lease = insert(migrated, ids, aggregate_id=4, generation=generation)
        with pytest.raises(StartError, match="of an older system are not over; end or delete"):
            migrations.upgrade(migrated, "reservation", "0099")
        assert columns(migrated).keys() >= COLUMNS
        with write(migrated) as connection:
            lease_store.move(connection, [lease.id], lease.status, LeaseStatus.DELETING, NOW, ReservationStatus.DELETED)
    migrations.upgrade(migrated, "reservation", "0099")
    assert not columns(migrated).keys() & COLUMNS


@on_every_database
def test_leases_can_be_written_and_read_after_the_older_columns_were_dropped(engine, ids):
    """R35 (instance-reservation): and a later upgrade does not create the columns again."""
    migrations.upgrade(engine, "reservation", "0099")
    migrations.upgrade(engine, "reservation")
    assert migrations.is_current(engine, "reservation")
    assert migrations.current_revision(engine, "reservation") == migrations.head_revision("reservation")
    assert not columns(engine).keys() & COLUMNS
    lease = insert(engine, ids)
    assert found(engine, lease).request == lease.reservations[0].request
    with write(engine) as connection:
        lease_store.delete_lease(connection, lease.id)
