"""People log in to servers over SSH, with the key pair that the server was created with.

The host (libvirtd and its guests) and the person's machine are two network namespaces; only the host's bridge connects
them. The guests boot Debian's kernel in emulation, and are configured by their config drive alone.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.processes import sdk
from tests.system.libvirt import guest, host
from tests.system.libvirt.lab import Lab, create
from tests.system.libvirt.namespaces import BRIDGE, MACHINE, SUBNET
from tests.system.libvirt.servers import act, patiently, wait_for_console
from tests.system.network.conftest import client_variables
from tests.system.planes import PlaneProcess, write_config

libvirt = pytest.importorskip("libvirt", reason="libvirt's Python bindings are not installed")
pytestmark = [pytest.mark.slow, pytest.mark.clients]

POOL = "192.0.2.100-192.0.2.119"
NAT = "libvirt nat subnet 192.168.122.0/24 addresses dhcp"
#: A network of libvirt, whose dnsmasq gives addresses and knows the names of those who got one.
NETWORK = """
<network>
  <name>nat</name>
  <forward mode="open"/>
  <bridge name="virbr0"/>
  <domain name="lab" localOnly="yes"/>
  <ip address="192.168.122.1" netmask="255.255.255.0"><dhcp><range start="192.168.122.20" end="192.168.122.29"/></dhcp></ip>
</network>
"""
#: CPU seconds of QEMU until the first command has run over SSH: on an idle machine, it waits for little else.
CPU_LIMIT_S = 40


@pytest.fixture(scope="module")
def lab(initrd, both, bridged_libvirtd, tmp_path_factory):
    directory = tmp_path_factory.mktemp("login")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "me", "-f", directory / "key"], check=True)
    config = write_config(
        directory / "plane",
        plane={"log_file": "", "services": "identity,placement,compute,accelerator,image,agent,network"},
        server={"port": free_port()},
        network={"lines": {"lab": f"bridge {BRIDGE} subnet {SUBNET} addresses {POOL}", "nat": NAT}},
        agent={"virt_driver": "libvirt", "host": "metal-1", "domain_report_period_s": 1.0},
        libvirt={
            "uri": bridged_libvirtd.uri,
            "instances_path": str(bridged_libvirtd.directory / "instances"),
            "virt_type": "qemu",
            "shutdown_timeout_s": 2.0,
            "reserved_host_memory_mb": 0,
        },
    )
    with PlaneProcess(config.source).start() as plane:
        yield Lab(both, bridged_libvirtd, plane, plane.clients(), directory)


@pytest.fixture(scope="module")
def image(make_image):
    return make_image()


@pytest.fixture(scope="module")
def nat(lab):
    """The network of libvirt `nat`, to which the person's machine is connected, too."""
    with contextlib.closing(libvirt.open(lab.libvirtd.uri)) as link:
        link.networkCreateXML(NETWORK)
    lab.namespaces.connect("eth1", "192.168.122.2", "virbr0")


def test_a_person_logs_in_with_the_key_pair_of_the_server(lab, image):
    """`create_server(wait=True)` of openstacksdk; then ssh, from another machine, to the address that it returned."""
    started = time.monotonic()
    server, status, address = create(lab, image, "web-1")
    text = lab.trust_host(server, address)
    said = lab.ssh(address, "hostname")
    cpu_s = cpu_seconds(lab)
    took_s = time.monotonic() - started
    print(
        f"from the request to the first command over SSH: {took_s:.1f} s, of which QEMU used the CPU for {cpu_s:.1f} s"
    )
    assert (said.returncode, said.stdout.strip(), status) == (0, "web-1", "ACTIVE"), said.stderr
    assert f"ADDRESS eth0 {address}" in text

    other = lab.directory / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    refused = lab.ssh(address, "hostname", key=other)
    assert (refused.returncode, refused.stdout) == (255, "")
    assert "Permission denied" in refused.stderr
    lab.clients.compute.request("DELETE", f"/servers/{server}")
    lab.clients.wait_until_gone(server)
    assert cpu_s < CPU_LIMIT_S


def cpu_seconds(lab):
    """CPU time of the only guest that runs."""
    (pid,) = lab.libvirtd.guests()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


#: Prints the size and the source of each echo request, until that of the size `LAST`.
LISTEN = """
import socket, sys
heard = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
print("ready", flush=True)
size = 0
while size != int(sys.argv[1]):
    packet, (address, _) = heard.recvfrom(2000)
    if packet[20] == 8:
        size = len(packet) - 28
        print(size, address, flush=True)
"""
#: Sizes of the echo requests that a server sends: as itself, from another address, with another MAC address, as itself.
HONEST, ADDRESS, MAC, LAST = 101, 102, 103, 104
#: The connection over which this runs survives the change of the MAC address.
SEND = f"""
arp -s {MACHINE} $1
send() {{ ping -c 1 -W 1 -s $1 -I $2 {MACHINE} >/dev/null; }}
mine=$(cat /sys/class/net/eth0/address)
send {HONEST} $2
send {ADDRESS} $3
ip link set eth0 address 02:00:00:00:00:99
send {MAC} $2
ip link set eth0 address $mine
send {LAST} $2
"""
OTHER = "192.0.2.77"


def test_a_server_is_not_heard_from_addresses_that_are_not_its_own(lab, image):
    """Libvirt's filter `clean-traffic`; when its rules are gone, the same guest is heard."""
    server, _, address = create(lab, image, "liar")
    lab.trust_host(server, address)
    added = lab.ssh(address, "ip", "addr", "add", f"{OTHER}/24", "dev", "eth0")
    assert added.returncode == 0, added.stderr
    assert heard_from(lab, address) == [(HONEST, address), (LAST, address)]
    assert not claims(lab, OTHER)
    assert claims(lab, address)

    programs, _ = host.network_programs()
    subprocess.run(lab.namespaces.command(lab.namespaces.host, programs / "ebtables", "-t", "nat", "-F"), check=True)
    everything = [(HONEST, address), (ADDRESS, OTHER), (MAC, address), (LAST, address)]
    assert heard_from(lab, address) == everything
    assert claims(lab, OTHER)


def heard_from(lab, address):
    """[(size, source)] of the echo requests that reach the person's machine."""
    command = lab.namespaces.command(lab.namespaces.machine, sys.executable, "-c", LISTEN, LAST)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listener:
        assert listener.stdout.readline() == "ready\n"
        mac = lab.namespaces.run("cat", "/sys/class/net/eth0/address").stdout.strip()
        sent = lab.ssh(address, "sh", "-s", mac, address, OTHER, data=SEND)
        if sent.returncode:
            listener.kill()
        heard = [(int(line.split()[0]), line.split()[1]) for line in listener.stdout]
    assert sent.returncode == 0, sent.stderr
    return heard


def claims(lab, address):
    """Whether somebody on the network answers that this address is theirs."""
    return lab.namespaces.run(guest.BUSYBOX, "arping", "-c", "2", "-w", "3", "-I", "eth0", address).returncode == 0


CREATE_IN_NAT = """
import json
from pathlib import Path
cloud.create_keypair({name!r}, Path({public!r}).read_text())
network = cloud.network.find_network("nat")
image, flavor = cloud.get_image({image!r}), cloud.get_flavor("tiny")
server = cloud.compute.create_server(
    name={name!r}, image_id=image.id, flavor_id=flavor.id, networks=[{{"uuid": network.id}}], key_name={name!r}
)
print(json.dumps(cloud.compute.wait_for_server(server).id))
"""


def create_in_nat(lab, image, name):
    """The id of a server that has no address yet."""
    script = CREATE_IN_NAT.format(public=str(lab.key.with_suffix(".pub")), image=image, name=name)
    return json.loads(sdk(client_variables(lab.plane), script))


def shown(lab, server):
    """{network: addresses}"""
    return {name: [row["addr"] for row in rows] for name, rows in lab.clients.server(server)["addresses"].items()}


def test_a_person_logs_in_by_name_to_a_server_whose_address_a_dhcp_server_gave(lab, nat, image, tmp_path):
    """Libvirt's dnsmasq gives the address and answers for the name; compute learns the address from its leases."""
    server = create_in_nat(lab, image, "named")
    text = lab.trust_host(server, "named")
    (address,) = re.findall(r"ADDRESS eth0 (192\.168\.122\.2\d)", text)

    (tmp_path / "resolv.conf").write_text("nameserver 192.168.122.1\nsearch lab\n")
    # In a mount namespace of its own, as `ip netns exec` starts each program.
    with_names = ("sh", "-c", 'mount --bind "$0" /etc/resolv.conf; exec "$@"', str(tmp_path / "resolv.conf"))
    said = lab.ssh("named", "hostname", before=with_names)
    assert (said.returncode, said.stdout.strip()) == (0, "named"), said.stderr

    patiently(lambda: shown(lab, server) == {"nat": [address]})
    act(lab.clients, server, "os-stop", "SHUTOFF")
    patiently(lambda: shown(lab, server) == {})


def test_a_guest_agent_says_an_address_that_libvirts_leases_do_not_have(lab, nat, make_image):
    image = make_image("claim=192.168.122.77", hw_qemu_guest_agent="yes")
    server = create_in_nat(lab, image, "agent")
    patiently(lambda: shown(lab, server) == {"nat": ["192.168.122.77"]})
    assert "ADDRESS" not in wait_for_console(lab.clients, server, "READY")
