"""Tempest's own tests of interfaces that are attached and detached, on the plane of a first start."""

import configparser

import pytest

from tests.ports import free_port
from tests.system import tempest_rig
from tests.system.planes import PlaneProcess
from tests.system.suites import suite

pytestmark = [pytest.mark.slow, pytest.mark.tempest]

OPTIONS = {
    "compute": {"min_compute_nodes": "1"},
    # Without it these tests are skipped; `without_ssh` replaces what it waits for.
    "validation": {
        "run_validation": "true", "connect_method": "fixed", "network_for_ssh": "lab", "keypair": "false",
        "security_group": "false", "security_group_rules": "false",
    },
}  # fmt: skip


def test_tempests_tests_of_attached_interfaces_pass_except_the_listed_ones(tmp_path):
    with PlaneProcess(tmp_path / "state" / "moorage.conf", "--port", str(free_port())) as plane:
        tempest_rig.add_people(plane)
        etc = tempest_rig.configure(plane, tmp_path / "tempest", network="lab")
        file = etc / "tempest.conf"
        parser = configparser.ConfigParser(default_section="", interpolation=None)
        parser.read(file)
        parser.read_dict(OPTIONS)
        with file.open("w") as out:
            parser.write(out)
        suite.run_and_check(
            "tempest: attached interfaces",
            ["tempest.api.compute.servers.test_attach_interfaces"],
            tmp_path / "suite",
            workers=1,
            stand_in="tests.system.network.without_ssh",
            longest_sleep_s=0.2,
            variables={"TEMPEST_CONFIG_DIR": str(etc)},
        )
