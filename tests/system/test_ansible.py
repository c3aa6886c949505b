"""The playbooks of packaging/ansible, run by an unmodified Ansible with its collection openstack.cloud."""

import json
import re
import subprocess

import pytest

from tests.ports import free_port
from tests.processes import ROOT, inherited, python_of
from tests.system.planes import PlaneProcess, moorage, write_config

pytestmark = [pytest.mark.slow, pytest.mark.ansible]

PLAYBOOKS = ROOT / "packaging" / "ansible"
SERVICES = "identity,placement,compute,accelerator,image,agent,network"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINq58IlCWeEZskehFJsXerpeqXANAIKO2SOIJWaMJ2VT"


@pytest.fixture
def plane(tmp_path):
    config = write_config(tmp_path / "state", plane={"services": SERVICES}, server={"port": free_port()})
    with PlaneProcess(config.source) as running:
        yield running


def play(plane: PlaneProcess, playbook: str) -> tuple[int, str]:
    """Runs it as an administrator; returns the number of tasks that changed something, and the output."""
    login = json.loads(moorage("env", "--json", "--config", plane.config).stdout)
    directory = plane.state.parent
    (directory / "image.raw").write_bytes(b"x" * 65536)
    (directory / "key.pub").write_text(KEY)
    variables = f"image_file={directory}/image.raw image_format=raw public_key_file={directory}/key.pub"
    done = subprocess.run(
        [python_of(".venv-ansible").with_name("ansible-playbook"), PLAYBOOKS / playbook, "--extra-vars", variables],
        env={**inherited(), **login, "MEMBER_PASSWORD": "secret-of-the-member", "HOME": str(directory)},
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (changed,) = re.findall(r"^localhost .* changed=(\d+) ", done.stdout, re.MULTILINE)
    return int(changed), done.stdout


def test_a_playbook_creates_a_project_with_a_server_and_another_removes_it(plane):
    created, said = play(plane, "project.yaml")
    assert created == 9
    assert "robotics-1 is ACTIVE at 198.51.100.10" in said
    assert play(plane, "project.yaml")[0] == 0, "a second run changes nothing"
    assert play(plane, "remove-project.yaml")[0] == 7
    assert play(plane, "remove-project.yaml")[0] == 0
    clients = plane.clients()
    assert clients.compute.get("/servers/detail?all_tenants=1")["servers"] == []
    assert clients.compute.get("/flavors")["flavors"] == []
    assert clients.image.get("/v2/images")["images"] == []
