"""Runs every subcommand of ``openstack`` for the Compute API. This file has those that move a server between hosts,
those that need the output of another command, and those that are refused; `test_openstack_client` has the rest.
"""

import json
import subprocess
from functools import partial

import pytest

from tests.ports import free_port
from tests.processes import openstack, python_of
from tests.system.compute.test_openstack_client import AFTER, BEFORE, KEY, LIFE, check, is_settled
from tests.system.planes import PlaneProcess, until, write_config

pytestmark = [pytest.mark.slow, pytest.mark.clients]

#: The first words of the commands of which every subcommand is run.
GROUPS = (
    "aggregate ", "availability zone ", "compute service ", "console log ", "flavor ", "hypervisor ", "keypair ", "server ",
)  # fmt: skip

#: [(commands, the resulting status of the server)], in order.
MOVES = [
    (
        """
flavor create --id 1 --vcpus 1 --ram 64 --disk 1 m1.tiny
flavor create --id big --vcpus 2 --ram 128 --disk 1 m1.big
server create --flavor m1.tiny --image tiny --nic none --wait s1
server dump create s1
server resize --flavor m1.big --wait s1
""",
        "VERIFY_RESIZE",
    ),
    ("server resize confirm s1", "ACTIVE"),
    ("server resize --flavor m1.tiny --wait s1", "VERIFY_RESIZE"),
    ("server resize revert s1", "ACTIVE"),
    ("server migrate --wait s1", "VERIFY_RESIZE"),
    ("server migrate confirm s1", "ACTIVE"),
    ("server migrate --wait s1", "VERIFY_RESIZE"),
    ("server migrate revert s1", "ACTIVE"),
    ("server migrate --wait s1", "VERIFY_RESIZE"),
    ("server migration confirm s1", "ACTIVE"),
    ("server migrate --wait s1", "VERIFY_RESIZE"),
    ("server migration revert s1", "ACTIVE"),
    ("server migrate --live-migration --wait s1", "ACTIVE"),
    ("server shelve --wait s1", "SHELVED_OFFLOADED"),
    ("server unshelve --wait s1", "ACTIVE"),
]

#: Commands that need a network, a volume, shared files or a move in progress; and those that the client itself refuses.
REFUSED = """
server migration show s1 1
server migration abort s1 1
server migration force complete s1 1
server add fixed ip s1 net
server add floating ip s1 1.2.3.4
server add network s1 net
server add port s1 port
server add security group s1 default
server add share s1 share
server add volume s1 volume
server remove fixed ip s1 1.2.3.4
server remove floating ip s1 1.2.3.4
server remove port s1 port
server remove security group s1 default
server remove share s1 share
server remove volume s1 volume
server share show s1 share
server volume set s1 volume
server volume update s1 volume
server ssh s1
aggregate cache image ag tiny
compute service delete 00000000-0000-4000-8000-000000000000
""".strip().splitlines()

#: Commands whose arguments come from another command's output.
OTHERS = (
    "server event show", "server evacuate", "server share list", "server group delete", "server remove network",
    "hypervisor stats show",
)  # fmt: skip


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    directory = tmp_path_factory.mktemp("plane") / "state"
    write_config(directory, server={"port": free_port()}, agent={"simulated_hosts": 2})
    with PlaneProcess(directory / "moorage.conf") as plane:
        yield plane


@pytest.fixture(scope="module")
def commands(plane, tmp_path_factory):
    """Runs commands as the administrator."""
    kept = json.loads((plane.state / "credentials.json").read_text())["admin"]
    variables = {
        "OS_AUTH_URL": f"{plane.url}/identity",
        "OS_USERNAME": "admin",
        "OS_PASSWORD": kept["password"],
        "OS_PROJECT_NAME": kept["project"],
        "OS_USER_DOMAIN_ID": "default",
        "OS_PROJECT_DOMAIN_ID": "default",
    }
    keyfile = tmp_path_factory.mktemp("keys") / "k1.pub"
    keyfile.write_text(KEY)
    image = tmp_path_factory.mktemp("images") / "tiny"
    image.write_bytes(b"tiny")

    def run(*lines):
        return openstack(variables, *(line.lstrip("!").split() for line in lines))

    check(["image create"], run(f"image create tiny --file {image} --public"))
    return run


def test_a_server_is_moved_between_hosts_and_unsupported_commands_are_refused(plane, commands):
    clients = plane.clients()
    server_id = None

    for text, status in MOVES:
        lines = text.strip().splitlines()
        check(lines, commands(*lines))
        if server_id is None:
            (listed,) = clients.compute.get("/servers", params={"all_tenants": "1"})["servers"]
            server_id = listed["id"]
        until(partial(is_settled, clients, server_id, status))
    refused = [f"!{line}" for line in REFUSED]
    check(refused, commands(*refused))
    (events,) = commands("server event list s1 -f json")
    request = json.loads(events.out)[0]["Request ID"]
    host = clients.server(server_id)["OS-EXT-SRV-ATTR:host"]
    lines = [
        f"server event show s1 {request}",
        "server share list s1",
        "server remove network s1 lab",
        "hypervisor stats show",
        "server group create --policy affinity g1",
        "server group delete g1",
        f"compute service set --down {host} nova-compute",
        "server evacuate s1",  # --wait would wait for ACTIVE, but since 2.95 an evacuated server is stopped
    ]
    check(lines, commands(*lines))
    until(lambda: clients.server(server_id)["OS-EXT-SRV-ATTR:host"] != host)
    until(partial(is_settled, clients, server_id, "SHUTOFF"))


def test_every_subcommand_of_the_client_is_run():
    """Compared with the client's own list, so that a newer client's subcommand shows up here."""
    script = (
        "from importlib.metadata import entry_points as found\n"
        "print('\\n'.join(one.name.replace('_', ' ') for group in ('openstack.compute.v2', 'openstack.common')"
        " for one in found(group=group)))"
    )
    listed = subprocess.run(
        [python_of(".venv-clients"), "-c", script], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    wanted = [name for name in listed if name.startswith(GROUPS)]
    assert len(wanted) > 80
    run = [line.lstrip("!") for text, _ in (*LIFE, *MOVES) for line in text.strip().splitlines()]
    run += [line.lstrip("!") for line in (*BEFORE, *AFTER, *REFUSED, *OTHERS, "server delete")]
    missing = [name for name in wanted if not any(f"{line} ".startswith(f"{name} ") for line in run)]
    assert missing == []
