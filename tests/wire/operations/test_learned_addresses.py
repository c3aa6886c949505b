"""Addresses that a DHCP server gives: hosts report them, and servers and ports show them while they last.

Hosts, and guests, may say anything.
"""

import json
import logging

import pytest

from moorage.agent.host_reports import DomainsTask
from moorage.compute.client.compute_client import ComputeClient
from moorage.core.errors import MoorageError, Unavailable
from moorage.wire.client import ServiceClient
from tests.plane import HostBearer

LINES = {
    "nat": "libvirt default subnet 192.168.122.0/24 addresses dhcp",
    "lab": "bridge br0 subnet 192.0.2.0/24",
}
FIRST, SECOND = "192.168.122.20", "192.168.122.21"


@pytest.fixture
def cloud(make_cloud):
    return make_cloud(networks=LINES)


@pytest.fixture
def here(cloud):
    return cloud.hosts["compute-1"]


def network(cloud, name):
    return cloud.control.send("GET", f"/network/v2.0/networks?name={name}").body["networks"][0]["id"]


def port_of(cloud, server_id):
    (port,) = cloud.control.send("GET", f"/network/v2.0/ports?device_id={server_id}").body["ports"]
    return port


def boot(cloud, name="nat"):
    return cloud.boot(networks=[{"uuid": network(cloud, name)}])


def lease(cloud, host, **addresses):
    """The DHCP server of the host: {server id: addresses}, of servers with one interface."""
    leases = {port_of(cloud, server)["mac_address"]: given for server, given in addresses.items()}
    host.driver.leases.write_text(json.dumps(leases))
    report(cloud, host)


def report(cloud, host):
    """A first report of an agent, which has them all."""
    compute = compute_of(cloud, host.name)
    DomainsTask(host=host.name, driver=host.driver, compute=compute, clock=cloud.clock, period_s=10).run_once()
    cloud.settle()


def compute_of(cloud, host):
    """A client of compute with the credentials of the host."""
    below, credentials = cloud.compute.transport("/compute"), HostBearer(host)
    return ComputeClient(ServiceClient(below, service_type="compute", credentials=credentials, clock=cloud.clock))


def addresses(cloud, server_id):
    """Those of the server, if its port has the same."""
    shown = [row["addr"] for rows in cloud.show(server_id)["addresses"].values() for row in rows]
    assert [one["ip_address"] for one in port_of(cloud, server_id)["fixed_ips"]] == shown
    return shown


def say(cloud, host, server_id, said, *, of="compute-1"):
    """A report of `host` in the name of the host `of`: {MAC address: addresses} of a server."""
    compute_of(cloud, host).report_domains(of, {}, {}, {server_id: said})


def test_an_address_of_a_dhcp_server_is_shown_while_the_guest_has_it(cloud, here):
    server_id = boot(cloud)
    assert addresses(cloud, server_id) == []
    lease(cloud, here, **{server_id: [FIRST]})
    assert addresses(cloud, server_id) == [FIRST]
    (row,) = cloud.show(server_id)["addresses"]["nat"]
    port = port_of(cloud, server_id)
    assert (row["OS-EXT-IPS-MAC:mac_addr"], row["version"]) == (port["mac_address"], 4)
    path = f"/v2.1/servers/{server_id}"
    assert cloud.send("GET", f"{path}/ips/nat")[1] == {"nat": [{"version": 4, "addr": FIRST}]}
    (attached,) = cloud.send("GET", f"{path}/os-interface")[1]["interfaceAttachments"]
    assert attached["fixed_ips"] == port["fixed_ips"]
    assert [one["id"] for one in cloud.send("GET", "/v2.1/servers?ip=192.168.122.20")[1]["servers"]] == [server_id]

    lease(cloud, here, **{server_id: [SECOND]})
    assert addresses(cloud, server_id) == [SECOND]
    lease(cloud, here)
    assert addresses(cloud, server_id) == []


def test_a_server_that_is_off_has_no_address_and_another_one_may_get_it(cloud, here):
    server_id, other = boot(cloud), boot(cloud)
    lease(cloud, here, **{server_id: [FIRST]})
    cloud.do(server_id, "os-stop")
    report(cloud, here)
    assert addresses(cloud, server_id) == []
    lease(cloud, here, **{server_id: [FIRST], other: [FIRST]})
    assert (addresses(cloud, server_id), addresses(cloud, other)) == ([], [FIRST])


def test_the_guest_and_its_definition_stay_as_they_are(cloud, here):
    """The address is the DHCP server's: the config drive does not have it, and a reboot does not need it."""
    server_id = boot(cloud)
    before = here.driver.domains()[server_id].spec
    lease(cloud, here, **{server_id: [FIRST]})
    cloud.do(server_id, "reboot", {"type": "HARD"})
    assert here.driver.domains()[server_id].spec == before
    assert [one.addresses for one in before.interfaces] == [()]
    drive = here.driver._disks.config_drive(server_id)
    files = {path.name: path.read_text() for path in drive.rglob("*.json")}
    assert "ipv4_dhcp" in files["network_data.json"]
    assert not [name for name, text in files.items() if FIRST in text]
    report(cloud, here)
    assert addresses(cloud, server_id) == [FIRST]


def test_a_host_reports_only_servers_of_its_own(cloud, here, caplog):
    server_id = boot(cloud)
    mac = port_of(cloud, server_id)["mac_address"]
    say(cloud, "compute-2", server_id, {mac: [FIRST]}, of="compute-2")
    assert addresses(cloud, server_id) == []
    with pytest.raises(MoorageError, match=r"(?i)host|polic"):
        say(cloud, "compute-2", server_id, {mac: [FIRST]})
    assert addresses(cloud, server_id) == []
    say(cloud, "compute-1", server_id, {mac: [FIRST]})
    assert addresses(cloud, server_id) == [FIRST]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (["192.168.122.1"], []),  # the gateway's
        (["192.168.122.0"], []),
        (["192.168.122.255"], []),
        (["192.0.2.9"], []),  # of the pools of another network
        (["10.0.0.1", "fd00::1", FIRST], [FIRST]),
        (["no address", "", "192.168.122.020", FIRST], [FIRST]),
        ([FIRST, SECOND], [FIRST]),
        ([FIRST, FIRST], [FIRST]),
    ],
)
def test_a_port_gets_only_an_address_of_its_subnet(cloud, said, shown):
    server_id = boot(cloud)
    say(cloud, "compute-1", server_id, {port_of(cloud, server_id)["mac_address"]: said})
    assert addresses(cloud, server_id) == shown


def test_an_address_of_another_server_is_refused_with_a_line_in_the_log(cloud, here, caplog):
    server_id, other = boot(cloud), boot(cloud)
    macs = {each: port_of(cloud, each)["mac_address"] for each in (server_id, other)}
    say(cloud, "compute-1", server_id, {macs[server_id]: [FIRST]})
    caplog.clear()
    say(cloud, "compute-1", other, {macs[other]: [FIRST]})
    assert (addresses(cloud, server_id), addresses(cloud, other)) == ([FIRST], [])
    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert (record.server, record.why) == (other, {FIRST: "another port has it"})
    say(cloud, "compute-1", other, {macs[server_id]: [SECOND], "fa:16:3e:ff:ff:ff": [SECOND]})
    assert (addresses(cloud, server_id), addresses(cloud, other)) == ([FIRST], [])


def test_a_server_with_an_address_of_a_pool_keeps_it_whatever_its_host_says(cloud):
    server_id = boot(cloud, "lab")
    say(cloud, "compute-1", server_id, {port_of(cloud, server_id)["mac_address"]: ["192.0.2.200"]})
    assert addresses(cloud, server_id) == ["192.0.2.2"]


@pytest.mark.parametrize(
    "said",
    [
        {"fa:16:3e:00:00:01": "192.168.122.20"},
        {"fa:16:3e:00:00:01": ["1" * 61]},
        {"fa:16:3e:00:00:01": [FIRST] * 9},
        {"FA:16:3E:00:00:01": [FIRST]},
        {"mac": [FIRST]},
        {f"fa:16:3e:00:00:{at:02x}": [FIRST] for at in range(65)},
    ],
)
def test_a_report_in_another_form_is_refused(cloud, said):
    with pytest.raises(MoorageError):
        say(cloud, "compute-1", boot(cloud), said)


def test_a_domain_that_cannot_be_asked_keeps_its_address(cloud, here, monkeypatch):
    server_id = boot(cloud)
    lease(cloud, here, **{server_id: [FIRST]})
    monkeypatch.setattr(here.driver, "learned_addresses", lambda domains: {})
    report(cloud, here)
    assert addresses(cloud, server_id) == [FIRST]


def test_a_network_service_that_is_away_delays_only_the_address(cloud, here):
    server_id = boot(cloud)
    way = cloud.compute.ways["network"]
    usual, way.around = way.around, _fail
    lease(cloud, here, **{server_id: [FIRST]})
    assert addresses(cloud, server_id) == []
    way.around = usual
    report(cloud, here)
    assert addresses(cloud, server_id) == [FIRST]


def _fail(request, send):
    raise Unavailable("the network service is away")


def test_a_moved_server_has_the_address_that_its_new_host_reports(cloud, here):
    server_id = boot(cloud)
    lease(cloud, here, **{server_id: [FIRST]})
    there = cloud.add_host("compute-2")
    there.start()
    cloud.admin_do(server_id, "migrate", None)
    assert cloud.status(server_id)[2] == "compute-2"
    report(cloud, there)
    assert addresses(cloud, server_id) == []
    lease(cloud, there, **{server_id: [SECOND]})
    assert addresses(cloud, server_id) == [SECOND]


def test_a_port_that_its_project_made_loses_the_address_with_its_server(cloud, here):
    body = {"port": {"network_id": network(cloud, "nat"), "project_id": "red"}}
    port = cloud.control.send("POST", "/network/v2.0/ports", body).body["port"]["id"]
    server_id = cloud.boot(networks=[{"port": port}])
    lease(cloud, here, **{server_id: [FIRST]})
    assert addresses(cloud, server_id) == [FIRST]
    assert cloud.send("DELETE", f"/v2.1/servers/{server_id}")[0] == 204
    cloud.settle()
    freed = cloud.control.send("GET", f"/network/v2.0/ports/{port}").body["port"]
    assert (freed["device_id"], freed["fixed_ips"]) == ("", [])
