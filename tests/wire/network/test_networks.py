"""Networks and subnets: what projects see, what operators change, and the lines of the configuration file."""

import pytest

from moorage.config import SIMULATED_NETWORKS
from moorage.core.errors import StartError
from moorage.network.entries import parse_entries
from tests.wire.network.conftest import NAT

FLAT = {"provider:network_type": "flat", "provider:physical_network": "br7"}


def message(answer):
    return answer[1]["NeutronError"]["message"]


def names(answer):
    assert answer[0] == 200, answer
    return sorted(row["name"] for row in answer[1]["networks"])


def test_every_project_sees_the_networks_of_the_configuration(wire):
    status, body = wire.send("GET", "/v2.0/networks?name=lab")
    (lab,) = body["networks"]
    assert (status, lab["shared"], lab["status"], lab["admin_state_up"]) == (200, True, "ACTIVE", True)
    assert "provider:physical_network" not in lab, "only operators see how hosts attach servers"
    assert wire.operate("GET", f"/v2.0/networks/{lab['id']}")[1]["network"]["provider:physical_network"] == "br0"
    (subnet,) = wire.send("GET", f"/v2.0/subnets?network_id={lab['id']}")[1]["subnets"]
    assert (subnet["cidr"], subnet["gateway_ip"], subnet["dns_nameservers"], subnet["enable_dhcp"]) == (
        "192.0.2.0/24", "192.0.2.1", ["192.0.2.53"], False,
    )  # fmt: skip
    assert subnet["allocation_pools"] == [{"start": "192.0.2.100", "end": "192.0.2.102"}]
    (nat,) = wire.send("GET", f"/v2.0/subnets?network_id={wire.id_of('nat')}")[1]["subnets"]
    assert (nat["allocation_pools"], nat["enable_dhcp"]) == ([], True)


def test_a_network_of_an_operator_is_seen_by_its_project_and_when_shared_by_all(wire):
    mine = {"network": {"name": "mine", "project_id": "red", **FLAT}}
    status, made = wire.operate("POST", "/v2.0/networks", mine)
    assert status == 201, made
    path = f"/v2.0/networks/{made['network']['id']}"
    assert names(wire.send("GET", "/v2.0/networks")) == ["lab", "mine", "nat"]
    assert names(wire.send("GET", "/v2.0/networks", who="bob:blue")) == ["lab", "nat"]
    assert wire.send("GET", path, who="bob:blue")[0] == 404
    assert wire.operate("PUT", path, {"network": {"shared": True, "name": "ours"}})[0] == 200
    assert names(wire.send("GET", "/v2.0/networks", who="bob:blue")) == ["lab", "nat", "ours"]
    assert wire.operate("DELETE", path)[0] == 204
    assert names(wire.send("GET", "/v2.0/networks")) == ["lab", "nat"]


def test_two_networks_with_one_attachment_are_refused(wire):
    body = {"network": {"name": "again", "provider:network_type": "flat", "provider:physical_network": "br0"}}
    answer = wire.operate("POST", "/v2.0/networks", body)
    assert (answer[0], answer[1]["NeutronError"]["type"]) == (409, "AttachmentInUse")
    vlan = {"provider:network_type": "vlan", "provider:physical_network": "br0", "provider:segmentation_id": "5"}
    assert wire.operate("POST", "/v2.0/networks", {"network": vlan})[0] == 201
    assert wire.operate("POST", "/v2.0/networks", {"network": vlan | {"provider:segmentation_id": 6}})[0] == 201
    assert wire.operate("POST", "/v2.0/networks", {"network": vlan | {"provider:segmentation_id": 5}})[0] == 409


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"name": "x"}, "--provider-network-type flat"),
        ({**FLAT, "mtu": 9000}, "Attribute 'mtu' of network is not offered"),
        ({**FLAT, "admin_state_up": False}, "network.admin_state_up"),
        ({**FLAT, "provider:network_type": "vxlan"}, "'vxlan' is not one of"),
        ({**FLAT, "provider:network_type": "vlan"}, "A VLAN has a number from 1 to 4094"),
        ({**FLAT, "provider:segmentation_id": 5}, "no segmentation id"),
        ({**FLAT, "provider:physical_network": "br0; reboot"}, "not the name of a bridge"),
    ],
)
def test_a_network_that_cannot_be_is_refused_with_the_remedy(wire, body, said):
    answer = wire.operate("POST", "/v2.0/networks", {"network": body})
    assert answer[0] == 400
    assert said in message(answer)


def test_networks_of_the_configuration_are_changed_only_there(wire):
    lab = wire.id_of("lab")
    (subnet,) = wire.send("GET", f"/v2.0/subnets?network_id={lab}")[1]["subnets"]
    for method, path, body in (
        ("DELETE", f"/v2.0/networks/{lab}", None),
        ("PUT", f"/v2.0/networks/{lab}", {"network": {"name": "other"}}),
        ("POST", "/v2.0/subnets", {"subnet": {"network_id": lab, "cidr": "203.0.113.0/24"}}),
        ("PUT", f"/v2.0/subnets/{subnet['id']}", {"subnet": {"name": "other"}}),
        ("DELETE", f"/v2.0/subnets/{subnet['id']}", None),
    ):
        answer = wire.operate(method, path, body)
        assert answer[0] == 403, (method, path)
        assert "section [network] of the configuration file" in message(answer)


def test_subnets_of_a_network_do_not_overlap_and_stay_while_they_are_used(wire):
    network = wire.operate("POST", "/v2.0/networks", {"network": {"shared": True, "name": "n", **FLAT}})[1]["network"][
        "id"
    ]
    first = {"subnet": {"network_id": network, "cidr": "198.51.100.0/24", "ip_version": 4, "enable_dhcp": True}}
    status, made = wire.operate("POST", "/v2.0/subnets", first)
    assert (status, made["subnet"]["gateway_ip"]) == (201, "198.51.100.1")
    inside = {"subnet": {"network_id": network, "cidr": "198.51.100.128/25"}}
    assert wire.operate("POST", "/v2.0/subnets", inside)[1]["NeutronError"]["type"] == "Overlap"
    six = {"subnet": {"network_id": network, "cidr": "2001:db8::/64", "ip_version": "6"}}
    assert wire.operate("POST", "/v2.0/subnets", six)[0] == 201
    assert [one["ip_address"] for one in wire.port("n")[1]["port"]["fixed_ips"]] == ["198.51.100.2", "2001:db8::2"]
    answer = wire.operate("DELETE", f"/v2.0/subnets/{made['subnet']['id']}")
    assert (answer[0], answer[1]["NeutronError"]["type"]) == (409, "InUse")
    assert wire.operate("DELETE", f"/v2.0/networks/{network}")[0] == 409


def test_what_we_do_not_have_is_refused_by_name(wire):
    for method, path in (("GET", "routers"), ("POST", "routers"), ("POST", "floatingips"), ("PUT", "trunks/1")):
        answer = wire.send(method, f"/v2.0/{path}", {})
        assert answer[0] == 501
        assert f"has no {path.partition('/')[0]}" in message(answer)
    assert wire.send("GET", "/v2.0/floatingips") == (200, {"floatingips": []})
    assert wire.send("GET", "/v2.0/security-groups") == (200, {"security_groups": []})


def test_lists_have_pages_fields_and_known_filters(wire):
    status, page = wire.send("GET", "/v2.0/networks?limit=1&fields=name&sort_key=name&sort_dir=desc")
    assert (status, page["networks"]) == (200, [{"name": "nat"}])
    (link,) = page["networks_links"]
    rest = wire.send("GET", link["href"].partition("/network")[2])[1]
    assert rest == {"networks": [{"name": "lab"}]}
    answer = wire.send("GET", "/v2.0/networks?colour=red")
    assert (answer[0], message(answer)) == (400, "['colour'] is invalid attribute for filtering")
    assert names(wire.send("GET", "/v2.0/networks?shared=True&admin_state_up=true")) == ["lab", "nat"]
    assert names(wire.send("GET", "/v2.0/networks?router:external=True")) == []


def test_a_project_reads_its_own_quota_only(wire):
    assert wire.send("GET", "/v2.0/quotas/red")[1]["quota"]["port"] == 5
    wire.port()
    assert wire.send("GET", "/v2.0/quotas/red/details.json")[1]["quota"]["port"] == {
        "limit": 5, "used": 1, "reserved": 0,
    }  # fmt: skip
    details = [wire.send("GET", f"/v2.0/quotas/red/{name}") for name in ("details", "details.json")]
    assert details[0] == details[1]
    assert wire.send("GET", "/v2.0/quotas/blue")[0] == 403
    assert wire.operate("GET", "/v2.0/quotas/red")[0] == 200


def test_a_changed_line_changes_the_network_and_a_missing_one_removes_it(plane, wire):
    lab = wire.id_of("lab")
    plane.restart(network={"lines": {"lab": "bridge br9 subnet 198.51.100.0/24 gateway none"}})
    assert wire.id_of("lab") == lab
    assert names(wire.send("GET", "/v2.0/networks")) == ["lab"]
    assert wire.operate("GET", f"/v2.0/networks/{lab}")[1]["network"]["provider:physical_network"] == "br9"
    (subnet,) = wire.send("GET", "/v2.0/subnets")[1]["subnets"]
    assert (subnet["cidr"], subnet["gateway_ip"]) == ("198.51.100.0/24", None)


def test_a_line_is_not_moved_below_ports(plane, wire):
    port = wire.port()[1]["port"]["id"]
    with pytest.raises(StartError, match=r"\[network\] lab: it was bridge br0 subnet 192.0.2.0/24 and has ports"):
        plane.restart(network={"lines": {"lab": "bridge br0 subnet 198.51.100.0/24"}})
    plane.restart(network={"lines": {}})
    assert names(wire.send("GET", "/v2.0/networks")) == ["lab"], "it stays while it has ports"
    assert wire.send("DELETE", f"/v2.0/ports/{port}")[0] == 204
    plane.restart()
    assert names(wire.send("GET", "/v2.0/networks")) == []


class TestDefaults:
    """The networks of a plane with simulated hosts whose file names none."""

    def start_without_lines(self, plane):
        entries = parse_entries(SIMULATED_NETWORKS)
        plane.service("network").networks.apply_entries(entries, are_defaults=True)

    def test_they_are_there_without_a_line_and_go_with_the_first_line(self, plane, wire):
        self.start_without_lines(plane)
        assert names(wire.send("GET", "/v2.0/networks")) == ["lab"]
        (subnet,) = wire.send("GET", "/v2.0/subnets")[1]["subnets"]
        assert (subnet["cidr"], subnet["dns_nameservers"]) == ("192.0.2.0/24", [])
        plane.restart(network={"lines": {"nat": NAT}})
        assert names(wire.send("GET", "/v2.0/networks")) == ["nat"]

    def test_with_ports_they_stay_as_they_are_and_replace_the_line_that_named_them(self, plane, wire):
        before = wire.port()[1]["port"]
        self.start_without_lines(plane)
        self.start_without_lines(plane)
        assert names(wire.send("GET", "/v2.0/networks")) == ["lab"]
        assert wire.send("GET", "/v2.0/ports")[1]["ports"][0]["fixed_ips"] == before["fixed_ips"]

    def test_they_do_not_join_a_network_that_an_administrator_made(self, plane, wire):
        plane.restart(network={"lines": {}})
        assert wire.operate("POST", "/v2.0/networks", {"network": {"name": "theirs", **FLAT}})[0] == 201
        self.start_without_lines(plane)
        assert names(wire.operate("GET", "/v2.0/networks")) == ["theirs"]

    def test_they_stay_beside_a_network_that_an_administrator_makes_later(self, plane, wire):
        self.start_without_lines(plane)
        assert wire.operate("POST", "/v2.0/networks", {"network": {"name": "theirs", **FLAT}})[0] == 201
        self.start_without_lines(plane)
        assert names(wire.operate("GET", "/v2.0/networks")) == ["lab", "theirs"]

    def test_a_line_whose_network_has_ports_keeps_the_network_of_the_same_name_as_it_was(self, plane, wire):
        plane.restart(network={"lines": {"lab": "bridge br9 subnet 198.51.100.0/24"}})
        port = wire.port()[1]["port"]["id"]
        self.start_without_lines(plane)
        (lab,) = wire.operate("GET", "/v2.0/networks")[1]["networks"]
        assert lab["provider:physical_network"] == "br9"
        assert wire.send("DELETE", f"/v2.0/ports/{port}")[0] == 204
        self.start_without_lines(plane)
        (lab,) = wire.operate("GET", "/v2.0/networks")[1]["networks"]
        assert lab["provider:physical_network"] == "br0"


def test_a_line_for_the_attachment_of_another_network_ends_the_start(plane, wire):
    made = wire.operate("POST", "/v2.0/networks", {"network": {"name": "theirs", **FLAT}})[1]["network"]
    with pytest.raises(StartError, match=rf"network theirs \({made['id']}\) has the same segment, bridge br7"):
        plane.restart(network={"lines": {"mine": "bridge br7 subnet 198.51.100.0/24"}})
