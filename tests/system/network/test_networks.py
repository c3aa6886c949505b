"""The unmodified openstackclient manages networks, subnets and ports."""

import pytest

from tests.processes import openstack

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
