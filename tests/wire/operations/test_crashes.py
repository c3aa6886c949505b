"""API, builder or agent are killed before and after each effect on the outside, in each operation.

After the restart of all of them the server is in the final state of the operation, or in its previous state. Its
allocation, its devices, the hypervisor's domain and the table agree, and nothing is allocated twice.
"""

import pytest

from tests.wire.operations.conftest import GPU

HELD = {"VCPU": 2, "MEMORY_MB": 1024, "DISK_GB": 10, GPU: 1}
POWER = {
    "ACTIVE": "running", "RESCUE": "running", "PAUSED": "paused", "SUSPENDED": "suspended", "SHUTOFF": "shutoff",
    "VERIFY_RESIZE": "running", "SHELVED": "shutoff", "SOFT_DELETED": "shutoff",
}  # fmt: skip


def agrees(cloud, server_id):
    """Compares all records of the server; returns its status."""
    status, task, host_name = cloud.status(server_id)
    assert task is None
    for name, host in cloud.hosts.items():
        if name == host_name:
            assert host.servers == {server_id: POWER[status]}
            assert host.plugged == {server_id: list(host.driver.domains()[server_id].spec.pci_addresses)}
            assert len(host.plugged[server_id]) == 1
        else:
            assert (host.servers, host.plugged, cloud.used(name)) == ({}, {}, {})
    assert cloud.held(server_id) == ({host_name: HELD} if host_name else {})
    return status


def at_each_point(cloud, work, check, *, is_there=True):
    """Runs `work` once for each point, with a death there, and then calls `check` with the server's id.

    `work` creates a server, and returns (its id, the operation on it). Returns the number of points.
    """
    point = 0
    while True:
        server_id, operation = work()
        died_at = cloud.killed_at(point, operation)
        passed = len(cloud.points.passed)
        check(server_id)
        if is_there:
            cloud.admin_do(server_id, "forceDelete")
        assert cloud.show(server_id) is None
        assert all(cloud.used(name) == {} for name in cloud.hosts)
        if died_at is None:
            return passed
        point = died_at + 1


#: (actions before it, action, argument, resulting status)
OPERATIONS = [
    ([], "suspend", None, "SUSPENDED"),
    (["suspend"], "resume", None, "ACTIVE"),
    ([], "reboot", {"type": "HARD"}, "ACTIVE"),
    (["os-stop"], "os-start", None, "ACTIVE"),
    ([], "rebuild", {"imageRef": "IMAGE"}, "ACTIVE"),
    (["os-stop"], "rebuild", {"imageRef": "IMAGE"}, "SHUTOFF"),
    ([], "rescue", None, "RESCUE"),
    (["rescue"], "unrescue", None, "ACTIVE"),
    ([], "changePassword", {"adminPass": "x"}, "ACTIVE"),
    ([], "trigger_crash_dump", None, "ACTIVE"),
    ([], "createImage", {"name": "copy"}, "ACTIVE"),
    ([], "createBackup", {"name": "copy", "backup_type": "daily", "rotation": 1}, "ACTIVE"),
]


@pytest.mark.parametrize(("before", "action", "argument", "status"), OPERATIONS)
def test_an_operation_is_finished_after_a_death_at_any_point(cloud, before, action, argument, status):
    argument = {"imageRef": cloud.image} if action == "rebuild" else argument

    def work():
        server_id = cloud.boot("gpu")
        for earlier in before:
            cloud.do(server_id, earlier)
        return server_id, lambda: cloud.act(server_id, action, argument)

    def check(server_id):
        assert agrees(cloud, server_id) == status

    assert at_each_point(cloud, work, check) >= 4


def test_a_soft_deletion_and_a_restore_survive_a_death_at_any_point(make_cloud):
    cloud = make_cloud(reclaim_instance_interval=1_000_000)

    def delete(server_id):
        cloud.send("DELETE", f"/v2.1/servers/{server_id}")

    def deleting():
        server_id = cloud.boot("gpu")
        return server_id, lambda: delete(server_id)

    def restoring():
        server_id = cloud.boot("gpu")
        delete(server_id)
        cloud.settle()
        return server_id, lambda: cloud.act(server_id, "restore")

    def is_deleted(server_id):
        assert agrees(cloud, server_id) == "SOFT_DELETED"

    def is_back(server_id):
        assert agrees(cloud, server_id) == "ACTIVE"

    at_each_point(cloud, deleting, is_deleted)
    at_each_point(cloud, restoring, is_back)


# ------------------------------------------------------------------------------ moves to another host


def other_than(cloud, host):
    return next(name for name in cloud.hosts if name != host)


def test_shelving_and_unshelving_survive_a_death_at_any_point(make_cloud):
    cloud = make_cloud(2)

    def shelving():
        server_id = cloud.boot("gpu")
        return server_id, lambda: cloud.act(server_id, "shelve")

    def unshelving():
        server_id = cloud.boot("gpu")
        cloud.do(server_id, "shelve")
        return server_id, lambda: cloud.act(server_id, "unshelve")

    def is_shelved(server_id):
        assert agrees(cloud, server_id) == "SHELVED_OFFLOADED"

    def is_back(server_id):
        assert agrees(cloud, server_id) == "ACTIVE"

    assert at_each_point(cloud, shelving, is_shelved) > 10
    assert at_each_point(cloud, unshelving, is_back) > 10
    assert [image.id for image in cloud.images.images()] == [cloud.image]


def waits(cloud, server_id):
    """The server was resized: it is on both hosts, with allocations of the server and of its move."""
    status, task, host = cloud.status(server_id)
    assert (status, task) == ("VERIFY_RESIZE", None)
    source = other_than(cloud, host)
    assert cloud.hosts[host].servers == {server_id: "running"}
    assert cloud.hosts[source].servers == {server_id: "shutoff"}
    assert (len(cloud.hosts[host].plugged[server_id]), cloud.hosts[source].plugged) == (1, {})
    assert (cloud.held(server_id), cloud.used(source)) == ({host: HELD}, HELD)


@pytest.mark.parametrize("end", [None, "confirmResize", "revertResize"])
def test_a_migration_with_confirm_or_revert_survives_a_death_at_any_point(make_cloud, end):
    cloud = make_cloud(2)

    def work():
        server_id = cloud.boot("gpu")
        if end is None:
            return server_id, lambda: cloud.admin_act(server_id, "migrate")
        cloud.admin_do(server_id, "migrate")
        return server_id, lambda: cloud.act(server_id, end)

    def check(server_id):
        if end is None:
            waits(cloud, server_id)
        else:
            assert agrees(cloud, server_id) == "ACTIVE"

    assert at_each_point(cloud, work, check) > 8
    assert [image.id for image in cloud.images.images()] == [cloud.image]


@pytest.mark.parametrize(("where", "call"), [("target", "spawn"), ("source", "snapshot")])
def test_the_reversal_of_a_failed_migration_survives_a_death_at_any_point(make_cloud, where, call):
    """The fault is permanent, so that a repetition after a death has it, too."""
    cloud = make_cloud(2)

    def work():
        server_id = cloud.boot("gpu")
        source = cloud.status(server_id)[2]
        fails_on = cloud.hosts[source if where == "source" else other_than(cloud, source)]
        fails_on.faults.fail(call, "out of luck", times=1_000)

        def migrate():
            cloud.admin_act(server_id, "migrate")
            cloud.settle()

        return server_id, migrate

    def check(server_id):
        for host in cloud.hosts.values():
            host.faults.__init__()
        assert agrees(cloud, server_id) == "ACTIVE"
        assert cloud.migrations()[0][1] in ("error", "finished")

    assert at_each_point(cloud, work, check) > 10
    assert [image.id for image in cloud.images.images()] == [cloud.image]


def test_the_reversal_of_a_failed_live_migration_survives_a_death_at_any_point(make_cloud):
    cloud = make_cloud(2)

    def work():
        server_id = cloud.boot("small")
        cloud.hosts[cloud.status(server_id)[2]].faults.fail("hand-over", "the network is away", times=1_000)
        body = {"host": None, "block_migration": "auto"}
        return server_id, lambda: cloud.admin_act(server_id, "os-migrateLive", body)

    def check(server_id):
        for host in cloud.hosts.values():
            host.faults.__init__()
        status, task, host = cloud.status(server_id)
        assert (status, task, list(cloud.held(server_id))) == ("ACTIVE", None, [host])
        assert cloud.hosts[host].servers == {server_id: "running"}
        assert (cloud.hosts[other_than(cloud, host)].servers, cloud.used(other_than(cloud, host))) == ({}, {})

    assert at_each_point(cloud, work, check) > 10


def test_the_reversal_of_a_migration_after_a_reset_survives_a_death_at_any_point(make_cloud):
    """The reset comes at the start of the move, so all later steps belong to its reversal."""
    cloud = make_cloud(2)

    def work():
        server_id = cloud.boot("gpu")
        cloud.admin_act(server_id, "migrate")
        cloud.mover.run_once()
        return server_id, lambda: cloud.admin_act(server_id, "os-resetState", {"state": "active"})

    def check(server_id):
        assert agrees(cloud, server_id) == "ACTIVE"
        with cloud.engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM moves WHERE is_open").scalar() == 0

    assert at_each_point(cloud, work, check) > 6


@pytest.mark.parametrize("end", ["confirmResize", "revertResize"])
def test_a_resize_in_place_with_confirm_or_revert_survives_a_death_at_any_point(make_cloud, end):
    cloud = make_cloud(1, allow_resize_to_same_host=True)
    cloud.flavor("tall-gpu", {f"resources:{GPU}": "1"}, disk=20)

    def work():
        server_id = cloud.boot("gpu")

        def resize_and_end():
            cloud.act(server_id, "resize", {"flavorRef": "tall-gpu"})
            cloud.settle()
            cloud.act(server_id, end)

        return server_id, resize_and_end

    def check(server_id):
        if cloud.status(server_id)[0] == "VERIFY_RESIZE":
            cloud.do(server_id, end)
        (host,) = cloud.hosts.values()
        assert cloud.status(server_id)[:2] == ("ACTIVE", None)
        disk_gb = cloud.held(server_id)[host.name]["DISK_GB"]
        assert cloud.used(host.name) == {**HELD, "DISK_GB": disk_gb}
        assert host.driver.domains()[server_id].spec.disk_gb == disk_gb
        assert host.plugged == {server_id: list(host.driver.domains()[server_id].spec.pci_addresses)}
        assert host.servers == {server_id: "running"}

    assert at_each_point(cloud, work, check) > 12
    assert [image.id for image in cloud.images.images()] == [cloud.image]


def test_a_deletion_while_the_host_is_down_survives_a_death_at_any_point(make_cloud):
    """Kills API and builder while the host is down, and the host when it comes back."""
    cloud = make_cloud(2)

    def work():
        server_id = cloud.boot("gpu")
        host = cloud.hosts[cloud.status(server_id)[2]]
        host.stop()
        cloud.forget_waits()
        cloud.run_for(120)

        def delete():
            cloud.send("DELETE", f"/v2.1/servers/{server_id}")
            cloud.settle()
            host.start()
            cloud.forget_waits()
            cloud.run_for(30)

        return server_id, delete

    def check(server_id):
        for host in cloud.hosts.values():
            if host.agent is None:
                host.start()
        cloud.forget_waits()
        cloud.run_for(130)
        assert cloud.show(server_id) is None
        for name, host in cloud.hosts.items():
            assert (host.servers, host.plugged, cloud.used(name)) == ({}, {}, {})

    assert at_each_point(cloud, work, check, is_there=False) > 3


def test_a_live_migration_survives_a_death_at_any_point(make_cloud):
    cloud = make_cloud(2)

    def work():
        server_id = cloud.boot("small")
        body = {"host": None, "block_migration": "auto"}
        return server_id, lambda: cloud.admin_act(server_id, "os-migrateLive", body)

    def check(server_id):
        status, task, host = cloud.status(server_id)
        assert (status, task) == ("ACTIVE", None)
        assert cloud.hosts[host].servers == {server_id: "running"}
        assert (cloud.hosts[other_than(cloud, host)].servers, cloud.used(other_than(cloud, host))) == ({}, {})
        assert list(cloud.held(server_id)) == [host]

    assert at_each_point(cloud, work, check) > 12


def test_an_evacuation_survives_a_death_at_any_point(make_cloud):
    """Kills also while the old host comes back."""
    cloud = make_cloud(2)

    def work():
        server_id = cloud.boot("gpu")
        host = cloud.hosts[cloud.status(server_id)[2]]
        host.stop()
        cloud.forget_waits()
        cloud.run_for(120)

        def evacuate():
            cloud.admin_act(server_id, "evacuate", {}, version="2.90")
            cloud.settle()
            host.start()
            cloud.forget_waits()
            cloud.run_for(30)

        return server_id, evacuate

    def check(server_id):
        for host in cloud.hosts.values():
            if host.agent is None:
                host.start()
        cloud.forget_waits()
        cloud.run_for(130)
        assert agrees(cloud, server_id) == "ACTIVE"

    assert at_each_point(cloud, work, check) > 12


def test_a_migration_whose_destination_died_survives_a_death_at_any_point(make_cloud):
    """The task that notices the death is killed, too; leftovers are removed when that host is back."""
    cloud = make_cloud(2)

    def work():
        server_id = cloud.boot("gpu")
        source = cloud.status(server_id)[2]
        cloud.admin_act(server_id, "migrate")
        cloud.step_by_step(2)
        cloud.hosts[other_than(cloud, source)].stop()
        cloud.forget_waits()
        return server_id, lambda: cloud.run_for(220)

    def check(server_id):
        cloud.run_for(130)
        assert cloud.status(server_id)[:2] == ("ACTIVE", None)
        for host in cloud.hosts.values():
            if host.agent is None:
                cloud.bring_back(host)
        cloud.run_for(130)
        assert agrees(cloud, server_id) == "ACTIVE"

    assert at_each_point(cloud, work, check) > 8


def test_a_second_evacuation_after_the_death_of_the_destination_survives_a_death_at_any_point(make_cloud):
    """The allocations at the first destination are given to a separate move, the server gets back those of its old
    host, and then the evacuation continues.
    """
    cloud = make_cloud(3)
    others = []

    def work():
        server_id = cloud.boot("gpu")
        first = cloud.status(server_id)[2]
        others[:] = [host for name, host in cloud.hosts.items() if name != first]
        cloud.hosts[first].stop()
        cloud.forget_waits()
        cloud.run_for(120)
        cloud.admin_act(server_id, "evacuate", {"host": others[0].name})
        cloud.mover.run_once()
        others[0].stop()
        cloud.forget_waits()
        cloud.run_for(120)
        return server_id, lambda: cloud.admin_do(server_id, "evacuate", {})

    def check(server_id):
        assert cloud.status(server_id) == ("SHUTOFF", None, others[1].name)
        for host in cloud.hosts.values():
            if host.agent is None:
                host.start()
        cloud.forget_waits()
        cloud.run_for(130)
        assert agrees(cloud, server_id) == "SHUTOFF"
        for host in cloud.hosts.values():
            assert host is others[1] or (host.servers, host.plugged, cloud.used(host.name)) == ({}, {}, {})

    assert at_each_point(cloud, work, check) > 10
