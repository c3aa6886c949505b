"""Quotas: limits under concurrent requests, and how offloaded and moving servers count.

Locks, upserts and the number of rows read are tested on each database. Unit tests cover the amounts of one server.
"""

import threading
from collections import Counter
from contextlib import suppress

import pytest
from sqlalchemy import event, select

from moorage.compute.deps import ComputeDeps, ComputeSettings
from moorage.compute.model.migration_workflow import Move, MoveKind
from moorage.compute.model.servers import Flavor, VmState
from moorage.compute.requests.server_request import NewServer
from moorage.compute.service import ComputeService
from moorage.compute.store import move_store, quota_store, server_store
from moorage.compute.store.tables import quota_locks, servers
from moorage.core.caller import Caller
from moorage.core.errors import OverQuota, Unavailable
from moorage.db.engine import dialect_name
from moorage.db.session import write
from moorage.jobs.background_tasks import Wakeups
from moorage.jobs.wakeups import InProcessHints
from moorage.scheduler.server_groups import GroupPolicy
from tests import counted
from tests.migrated import migrated_engine
from tests.store.conftest import on_every_database, on_servers

ALICE = Caller(user_id="alice", project_id="red", roles=frozenset({"member"}))
SMALL = Flavor(id="small", name="small", vcpus=2, ram_mb=512, disk_gb=1)
LARGE = Flavor(id="large", name="large", vcpus=4, ram_mb=512, disk_gb=1)


@pytest.fixture
def engine(kind):
    with migrated_engine("compute", kind) as engine:
        yield engine


@pytest.fixture
def compute(engine, clock, ids):
    service = ComputeService(ComputeDeps(engine, clock, ids, InProcessHints(Wakeups())), ComputeSettings())
    service.flavors.create_flavor(SMALL)
    return service


@pytest.fixture(autouse=True)
def kept(compute, engine):
    """After each test the stored sums equal a count of all rows."""
    yield
    counted.check(engine)


def make(compute, least=1, most=1):
    new = NewServer(name="vm", flavor_id="small", image_id="image", count=most, least=least)
    return compute.creation.create_servers(ALICE, "req", new, may_force_host=False)


def a_move(server, flavor, now):
    return Move(
        id="00000000-0000-4000-8000-000000000001", number=0, server_id=server.id, kind=MoveKind.RESIZE,
        status="finished", step=None, is_open=True, source_host="a", dest_host=None, wanted_host=None,
        old_state=VmState.ACTIVE, old_flavor=server.flavor, new_flavor=flavor, old_placed=None, new_placed=None,
        details={}, user_id="alice", project_id="red", created_at=now, updated_at=now,
    )  # fmt: skip


@on_every_database
def test_concurrent_requests_create_exactly_as_many_servers_as_the_limit(compute):
    answers = []

    def ask():
        for _ in range(5):
            try:
                answers.append(len(make(compute)))
            except OverQuota:
                answers.append(0)
            except Unavailable:  # the database aborted the transaction: the client is told to retry
                answers.append(None)

    compute.quotas.set_limits("red", {"instances": 6, "cores": -1}, force=True)
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(filter(None, answers)) == 6
    assert compute.quotas.usage("red")["instances"] == 6


@on_servers
def test_concurrent_requests_create_exactly_as_many_server_groups_as_the_limit(compute):
    """Without a lock, no transaction counted the uncommitted groups of the others, and all were accepted."""
    compute.quotas.set_limits("red", {"server_groups": 3}, force=True)
    together = threading.Barrier(8)

    def ask():
        together.wait()
        for _ in range(3):
            with suppress(OverQuota):
                compute.groups.create_group(ALICE, "g", GroupPolicy.AFFINITY, {})

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compute.groups.list_groups(ALICE, all_projects=False)) == 3


def test_an_offloaded_server_counts_as_an_instance_but_uses_no_cores_until_it_is_unshelved(compute, engine, clock):
    made = make(compute)[0]
    with write(engine) as connection:
        server_store.update_server(
            connection, made.id, clock.now(), vm_state=VmState.SHELVED_OFFLOADED, task_state=None
        )
    used = compute.quotas.usage("red")
    assert (used["instances"], used.get("cores", 0)) == (1, 0)
    compute.quotas.set_limits("red", {"cores": 1}, force=True)
    with write(engine) as connection, pytest.raises(OverQuota, match="Requested 2, but already used 0 of 1 cores"):
        compute.quotas.admit_return(connection, "red", made.flavor, {})


def test_a_server_counts_with_the_larger_flavor_while_it_is_resized(compute, engine, clock):
    made = make(compute)[0]
    move = a_move(made, LARGE, clock.now())
    compute.quotas.set_limits("red", {"cores": 3}, force=True)
    with write(engine) as connection, pytest.raises(OverQuota, match="Requested 2, but already used 2 of 3 cores"):
        compute.quotas.admit_resize(connection, "red", SMALL, LARGE, {})
    with write(engine) as connection:
        move_store.insert_move(connection, move)
    assert compute.quotas.usage("red")["cores"] == 4
    with write(engine) as connection:
        move_store.update_move(connection, move.id, clock.now(), is_open=False)
    assert compute.quotas.usage("red")["cores"] == 2


@on_servers
def test_creating_a_server_does_not_wait_for_an_uncommitted_change_of_another_server(compute, engine, clock):
    """A server whose deletion is not committed counts until the commit."""
    made = make(compute)[0]
    with write(engine) as connection:
        server_store.update_server(connection, made.id, clock.now(), vm_state=VmState.ERROR, flavor=vars(LARGE))
    with write(engine) as connection:
        server_store.update_server(connection, made.id, clock.now(), vm_state=VmState.DELETED)
        make(compute)
        assert compute.quotas.usage("red")["cores"] == 6
    assert compute.quotas.usage("red")["cores"] == 2
    make(compute)
    counted.check(engine)


def test_a_failed_request_does_not_change_the_usage(compute, engine, monkeypatch):
    make(compute)
    with monkeypatch.context() as patched:
        patched.setattr(server_store.BUILD_JOBS, "enqueue_all", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            make(compute)
    assert compute.quotas.usage("red")["instances"] == 1


@on_every_database
def test_uncounted_servers_are_counted_in_batches_by_later_requests(compute, engine, monkeypatch):
    """There are more uncounted servers than one request counts."""
    monkeypatch.setattr("moorage.compute.store.quota_store._TO_COUNT", quota_store._UNCOUNTED.limit(2))
    make(compute, most=5)
    with write(engine) as connection:
        connection.execute(servers.update().values(counted=None, is_counted=False))
        connection.execute(quota_locks.update().values(used=None))
    for there in (5, 6, 7):
        assert compute.quotas.usage("red")["instances"] == there
        make(compute)
        counted.check(engine)
    with engine.connect() as connection:
        assert connection.execute(select(servers.c.id).where(servers.c.is_counted.is_(False))).all() == []


@on_every_database
def test_creating_a_server_costs_the_same_beside_ten_thousand_servers(compute, engine):
    """The cost is the number of statements, and of rows that the database reads."""
    compute.quotas.set_limits("red", {"instances": -1, "cores": -1, "ram": -1}, force=True)
    first = make(compute, most=10)[0]
    beside_ten = _work(engine, lambda: make(compute))
    with write(engine) as connection:
        row = dict(connection.execute(select(servers).where(servers.c.id == first.id)).one()._mapping)
        del row["number"]
        connection.execute(servers.insert(), [row | {"id": f"{number:036}"} for number in range(10_000)])
        used = {name: units * 10_011 for name, units in row["counted"].items()}
        connection.execute(quota_locks.update().values(used=used))
    if dialect_name(engine) != "sqlite":  # planners need a table's statistics
        table = {"postgresql": "", "mariadb": "TABLE "}[dialect_name(engine)]
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(f"ANALYZE {table}servers")
    beside_many = _work(engine, lambda: make(compute))
    assert beside_many["statements"] == beside_ten["statements"]
    assert beside_many["looked at"] <= beside_ten["looked at"] * 1.2 + 10


def _work(engine, do):
    """The statements of `do`, and what it reads: rows of servers (PostgreSQL), rows (MariaDB) or steps (SQLite)."""
    work, kind, steps = Counter(), dialect_name(engine), [0]

    def looked_at(connection):
        if kind == "sqlite":
            return steps[0]
        if kind == "mariadb":
            return sum(int(row[1]) for row in connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'"))
        of_servers = "FROM pg_stat_xact_user_tables WHERE relname = 'servers'"
        return connection.exec_driver_sql(f"SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) {of_servers}").scalar_one()

    def checked_out(dbapi_connection, *_):
        dbapi_connection.set_progress_handler(lambda: steps.__setitem__(0, steps[0] + 1), 1)

    listeners = [
        ("begin", lambda connection: work.update({"looked at": -looked_at(connection)})),
        ("commit", lambda connection: work.update({"looked at": looked_at(connection)})),
        ("before_execute", lambda *_: work.update({"statements": 1})),
        *([("checkout", checked_out)] if kind == "sqlite" else []),
    ]
    for name, listener in listeners:
        event.listen(engine, name, listener)
    do()
    for name, listener in listeners:
        event.remove(engine, name, listener)
    return work
