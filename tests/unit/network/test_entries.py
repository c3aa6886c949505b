"""The lines of the section [network], and the pools of addresses of a subnet."""

from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage.config import load_config, render_config
from moorage.core.errors import Invalid
from moorage.network.addressing import AddressPool, free_addresses, is_in_pools, overlap, plan_subnet
from moorage.network.entries import parse_entries
from moorage.network.model import NetworkKind, Segment

LAB = "bridge br0 subnet 192.0.2.0/24 gateway 192.0.2.1 dns 192.0.2.53,192.0.2.54 addresses 192.0.2.100-192.0.2.199"


def test_a_line_names_what_hosts_attach_to_and_the_subnet():
    lab, lab5, nat = parse_entries(
        {
            "lab": LAB,
            "lab5": "vlan 5 on br0 subnet 198.51.100.0/24",
            "nat": "libvirt default subnet 192.168.122.0/24 addresses dhcp",
        }
    )
    assert (lab.name, lab.segment) == ("lab", Segment(NetworkKind.FLAT, "br0"))
    assert lab.subnet.pools == (AddressPool("192.0.2.100", "192.0.2.199"),)
    assert (lab.subnet.gateway, lab.subnet.dns) == ("192.0.2.1", ("192.0.2.53", "192.0.2.54"))
    assert lab5.segment == Segment(NetworkKind.VLAN, "br0", 5)
    assert (lab5.subnet.gateway, lab5.subnet.pools) == (
        "198.51.100.1",
        (AddressPool("198.51.100.2", "198.51.100.254"),),
    )
    assert (nat.segment, nat.subnet.pools) == (Segment(NetworkKind.LOCAL, "default"), ())


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("", "begin with 'bridge BRIDGE'"),
        ("br0", "begin with 'bridge BRIDGE', 'vlan NUMBER on BRIDGE' or 'libvirt NETWORK'"),
        ("bridge br0", "write for example: subnet 192.0.2.0/24"),
        ("bridge a-name-that-is-too-long subnet 192.0.2.0/24", "up to 15 letters"),
        ("vlan 4095 on br0 subnet 192.0.2.0/24", "from 1 to 4094"),
        ("vlan five on br0 subnet 192.0.2.0/24", "from 1 to 4094"),
        ("bridge br0 subnet", "options are pairs"),
        ("bridge br0 subnet 192.0.2.0/24 mask 255.255.255.0", "options are subnet, gateway, dns, addresses"),
        ("bridge br0 subnet 192.0.2.0/24 subnet 192.0.2.0/24", "write it once"),
        ("bridge br0 subnet 192.0.2.1/24", "has host bits set"),
        ("bridge br0 subnet 192.0.2.0/31", "the longest prefix is /30"),
        ("bridge br0 subnet 192.0.2.0/24 gateway 192.0.3.1", "name one of its addresses"),
        ("bridge br0 subnet 192.0.2.0/24 gateway router", "write one such as 192.0.2.10"),
        ("bridge br0 subnet 192.0.2.0/24 addresses 192.0.2.9", "write FIRST-LAST"),
        ("bridge br0 subnet 192.0.2.0/24 addresses 192.0.2.9-192.0.2.3", "exchange its ends"),
        ("bridge br0 subnet 192.0.2.0/24 addresses 192.0.2.9-192.0.2.255", "leaves the subnet"),
        ("bridge br0 subnet 192.0.2.0/24 addresses 192.0.2.1-192.0.2.9", "contains the gateway 192.0.2.1"),
        ("bridge br0 subnet 192.0.2.0/24 addresses 192.0.2.2-192.0.2.9,192.0.2.9-192.0.2.20", "overlap at 192.0.2.9"),
    ],
)
def test_a_wrong_line_is_refused_with_what_to_write(line, remedy):
    with pytest.raises(Invalid) as refused:
        parse_entries({"lab": line})
    assert refused.value.message.startswith(f"lab = {line}")
    assert remedy in refused.value.message


def test_two_lines_with_one_bridge_are_refused():
    with pytest.raises(Invalid, match=r"b and a are both bridge br0; remove one of them"):
        parse_entries({"a": "bridge br0 subnet 192.0.2.0/24", "b": "bridge br0 subnet 198.51.100.0/24"})


def test_the_configuration_keeps_the_lines(tmp_path):
    file = tmp_path / "moorage.conf"
    file.write_text(f"[network]\nlab = {LAB}\nquota_ports = 7\n")
    config = load_config(file)
    assert (config.network.quota_ports, config.network.lines) == (7, {"lab": LAB})
    file.write_text(render_config(config))
    assert load_config(file) == config


PREFIXES = st.integers(26, 30).flatmap(
    lambda length: st.integers(0, 2**8).map(
        lambda at: str(ip_network((int(ip_address("192.0.2.0")) + at, length), strict=False))
    )
)


@given(cidr=PREFIXES, has_gateway=st.booleans(), used=st.sets(st.integers(0, 64)))
def test_free_addresses_are_all_others_of_the_hosts(cidr, has_gateway, used):
    hosts = [str(one) for one in ip_network(cidr).hosts()]
    gateway = hosts[len(hosts) // 2] if has_gateway else None
    plan = plan_subnet(cidr, gateway, (), None)
    taken = {hosts[at] for at in used if at < len(hosts)}
    assert list(free_addresses(plan.pools, taken)) == [one for one in hosts if one not in taken and one != gateway]
    assert all(is_in_pools(one, plan.pools) == (one != gateway) for one in hosts)


@given(one=PREFIXES, other=PREFIXES)
def test_subnets_overlap_if_they_have_an_address_in_common(one, other):
    assert overlap(one, other) == bool({*ip_network(one)} & {*ip_network(other)})
