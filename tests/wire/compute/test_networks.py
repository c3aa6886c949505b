"""Servers with networks: the choice of networks and ports, their life, their addresses, and who may use them."""

import pytest

from moorage.compute.scheduling.build_worker import YIELD
from moorage.compute.scheduling.job_worker import LEASE_S
from moorage.core.errors import StartError, Unavailable
from tests.plane import Killed, failing
from tests.wire.compute.conftest import IMAGE, Host
from tests.wire.compute.network_plane import LAB, NetworkPlane, addresses


@pytest.fixture
def lines():
    return {"lab": LAB}


@pytest.fixture
def plane(tmp_path, clock, lines):
    plane = NetworkPlane(tmp_path / "plane", clock, network={"lines": lines, "quota_ports": 5})
    plane.flavor("small")
    return plane


def test_a_server_gets_a_port_with_an_address_and_loses_it_when_it_is_deleted(plane, host):
    server_id = plane.boot("small", networks=[{"uuid": plane.network("lab")}])
    assert addresses(plane, server_id) == {}
    plane.settle(host)
    shown = plane.show(server_id)
    (port,) = plane.ports()
    assert shown["status"] == "ACTIVE"
    assert shown["addresses"] == {
        "lab": [
            {
                "version": 4, "addr": "192.0.2.100",
                "OS-EXT-IPS:type": "fixed", "OS-EXT-IPS-MAC:mac_addr": port["mac_address"],
            }
        ]
    }  # fmt: skip
    assert (port["device_id"], port["device_owner"], port["status"]) == (server_id, "compute:nova", "ACTIVE")
    assert (port["binding:host_id"], port["project_id"]) == ("compute-1", "red")
    path = f"/v2.1/servers/{server_id}"
    assert plane.send("GET", f"{path}/ips")[2] == {"addresses": {"lab": [{"version": 4, "addr": "192.0.2.100"}]}}
    assert plane.send("GET", f"{path}/ips/lab")[2] == {"lab": [{"version": 4, "addr": "192.0.2.100"}]}
    assert plane.send("GET", f"{path}/ips/other")[0] == 404
    interface = {
        "net_id": plane.network("lab"), "port_id": port["id"], "mac_addr": port["mac_address"],
        "port_state": "ACTIVE", "fixed_ips": port["fixed_ips"], "tag": None,
    }  # fmt: skip
    assert plane.send("GET", f"{path}/os-interface")[2] == {"interfaceAttachments": [interface]}
    assert plane.send("GET", f"{path}/os-interface/{port['id']}")[2] == {"interfaceAttachment": interface}
    assert "tag" not in plane.send("GET", f"{path}/os-interface/{port['id']}", version="2.69")[2]["interfaceAttachment"]
    assert plane.send("GET", f"{path}/os-interface/{IMAGE}")[0] == 404
    assert plane.send("DELETE", path)[0] == 204
    plane.settle(host)
    assert (plane.show(server_id), plane.ports()) == (None, [])


@pytest.mark.parametrize(("version", "is_detailed"), [("2.74", False), ("2.75", True)])
def test_answers_to_changes_have_all_of_an_address_since_2_75(plane, host, version, is_detailed):
    server_id = plane.boot("small", networks="auto")
    plane.settle(host)
    path = f"/v2.1/servers/{server_id}"
    _, _, renamed = plane.send("PUT", path, {"server": {"name": "new"}}, version=version)
    _, _, rebuilt = plane.send("POST", f"{path}/action", {"rebuild": {"imageRef": IMAGE}}, version=version)
    (shown,) = plane.send("GET", path, version=version)[2]["server"]["addresses"]["lab"]
    expected = shown if is_detailed else {"version": 4, "addr": shown["addr"]}
    assert [one["server"]["addresses"]["lab"] for one in (renamed, rebuilt)] == [[expected]] * 2


def test_the_host_learns_what_to_attach_and_the_guest_its_addresses(plane, host):
    server_id = plane.boot("small", networks="auto")
    plane.settle(host)
    server = host.built[0]["server"]
    (port,) = plane.ports()
    assert server["interfaces"] == [
        {
            "port_id": port["id"], "mac": port["mac_address"], "network_id": plane.network("lab"), "kind": "flat",
            "physical_network": "br0", "segmentation_id": None, "is_dhcp": False,
            "addresses": [
                {"address": "192.0.2.100", "cidr": "192.0.2.0/24", "gateway": "192.0.2.1", "dns": ["192.0.2.53"]}
            ],
        }
    ]  # fmt: skip
    assert server["guest"] is not None, "the config drive tells the guest its addresses"
    assert plane.show(server_id)["config_drive"] == "True"


def test_servers_are_found_by_address(plane, host):
    lab = plane.network("lab")
    one, two = (plane.boot("small", name, networks=[{"uuid": lab}]) for name in ("one", "two"))
    plane.boot("small", "none")
    plane.settle(host)

    def found(query):
        return {row["id"] for row in plane.send("GET", f"/v2.1/servers?{query}")[2]["servers"]}

    assert found("ip=192.0.2.10") == {one, two}
    assert found("ip=192.0.2.101$") == {two} or found("ip=192.0.2.101$") == {one}
    assert found("ip6=192.0.2") == set()


@pytest.mark.parametrize("networks", ["auto", [], None])
def test_the_only_network_is_chosen(plane, host, networks):
    version = "2.36" if networks is None else "2.96"
    server = {"name": "vm", "imageRef": IMAGE, "flavorRef": "small", "networks": networks}
    if networks is None:
        del server["networks"]
    status, _, document = plane.send("POST", "/v2.1/servers", {"server": server}, version=version)
    assert status == 202
    plane.settle(host)
    assert addresses(plane, document["server"]["id"]) == {"lab": ["192.0.2.100"]}


def test_none_stays_none(plane, host):
    server_id = plane.boot("small")
    plane.settle(host)
    assert (addresses(plane, server_id), plane.ports()) == ({}, [])


class TestWithoutNetworks:
    @pytest.fixture
    def lines(self):
        return {}

    def test_auto_gives_no_network(self, plane, host):
        server_id = plane.boot("small", networks="auto")
        plane.settle(host)
        assert plane.show(server_id)["status"] == "ACTIVE"
        assert plane.ports() == []


class TestWithTwoNetworks:
    @pytest.fixture
    def lines(self):
        return {"lab": LAB, "other": "vlan 5 on br0 subnet 198.51.100.0/24"}

    def test_the_choice_must_be_made(self, plane, host):
        text = "Multiple possible networks found, use a Network ID to be more specific."
        assert plane.refusal("auto") == (409, text)
        assert plane.refusal(None, version="2.36") == (409, text)

    def test_a_server_has_both_in_the_order_of_the_request(self, plane, host):
        wanted = [{"uuid": plane.network("other"), "fixed_ip": "198.51.100.9", "tag": "second"}]
        server_id = plane.boot("small", networks=[*wanted, {"uuid": plane.network("lab")}])
        plane.settle(host)
        assert list(addresses(plane, server_id).items()) == [("other", ["198.51.100.9"]), ("lab", ["192.0.2.100"])]
        interfaces = plane.send("GET", f"/v2.1/servers/{server_id}/os-interface")[2]["interfaceAttachments"]
        assert [one["tag"] for one in interfaces] == ["second", None]


def test_what_cannot_be_attached_is_refused_at_once(plane, host):
    lab = plane.network("lab")
    assert plane.refusal([{"uuid": IMAGE}]) == (400, f"Network {IMAGE} could not be found.")
    assert plane.refusal([{"port": IMAGE}]) == (400, f"Port id {IMAGE} could not be found.")
    assert plane.refusal([{"uuid": "lab"}], version="2.36")[0] == 400
    assert plane.refusal([{"uuid": "lab"}])[0] == 400
    assert plane.refusal([{"fixed_ip": "192.0.2.100"}]) == (400, "Bad network format: missing 'uuid'")
    assert plane.refusal([{"uuid": lab, "fixed_ip": "many"}])[0] == 400
    assert plane.refusal([{"uuid": lab, "tag": "x"}], version="2.41")[0] == 400
    mine = plane.port()
    assert plane.refusal([{"port": mine, "fixed_ip": "192.0.2.101"}])[0] == 400
    assert plane.refusal([{"port": mine}], max_count=2)[0] == 400
    assert plane.refusal([{"uuid": lab, "fixed_ip": "192.0.2.101"}], max_count=2)[0] == 400
    bare = {"provider:network_type": "flat", "provider:physical_network": "br9", "shared": True}
    network = plane.operate("POST", "/networks", {"network": bare})[1]["network"]["id"]
    assert (
        plane.refusal([{"uuid": network}])[1] == f"Network {network} requires a subnet in order to boot instances on."
    )
    assert plane.operate("GET", "/ports")[1]["ports"][0]["device_id"] == ""


def test_a_tenant_cannot_use_networks_and_ports_of_another_project(plane, host):
    private = {"provider:network_type": "flat", "provider:physical_network": "br7", "project_id": "blue"}
    network = plane.operate("POST", "/networks", {"network": private})[1]["network"]["id"]
    subnet = {"subnet": {"network_id": network, "cidr": "203.0.113.0/24", "ip_version": 4}}
    assert plane.operate("POST", "/subnets", subnet)[0] == 201
    port = plane.port()
    assert plane.refusal([{"uuid": network}]) == (400, f"Network {network} could not be found.")
    assert plane.refusal([{"uuid": network}], who="bob:blue")[0] == 202
    assert plane.refusal([{"port": port}], who="bob:blue") == (400, f"Port id {port} could not be found.")
    assert plane.refusal([{"uuid": plane.network("lab")}], who="bob:blue")[0] == 202


def test_an_operator_in_a_project_gets_no_more_than_the_project(plane, host):
    port = plane.port()
    body = {"server": {"name": "vm", "imageRef": IMAGE, "flavorRef": "small", "networks": [{"port": port}]}}
    status, _, document = plane.admin("POST", "/v2.1/servers", body)
    assert status == 400
    assert "belongs to another project" in document["badRequest"]["message"]


def test_a_port_of_the_project_is_bound_and_afterwards_free(plane, host):
    port = plane.port(fixed_ips=[{"ip_address": "192.0.2.103"}])
    server_id = plane.boot("small", networks=[{"port": port}])
    plane.settle(host)
    assert addresses(plane, server_id) == {"lab": ["192.0.2.103"]}
    assert plane.refusal([{"port": port}]) == (409, f"Port {port} is still in use.")
    plane.send("DELETE", f"/v2.1/servers/{server_id}")
    plane.settle(host)
    (left,) = plane.ports()
    assert (left["id"], left["device_id"], left["status"], left["binding:host_id"]) == (port, "", "DOWN", "")


def test_the_quota_of_ports_limits_servers(plane, host):
    lab = plane.network("lab")
    assert plane.refusal([{"uuid": lab}], min_count=6, max_count=6) == (403, "Maximum number of ports exceeded")
    assert plane.refusal([{"uuid": lab}] * 2, min_count=1, max_count=6)[0] == 202
    assert len(plane.send("GET", "/v2.1/servers")[2]["servers"]) == 2


def test_hundreds_of_networks_in_one_request_are_refused(plane, host):
    lab = {"uuid": plane.network("lab")}
    status, message = plane.refusal([lab] * 300)
    assert (status, "too long" in message) == (400, True)
    assert plane.refusal([{"port": IMAGE}] * 33)[0] == 400
    assert plane.refusal([lab] * 32) == (403, "Maximum number of ports exceeded")


def test_a_build_whose_address_was_taken_in_between_fails_and_leaves_nothing(plane, host):
    lab = plane.network("lab")
    server_id = plane.boot("small", networks=[{"uuid": lab}, {"uuid": lab, "fixed_ip": "192.0.2.102"}])
    taken = plane.port(fixed_ips=[{"ip_address": "192.0.2.102"}])
    plane.settle(host)
    shown = plane.show(server_id)
    assert shown["status"] == "ERROR"
    assert "192.0.2.102 already allocated" in shown["fault"]["message"]
    assert shown["addresses"] == {}
    assert [one["id"] for one in plane.ports()] == [taken]
    assert set(plane.placement.usages(host.provider.uuid).values()) == {0}


def test_a_failed_build_takes_its_ports_to_the_next_host_and_finally_loses_them(plane, host):
    second = Host(plane, "compute-2")
    second.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500)
    host.fails = {"build": "no disk"}
    second.fails = {"build": "no disk"}
    server_id = plane.boot("small", networks="auto")
    plane.builder.run_once()
    (port,) = plane.ports()
    first_host = port["binding:host_id"]
    for one in (host, second):
        one.work()
    plane.builder.run_once()
    (moved,) = plane.ports()
    assert (moved["id"], moved["mac_address"]) == (port["id"], port["mac_address"])
    assert {first_host, moved["binding:host_id"]} == {"compute-1", "compute-2"}
    plane.settle(host, second)
    assert plane.show(server_id)["status"] == "ERROR"
    assert plane.ports() == []
    assert plane.show(server_id)["addresses"] == {}


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_builder_killed_while_it_binds_ports_is_succeeded(plane, host, when):
    server_id = plane.boot("small", networks="auto")
    plane.to_network.die(0, when)
    with pytest.raises(Killed):
        plane.builder.run_once()
    plane.clock.sleep(LEASE_S + 1)
    plane.succeed()
    host.register()
    plane.settle(host)
    (port,) = plane.ports()
    assert plane.show(server_id)["status"] == "ACTIVE"
    assert port["device_id"] == server_id


@pytest.mark.parametrize("when", ["before", "after"])
def test_the_ports_of_a_dead_build_go_with_its_server(plane, host, when):
    server_id = plane.boot("small", networks="auto")
    plane.to_network.die(0, when)
    with pytest.raises(Killed):
        plane.builder.run_once()
    plane.send("DELETE", f"/v2.1/servers/{server_id}")
    plane.clock.sleep(LEASE_S + 1)
    plane.succeed()
    plane.settle(host)
    assert (plane.show(server_id), plane.ports()) == (None, [])
    assert set(plane.placement.usages(host.provider.uuid).values()) == {0}


def test_a_build_waits_for_the_network_service(plane, host):
    server_id = plane.boot("small", networks="auto")
    plane.to_network.on("PUT", failing(Unavailable("network does not answer")))
    plane.settle(host)
    assert plane.show(server_id)["status"] == "BUILD"
    plane.to_network.clear()
    plane.clock.sleep(600)
    host.register()
    plane.settle(host)
    assert plane.show(server_id)["status"] == "ACTIVE"


def test_servers_built_together_get_different_addresses(plane, host):
    ids = [plane.boot("small", name, networks="auto") for name in ("one", "two", "three")]
    plane.settle(host)
    assert {addresses(plane, one)["lab"][0] for one in ids} == {"192.0.2.100", "192.0.2.101", "192.0.2.102"}


def test_the_ports_follow_a_server_that_moves(plane, host):
    server_id = plane.boot("small", networks="auto")
    plane.settle(host)
    second = Host(plane, "compute-2")
    second.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500)
    before = addresses(plane, server_id)
    assert plane.act(server_id, "migrate", who="root:admin", roles="admin")[0] == 202
    for _ in range(4):
        plane.settle(host, second)
    assert plane.ports()[0]["binding:host_id"] == "compute-2"
    assert addresses(plane, server_id) == before


def test_an_unchanged_request_without_networks_asks_the_network_service_nothing(plane, host):
    plane.to_network.clear()
    server_id = plane.boot("small")
    plane.settle(host)
    plane.send("DELETE", f"/v2.1/servers/{server_id}")
    plane.settle(host)
    assert plane.to_network.requests == []


class TestProcesses:
    """A process that runs compute, beside the one that also runs the network service."""

    def test_it_gets_ports_from_the_network_service_of_another_process(self, plane, host):
        plane.builds = plane.process.beside("other", "compute")
        assert plane.builds.config.endpoints.moorage_network.endswith("/network")
        server_id = plane.boot("small", networks="auto")
        plane.settle(host)
        assert addresses(plane, server_id) == {"lab": ["192.0.2.100"]}
        assert plane.builds.ways["network"].requests != []

    def test_without_a_network_service_it_does_not_start_while_servers_have_ports(self, plane, host):
        server_id = plane.boot("small", networks="auto")
        plane.settle(host)
        alone = {"endpoints": {"moorage_network": ""}}
        with pytest.raises(StartError, match=r"servers have ports.* add network to \[plane\] services; or, if another"):
            plane.process.beside("other", "compute", **alone)
        plane.send("DELETE", f"/v2.1/servers/{server_id}")
        plane.settle(host)
        plane.process.beside("third", "compute", **alone)

    def test_started_before_the_first_port_it_leaves_builds_with_ports_to_others(self, plane, host):
        other = plane.process.beside("other", "compute", endpoints={"moorage_network": ""})
        plain = plane.boot("small", "plain")
        server_id = plane.boot("small", networks="auto")
        builder = other.task("compute.build")
        due = builder.run_once()
        assert due == plane.clock.now() + YIELD
        assert builder.run_once() == due
        assert plane.show(server_id)["OS-EXT-SRV-ATTR:host"] is None
        plane.clock.sleep(2)
        plane.settle(host)
        assert plane.show(plain)["status"] == "ACTIVE"
        assert addresses(plane, server_id) == {"lab": ["192.0.2.100"]}

    def test_a_neutron_for_reservations_does_not_get_the_ports_of_servers(self, tmp_path, clock):
        neutron = {"network": "http://neutron.example:9696"}
        plane = NetworkPlane(tmp_path / "two", clock, network={"lines": {"lab": LAB}}, endpoints=neutron)
        plane.flavor("small")
        host = Host(plane, "compute-1")
        host.offer(VCPU=16, MEMORY_MB=32768, DISK_GB=500)
        server_id = plane.boot("small", networks="auto")
        plane.settle(host)
        assert addresses(plane, server_id) == {"lab": ["192.0.2.100"]}
