"""On which hosts a server group's members are counted, on each database: this is one statement over three tables."""

import pytest

from moorage.compute.deps import ComputeDeps, ComputeSettings
from moorage.compute.model.servers import Flavor, HostReport
from moorage.compute.requests.server_request import NewServer
from moorage.compute.service import ComputeService
from moorage.compute.store import group_store, host_store, server_store
from moorage.compute.store.tables import moves, servers
from moorage.core.caller import Caller
from moorage.db.session import read, write
from moorage.jobs.background_tasks import Wakeups
from moorage.jobs.wakeups import InProcessHints
from moorage.scheduler.server_groups import GroupPolicy
from tests.migrated import migrated_engine
from tests.store.conftest import on_every_database

ALICE = Caller(user_id="alice", project_id="red", roles=frozenset({"member"}))
SMALL = Flavor(id="small", name="small", vcpus=2, ram_mb=512, disk_gb=1)
ROOTS = {name: f"00000000-0000-4000-8000-00000000000{name}" for name in "abc"}


@pytest.fixture
def engine(kind):
    with migrated_engine("compute", kind) as engine:
        yield engine


@pytest.fixture
def compute(engine, clock, ids):
    service = ComputeService(ComputeDeps(engine, clock, ids, InProcessHints(Wakeups())), ComputeSettings())
    service.flavors.create_flavor(SMALL)
    with write(engine) as connection:
        for name, root in ROOTS.items():
            report = HostReport(name, root, "QEMU", 1, "127.0.0.1", 8, 8192, 100, 0)
            host_store.register(connection, report, ids.uuid(), clock.now())
    return service


@on_every_database
@pytest.mark.parametrize(
    ("status", "may", "will"),
    [(None, "a", "a"), ("migrating", "ab", "b"), ("finished", "ab", "a"), ("error", "ab", "a")],
)
def test_a_member_that_moves_is_counted_once_on_each_of_its_hosts(compute, engine, clock, ids, status, may, will):
    """Anti-affinity considers all possible hosts, the other policies the destination."""
    for policy, names in (
        (GroupPolicy.ANTI_AFFINITY, may),
        (GroupPolicy.AFFINITY, will),
        (GroupPolicy.SOFT_ANTI_AFFINITY, will),
    ):
        group = compute.groups.create_group(ALICE, "g", policy, {})
        new = NewServer(
            name="vm", flavor_id="small", image_id="i", count=2, least=2, scheduler_hints={"group": group.id}
        )
        member, other = compute.creation.create_servers(ALICE, "req", new, may_force_host=False)
        row = {
            "id": ids.uuid(), "server_id": member.id, "kind": "migration", "status": status, "is_open": True,
            "source_host": "a", "dest_host": "b", "old_state": "active", "old_flavor": vars(SMALL),
            "new_flavor": vars(SMALL), "details": {}, "user_id": "alice", "project_id": "red",
            "created_at": clock.now(), "updated_at": clock.now(),
        }  # fmt: skip
        with write(engine) as connection:
            server_store.update_server(connection, member.id, clock.now(), host="a")
            if status is not None:
                connection.execute(moves.insert(), row)
                connection.execute(moves.insert(), row | {"id": ids.uuid(), "dest_host": "c", "is_open": False})
        with read(engine) as connection:
            view = group_store.group_view(connection, other.id)
            assert view.members == {ROOTS[name]: 1 for name in names}
            assert group_store.group_view(connection, member.id).members == {}
        with write(engine) as connection:
            connection.execute(servers.update().where(servers.c.id == member.id).values(vm_state="deleted"))
        with read(engine) as connection:
            assert group_store.group_view(connection, other.id).members == {}
