"""A build fails on a host that cannot undo it, for example because of a full disk: the server is built elsewhere.

Leftover resources stay allocated until the host, which is up all the time, has cleaned up. Until then, the server is
not placed on that host again.
"""

import pytest

from moorage.agent.virt.driver import VirtError
from tests.wire.operations.conftest import GPU, Killed

HELD = {"VCPU": 2, "MEMORY_MB": 1024, "DISK_GB": 10, GPU: 1}
NO_SPACE = "no space left on the disk"
#: Hosts in this test poll for jobs once an hour.
AWHILE = 3700


@pytest.fixture
def cloud(make_cloud):
    return make_cloud(2)


def fill_disk(host, *, failures=1000):
    """The disk becomes full during a build, so full that nothing can be deleted either."""
    spawn = host.driver.spawn

    def half(*arguments, **named):
        spawn(*arguments, **named)
        raise VirtError(NO_SPACE)

    host.driver.spawn = half
    host.faults.fail("destroy", NO_SPACE, times=failures)


def free_disk(host):
    """The disk has free space again, and the agent is restarted."""
    host.faults._faults.clear()
    host.start()
    host.cloud.forget_waits()


def assigned_server(cloud):
    """A server with a chosen host that has not claimed the job, its host, and the other host."""
    body = {"name": "vm", "imageRef": cloud.image, "flavorRef": "gpu", "networks": "none"}
    status, answer, _ = cloud.send("POST", "/v2.1/servers", {"server": body})
    assert status == 202, answer
    cloud.builder.run_once()
    server_id = answer["server"]["id"]
    host = cloud.hosts[cloud.status(server_id)[2]]
    return server_id, host, next(other for other in cloud.hosts.values() if other is not host)


def state_of(cloud, host):
    rows = cloud.admin("GET", "/v2.1/os-hypervisors/detail")[1]["hypervisors"]
    return next(row["state"] for row in rows if row["hypervisor_hostname"] == host.name)


def is_clean(cloud, host):
    assert (host.servers, host.plugged, cloud.used(host.name)) == ({}, {}, {})
    with cloud.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM moves WHERE is_open").scalar() == 0
        assert connection.exec_driver_sql("SELECT count(*) FROM jobs WHERE open_queue IS NOT NULL").scalar() == 0


def test_a_server_is_built_elsewhere_at_once_and_the_first_host_cleans_up_later(cloud):
    server_id, first, second = assigned_server(cloud)
    fill_disk(first, failures=3)
    cloud.settle()
    assert cloud.status(server_id) == ("ACTIVE", None, second.name)
    assert list(first.plugged) == [server_id]
    assert (cloud.used(first.name), cloud.held(server_id)) == (HELD, {second.name: HELD})
    cloud.run_for(30)
    assert state_of(cloud, first) == "up"
    cloud.run_for(3 * AWHILE)
    assert cloud.status(server_id) == ("ACTIVE", None, second.name)
    assert list(second.servers) == list(second.plugged) == [server_id]
    is_clean(cloud, first)


def test_without_another_host_the_fault_says_what_could_not_be_undone(make_cloud):
    cloud = make_cloud(1)
    server_id = cloud.boot("gpu")
    host = cloud.hosts["compute-1"]
    assert cloud.status(server_id)[0] == "ACTIVE"
    cloud.do(server_id, "forceDelete")
    fill_disk(host)
    server_id = cloud.boot("gpu")
    assert cloud.status(server_id)[0] == "ERROR"
    assert "and it could not be undone: no space left on the disk" in cloud.show(server_id)["fault"]["message"]
    assert (list(host.plugged), cloud.used("compute-1"), cloud.held(server_id)) == ([server_id], HELD, {})
    assert cloud.send("DELETE", f"/v2.1/servers/{server_id}")[0] == 204
    cloud.run_for(AWHILE)
    assert cloud.status(server_id)[0] == "ERROR"
    assert (list(host.plugged), cloud.used("compute-1")) == ([server_id], HELD)
    free_disk(host)
    cloud.run_for(AWHILE)
    is_clean(cloud, host)
    cloud.do(server_id, "forceDelete")
    assert cloud.show(server_id) is None


def test_a_server_deleted_during_a_failing_build_leaves_nothing(cloud):
    server_id, first, _ = assigned_server(cloud)
    fill_disk(first, failures=1)
    assert cloud.send("DELETE", f"/v2.1/servers/{server_id}")[0] == 204
    cloud.run_for(AWHILE)
    assert cloud.show(server_id) is None
    is_clean(cloud, first)


@pytest.mark.parametrize("action", ["migrate", "unshelve", "evacuate"])
def test_a_move_that_its_destination_cannot_undo_is_cleaned_up_later(cloud, action):
    server_id, source, target = assigned_server(cloud)
    cloud.settle()
    if action == "unshelve":
        cloud.do(server_id, "shelve")
        fill_disk(source, failures=0)
    if action == "evacuate":
        cloud.take_down(source)
    before = cloud.status(server_id)
    fill_disk(target)
    cloud.admin_do(server_id, action, {"migrate": None, "unshelve": {"host": target.name}, "evacuate": {}}[action])
    assert cloud.status(server_id)[1:] == before[1:]
    assert cloud.status(server_id)[0] == ("ERROR" if action == "evacuate" else before[0])
    assert (list(target.plugged), cloud.used(target.name)) == ([server_id], HELD)
    assert state_of(cloud, target) == "up"
    free_disk(target)
    cloud.run_for(AWHILE)
    is_clean(cloud, target)
    assert cloud.held(server_id) == ({} if action == "unshelve" else {source.name: HELD})


def test_a_server_is_not_moved_to_a_host_that_has_not_cleaned_up_after_it(cloud):
    """The cleanup would remove the new guest of that server, too."""
    server_id, first, second = assigned_server(cloud)
    fill_disk(first)
    cloud.settle()
    cloud.admin_do(server_id, "migrate")
    assert cloud.status(server_id) == ("ACTIVE", None, second.name)
    (said,) = [event["details"] for event in last_action(cloud, server_id)["events"] if event["details"]]
    assert "the host has not yet cleaned up what is left of the server" in said
    free_disk(first)
    cloud.run_for(AWHILE)
    cloud.admin_do(server_id, "migrate")
    assert cloud.status(server_id) == ("VERIFY_RESIZE", None, first.name)


def test_a_server_is_not_moved_back_to_a_host_that_has_not_cleaned_up_after_a_confirmed_move(cloud):
    server_id, first, second = assigned_server(cloud)
    cloud.settle()
    cloud.admin_do(server_id, "migrate")
    first.faults.fail("destroy", NO_SPACE, times=1000)
    cloud.do(server_id, "confirmResize")
    cloud.admin_do(server_id, "migrate")
    assert cloud.status(server_id) == ("ACTIVE", None, second.name)
    free_disk(first)
    cloud.run_for(AWHILE)
    assert list(second.servers) == [server_id]
    is_clean(cloud, first)
    cloud.admin_do(server_id, "migrate")
    assert cloud.status(server_id) == ("VERIFY_RESIZE", None, first.name)


def test_a_host_whose_agent_dies_in_each_build_is_cleaned_up(cloud):
    server_id, first, second = assigned_server(cloud)
    spawn = first.driver.spawn

    def dies(*arguments, **named):
        spawn(*arguments, **named)
        raise Killed("the agent")

    for _ in range(20):
        first.driver.spawn = dies
        try:
            cloud.settle()
            break
        except Killed:
            first.start()
            cloud.forget_waits()
            spawn = first.driver.spawn
    cloud.run_for(AWHILE)
    assert cloud.status(server_id) == ("ACTIVE", None, second.name)
    is_clean(cloud, first)


def last_action(cloud, server_id):
    rows = cloud.admin("GET", f"/v2.1/servers/{server_id}/os-instance-actions")[1]["instanceActions"]
    path = f"/v2.1/servers/{server_id}/os-instance-actions/{rows[0]['request_id']}"
    return cloud.admin("GET", path)[1]["instanceAction"]
