"""The content of a config drive."""

import base64
import json

import pytest

from moorage.agent.model import Guest, config_drive_files
from moorage.jobs.contract import AddressPayload, InterfacePayload

GUEST = Guest(
    uuid="9a5c1c38-7a0e-4a3e-9f2b-0c8f6a1d2e3f",
    name="Web 1",
    hostname="web-1",
    project_id="red",
    instance_name="instance-0000002a",
    zone="az1",
    launch_index=1,
    flavor="small",
    metadata={"role": "web"},
    public_keys={"mine": "ssh-ed25519 AAAA"},
    user_data=base64.b64encode(b"#!/bin/sh\necho hello\n").decode(),
)


@pytest.fixture
def drive():
    return config_drive_files(GUEST)


def test_meta_data_contain_the_name_the_metadata_and_the_public_keys_of_the_guest(drive):
    document = json.loads(drive["openstack/latest/meta_data.json"])
    assert (document["uuid"], document["name"], document["hostname"]) == (GUEST.uuid, "Web 1", "web-1")
    assert (document["meta"], document["launch_index"], document["availability_zone"]) == ({"role": "web"}, 1, "az1")
    assert document["public_keys"] == {"mine": "ssh-ed25519 AAAA"}
    assert document["keys"] == [{"name": "mine", "type": "ssh", "data": "ssh-ed25519 AAAA"}]


def test_user_data_are_decoded_and_written_unchanged(drive):
    assert drive["openstack/latest/user_data"] == b"#!/bin/sh\necho hello\n" == drive["ec2/latest/user-data"]


def test_values_that_were_not_given_are_not_in_the_files():
    plain = config_drive_files(Guest(uuid="u", name="n", hostname="h", project_id="p"))
    document = json.loads(plain["openstack/latest/meta_data.json"])
    assert {"meta", "public_keys", "keys"}.isdisjoint(document)
    assert not [name for name in plain if "user" in name]
    assert json.loads(plain["openstack/latest/network_data.json"]) == {"links": [], "networks": [], "services": []}


def test_ec2_metadata_are_written_too(drive):
    document = json.loads(drive["ec2/latest/meta-data.json"])
    assert (document["instance-id"], document["instance-type"]) == ("i-0000002a", "small")
    assert document["public-keys"] == {"0": {"_name": "0=mine", "openssh-key": "ssh-ed25519 AAAA"}}


LAB = InterfacePayload(
    "port-1", "fa:16:3e:00:00:01", "lab", "flat", "br0", None, False,
    (
        AddressPayload("192.0.2.100", "192.0.2.0/24", "192.0.2.1", ("192.0.2.53",)),
        AddressPayload("2001:db8::5", "2001:db8::/64", "2001:db8::1", ("2001:db8::53", "192.0.2.53")),
    ),
)  # fmt: skip
NAT = InterfacePayload("port-2", "fa:16:3e:00:00:02", "nat", "local", "default", None, True)


def test_networks_are_described_as_nova_describes_them():
    """As `nova.virt.netutils.get_network_metadata` of Nova 31.0.0 names and numbers them."""
    files = config_drive_files(Guest(uuid="u", name="n", hostname="h", project_id="p", interfaces=(LAB, NAT)))
    document = json.loads(files["openstack/latest/network_data.json"])
    assert document["links"] == [
        {
            "id": "interface0", "vif_id": "port-1", "type": "phy", "mtu": 1500,
            "ethernet_mac_address": "fa:16:3e:00:00:01",
        },
        {
            "id": "interface1", "vif_id": "port-2", "type": "phy", "mtu": None,
            "ethernet_mac_address": "fa:16:3e:00:00:02",
        },
    ]  # fmt: skip
    four, six, dhcp = document["networks"]
    assert four == {
        "id": "network0",
        "type": "ipv4",
        "link": "interface0",
        "ip_address": "192.0.2.100",
        "netmask": "255.255.255.0",
        "routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "192.0.2.1"}],
        "network_id": "lab",
        "services": [{"type": "dns", "address": "192.0.2.53"}],
    }
    assert (six["type"], six["ip_address"], six["netmask"]) == ("ipv6", "2001:db8::5", "ffff:ffff:ffff:ffff::")
    assert six["routes"] == [{"network": "::", "netmask": "::", "gateway": "2001:db8::1"}]
    assert dhcp == {"id": "network2", "type": "ipv4_dhcp", "link": "interface1", "network_id": "nat"}
    assert [one["address"] for one in document["services"]] == ["192.0.2.53", "2001:db8::53"]
    assert json.loads(files["ec2/latest/meta-data.json"])["local-ipv4"] == "192.0.2.100"
