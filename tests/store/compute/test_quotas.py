"""Limits hold on each database, whoever asks at the same time, and offloaded and moving servers count as they should."""

import threading

import pytest

from moorage.compute.model import Flavor
from moorage.compute.quota import DEFAULTS
from moorage.compute.server_request import NewServer
from moorage.compute.service import ComputeService
from moorage.compute.tables import moves, servers
from moorage.core.caller import Caller
from moorage.core.errors import OverQuota, Unavailable
from moorage.db.migrations import upgrade
from moorage.db.transactions import write
from moorage.jobs.duties import Wakeups
from moorage.jobs.hints import InProcessHints

ALICE = Caller(user_id="alice", project_id="red", roles=frozenset({"member"}))
SMALL = Flavor(id="small", name="small", vcpus=2, ram_mb=512, disk_gb=1)
LARGE = Flavor(id="large", name="large", vcpus=4, ram_mb=512, disk_gb=1)


@pytest.fixture
def compute(engine, clock, ids):
    upgrade(engine, "compute")
    service = ComputeService(engine, clock, ids, InProcessHints(Wakeups()), quotas=DEFAULTS)
    service.flavors.create(SMALL)
    return service


def make(compute, least=1, most=1):
    new = NewServer(name="vm", flavor_id="small", image_id="image", count=most, least=least)
    return compute.creation.create(ALICE, "req", new, may_force_host=False)


def test_many_at_once_make_as_many_as_the_limit_and_no_more(compute):
    answers = []

    def ask():
        for _ in range(5):
            try:
                answers.append(len(make(compute)))
            except OverQuota:
                answers.append(0)
            except Unavailable:  # the database gave the transaction up: the client is told to come again
                answers.append(None)

    compute.quotas.set_limits("red", {"instances": 6, "cores": -1}, force=True)
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(filter(None, answers)) == 6
    assert compute.quotas.usage("red")["instances"] == 6


def test_an_offloaded_server_counts_as_a_server_only_until_it_comes_back(compute, engine):
    made = make(compute)[0]
    with write(engine) as connection:
        connection.execute(servers.update().values(vm_state="shelved_offloaded", task_state=None))
    used = compute.quotas.usage("red")
    assert (used["instances"], used.get("cores", 0)) == (1, 0)
    compute.quotas.set_limits("red", {"cores": 1}, force=True)
    with write(engine) as connection, pytest.raises(OverQuota, match="Requested 2, but already used 0 of 1 cores"):
        compute.quotas.admit_return(connection, "red", made.flavor, {})


def test_a_server_that_is_resized_counts_with_the_larger_flavor(compute, engine, clock):
    made = make(compute)[0]
    row = {
        "id": "00000000-0000-4000-8000-000000000001", "server_id": made.id, "kind": "resize", "status": "finished",
        "is_open": True, "source_host": "a", "old_state": "active", "old_flavor": vars(SMALL),
        "new_flavor": vars(LARGE), "details": {}, "user_id": "alice", "project_id": "red", "created_at": clock.now(),
        "updated_at": clock.now(),
    }  # fmt: skip
    compute.quotas.set_limits("red", {"cores": 3}, force=True)
    with write(engine) as connection, pytest.raises(OverQuota, match="Requested 2, but already used 2 of 3 cores"):
        compute.quotas.admit_resize(connection, "red", SMALL, LARGE, {})
    with write(engine) as connection:
        connection.execute(moves.insert(), row)
    assert compute.quotas.usage("red")["cores"] == 4
    with write(engine) as connection:
        connection.execute(moves.update().values(is_open=False))
    assert compute.quotas.usage("red")["cores"] == 2
