"""A real cloud-init, Debian's, reads our config drive: names, keys, user data and networks."""

import json
import subprocess
from dataclasses import replace

import pytest

from moorage.agent.model import config_drive_files
from tests.debian import libraries_of, unpacked
from tests.processes import inherited
from tests.servers import ServerMissing
from tests.unit.agent.test_config_drive import GUEST, LAB, NAT

pytestmark = pytest.mark.slow

#: The system's Python: Debian's cloud-init is for that.
PYTHON = "/usr/bin/python3"
#: Reads the drive in argv[1] as the data source does in a guest whose interfaces are argv[2], {MAC address: name}, and
#: writes Debian's own network configuration, /etc/network/interfaces.
READ = """
import json, sys, tempfile
from pathlib import Path
from cloudinit.net import eni, network_state
from cloudinit.sources import DataSourceConfigDrive
from cloudinit.sources.helpers import openstack
found = DataSourceConfigDrive.read_config_drive(sys.argv[1])
config = openstack.convert_net_json(found["networkdata"], known_macs=json.loads(sys.argv[2]))
target = tempfile.mkdtemp()
renderer = eni.Renderer({"eni_path": "interfaces", "eni_header": "", "netrules_path": None})
renderer.render_network_state(network_state.parse_net_config_data(config), target=target)
metadata = found["metadata"]
print(json.dumps({
    "version": found["version"],
    "host": metadata["local-hostname"],
    "id": metadata["instance-id"],
    "keys": metadata["public_keys"],
    "zone": metadata["availability_zone"],
    "user_data": found["userdata"].decode(),
    "interfaces": Path(target, "interfaces").read_text(),
    "config": config,
}))
"""


@pytest.fixture(scope="module")
def place():
    try:
        return unpacked("cloud-init", "cloud-init")
    except ServerMissing as error:
        pytest.skip(f"no cloud-init here: {error}")


@pytest.fixture
def read(place, tmp_path):
    """What cloud-init finds in the config drive of a guest."""

    def run(guest, macs):
        for name, content in config_drive_files(guest).items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(content)
        environment = inherited() | {
            "PYTHONPATH": str(place / "usr/lib/python3/dist-packages"), "LD_LIBRARY_PATH": libraries_of(place)
        }  # fmt: skip
        done = subprocess.run(
            [PYTHON, "-c", READ, tmp_path, json.dumps(macs)],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_it_finds_the_name_the_keys_and_the_user_data(read):
    found = read(GUEST, {})
    assert (found["version"], found["host"], found["id"]) == (2, "web-1", GUEST.uuid)
    assert (found["keys"], found["zone"]) == ({"mine": "ssh-ed25519 AAAA"}, "az1")
    assert found["user_data"] == "#!/bin/sh\necho hello\n"


def test_it_configures_the_addresses_routes_and_name_servers_of_each_interface(read):
    found = read(replace(GUEST, interfaces=(LAB, NAT)), {LAB.mac: "eth0", NAT.mac: "eth1"})
    lines = [line.strip() for line in found["interfaces"].splitlines()]
    for wanted in (
        "iface eth0 inet static", "address 192.0.2.100/24", "mtu 1500", "iface eth0 inet6 static",
        "address 2001:db8::5/64", "iface eth1 inet dhcp", "dns-nameservers 192.0.2.53 2001:db8::53",
    ):  # fmt: skip
        assert wanted in lines, (wanted, lines)
    for gateway in ("192.0.2.1", "2001:db8::1"):
        assert any(f"default gw {gateway} " in f"{line} " for line in lines), (gateway, lines)
