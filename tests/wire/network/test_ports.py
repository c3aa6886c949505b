"""Ports: of projects, and of servers, for which the compute service asks."""

import pytest

from moorage.network.client.moorage_ports import AuditablePorts
from moorage.wire.client import ServiceClient
from tests.plane import SERVICE

A, B = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
S, T = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa", "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb"


def addresses(body):
    return [one["ip_address"] for one in body["port"]["fixed_ips"]]


def kind_of(answer):
    return answer[0], answer[1]["NeutronError"]["type"]


def test_a_port_gets_a_mac_and_a_free_address_and_frees_it_when_deleted(wire):
    status, first = wire.port(name="first")
    assert (status, addresses(first), first["port"]["status"]) == (201, ["192.0.2.100"], "DOWN")
    assert first["port"]["mac_address"].startswith("fa:16:3e:")
    assert addresses(wire.port()[1]) == ["192.0.2.101"]
    assert wire.send("DELETE", f"/v2.0/ports/{first['port']['id']}")[0] == 204
    assert addresses(wire.port()[1]) == ["192.0.2.100"]


def test_a_port_without_a_free_address_is_refused(wire):
    for _ in range(3):
        assert wire.port()[0] == 201
    assert kind_of(wire.port()) == (409, "NoAddress")
    assert addresses(wire.port(fixed_ips=[])[1]) == []
    assert addresses(wire.port("nat")[1]) == [], "the DHCP server of that network gives it one"
    assert kind_of(wire.port("nat")) == (403, "OverQuota")


def test_members_see_and_change_only_ports_of_their_project(wire):
    mine = wire.port(name="mine")[1]["port"]["id"]
    path = f"/v2.0/ports/{mine}"
    assert wire.send("PUT", path, {"port": {"name": "renamed"}})[1]["port"]["name"] == "renamed"
    for method, body in (("GET", None), ("PUT", {"port": {"name": "x"}}), ("DELETE", None)):
        assert wire.send(method, path, body, who="bob:blue")[0] == 404
    assert wire.send("GET", f"/v2.0/ports?id={mine}", who="bob:blue")[1] == {"ports": []}
    assert wire.send("GET", "/v2.0/ports?project_id=red", who="bob:blue")[1] == {"ports": []}
    assert wire.operate("GET", "/v2.0/ports?fixed_ips=ip_address=192.0.2.100&fields=id")[1] == {"ports": [{"id": mine}]}


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"project_id": "blue"}, 403),
        ({"mac_address": "fa:16:3e:00:00:01"}, 403),
        ({"fixed_ips": [{"ip_address": "192.0.2.1"}]}, 403),  # the gateway's
        ({"fixed_ips": [{"ip_address": "192.0.2.99"}]}, 403),
        ({"fixed_ips": [{"ip_address": "198.51.100.1"}]}, 400),
        ({"fixed_ips": [{"ip_address": "192.0.2.255"}]}, 400),
        ({"device_id": S}, 400),
        ({"device_owner": "network:dhcp"}, 400),
        ({"binding:host_id": "compute-1"}, 400),
        ({"port_security_enabled": False}, 400),
        ({"allowed_address_pairs": [{"ip_address": "0.0.0.0/0"}]}, 400),
    ],
)
def test_a_member_cannot_take_what_is_not_its_own(wire, body, status):
    assert wire.port(**body)[0] == status


@pytest.mark.parametrize(
    "attribute",
    [
        {"device_id": S},
        {"device_owner": "compute:nova"},
        {"network_id": A},
        {"project_id": "blue"},
        {"fixed_ips": [{"ip_address": "192.0.2.1"}]},
        {"mac_address": "fa:16:3e:00:00:01"},
        {"binding:host_id": "compute-1"},
        {"binding:profile": {}},
        {"port_security_enabled": False},
        {"security_groups": [A]},
    ],
)
def test_a_member_cannot_make_its_port_that_of_another_server(wire, attribute):
    mine = wire.port()[1]["port"]
    assert wire.send("PUT", f"/v2.0/ports/{mine['id']}", {"port": attribute})[0] == 400
    assert wire.send("GET", f"/v2.0/ports/{mine['id']}")[1]["port"] == mine


def test_a_member_learns_nothing_of_another_projects_private_network_and_its_ports(wire):
    private = {"name": "secret", "provider:network_type": "flat", "provider:physical_network": "br7"}
    network = wire.operate("POST", "/v2.0/networks", {"network": {**private, "project_id": "blue"}})[1]["network"]["id"]
    subnet = wire.operate("POST", "/v2.0/subnets", {"subnet": {"network_id": network, "cidr": "203.0.113.0/24"}})[1]
    subnet = subnet["subnet"]["id"]
    port = wire.send("POST", "/v2.0/ports", {"port": {"network_id": network}}, who="bob:blue")[1]["port"]["id"]
    wire.provide(wanted(port, project="blue"))
    for query in (
        f"id={port}", f"device_id={S}", f"network_id={network}", f"fixed_ips=subnet_id={subnet}", "project_id=blue",
        "binding:host_id=compute-1",
    ):  # fmt: skip
        assert wire.send("GET", f"/v2.0/ports?{query}")[1] == {"ports": []}
    for query in (f"id={network}", "name=secret", "shared=false", "provider:physical_network=br7"):
        assert wire.send("GET", f"/v2.0/networks?{query}")[1] == {"networks": []}
    for path in (f"networks/{network}", f"subnets/{subnet}", f"ports/{port}"):
        assert wire.send("GET", f"/v2.0/{path}")[0] == 404
    assert wire.send("POST", "/v2.0/ports", {"port": {"network_id": network}})[0] == 404
    assert wire.port(fixed_ips=[{"subnet_id": subnet}])[0] == 400
    assert wire.send("GET", f"/v2.0/ports?marker={port}")[0] == wire.send("GET", f"/v2.0/ports?marker={A}")[0] == 400
    assert wire.send("DELETE", f"/v2.0/ports/{port}")[0] == 404
    for method, path in (
        ("PUT", "server-ports"), ("DELETE", f"server-ports/{S}"), ("DELETE", f"server-ports/{S}/{port}"),
        ("PUT", "learned-addresses"),
    ):  # fmt: skip
        one = learned(port) if path == "learned-addresses" else wanted(port)
        body = {"ports": [one]} if method == "PUT" else None
        assert wire.send(method, f"/moorage/v1/{path}", body)[0] == 403
        may_operate = path.endswith(port)  # the audit releases single ports
        assert wire.operate(method, f"/moorage/v1/{path}", body)[0] == (204 if may_operate else 403)


def test_an_address_is_given_once(wire):
    wanted = [{"ip_address": "192.0.2.101"}]
    assert addresses(wire.port(fixed_ips=wanted)[1]) == ["192.0.2.101"]
    assert kind_of(wire.port(fixed_ips=wanted, who="bob:blue")) == (409, "InUse")
    both = [{"ip_address": "192.0.2.100"}, {"ip_address": "192.0.2.100"}]
    assert wire.port(fixed_ips=both)[0] == 409
    mac = {"mac_address": "FA:16:3E:00:00:01", "who": "root:admin", "roles": "admin"}
    assert wire.port(**mac)[1]["port"]["mac_address"] == "fa:16:3e:00:00:01"
    assert kind_of(wire.port(**mac)) == (409, "InUse")


def wanted(port=A, server=S, project="red", **more):
    return {"id": port, "project_id": project, "server_id": server, "host": "compute-1", **more}


def test_a_server_gets_the_same_port_however_often_it_is_asked_for(wire):
    lab = wire.id_of("lab")
    first = wire.provide(wanted(network_id=lab), wanted(B, network_id=lab))
    assert [one["addresses"][0]["address"] for one in first[1]["ports"]] == ["192.0.2.100", "192.0.2.101"]
    assert wire.provide(wanted(network_id=lab), wanted(B, network_id=lab)) == first
    moved = wire.provide({**wanted(network_id=lab), "host": "compute-2"})[1]["ports"][0]
    assert moved["addresses"] == first[1]["ports"][0]["addresses"]
    shown = wire.send("GET", f"/v2.0/ports/{A}")[1]["port"]
    assert (shown["device_id"], shown["device_owner"], shown["status"]) == (S, "compute:nova", "ACTIVE")
    assert wire.operate("GET", f"/v2.0/ports/{A}")[1]["port"]["binding:host_id"] == "compute-2"
    (port, _) = first[1]["ports"]
    assert (port["physical_network"], port["kind"], port["addresses"][0]["cidr"]) == ("br0", "flat", "192.0.2.0/24")


def test_a_server_gets_all_its_ports_or_none(wire):
    lab = wire.id_of("lab")
    several = [wanted(f"{at}1111111-1111-4111-8111-111111111111", network_id=lab) for at in range(1, 5)]
    assert kind_of(wire.provide(*several)) == (409, "NoAddress")
    assert wire.operate("GET", "/v2.0/ports")[1] == {"ports": []}


def test_a_port_is_only_for_a_server_of_its_project(wire):
    mine = wire.port()[1]["port"]["id"]
    assert wire.provide(wanted(mine, project="blue"))[0] == 404
    private = {"provider:network_type": "flat", "provider:physical_network": "br7", "project_id": "blue"}
    network = wire.operate("POST", "/v2.0/networks", {"network": private})[1]["network"]["id"]
    assert wire.provide(wanted(network_id=network))[0] == 404
    assert wire.provide(wanted(mine))[0] == 200
    assert kind_of(wire.provide(wanted(mine, server=T))) == (409, "InUse")
    assert kind_of(wire.send("DELETE", f"/v2.0/ports/{mine}")) == (409, "InUse")


def test_the_release_deletes_what_was_made_and_frees_what_the_project_made(wire):
    mine = wire.port()[1]["port"]["id"]
    wire.provide(wanted(mine), wanted(B, network_id=wire.id_of("lab")))
    other = wire.port(name="other")[1]["port"]["id"]
    wire.provide(wanted(other, server=T))
    assert wire.serve("DELETE", f"/moorage/v1/server-ports/{S}/{other}")[0] == 204, "a port of another server stays"
    for _ in range(2):
        assert wire.serve("DELETE", f"/moorage/v1/server-ports/{S}")[0] == 204
    left = {one["id"]: one["device_id"] for one in wire.send("GET", "/v2.0/ports")[1]["ports"]}
    assert left == {mine: "", other: T}


def learned(port, *addresses, **more):
    return {"port_id": port, "server_id": S, "host": "compute-1", "mac": "", "addresses": [*addresses], **more}


def test_learned_addresses_are_those_of_the_ports_server_on_its_host(wire):
    """Compute says which server, host and MAC address a report is about; all three must be the port's."""
    nat = wire.id_of("nat")
    mac = wire.provide(wanted(network_id=nat))[1]["ports"][0]["mac"]

    def learn(**more):
        report = learned(A, "192.168.122.20", **({"mac": mac} | more))
        status, body = wire.serve("PUT", "/moorage/v1/learned-addresses", {"ports": [report]})
        assert status == 200
        return [one["address"] for one in body["ports"][0]["addresses"]]

    for other in ({"server_id": T}, {"host": "compute-2"}, {"mac": "fa:16:3e:00:00:01"}, {"port_id": B}):
        assert learn(**other) == []
    assert addresses(wire.operate("GET", f"/v2.0/ports/{A}")[1]) == []
    for _ in range(2):
        assert learn() == addresses(wire.operate("GET", f"/v2.0/ports/{A}")[1]) == ["192.168.122.20"]
    for read, details in ((wire.operate, {"learned_addresses": ["192.168.122.20"]}), (wire.send, None)):
        assert read("GET", f"/v2.0/ports/{A}")[1]["port"].get("binding:vif_details") == details, "only operators see it"
    (bound,) = wire.provide(wanted(network_id=nat))[1]["ports"]
    assert (bound["is_dhcp"], bound["addresses"]) == (True, []), "the host and the guest still get it from that server"
    fixed = {"fixed_ips": [{"ip_address": "192.168.122.20"}], "who": "root:admin", "roles": "admin"}
    assert kind_of(wire.port("nat", **fixed)) == (409, "InUse")
    wire.provide({**wanted(network_id=nat), "host": "compute-2"})
    assert addresses(wire.operate("GET", f"/v2.0/ports/{A}")[1]) == [], "another host reports its own"


@pytest.mark.parametrize("more", [{"addresses": ["1"] * 9}, {"addresses": ["1" * 61]}, {"port_id": "x"}, {"x": 1}])
def test_learned_addresses_in_another_form_are_refused(wire, more):
    body = {"ports": [learned(A) | more]}
    assert wire.serve("PUT", "/moorage/v1/learned-addresses", body)[0] == 400


def test_the_audit_can_give_a_port_back_whose_address_came_from_a_dhcp_server(wire, plane):
    """The undo file of the audit has only addresses that we gave the port."""
    nat, lab = wire.id_of("nat"), wire.id_of("lab")
    bound = wire.provide(wanted(network_id=nat), wanted(B, network_id=lab))[1]["ports"]
    report = learned(A, "192.168.122.20", mac=bound[0]["mac"])
    wire.serve("PUT", "/moorage/v1/learned-addresses", {"ports": [report]})
    http = ServiceClient(plane.transport("/network"), service_type="network", credentials=SERVICE, clock=plane.clock)
    found = {port.id: port.addresses for port in AuditablePorts(http).bound_ports()}
    assert found == {A: (), B: ("192.0.2.100",)}
