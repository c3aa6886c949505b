"""Tempest's own tests of interfaces that are attached and detached, on the plane of a first start."""

import configparser
from pathlib import Path

import pytest

from tests.ports import free_port
from tests.system import tempest_rig
from tests.system.planes import PlaneProcess

pytestmark = [pytest.mark.slow, pytest.mark.tempest]

MODULE = "tempest.api.compute.servers.test_attach_interfaces"
#: They need a network that a member has made; only administrators make networks, which are bridges of the hosts.
SKIPPED = {
    "AttachInterfacesTestJSON.test_create_list_show_delete_interfaces_by_fixed_ip",
    "AttachInterfacesUnderV243Test.test_add_remove_fixed_ip",
}
OPTIONS = {
    "service_available": {"neutron": "true"},
    "compute": {"fixed_network_name": "lab", "min_compute_nodes": "1"},
    "compute-feature-enabled": {"interface_attach": "true"},
    # Without it these tests are skipped; `without_ssh` replaces what it waits for.
    "validation": {
        "run_validation": "true", "connect_method": "fixed", "network_for_ssh": "lab", "keypair": "false",
        "security_group": "false", "security_group_rules": "false",
    },
}  # fmt: skip


def test_tempests_tests_of_attached_interfaces_pass(tmp_path):
    with PlaneProcess(tmp_path / "state" / "moorage.conf", "--port", str(free_port())) as plane:
        tempest_rig.add_people(plane)
        etc = tempest_rig.configure(plane, tmp_path / "tempest")
        file = etc / "tempest.conf"
        parser = configparser.ConfigParser(default_section="", interpolation=None)
        parser.read(file)
        parser.read_dict(OPTIONS)
        with file.open("w") as out:
            parser.write(out)
        outcome = tempest_rig.run(etc, [MODULE], timeout_s=300, program=Path(__file__).with_name("without_ssh.py"))
    assert outcome.failed == [], outcome.text[-6000:]
    skipped = {name for name, said in outcome.said.items() if said.startswith("skip")}
    assert skipped == {f"{MODULE}.{name}" for name in SKIPPED}, outcome.text[-3000:]
    assert len(outcome.passed) == 3, outcome.text[-3000:]
