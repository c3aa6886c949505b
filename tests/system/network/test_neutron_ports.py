"""Servers whose ports a real Neutron has: it is told that its agents of Open vSwitch run on the hosts."""

import json
from dataclasses import replace

import pytest

from moorage.core.errors import Unavailable
from moorage.network.client.neutron_ports import MADE_FOR
from tests.wire.compute.conftest import IMAGE, Host
from tests.wire.compute.network_plane import addresses

pytestmark = [pytest.mark.slow, pytest.mark.neutron]

#: A project. Policies of Neutron name projects by UUIDs only.
FRIEND = "0f0f0f0f-0000-4000-8000-000000000000"


def test_a_server_gets_a_port_in_the_network_and_loses_it_when_it_is_deleted(plane, host, network):
    server_id = plane.boot("small", networks=[{"uuid": network.lab}])
    plane.settle(host)
    (port,) = network.ports_of(server_id)
    (fixed,) = port["fixed_ips"]
    assert addresses(plane, server_id) == {"lab": [fixed["ip_address"]]}
    assert (port["project_id"], port["device_owner"], port["binding:host_id"]) == ("red", "compute:nova", "compute-1")
    assert (port["binding:vif_type"], bool(port["binding:profile"][MADE_FOR])) == ("ovs", True)
    (interface,) = host.built[0]["server"]["interfaces"]
    assert interface == {
        "port_id": port["id"], "mac": port["mac_address"], "network_id": network.lab, "kind": "ovs",
        "physical_network": "br-int", "segmentation_id": None, "is_dhcp": False, "mtu": 1450,
        "addresses": [
            {"address": fixed["ip_address"], "cidr": "192.0.2.0/24", "gateway": "192.0.2.1", "dns": ["192.0.2.53"]}
        ],
    }  # fmt: skip
    plane.send("DELETE", f"/v2.1/servers/{server_id}")
    plane.settle(host)
    assert network.ports_of(server_id) == []


def test_a_port_of_the_project_is_bound_and_becomes_free_again(plane, host, network):
    port_id = network.make("port", network_id=network.own, project_id="red")["id"]
    server_id = plane.boot("small", networks=[{"port": port_id}])
    other_id = plane.boot("small", networks=[{"port": port_id}])
    plane.settle(host)
    taken = network.port(port_id)
    winner, loser = (server_id, other_id) if taken["device_id"] == server_id else (other_id, server_id)
    assert (plane.show(winner)["status"], plane.show(loser)["status"]) == ("ACTIVE", "ERROR")
    assert plane.show(loser)["fault"]["message"] == f"Port {port_id} is still in use."
    plane.send("DELETE", f"/v2.1/servers/{winner}")
    plane.settle(host)
    free = network.port(port_id)
    assert (free["device_id"], free["device_owner"], free["binding:host_id"]) == ("", "", "")


@pytest.mark.parametrize("what", ["POST /v2.0/ports", "PUT /v2.0/ports"])
def test_a_builder_whose_answer_was_lost_finds_what_it_made(plane, host, network, what):
    def lose(_request, send):
        send()
        raise Unavailable("the connection was lost")

    port_id = network.make("port", network_id=network.own, project_id="red")["id"]
    plane.builds.ways["network"].on(what, lose, times=1)
    server_id = plane.boot("small", networks=[{"uuid": network.lab}, {"port": port_id}])
    plane.settle(host)
    assert plane.show(server_id)["status"] == "BUILD"
    plane.clock.sleep(600)
    host.register()
    plane.settle(host)
    assert plane.show(server_id)["status"] == "ACTIVE"
    assert len(network.ports_of(server_id)) == 2


def test_a_network_that_is_no_longer_shared_is_refused_when_the_host_is_known(plane, host, network):
    network_id = network.network("late", "203.0.113.0/24", shared=True)
    server_id = plane.boot("small", networks=[{"uuid": network_id}])
    policies = network.http.get("/v2.0/rbac-policies", params=[("object_id", network_id)])["rbac_policies"]
    for policy in policies:
        network.http.request("DELETE", f"/v2.0/rbac-policies/{policy['id']}")
    plane.settle(host)
    assert plane.show(server_id)["fault"]["message"] == f"Network {network_id} could not be found."
    assert network.ports_of(server_id) == []


def test_a_network_that_a_policy_shares_with_the_project_is_used(plane, host, network):
    network_id = network.network("friends", "203.0.113.0/24", project_id="blue")
    policy = {"object_type": "network", "object_id": network_id, "action": "access_as_shared", "target_tenant": FRIEND}
    network.http.request("POST", "/v2.0/rbac-policies", json={"rbac_policy": policy})
    plane.builds.ways["network"].on("GET /v2.0/networks", as_member(network_id), times=1)
    server_id = plane.boot("small", networks=[{"uuid": network_id}], who=f"alice:{FRIEND}")
    plane.settle(host)
    assert plane.show(server_id)["status"] == "ACTIVE"
    assert len(network.ports_of(server_id)) == 1


def as_member(network_id):
    """To a member Neutron shows a network as shared if a policy shares it with him; here every caller is admin."""

    def answer(_request, send):
        given = send()
        body = json.loads(given.body)
        for row in body["networks"]:
            row["shared"] |= row["id"] == network_id
        return replace(given, body=json.dumps(body).encode())

    return answer


def test_a_host_without_neutrons_agent_is_named(plane, network):
    host = Host(plane, "compute-3")
    host.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500)
    server_id = plane.boot("small", networks=[{"uuid": network.lab}])
    plane.settle(host)
    (port,) = network.ports_of(server_id) or [None]
    message = plane.show(server_id)["fault"]["message"]
    assert message.startswith("Binding failed for port")
    assert message.endswith("on host compute-3.")
    assert port is None


def test_an_interface_is_attached_and_detached(plane, host, network):
    server_id = plane.boot("small")
    plane.settle(host)
    path = f"/v2.1/servers/{server_id}/os-interface"
    status, _, answer = plane.send("POST", path, {"interfaceAttachment": {"net_id": network.lab}})
    assert status == 200, answer
    (port,) = network.ports_of(server_id)
    assert answer["interfaceAttachment"]["port_id"] == port["id"]
    plane.settle(host)
    plane.clock.sleep(600)  # the release for a request that died is not due any more
    plane.settle(host)
    assert len(network.ports_of(server_id)) == 1
    plane.send("DELETE", f"{path}/{port['id']}")
    plane.settle(host)
    assert network.ports_of(server_id) == []


@pytest.mark.parametrize("what", ["before", "after"])
def test_an_attachment_whose_answer_was_lost_leaves_no_port(plane, host, network, what):
    def lose(_request, send):
        if what == "after":
            send()
        raise Unavailable("the connection was lost")

    server_id = plane.boot("small")
    plane.settle(host)
    plane.builds.ways["network"].on("POST /v2.0/ports", lose, times=1)
    path = f"/v2.1/servers/{server_id}/os-interface"
    assert plane.send("POST", path, {"interfaceAttachment": {"net_id": network.lab}})[0] == 503
    plane.settle(host)
    assert network.ports_of(server_id) == []
    assert plane.show(server_id)["addresses"] == {}


def test_ports_follow_a_server_to_its_next_host(plane, host, network):
    other = Host(plane, "compute-2")
    other.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500)
    server_id = plane.boot(
        "small", networks=[{"uuid": network.lab}], availability_zone="nova:compute-1", who="root:red", roles="admin"
    )
    plane.settle(host, other)
    assert network.ports_of(server_id)[0]["binding:host_id"] == "compute-1"
    assert plane.admin("POST", f"/v2.1/servers/{server_id}/action", {"migrate": None})[0] == 202
    for _ in range(5):
        plane.settle(host, other)
    (port,) = network.ports_of(server_id)
    assert (plane.show(server_id)["OS-EXT-SRV-ATTR:host"], port["binding:host_id"]) == ("compute-2", "compute-2")


class TestEvents:
    """What a Neutron tells compute, and what a host asks."""

    @pytest.fixture
    def server_id(self, plane, host, network):
        server_id = plane.boot("small", networks=[{"uuid": network.lab}])
        plane.settle(host)
        return server_id

    def unplugged(self, plane, server_id, **options):
        return plane.agent.server_here("compute-1", server_id, **options).unplugged_ports

    def tell(self, plane, server_id, name, port_id, status="completed"):
        event = {"name": name, "server_uuid": server_id, "tag": port_id, "status": status}
        code, _, answer = plane.admin("POST", "/v2.1/os-server-external-events", {"events": [event]})
        assert (code, answer["events"][0]["code"]) == (200, 200)

    def test_a_port_is_plugged_when_neutron_says_so(self, plane, host, network, server_id):
        (port,) = network.ports_of(server_id)
        assert self.unplugged(plane, server_id) == (port["id"],)
        self.tell(plane, server_id, "network-vif-plugged", port["id"], "failed")
        assert self.unplugged(plane, server_id, refresh=True) == (port["id"],)
        self.tell(plane, server_id, "network-vif-plugged", port["id"])
        assert self.unplugged(plane, server_id) == ()
        self.tell(plane, server_id, "network-vif-unplugged", port["id"])
        assert self.unplugged(plane, server_id) == (port["id"],)

    def test_a_changed_port_is_read_again(self, plane, host, network, server_id):
        (port,) = network.ports_of(server_id)
        (fixed,) = port["fixed_ips"]
        other = {"port": {"fixed_ips": [{"subnet_id": fixed["subnet_id"], "ip_address": "192.0.2.250"}]}}
        network.http.request("PUT", f"/v2.0/ports/{port['id']}", json=other)
        for _ in range(3):
            self.tell(plane, server_id, "network-changed", port["id"])
        plane.builds.ways["network"].clear()
        plane.settle(host)
        assert addresses(plane, server_id) == {"lab": ["192.0.2.250"]}
        assert len(plane.builds.ways["network"].requests) == 3  # ports, network, subnets; once

    def test_a_deleted_port_leaves_its_server(self, plane, host, network, server_id):
        (port,) = network.ports_of(server_id)
        network.http.request("DELETE", f"/v2.0/ports/{port['id']}")
        self.tell(plane, server_id, "network-vif-deleted", port["id"])
        plane.settle(host)
        assert addresses(plane, server_id) == {}
        assert plane.show(server_id)["status"] == "ACTIVE"


def test_a_network_and_a_port_of_another_project_are_not_found(plane, host, network):
    foreign = network.make("port", network_id=network.lab, project_id="blue")["id"]
    for wanted, sentence in (
        ({"uuid": network.foreign}, f"Network {network.foreign} could not be found."),
        ({"port": foreign}, f"Port {foreign} not usable for the server: it belongs to another project."),
    ):
        body = {"server": {"name": "vm", "imageRef": IMAGE, "flavorRef": "small", "networks": [wanted]}}
        status, _, answer = plane.send("POST", "/v2.1/servers", body)
        assert (status, answer["badRequest"]["message"]) == (400, sentence)
