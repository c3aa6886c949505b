"""R35: `affinity` may be null, and the columns of an older system go when nothing of it lives, on all three databases.

Where a migration that was recorded wrongly goes on from depends on the columns alone: each case on SQLite, and on the others
the one that has all migrations before it.
"""

import pytest
import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations

from moorage.core.errors import StartError
from moorage.db import migrations
from moorage.db.engine import WRITE_OPTION
from moorage.db.transactions import read, write
from moorage.reservation.model.leases import ReservationStatus
from moorage.reservation.model.reservation_requests import InstanceRequest, Size
from moorage.reservation.store import lease_store
from moorage.reservation.store.tables import metadata
from tests.store.conftest import on_every_database
from tests.store.reservation.worlds import NOW, new_lease

COLUMNS = {"aggregate_id", "server_group_id"}


@pytest.fixture
def older(engine):
    """A database of before: `affinity` must be given there."""
    migrations.upgrade(engine, "reservation", "0001")
    with engine.connect().execution_options(**{WRITE_OPTION: True}) as connection, connection.begin():
        operations = Operations(MigrationContext.configure(connection))
        with operations.batch_alter_table("instance_reservations") as batch:
            batch.alter_column("affinity", existing_type=sa.Boolean(), nullable=False)
    return engine


def columns(engine):
    return {column["name"]: column["nullable"] for column in sa.inspect(engine).get_columns("instance_reservations")}


def put(engine, ids, *, affinity, aggregate_id=None, group_id=None):
    """A lease with one reservation, written as a program of before does; the lease."""
    lease = new_lease(ids, InstanceRequest(Size(1, 512, 0), 1, affinity))
    with write(engine) as connection:
        lease_store.insert_lease(connection, lease)
        connection.execute(
            sa.text("UPDATE instance_reservations SET aggregate_id = :aggregate, server_group_id = :group_id"
                    " WHERE reservation_id = :id"),
            {"aggregate": aggregate_id, "group_id": group_id, "id": lease.reservations[0].id},
        )  # fmt: skip
    return lease


def found(engine, lease):
    with read(engine) as connection:
        (reservation,) = lease_store.find_lease(connection, lease.id).reservations
    return reservation


@on_every_database
def test_affinity_may_be_null_and_rows_keep_theirs(older, ids):
    """R14, R35 (instance-reservation)."""
    assert columns(older)["affinity"] is False
    kept = [put(older, ids, affinity=True, aggregate_id=4), put(older, ids, affinity=False, group_id="group")]
    migrations.upgrade(older, "reservation")
    assert columns(older)["affinity"] is True
    assert [found(older, lease).request.affinity for lease in kept] == [True, False]
    assert found(older, put(older, ids, affinity=None)).request.affinity is None


@on_every_database
def test_rows_of_before_keep_their_aggregate_and_group(older, ids):
    """R35, A1 (instance-reservation): which generation they are is found out later."""
    kept, plain = put(older, ids, affinity=True, aggregate_id=4, group_id="group"), put(older, ids, affinity=True)
    migrations.upgrade(older, "reservation")
    reservation = found(older, kept)
    assert (reservation.aggregate_id, reservation.server_group_id, reservation.generation) == (4, "group", None)
    assert found(older, plain).generation == "pure"


@on_every_database
def test_a_start_does_not_drop_the_columns(engine):
    """R35 (instance-reservation)."""
    migrations.upgrade(engine, "reservation")
    assert columns(engine).keys() >= COLUMNS


@on_every_database
def test_the_columns_are_not_dropped_while_older_rows_live(older, ids):
    """R35 (instance-reservation): those of before the migration, and those written by an old process since."""
    lease = put(older, ids, affinity=True, aggregate_id=4)
    migrations.upgrade(older, "reservation")
    late = put(older, ids, affinity=None, group_id="group")
    for each in (lease, late):
        with pytest.raises(StartError, match="of an older system are not over; end or delete"):
            migrations.upgrade(older, "reservation", "0099")
        assert columns(older).keys() >= COLUMNS
        with write(older) as connection:
            lease_store.move_reservations(connection, [each.id], ReservationStatus.DELETED, NOW)
    migrations.upgrade(older, "reservation", "0099")
    assert not columns(older).keys() & COLUMNS


@on_every_database
def test_everything_works_without_the_columns(engine, ids):
    """R35 (instance-reservation): and a start of the same program leaves them dropped."""
    migrations.upgrade(engine, "reservation", "0099")
    migrations.upgrade(engine, "reservation")
    assert migrations.is_current(engine, "reservation")
    assert migrations.current_revision(engine, "reservation") == migrations.head_revision("reservation")
    assert not columns(engine).keys() & COLUMNS
    lease = new_lease(ids)
    with write(engine) as connection:
        lease_store.insert_lease(connection, lease)
    assert found(engine, lease).request == lease.reservations[0].request
    with write(engine) as connection:
        lease_store.delete_lease(connection, lease.id)


@pytest.mark.parametrize(
    ("kind", "ran"),
    [
        *(("sqlite", ran) for ran in ("0002", "0003", "0004", "0005", "0006", "0007")),
        pytest.param("postgresql", "0002", marks=pytest.mark.postgresql),
        pytest.param("mariadb", "0002", marks=pytest.mark.mariadb),
    ],
    indirect=["kind"],
)
def test_a_database_that_stands_at_the_gated_migration_goes_on_from_where_it_is(engine, ids, ran):
    """R35 (instance-reservation): a program of before recorded it in place of what had been run by then."""
    migrations.upgrade(engine, "reservation", ran)
    with engine.connect().execution_options(**{WRITE_OPTION: True}) as connection, connection.begin():
        operations = Operations(MigrationContext.configure(connection))
        with operations.batch_alter_table("instance_reservations") as batch:
            batch.drop_column("aggregate_id")
            batch.drop_column("server_group_id")
        connection.execute(sa.text("UPDATE reservation_version SET version_num = '0099'"))
    migrations.upgrade(engine, "reservation")
    assert migrations.is_current(engine, "reservation")
    assert not columns(engine).keys() & COLUMNS
    there = {(table, each["name"]) for table in sa.inspect(engine).get_table_names()
             for each in sa.inspect(engine).get_columns(table)}  # fmt: skip
    expected = {(table.name, column.name) for table in metadata.tables.values() for column in table.columns}
    assert expected - there == {("instance_reservations", name) for name in COLUMNS}
    migrations.upgrade(engine, "reservation", "0099")  # is done already
