"""Pages of leases, on all three databases: each lease once, in order, and read from an index.

The rows are part of the databases' schema, so that they are written only once.
"""

from datetime import timedelta
from itertools import product

import pytest

from moorage.core.errors import Invalid
from moorage.core.ids import SeededIds
from moorage.db import migrations
from moorage.db.session import read, write
from moorage.reservation.model.leases import LeaseStatus
from moorage.reservation.model.list_query import LeasePage, SortKey
from moorage.reservation.store import lease_store
from moorage.reservation.store.tables import leases
from tests.databases import Schema
from tests.migrated import engine_with
from tests.store.conftest import on_every_database
from tests.store.reservation.worlds import NOW, new_lease

MANY = 2000


def new_leases():
    """Nine leases of two projects; several share a start and an end."""
    ids = SeededIds(3)
    return [
        new_lease(ids, start=NOW + timedelta(days=n % 3), end=NOW + timedelta(days=3 + n % 4), project=f"p{n % 2}")
        for n in range(9)
    ]


def make_some(engine):
    migrations.upgrade(engine, "reservation")
    with write(engine) as connection:
        for lease in new_leases():
            lease_store.insert_lease(connection, lease)


def make_many(engine):
    migrations.upgrade(engine, "reservation")
    with write(engine) as connection:
        connection.execute(leases.insert(), ROWS)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"ANALYZE {'TABLE ' if engine.dialect.name == 'mariadb' else ''}leases")


@pytest.fixture
def database(kind):
    with engine_with(Schema("nine-leases", make_some), kind) as engine:
        yield engine


@pytest.fixture
def some(database):
    return new_leases()


def all_pages(database, wanted):
    """The leases of all pages, read one page after the other."""
    found, marker = [], None
    for _ in range(20):
        with read(database) as connection:
            page, more = lease_store.find_page(connection, LeasePage(**wanted, marker=marker))
        found += page
        if not more:
            return found
        marker = page[-1].id
    raise AssertionError("no end")


@on_every_database
def test_pages_have_each_lease_once_and_in_order(database, some):
    for key, descending, limit, project in product(SortKey, (False, True), (1, 2, 9), (None, "p1")):
        wanted = {"sort_key": key, "descending": descending, "limit": limit, "project_id": project}
        mine = [lease for lease in some if project in (None, lease.project_id)]
        expected = sorted(mine, key=lambda lease: (getattr(lease, key), lease.id), reverse=descending)
        assert all_pages(database, wanted) == expected, wanted


@on_every_database
def test_each_filter_of_leases_finds_exactly_the_matching_leases(database, some):
    meeting = {"ends_after": NOW + timedelta(days=4), "starts_before": NOW + timedelta(days=1)}
    found = all_pages(database, {"limit": 2, **meeting})
    expected = [x for x in some if x.end_date > meeting["ends_after"] and x.start_date < meeting["starts_before"]]
    assert sorted(x.id for x in found) == sorted(x.id for x in expected) != []
    with write(database) as connection:
        lease_store.move(connection, [some[0].id], LeaseStatus.PENDING, LeaseStatus.STARTING, NOW)
        lease_store.change(connection, some[1].id, NOW, name="course")
    assert [x.id for x in all_pages(database, {"status": LeaseStatus.STARTING})] == [some[0].id]
    assert [x.id for x in all_pages(database, {"name": "course"})] == [some[1].id]


@on_every_database
def test_the_marker_of_another_projects_lease_is_not_found(database, some):
    for marker in (some[0].id, "nothing"):
        with read(database) as connection, pytest.raises(Invalid, match="not found"):
            lease_store.find_page(connection, LeasePage(project_id="p1", marker=marker))


IDS = SeededIds(4)
ROWS = [
    {
        "id": IDS.uuid(),
        "name": f"lease-{n}",
        "user_id": "u",
        "project_id": f"p{n % 50}",
        "start_date": NOW + timedelta(minutes=n),
        "end_date": NOW + timedelta(minutes=n + 60),
        "status": LeaseStatus.ACTIVE if n % 100 == 0 else LeaseStatus.TERMINATED,
        "degraded": False,
        "created_at": NOW + timedelta(seconds=n),
    }
    for n in range(MANY)
]


@on_every_database
@pytest.mark.parametrize("of", [{}, {"project_id": "p3"}, {"name": "lease-77"}, {"status": LeaseStatus.ACTIVE}])
def test_a_page_of_thousands_of_leases_is_read_from_an_index(kind, of):
    """The query neither reads nor sorts all rows."""
    marker = next(row["id"] for row in ROWS if all(row[name] == value for name, value in of.items()))
    keys = SortKey if of.keys() <= {"project_id"} else [SortKey.CREATED_AT]
    with engine_with(Schema("many-leases", make_many), kind) as database:
        for key, descending in product(keys, (False, True)):
            plan = explained(database, LeasePage(**of, sort_key=key, descending=descending, limit=10, marker=marker))
            assert "ix_leases_" in plan, plan
            if "name" not in of:  # the few leases of one name are sorted
                assert not any(word in plan for word in ("TEMP B-TREE", "filesort", "Sort")), plan


def explained(database, wanted):
    """The database's plan, as text."""
    with read(database) as connection:
        statement = lease_store.page_statement(connection, wanted)
        text = statement.compile(dialect=database.dialect, compile_kwargs={"literal_binds": True})
        explain = "EXPLAIN QUERY PLAN " if database.dialect.name == "sqlite" else "EXPLAIN "
        return "\n".join(str(row) for row in connection.exec_driver_sql(f"{explain}{str(text).replace('%', '%%')}"))
