"""A person logs in to a server in a network of a real Neutron, whose agent connects the guest by Open vSwitch."""

import json
import subprocess

import pytest
from sqlalchemy import make_url

from tests.ports import free_port
from tests.processes import python_of, running, sdk
from tests.servers import ServerMissing, temporary_vhost
from tests.system.libvirt import host
from tests.system.libvirt.lab import Lab, create
from tests.system.libvirt.open_vswitch import GUEST_ARGUMENT, PHYSICAL_NETWORK, OpenVSwitch
from tests.system.libvirt.servers import patiently
from tests.system.network.conftest import client_variables
from tests.system.planes import PlaneProcess, write_config

libvirt = pytest.importorskip("libvirt", reason="libvirt's Python bindings are not installed")
pytestmark = [pytest.mark.slow, pytest.mark.clients, pytest.mark.neutron]

HOST = "metal-1"
SUBNET, MACHINE = "198.51.100.0/24", "198.51.100.1"


@pytest.fixture(scope="module")
def switch(both):
    with host.short_directory() as path:
        try:
            switch = OpenVSwitch(path, both)
        except ServerMissing as error:
            pytest.skip(f"no Open vSwitch here: {error}")
        with switch.running():
            switch.connect_machine("eth1", MACHINE)
            yield switch


@pytest.fixture(scope="module")
def libvirtd(kernel, both, switch):
    with (
        host.short_directory() as path,
        host.LibvirtHost(path, namespace=both.host, programs=switch.programs) as libvirtd,
    ):
        yield libvirtd


@pytest.fixture(scope="module")
def lab(initrd, both, switch, libvirtd, tmp_path_factory):
    directory = tmp_path_factory.mktemp("neutron")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "me", "-f", directory / "key"], check=True)
    neutron = f"http://127.0.0.1:{free_port()}"
    config = write_config(
        directory / "plane",
        plane={"log_file": "", "services": "identity,placement,compute,accelerator,image,agent"},
        server={"port": free_port()},
        endpoints={"network": neutron},
        agent={"virt_driver": "libvirt", "host": HOST, "domain_report_period_s": 1.0},
        libvirt={
            "uri": libvirtd.uri,
            "instances_path": str(libvirtd.directory / "instances"),
            "virt_type": "qemu",
            "shutdown_timeout_s": 2.0,
            "reserved_host_memory_mb": 0,
            "vif_plugging_timeout_s": 60.0,
        },
    )
    with temporary_vhost() as vhost, PlaneProcess(config.source).start() as plane:
        broker = make_url(vhost).set(drivername="rabbit").render_as_string(hide_password=False)
        account = json.loads((plane.state / "credentials.json").read_text())["admin"]
        given = {
            "broker": broker, "identity": f"{plane.url}/identity", "user": "admin",
            "password": account["password"], "project": account["project"],
        }  # fmt: skip
        words = [word for name, value in given.items() for word in (f"--{name}", value)]
        rig = [python_of(".venv-neutron"), "-W", "ignore", "tests/system/neutron_rig.py", directory / "neutron"]
        port = neutron.rpartition(":")[2]
        with (
            running([*rig, port, *words], f"{neutron}/", directory / "neutron.out"),
            switch.agent(HOST, broker),
        ):
            lab = Lab(both, libvirtd, plane, plane.clients(), directory)
            patiently(lambda: alive_agents(lab) == [HOST])
            yield lab


@pytest.fixture(scope="module")
def image(make_image):
    return make_image(GUEST_ARGUMENT)


ALIVE = """
import json
print(json.dumps([one.host for one in cloud.network.agents() if one.is_alive]))
"""


def alive_agents(lab):
    return json.loads(sdk(client_variables(lab.plane), ALIVE))


MAKE_NETWORK = f"""
network = cloud.network.create_network(
    name="lab", is_shared=True, provider_network_type="flat", provider_physical_network={PHYSICAL_NETWORK!r}
)
cloud.network.create_subnet(
    network_id=network.id, cidr={SUBNET!r}, ip_version=4, enable_dhcp=False, gateway_ip=None,
    allocation_pools=[{{"start": "198.51.100.100", "end": "198.51.100.119"}}],
)
"""
PORTS = """
import json
print(json.dumps([[one.id, one.status, one.binding_vif_type] for one in cloud.network.ports(device_id={server!r})]))
"""


def ports(lab, server):
    return json.loads(sdk(client_variables(lab.plane), PORTS.format(server=server)))


def test_a_person_logs_in_to_a_server_in_a_network_of_neutron(lab, switch, image):
    sdk(client_variables(lab.plane), MAKE_NETWORK)
    server, status, address = create(lab, image, "web-1")
    ((port_id, *state),) = ports(lab, server)
    assert (status, state) == ("ACTIVE", ["ACTIVE", "ovs"])
    marked = switch.run("ovs-vsctl", "get", "Interface", f"tap{port_id}"[:14], "external_ids:iface-id")
    assert marked.strip('"') == port_id
    lab.trust_host(server, address)
    said = lab.ssh(address, "hostname")
    assert (said.returncode, said.stdout.strip()) == (0, "web-1"), said.stderr

    interfaces = f"/servers/{server}/os-interface"
    added = lab.clients.compute.request("POST", interfaces, json={"interfaceAttachment": {}})["interfaceAttachment"]
    patiently(lambda: [state for _, *state in ports(lab, server)] == [["ACTIVE", "ovs"]] * 2)
    seen = lab.ssh(address, "cat", "/sys/class/net/eth1/address")
    assert seen.stdout.strip() == added["mac_addr"], seen.stderr
    lab.clients.compute.request("DELETE", f"{interfaces}/{added['port_id']}")
    patiently(lambda: [port for port, *_ in ports(lab, server)] == [port_id])

    lab.clients.compute.request("DELETE", f"/servers/{server}")
    lab.clients.wait_until_gone(server)
    patiently(lambda: ports(lab, server) == [])
    assert f"tap{port_id}"[:14] not in switch.run("ovs-vsctl", "list-ports", "br-int")
