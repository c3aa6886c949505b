"""Ports of a real Neutron whose device profile requests a virtual function of a network card. The cards are simulated,
and Neutron is told that its agents of such cards run on the hosts.
"""

import json
from dataclasses import replace

import pytest

from moorage.compute.store import scheduling_store
from moorage.network.client.neutron_ports import MADE_FOR
from moorage.scheduler.weighers import WEIGHERS
from moorage.wire.transports import ClientResponse
from tests import counted
from tests.wire.operations.conftest import GPU, Cloud
from tests.wire.operations.test_device_profiles import profile

pytestmark = [pytest.mark.slow, pytest.mark.neutron]

NIC = "CUSTOM_ACCELERATOR_NIC"
VLAN = 100


@pytest.fixture
def cloud(tmp_path, neutron, network):
    offered = "fast-nic, fpga, two-nics, nic-and-gpu, two-groups, nowhere"
    cloud = Cloud(tmp_path, accelerators=True, neutron=neutron[1], devices="every_kind", port_device_profiles=offered)
    cloud.image = cloud.make_image()
    for name in ("compute-1", "compute-2"):
        cloud.add_host(name)
    cloud.flavor("small")
    cloud.flavor("gpu", {f"resources:{GPU}": "1"})
    profile(cloud, "fast-nic", {f"resources:{NIC}": "1"})
    yield cloud
    counted.check(cloud.engine)


@pytest.fixture(scope="module")
def fast(neutron):
    """The id of a network on the cards' physical network."""
    network = neutron[0]
    provider = {"network_type": "vlan", "physical_network": "fast", "segmentation_id": VLAN}
    return network.network(
        "fast", "198.51.100.0/24", shared=True, **{f"provider:{name}": value for name, value in provider.items()}
    )


@pytest.fixture
def port_id(network, fast):
    return device_port(network, fast)


def device_port(network, network_id, device_profile="fast-nic", vnic_type="accelerator-direct"):
    more = {"binding:vnic_type": vnic_type, "device_profile": device_profile}
    return network.make("port", network_id=network_id, project_id="red", **more)["id"]


def begin(cloud, port_id, *, roles="member", **more):
    body = {"name": "vm", "imageRef": cloud.image, "flavorRef": "small", "networks": [{"port": port_id}], **more}
    return cloud.send("POST", "/v2.1/servers", {"server": body}, roles=roles)


def boot(cloud, port_id, **more):
    status, body, _ = begin(cloud, port_id, **more)
    assert status == 202, body
    cloud.settle()
    return body["server"]["id"]


def message(body):
    (error,) = body.values()
    return error["message"]


def guest(cloud, server_id):
    """(host, definition of the guest)"""
    host = cloud.hosts[cloud.status(server_id)[2]]
    return host, host.driver.domains()[server_id].spec


def test_a_port_gets_a_function_of_a_network_card_of_the_servers_host(cloud, network, port_id):
    server_id = boot(cloud, port_id)
    host, spec = guest(cloud, server_id)
    (address,) = host.plugged[server_id]
    port = network.port(port_id)
    (interface,) = spec.interfaces
    assert (interface.device, interface.mac, interface.vlan) == (address, port["mac_address"], VLAN)
    assert spec.pci_addresses == ()
    assert (port["device_id"], port["binding:host_id"], port["binding:vif_type"]) == (server_id, host.name, "hw_veb")
    assert port["binding:profile"] == {"pci_slot": address, "physical_network": "fast"}
    assert cloud.held(server_id)[host.name][NIC] == 1
    shown = cloud.show(server_id)
    assert [row["addr"] for row in shown["addresses"]["fast"]] == [port["fixed_ips"][0]["ip_address"]]


def test_a_deleted_server_frees_the_port_and_the_function(cloud, network, port_id):
    server_id = boot(cloud, port_id)
    host, _ = guest(cloud, server_id)
    cloud.send("DELETE", f"/v2.1/servers/{server_id}")
    cloud.settle()
    port = network.port(port_id)
    assert (port["device_id"], port["binding:host_id"], port["binding:profile"]) == ("", "", {})
    assert (host.plugged, cloud.held(server_id)) == ({}, {})


def test_beside_a_device_of_the_flavor_and_a_port_without_one(cloud, network, port_id):
    body = {"networks": [{"uuid": network.lab}, {"port": port_id}], "flavorRef": "gpu"}
    server_id = boot(cloud, port_id, **body)
    host, spec = guest(cloud, server_id)
    plain, device = spec.interfaces
    assert (plain.device, bool(plain.ovs_port)) == (None, True)
    assert set(host.plugged[server_id]) == {device.device, *spec.pci_addresses}
    assert len(spec.pci_addresses) == 1


@pytest.fixture
def apart(cloud, network, fast, port_id):
    """The id of a server with a function that has another address than the one which is free on the other host."""
    server_id = boot(cloud, port_id)
    host, spec = guest(cloud, server_id)
    (other,) = (name for name in cloud.hosts if name != host.name)
    other_id = boot(cloud, device_port(network, fast), availability_zone=f"nova:{other}", roles="admin")
    assert guest(cloud, other_id)[1].interfaces[0].device == spec.interfaces[0].device
    return server_id


def test_the_port_follows_the_server_to_another_host_and_back(cloud, network, apart, port_id):
    source, before = guest(cloud, apart)
    cloud.admin_do(apart, "migrate")
    target, there = guest(cloud, apart)
    assert there.interfaces[0].device != before.interfaces[0].device
    assert bound_to(network, port_id) == (target.name, there.interfaces[0].device)
    cloud.do(apart, "revertResize")
    back, spec = guest(cloud, apart)
    assert back is source
    assert bound_to(network, port_id) == (source.name, spec.interfaces[0].device)
    assert (len(source.plugged[apart]), apart in target.plugged) == (1, False)


def test_after_a_failed_migration_the_port_is_bound_to_the_old_host(cloud, network, apart, port_id):
    source, _ = guest(cloud, apart)
    for host in cloud.hosts.values():
        if host is not source:
            host.faults.fail("spawn", "out of luck")
    cloud.admin_do(apart, "migrate")
    assert cloud.status(apart) == ("ACTIVE", None, source.name)
    _, after = guest(cloud, apart)
    assert bound_to(network, port_id) == (source.name, after.interfaces[0].device)


def test_after_a_failed_unshelving_the_port_is_bound_to_no_host(cloud, network, apart, port_id):
    cloud.do(apart, "shelve")
    for host in cloud.hosts.values():
        host.faults.fail("spawn", "out of luck")
    cloud.do(apart, "unshelve")
    assert cloud.status(apart)[0] == "SHELVED_OFFLOADED"
    port = network.port(port_id)
    assert (port["device_id"], port["binding:host_id"], port["binding:profile"]) == (apart, "", {})


def test_after_a_failed_evacuation_the_port_is_bound_to_the_dead_host(cloud, network, apart, port_id):
    source, before = guest(cloud, apart)
    for host in cloud.hosts.values():
        if host is not source:
            host.faults.fail("spawn", "out of luck")
    cloud.take_down(source)
    cloud.admin_do(apart, "evacuate", {})
    assert cloud.status(apart)[0] == "ERROR"
    assert bound_to(network, port_id) == (source.name, before.interfaces[0].device)


def bound_to(network, port_id):
    port = network.port(port_id)
    return port["binding:host_id"], port["binding:profile"]["pci_slot"]


def test_a_resized_server_keeps_its_port(cloud, network, port_id):
    server_id = boot(cloud, port_id)
    cloud.flavor("larger", vcpus=3)
    cloud.do(server_id, "resize", {"flavorRef": "larger"})
    cloud.do(server_id, "confirmResize")
    host, spec = guest(cloud, server_id)
    assert bound_to(network, port_id) == (host.name, spec.interfaces[0].device)


def test_a_shelved_server_gives_the_function_back_and_gets_one_again(cloud, network, port_id):
    server_id = boot(cloud, port_id)
    host, _ = guest(cloud, server_id)
    cloud.do(server_id, "shelve")
    assert cloud.status(server_id)[0] == "SHELVED_OFFLOADED"
    assert host.plugged == {}
    port = network.port(port_id)
    assert (port["device_id"], port["binding:host_id"], port["binding:profile"]) == (server_id, "", {})
    cloud.do(server_id, "unshelve")
    host, spec = guest(cloud, server_id)
    assert bound_to(network, port_id) == (host.name, spec.interfaces[0].device)


@pytest.mark.parametrize("action", [("os-stop", "os-start"), ("reboot", None), ("rebuild", None)])
def test_the_guest_keeps_its_interface(cloud, network, port_id, action):
    server_id = boot(cloud, port_id)
    _, before = guest(cloud, server_id)
    first, second = action
    argument = {"reboot": {"type": "HARD"}, "rebuild": {"imageRef": cloud.image}}.get(first)
    cloud.do(server_id, first, argument)
    if second is not None:
        cloud.do(server_id, second)
    _, after = guest(cloud, server_id)
    assert (cloud.status(server_id)[0], after.interfaces) == ("ACTIVE", before.interfaces)
    assert bound_to(network, port_id)[1] == after.interfaces[0].device


def test_a_function_that_changes_while_the_server_is_off_is_bound_anew(cloud, network, fast, port_id):
    for host in cloud.hosts.values():
        host.start(accelerators_on_stop="release")
    server_id = boot(cloud, port_id)
    host, before = guest(cloud, server_id)
    cloud.do(server_id, "os-stop")
    other_id = boot(cloud, device_port(network, fast), availability_zone=f"nova:{host.name}", roles="admin")
    cloud.do(server_id, "os-start")
    _, after = guest(cloud, server_id)
    _, other = guest(cloud, other_id)
    assert other.interfaces[0].device == before.interfaces[0].device
    assert after.interfaces[0].device not in (None, before.interfaces[0].device)
    assert bound_to(network, port_id) == (host.name, after.interfaces[0].device)


@pytest.mark.parametrize("physical_network", [None, "outside"])
def test_a_network_that_no_card_is_connected_to_is_named(cloud, network, physical_network):
    """Neutron would bind the port to a host whose other cards are connected to the network, whatever the card."""
    network_id = network.lab
    if physical_network is not None:
        provider = {"provider:network_type": "flat", "provider:physical_network": physical_network}
        network_id = network.network("elsewhere", "203.0.113.0/24", shared=True, **provider)
    port_id = device_port(network, network_id)
    server_id = boot(cloud, port_id)
    text = cloud.show(server_id)["fault"]["message"]
    assert f"Port {port_id} is on the physical network {physical_network or '(none)'}, but the network card" in text
    with cloud.engine.connect() as connection:  # a tenant cannot make hosts count as faulty
        assert scheduling_store.unusual_hosts(connection, set(WEIGHERS)).failed_builds == {}
    assert [host.plugged for host in cloud.hosts.values()] == [{}, {}]
    cloud.send("DELETE", f"/v2.1/servers/{server_id}")
    cloud.settle()
    assert network.port(port_id)["device_id"] == ""


def test_only_a_function_of_a_network_card_is_given_to_a_port(cloud, network, fast):
    """Whoever may create a port chooses its profile; no flavor limits what it requests."""
    for name, groups in {
        "fpga": [{"resources:CUSTOM_ACCELERATOR_FPGA": "1"}],
        "two-nics": [{f"resources:{NIC}": "2"}],
        "nic-and-gpu": [{f"resources:{NIC}": "1", f"resources:{GPU}": "1"}],
        "two-groups": [{f"resources:{NIC}": "1"}, {f"resources:{NIC}": "1"}],
    }.items():
        profile(cloud, name, *groups)
        status, body, _ = begin(cloud, device_port(network, fast, name))
        assert (status, f"The device profile {name} of a port must have one group" in message(body)) == (400, True)
    port_id = device_port(network, fast, "nowhere")
    status, body, _ = begin(cloud, port_id)
    assert (status, f"device_profile of port {port_id}=nowhere" in message(body)) == (400, True)
    profile(cloud, "of-a-private-flavor", {f"resources:{NIC}": "1"})
    status, body, _ = begin(cloud, device_port(network, fast, "of-a-private-flavor"))
    assert (status, "which is not offered for ports" in message(body)) == (403, True)


def test_the_limits_of_the_project_count_the_function(cloud, network, port_id):
    limits = {"quota_set": {"force": True, f"class:{NIC}": 0}}
    assert cloud.admin("PUT", "/v2.1/os-quota-sets/red", limits)[0] == 200
    status, body, _ = begin(cloud, port_id)
    assert (status, f"Quota exceeded for class:{NIC}" in message(body)) == (403, True)


@pytest.mark.parametrize(
    ("vnic_type", "device_profile"),
    [
        ("accelerator-direct-physical", "fast-nic"),
        ("direct", None),
        ("normal", "fast-nic"),
        ("accelerator-direct", None),
    ],
)
def test_other_types_of_ports_are_refused_by_name(cloud, network, fast, vnic_type, device_profile):
    port_id = device_port(network, fast, device_profile, vnic_type)
    status, body, _ = begin(cloud, port_id)
    assert (status, f"Port {port_id} has the VNIC type {vnic_type}" in message(body)) == (501, True)


def test_such_a_port_is_neither_attached_nor_detached(cloud, network, fast, port_id):
    server_id = boot(cloud, port_id)
    path = f"/v2.1/servers/{server_id}/os-interface"
    other_id = device_port(network, fast)
    status, body, _ = cloud.send("POST", path, {"interfaceAttachment": {"port_id": other_id}})
    assert (status, "given to a server when it is created" in message(body)) == (501, True)
    status, body, _ = cloud.send("DELETE", f"{path}/{port_id}")
    assert (status, "stays with its server until the server is deleted" in message(body)) == (501, True)


def test_a_port_is_given_to_a_server_once(cloud, port_id):
    status, body, _ = begin(cloud, port_id, networks=[{"port": port_id}, {"port": port_id}])
    assert (status, message(body)) == (400, "Each port can be given to the server once.")


def test_such_a_server_is_not_suspended(cloud, port_id):
    server_id = boot(cloud, port_id)
    status, body = cloud.act(server_id, "suspend")
    assert (status, "the state of the network card cannot be saved" in message(body)) == (403, True)


class TestPortsThatDisappear:
    """A guest that kept the function would be in a VLAN that Neutron gives to somebody else."""

    def event(self, cloud, server_id, port_id):
        body = {"events": [{"name": "network-vif-deleted", "server_uuid": server_id, "tag": port_id}]}
        assert cloud.admin("POST", "/v2.1/os-server-external-events", body)[0] == 200
        cloud.settle()

    def has_no_function(self, cloud, server_id):
        host, spec = guest(cloud, server_id)
        assert ([one.device for one in spec.interfaces], spec.pci_addresses) == ([], ())
        assert cloud.status(server_id)[:2] == ("ACTIVE", None)
        assert host.servers[server_id] == "running"

    def test_a_deleted_port_is_taken_from_the_guest(self, cloud, network, port_id):
        server_id = boot(cloud, port_id)
        network.http.request("DELETE", f"/v2.0/ports/{port_id}")
        self.event(cloud, server_id, port_id)
        self.has_no_function(cloud, server_id)

    @pytest.mark.parametrize(("action", "argument", "shown", "power"), [
        ("lock", None, "ACTIVE", "running"),
        ("rescue", {}, "RESCUE", "running"),
        ("os-stop", None, "SHUTOFF", "shutoff"),
        ("pause", None, "SHUTOFF", "shutoff"),  # a paused guest does not boot
        ("os-resetState", {"state": "error"}, "ERROR", "shutoff"),
        ("migrate", None, "VERIFY_RESIZE", "running"),
    ])  # fmt: skip
    def test_it_is_taken_in_every_state(self, cloud, network, port_id, action, argument, shown, power):
        server_id = boot(cloud, port_id)
        cloud.admin_do(server_id, action, argument)
        network.http.request("DELETE", f"/v2.0/ports/{port_id}")
        self.event(cloud, server_id, port_id)
        host, spec = guest(cloud, server_id)
        assert ([one.device for one in spec.interfaces], spec.pci_addresses) == ([], ())
        assert (cloud.status(server_id)[:2], host.servers[server_id]) == ((shown, None), power)

    def test_a_server_that_was_busy_loses_it_afterwards(self, cloud, network, port_id):
        server_id = boot(cloud, port_id)
        cloud.do(server_id, "shelve")
        cloud.do(server_id, "unshelve")
        host, _ = guest(cloud, server_id)
        host.stop()
        cloud.act(server_id, "reboot", {"type": "SOFT"})
        network.http.request("DELETE", f"/v2.0/ports/{port_id}")
        cloud.run_for(30)
        host.start()
        cloud.settle()
        cloud.run_for(180)
        cloud.settle()
        self.has_no_function(cloud, server_id)

    def test_a_404_that_is_not_about_the_port_takes_nothing(self, cloud, network, port_id):
        server_id = boot(cloud, port_id)
        cloud.do(server_id, "os-stop")
        missing = ClientResponse(404, {}, b'{"NeutronError": {"message": "no such route"}}')
        cloud.compute.ways["network"].on("GET /v2.0/networks", lambda _request, _send: missing, times=1)
        cloud.do(server_id, "os-start")
        assert cloud.status(server_id)[0] == "SHUTOFF"
        cloud.do(server_id, "os-start")
        _, spec = guest(cloud, server_id)
        assert spec.interfaces[0].device is not None

    @pytest.mark.parametrize("is_deleted", [False, True])
    def test_a_port_that_its_owner_took_from_the_server_is_taken_from_the_guest(
        self, cloud, network, port_id, is_deleted
    ):
        """Neutron sends no event."""
        server_id = boot(cloud, port_id)
        network.http.request("PUT", f"/v2.0/ports/{port_id}", json={"port": {"device_id": "", "device_owner": ""}})
        if is_deleted:
            network.http.request("DELETE", f"/v2.0/ports/{port_id}")
        cloud.run_for(180)
        cloud.settle()
        self.has_no_function(cloud, server_id)
        if not is_deleted:
            assert network.port(port_id)["device_id"] == ""

    def test_one_wrong_answer_of_neutron_takes_nothing(self, cloud, network, port_id):
        server_id = boot(cloud, port_id)
        ports = cloud.compute.ways["network"]
        ports.on("GET /v2.0/ports", lambda _request, send: replace(send(), body=b'{"ports": []}'), times=1)
        cloud.run_for(180)
        cloud.settle()
        _, spec = guest(cloud, server_id)
        assert spec.interfaces[0].device is not None

    def test_a_server_starts_without_a_port_that_is_gone(self, cloud, network, port_id):
        server_id = boot(cloud, port_id)
        cloud.do(server_id, "os-stop")
        network.http.request("DELETE", f"/v2.0/ports/{port_id}")
        cloud.do(server_id, "os-start")
        self.has_no_function(cloud, server_id)


def test_a_made_port_beside_it_is_still_deleted_with_the_server(cloud, network, port_id):
    server_id = boot(cloud, port_id, networks=[{"port": port_id}, {"uuid": network.lab}])
    made = [port for port in network.ports_of(server_id) if MADE_FOR in port["binding:profile"]]
    assert len(made) == 1
    cloud.send("DELETE", f"/v2.1/servers/{server_id}")
    cloud.settle()
    assert network.ports_of(server_id) == []
    assert network.port(port_id)["device_id"] == ""


@pytest.mark.parametrize(("vlan", "is_usable", "seen"), [
    (7, True, 7), ("7", True, 7), (0, True, None), (None, True, None), (4095, False, None), ("-1", False, None),
    ("1" * 5000, False, None), ("000009999", False, None), ("\N{SUPERSCRIPT TWO}", False, None),
])  # fmt: skip
def test_the_vlan_of_neutrons_answer_is_checked(cloud, network, port_id, vlan, is_usable, seen):
    """Its drivers send it as text or as a number."""

    def answer(_request, send):
        given = send()
        body = json.loads(given.body)
        if body["port"]["binding:vif_type"] == "hw_veb":
            body["port"]["binding:vif_details"]["vlan"] = vlan
        return replace(given, body=json.dumps(body).encode())

    cloud.compute.ways["network"].on("PUT /v2.0/ports", answer)
    server_id = boot(cloud, port_id)
    assert cloud.status(server_id)[0] == ("ACTIVE" if is_usable else "ERROR")
    if is_usable:
        assert guest(cloud, server_id)[1].interfaces[0].vlan == seen
    cloud.send("DELETE", f"/v2.1/servers/{server_id}")
    cloud.settle()
    assert network.port(port_id)["device_id"] == ""


class TestRequestsOfHosts:
    """A host that asks for more than its own job."""

    def test_a_host_that_works_on_no_job_of_the_server_binds_nothing(self, cloud, network, port_id):
        server_id = boot(cloud, port_id)
        before = network.port(port_id)
        for host in cloud.hosts:
            assert bind(cloud, host, server_id, port_id, "0000:c1:00.3") == 409
        assert network.port(port_id) == before

    def test_a_port_that_is_no_device_of_the_server_is_not_bound(self, cloud, network, port_id):
        plain_id = network.make("port", network_id=network.own, project_id="red")["id"]
        server_id = boot(cloud, port_id, networks=[{"port": port_id}, {"port": plain_id}])
        for other in (plain_id, network.make("port", network_id=network.own, project_id="red")["id"]):
            assert bind(cloud, cloud.status(server_id)[2], server_id, other, "0000:c1:00.3") == 404

    @pytest.mark.parametrize("address", ["", "eth0", "0000:c1:00.8", "0000:c1:00.2\n", "../../x"])
    def test_an_address_that_is_none_is_refused(self, cloud, port_id, address):
        server_id = boot(cloud, port_id)
        assert bind(cloud, cloud.status(server_id)[2], server_id, port_id, address) == 400


def bind(cloud, host, server_id, port_id, address):
    body = {"address": address, "physical_network": "fast"}
    path = f"/agent/v1/hosts/{host}/servers/{server_id}/ports/{port_id}"
    return cloud.send("PUT", path, body, who=f"host:{host}", roles="service")[0]
