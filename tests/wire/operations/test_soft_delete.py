"""A deletion that can be undone for some time."""

import pytest

INTERVAL_S = 3600
HOST = "compute-1"


@pytest.fixture
def cloud(make_cloud):
    return make_cloud(reclaim_instance_interval=INTERVAL_S)


def delete(cloud, server_id):
    code = cloud.send("DELETE", f"/v2.1/servers/{server_id}")[0]
    cloud.settle()
    return code


def listed(cloud, query=""):
    return [server["id"] for server in cloud.send("GET", f"/v2.1/servers{query}")[1]["servers"]]


def test_a_soft_deleted_server_is_stopped_keeps_its_devices_and_can_be_restored(cloud):
    """R41 (accelerator-attach): for a server of the Compute API devices are kept until it is really deleted."""
    server_id = cloud.boot("gpu")
    host = cloud.hosts[HOST]
    held, plugged = cloud.held(server_id), host.plugged
    assert delete(cloud, server_id) == 204
    assert cloud.status(server_id) == ("SOFT_DELETED", None, HOST)
    assert (host.servers[server_id], host.plugged, cloud.held(server_id)) == ("shutoff", plugged, held)
    assert (listed(cloud), listed(cloud, "?status=SOFT_DELETED")) == ([], [server_id])
    assert delete(cloud, server_id) == 204
    cloud.do(server_id, "restore")
    assert cloud.status(server_id)[0] == "ACTIVE"
    assert (host.servers[server_id], host.plugged, listed(cloud)) == ("running", plugged, [server_id])


def test_a_soft_deleted_server_is_reclaimed_after_the_interval(cloud):
    server_id = cloud.boot("gpu")
    delete(cloud, server_id)
    cloud.run_for(INTERVAL_S - 120)
    assert cloud.status(server_id)[0] == "SOFT_DELETED"
    cloud.run_for(240)
    assert cloud.show(server_id) is None
    assert (cloud.hosts[HOST].servers, cloud.hosts[HOST].plugged, cloud.used(HOST)) == ({}, {}, {})


def test_a_restored_server_is_not_reclaimed(cloud):
    server_id = cloud.boot("small")
    delete(cloud, server_id)
    cloud.do(server_id, "restore")
    cloud.run_for(INTERVAL_S * 2)
    assert cloud.status(server_id)[0] == "ACTIVE"


def test_force_delete_deletes_a_soft_deleted_server_at_once(cloud):
    server_id = cloud.boot("small")
    delete(cloud, server_id)
    cloud.do(server_id, "forceDelete")
    assert cloud.show(server_id) is None
    other = cloud.boot("small")
    cloud.do(other, "forceDelete")
    assert cloud.show(other) is None


def test_a_server_without_a_host_is_deleted_at_once(cloud):
    cloud.hosts[HOST].faults.fail("spawn", "no space left")
    server_id = cloud.boot("small")
    assert cloud.status(server_id)[0] == "ERROR"
    delete(cloud, server_id)
    assert cloud.show(server_id) is None


def test_only_a_soft_deleted_server_can_be_restored(cloud):
    server_id = cloud.boot("small")
    assert cloud.act(server_id, "restore")[0] == 409


def test_without_an_interval_a_server_is_deleted_at_once(make_cloud):
    cloud = make_cloud()
    server_id = cloud.boot("small")
    delete(cloud, server_id)
    assert cloud.show(server_id) is None


def test_with_an_option_a_soft_deletion_releases_devices_and_restore_attaches_others(make_cloud):
    """R41, R30 (accelerator-attach): as a stop does (A4); the allocation waits in Placement."""
    cloud = make_cloud(reclaim_instance_interval=INTERVAL_S)
    host = cloud.hosts[HOST]
    host.start(accelerators_on_stop="release")
    server_id = cloud.boot("gpu")
    held = cloud.held(server_id)
    delete(cloud, server_id)
    assert (cloud.status(server_id)[0], host.plugged, cloud.held(server_id)) == ("SOFT_DELETED", {}, held)
    cloud.do(server_id, "restore")
    assert cloud.status(server_id)[0] == "ACTIVE"
    assert host.plugged == {server_id: list(host.driver.domains()[server_id].spec.pci_addresses)}
    assert len(host.plugged[server_id]) == 1
    delete(cloud, server_id)
    cloud.run_for(2 * INTERVAL_S)
    assert (cloud.show(server_id), host.servers, host.plugged, cloud.used(HOST)) == (None, {}, {}, {})
