"""Interfaces that are attached and detached on simulated hosts, with a kill at each effect on the outside."""

import pytest

from tests.wire.operations.test_crashes import at_each_point

LINES = {
    "lab": "bridge br0 subnet 192.0.2.0/24",
    "other": "vlan 5 on br0 subnet 198.51.100.0/24",
}


@pytest.fixture
def cloud(make_cloud):
    return make_cloud(networks=LINES)


def network(cloud, name):
    return cloud.control.send("GET", f"/network/v2.0/networks?name={name}").body["networks"][0]["id"]


def ports(cloud):
    """{id: server}"""
    return {one["id"]: one["device_id"] for one in cloud.control.send("GET", "/network/v2.0/ports").body["ports"]}


def attach(cloud, server_id, name="other"):
    body = {"interfaceAttachment": {"net_id": network(cloud, name)}}
    return cloud.send("POST", f"/v2.1/servers/{server_id}/os-interface", body)


def detach(cloud, server_id, port_id):
    return cloud.send("DELETE", f"/v2.1/servers/{server_id}/os-interface/{port_id}")


def interfaces(cloud, server_id):
    """{port id: MAC address}, of the API"""
    rows = cloud.send("GET", f"/v2.1/servers/{server_id}/os-interface")[1]["interfaceAttachments"]
    assert {one["port_state"] for one in rows} <= {"ACTIVE"}
    return {one["port_id"]: one["mac_addr"] for one in rows}


def agree(cloud, server_id, count):
    """The server has `count` interfaces according to compute, its host and the network service."""
    shown = interfaces(cloud, server_id)
    (host,) = cloud.hosts.values()
    on_host = [one.mac for one in host.driver.domains()[server_id].spec.interfaces]
    assert cloud.status(server_id)[:2] == ("ACTIVE", None)
    assert (list(shown.values()), len(shown)) == (on_host, count)
    assert ports(cloud) == dict.fromkeys(shown, server_id)


def boot(cloud):
    return cloud.boot(networks=[{"uuid": network(cloud, "lab")}])


def test_an_interface_is_attached_after_a_death_at_any_point(cloud):
    def work():
        server_id = boot(cloud)
        return server_id, lambda: attach(cloud, server_id)

    assert at_each_point(cloud, work, lambda server_id: agree(cloud, server_id, 2)) >= 4
    assert ports(cloud) == {}


def test_an_interface_is_detached_after_a_death_at_any_point(cloud):
    def work():
        server_id = boot(cloud)
        port_id = attach(cloud, server_id)[1]["interfaceAttachment"]["port_id"]
        cloud.settle()
        return server_id, lambda: detach(cloud, server_id, port_id)

    assert at_each_point(cloud, work, lambda server_id: agree(cloud, server_id, 1)) >= 6
    assert ports(cloud) == {}


def test_a_failure_on_the_host_leaves_what_was(cloud):
    server_id = boot(cloud)
    (host,) = cloud.hosts.values()
    host.faults.fail("attach-interface", "no free slot")
    attach(cloud, server_id)
    cloud.settle()
    agree(cloud, server_id, 1)
    event = {"compute_attach_interface": "Error"}
    assert cloud.actions(server_id)[0] == ("attach_interface", event)
    (port_id,) = interfaces(cloud, server_id)
    host.faults.fail("detach-interface", "the guest does not release it")
    assert detach(cloud, server_id, port_id)[0] == 202
    cloud.settle()
    agree(cloud, server_id, 1)


def test_an_attachment_that_cannot_be_undone_keeps_its_port(cloud):
    server_id = boot(cloud)
    (host,) = cloud.hosts.values()
    host.faults.fail("attach-interface", "libvirt does not answer")
    host.faults.fail("detach-interface", "libvirt does not answer")
    port_id = attach(cloud, server_id)[1]["interfaceAttachment"]["port_id"]
    cloud.settle()
    assert port_id in interfaces(cloud, server_id)
    assert ports(cloud)[port_id] == server_id
    detach(cloud, server_id, port_id)
    cloud.settle()
    agree(cloud, server_id, 1)


@pytest.mark.parametrize("action", ["rebuild", "shelve", "migrate"])
def test_a_server_keeps_an_attached_interface(make_cloud, action):
    cloud = make_cloud(2, networks=LINES)
    server_id = boot(cloud)
    attach(cloud, server_id)
    cloud.settle()
    before = interfaces(cloud, server_id)
    if action == "rebuild":
        cloud.do(server_id, "rebuild", {"imageRef": cloud.image})
    elif action == "shelve":
        cloud.do(server_id, "shelve")
        cloud.do(server_id, "unshelve")
    else:
        cloud.admin_do(server_id, "migrate")
        cloud.admin_do(server_id, "confirmResize")
    assert interfaces(cloud, server_id) == before
    host = cloud.hosts[cloud.status(server_id)[2]]
    assert [one.mac for one in host.driver.domains()[server_id].spec.interfaces] == list(before.values())
    assert set(ports(cloud)) == set(before)
