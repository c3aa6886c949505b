"""The unmodified ``openstack`` commands for compute against one plane: all commands that people use."""

import json
from functools import partial

import pytest

from tests.ports import free_port
from tests.processes import openstack
from tests.system.planes import PlaneProcess, until

pytestmark = [pytest.mark.slow, pytest.mark.clients]

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINq58IlCWeEZskehFJsXerpeqXANAIKO2SOIJWaMJ2VT"

#: An administrator's commands that read and set up objects, in order. One with ``!`` in front must be refused.
BEFORE = """
flavor create --id 1 --vcpus 1 --ram 64 --disk 1 m1.tiny
flavor create --id big --vcpus 2 --ram 128 --disk 1 m1.big
flavor create --vcpus 1 --ram 64 --disk 1 --property resources:CUSTOM_X=1 trc
flavor list
flavor list --long
flavor list --all
flavor show trc
flavor set --property a:b=1 --description text trc
flavor unset --property a:b trc
!flavor set --project admin trc
flavor create --private --vcpus 1 --ram 64 --disk 1 trc2
flavor set --project admin trc2
flavor unset --project admin trc2
flavor delete trc trc2
!flavor show trc
hypervisor list
hypervisor list --long
hypervisor list --matching compute
hypervisor show compute-1
aggregate create --zone az1 ag1
aggregate list --long
aggregate add host ag1 compute-1
aggregate show ag1
aggregate set --property p=q --name ag2 ag1
aggregate unset --property p ag2
availability zone list --compute --long
availability zone list
aggregate remove host ag2 compute-1
aggregate delete ag2
compute service list
compute service list --service nova-compute --long
compute service set --disable --disable-reason x compute-1 nova-compute
compute service set --enable compute-1 nova-compute
compute service set --down compute-1 nova-compute
compute service set --up compute-1 nova-compute
!compute service delete nope
!compute agent list
host list
keypair create --public-key KEYFILE k1
keypair create k2
keypair list
keypair show k1
keypair show --public-key k1
keypair delete k2
quota show --compute
quota show --compute --usage
quota set --cores 30 --instances 12 demo
quota show --compute demo
quota list --compute
quota delete --compute demo
limits show --absolute
limits show --rate
usage list
versions show --service compute
extension list --compute
server group create --policy anti-affinity g1
server group list
server group list --long
server group show g1
server migration list
server list
server list --all-projects --long
""".strip().splitlines()

#: The owner's commands on a server, each with the resulting status; commands with the same status run together.
LIFE = [
    (
        """
server create --flavor m1.tiny --image tiny --nic none --key-name k1 --property a=b --tag t1 --wait tr1
server list --status ACTIVE --name tr
server list --tags t1 --sort-column created_at --limit 1
server show tr1
server set --property k=v --description d --tag t2 tr1
server unset --property k --tag t2 tr1
server set --name tr1 tr1
server lock tr1
server unlock tr1
server reboot --soft --wait tr1
server reboot --hard --wait tr1
server rebuild --image tiny --wait tr1
server image create --name sn --wait tr1
server backup create --name bu --rotate 1 --wait tr1
server event list tr1
server event list --long tr1
server volume list tr1
console log show tr1
console log show --lines 1 tr1
!console url show tr1
!server add volume tr1 x
!server restore tr1
!server migrate tr1
server pause tr1
""",
        "PAUSED",
    ),
    ("server unpause tr1", "ACTIVE"),
    ("server suspend tr1", "SUSPENDED"),
    ("server resume tr1", "ACTIVE"),
    ("server stop tr1", "SHUTOFF"),
    ("server start tr1", "ACTIVE"),
    ("server rescue tr1", "RESCUE"),
    ("server unrescue tr1", "ACTIVE"),
]

#: The administrator's commands on the server.
AFTER = """
server list --all-projects --host compute-1 --long
server list --all-projects --deleted
hypervisor list --long
server show SERVER
server lock --reason why SERVER
server unlock SERVER
server set --state error --auto-approve SERVER
server set --state active --auto-approve SERVER
server migration list
server migration list --server SERVER
usage list
""".strip().splitlines()


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    with PlaneProcess(tmp_path_factory.mktemp("plane") / "state" / "moorage.conf", "--port", str(free_port())) as plane:
        yield plane


@pytest.fixture(scope="module")
def commands(plane, tmp_path_factory):
    """Runs commands as a user of the plane; KEYFILE in them is a public key."""
    keyfile = tmp_path_factory.mktemp("keys") / "k1.pub"
    keyfile.write_text(KEY)
    image = tmp_path_factory.mktemp("images") / "tiny"
    image.write_bytes(b"tiny")

    def run(user, *lines):
        kept = json.loads((plane.state / "credentials.json").read_text())[user]
        variables = {
            "OS_AUTH_URL": f"{plane.url}/identity",
            "OS_USERNAME": user,
            "OS_PASSWORD": kept["password"],
            "OS_PROJECT_NAME": kept["project"],
            "OS_USER_DOMAIN_ID": "default",
            "OS_PROJECT_DOMAIN_ID": "default",
        }
        return openstack(variables, *(line.replace("KEYFILE", str(keyfile)).lstrip("!").split() for line in lines))

    (made,) = run("admin", f"image create tiny --file {image} --public -f json")
    assert made.document["status"] == "active"
    return run


def is_settled(clients, server_id, status):
    server = clients.server(server_id)
    return server["status"] == status and server["OS-EXT-STS:task_state"] is None


def check(lines, answers):
    wrong = [
        (line, answer.status, answer.out[-300:], answer.err[-600:])
        for line, answer in zip(lines, answers, strict=True)
        if (answer.status != 0) != line.startswith("!")
    ]
    assert not wrong, "\n".join(map(str, wrong))


def test_the_administrators_commands_succeed(commands):
    check(BEFORE, commands("admin", *BEFORE))


def test_every_operation_on_a_server_leads_to_its_status(plane, commands):
    commands("admin", "flavor create --id 1 --vcpus 1 --ram 64 --disk 1 m1.tiny")
    commands("demo", "keypair create --public-key KEYFILE k1")
    clients = plane.clients()
    server_id = None
    for text, status in LIFE:
        lines = text.strip().splitlines()
        check(lines, commands("demo", *lines))
        if server_id is None:
            listed = clients.compute.get("/servers", params={"all_tenants": "1", "name": "^tr1$"})["servers"]
            server_id = listed[0]["id"]
        until(partial(is_settled, clients, server_id, status))
    after = [line.replace("SERVER", server_id) for line in AFTER]
    check(after, commands("admin", *after))
    last = ["usage show", "server delete --wait tr1", "!server show tr1", "keypair delete k1"]
    check(last, commands("demo", *last))
    assert clients.server(server_id) is None
