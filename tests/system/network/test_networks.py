"""The unmodified clients manage networks, subnets and ports, and give servers networks."""

import json

import pytest

from tests.ports import free_port
from tests.processes import openstack, sdk
from tests.system.network.conftest import client_variables
from tests.system.planes import PlaneProcess, until

pytestmark = [pytest.mark.slow, pytest.mark.clients]

JSON = ("-f", "json")


def test_openstackclient_lists_creates_and_deletes_networks_subnets_and_ports(variables):
    def run(*words):
        (said,) = openstack(variables, words)
        return said

    assert sorted(row["Name"] for row in run("network", "list", *JSON).document) == ["lab", "small"]
    attachment = ("--provider-network-type", "vlan", "--provider-physical-network", "br0", "--provider-segment", "7")
    made = run("network", "create", "--share", *attachment, "testbed", *JSON).document
    assert (made["shared"], made["provider:segmentation_id"]) == (True, 7)
    subnet = run(
        "subnet", "create", "--network", "testbed", "--subnet-range", "203.0.113.0/29", "--dns-nameserver",
        "203.0.113.6", "testbed-4", *JSON,
    ).document  # fmt: skip
    assert (subnet["gateway_ip"], subnet["dns_nameservers"]) == ("203.0.113.1", ["203.0.113.6"])
    port = run("port", "create", "--network", "testbed", "--fixed-ip", "ip-address=203.0.113.5", "p1", *JSON).document
    assert [one["ip_address"] for one in port["fixed_ips"]] == ["203.0.113.5"]
    assert [row["Name"] for row in run("port", "list", "--network", "testbed", *JSON).document] == ["p1"]
    refused = run("network", "delete", "testbed")
    assert refused.status == 1
    assert "ports still in use on the network" in refused.err
    for words in (("port", "p1"), ("subnet", "testbed-4"), ("network", "testbed")):
        assert run(words[0], "delete", words[1]).status == 0
    assert sorted(row["Name"] for row in run("network", "list", *JSON).document) == ["lab", "small"]
    assert "has no routers" in run("router", "list").err
    limits = {row["Resource"]: row["Limit"] for row in run("quota", "show", "--network", *JSON).document}
    assert limits["ports"] == 500


SCRIPT = """
import json
flavor = cloud.create_flavor('sdk', ram=64, vcpus=1, disk=1)
image = cloud.create_image('sdk', data=b'tiny', disk_format='raw', container_format='bare', visibility='public')
server = cloud.create_server('sdk-1', image=image, flavor=flavor, network=['lab', 'small'], wait=True, timeout=60)
said = {
    'server': [server.status, {name: [one['addr'] for one in rows] for name, rows in server.addresses.items()}],
    'interfaces': len(list(cloud.compute.server_interfaces(server))),
    'ports': [[one.device_owner, one.status] for one in cloud.network.ports(device_id=server.id)],
}
said['deleted'] = cloud.delete_server('sdk-1', wait=True, timeout=60)
said['left'] = len(list(cloud.network.ports(device_id=server.id)))
print(json.dumps(said))
"""


def test_openstacksdk_waits_for_a_server_with_two_networks_and_its_addresses(variables):
    said = json.loads(sdk(variables, SCRIPT))
    assert said == {
        "server": ["ACTIVE", {"lab": ["192.0.2.100"], "small": ["198.51.100.2"]}],
        "interfaces": 2,
        "ports": [["compute:nova", "ACTIVE"]] * 2,
        "deleted": True,
        "left": 0,
    }


FIRST = """
import json
flavor = cloud.create_flavor('sdk', ram=64, vcpus=1, disk=1)
image = cloud.create_image('sdk', data=b'tiny', disk_format='raw', container_format='bare', visibility='public')
server = cloud.create_server('sdk-1', image=image, flavor=flavor, wait=True, timeout=60)
alone = cloud.compute.create_server(name='sdk-2', image_id=image.id, flavor_id=flavor.id, networks='none')
alone = cloud.compute.wait_for_server(alone)
print(json.dumps([
    server.status, [one['addr'] for one in server.addresses['lab']], alone.status, alone.addresses,
    len(list(cloud.network.ports())),
]))
"""


def test_the_first_server_of_a_new_plane_has_an_address(tmp_path):
    """Openstacksdk deletes a server that gets none while it waits."""
    with PlaneProcess(tmp_path / "moorage.conf", "--port", str(free_port())) as plane:
        said = json.loads(sdk(client_variables(plane), FIRST))
        assert said == ["ACTIVE", ["192.0.2.2"], "ACTIVE", {}, 1]
        image = openstack(client_variables(plane), ("image", "show", "sdk", *JSON))[0].document["id"]
        create = ("server", "create", "--flavor", "sdk", "--image", image, "--wait", "first", *JSON)
        for version, name in (("2.1", "old"), ("2.96", "new")):
            words = [name if word == "first" else word for word in create]
            (made,) = openstack(client_variables(plane) | {"OS_COMPUTE_API_VERSION": version}, words)
            assert list(made.document["addresses"]) == ["lab"], made.err


def test_openstackclient_creates_servers_on_networks_and_ports(variables):
    def run(*words):
        (said,) = openstack(variables, words)
        assert said.status == 0, said.err
        return said

    run("flavor", "create", "--ram", "64", "--disk", "1", "tiny")
    image = run("image", "create", "--disk-format", "raw", "--public", "--file", "/dev/null", "tiny", *JSON).document
    run("port", "create", "--network", "lab", "--fixed-ip", "ip-address=192.0.2.150", "fixed", *JSON)
    create = ("server", "create", "--flavor", "tiny", "--image", image["id"], "--wait")
    web = run(*create, "--network", "lab", "web", *JSON).document
    assert list(web["addresses"]) == ["lab"]
    assert run(*create, "--port", "fixed", "db", *JSON).document["addresses"] == {"lab": ["192.0.2.150"]}
    assert run(*create, "--nic", "none", "alone", *JSON).document["addresses"] == {}
    run("server", "delete", "--wait", "web", "db", "alone")
    ports = run("port", "list", "--long", *JSON).document
    assert [(row["Name"], row["Status"]) for row in ports] == [("fixed", "DOWN")]
    run("port", "delete", "fixed")


def test_openstackclient_attaches_and_detaches_networks_and_ports(variables):
    def run(*words):
        (said,) = openstack(variables, words)
        assert said.status == 0, said.err
        return said

    def addresses(count):
        """Of the server, when no interface waits for the host any more, and it has so many addresses."""

        def settled():
            shown = run("server", "show", "web2", *JSON).document
            found = [sorted(each for some in shown["addresses"].values() for each in some)]
            return found if shown["OS-EXT-STS:task_state"] is None and len(found[0]) == count else None

        return until(settled)[0]

    run("flavor", "create", "--ram", "64", "--disk", "1", "tiny2")
    image = run("image", "create", "--disk-format", "raw", "--public", "--file", "/dev/null", "tiny2", *JSON).document
    port = run("port", "create", "--network", "lab", "--fixed-ip", "ip-address=192.0.2.160", "extra", *JSON).document
    create = ("server", "create", "--flavor", "tiny2", "--image", image["id"], "--wait", "--nic", "none")
    run(*create, "web2")
    run("server", "add", "network", "--tag", "first", "web2", "lab")
    run("server", "add", "port", "web2", "extra")
    run("server", "add", "fixed", "ip", "--fixed-ip-address", "192.0.2.170", "web2", "lab")
    assert addresses(3) == ["192.0.2.100", "192.0.2.160", "192.0.2.170"]
    run("server", "remove", "port", "web2", "extra")
    assert addresses(2) == ["192.0.2.100", "192.0.2.170"]
    run("server", "remove", "network", "web2", "lab")
    assert addresses(0) == []

    def ports():
        return [(row["ID"], row["Status"]) for row in run("port", "list", "--long", *JSON).document]

    until(lambda: ports() == [(port["id"], "DOWN")], seen=ports)  # ports are released after the host has reported
    run("server", "delete", "--wait", "web2")
    run("port", "delete", "extra")
