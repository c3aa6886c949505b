"""The Tempest plugin of Cyborg against our accelerator service. Where the plugin expects one of Cyborg's answers 500,
the service is configured to give it.
"""

import pytest

from tests.ports import free_port
from tests.system import tempest_rig
from tests.system.planes import PlaneProcess, write_config
from tests.system.suites import suite

pytestmark = [pytest.mark.slow, pytest.mark.tempest]

#: Tempest uses the first user of a project, and others of the same project; this project has one.
PEOPLE = {
    f"{role}-{number}": ("demo", role)
    for role in ("admin", "manager", "member", "reader", "service")
    for number in (1, 2, 3)
}


def test_every_cyborg_tempest_test_passes_except_the_listed_ones(tmp_path):
    options = {"agent": {"simulated_hosts": 1}, "accelerator": {"legacy_500": True}}
    config = write_config(tmp_path / "state", server={"port": free_port()}, **options)
    with PlaneProcess(config.source) as plane:
        tempest_rig.add_people(plane, PEOPLE)
        etc = tempest_rig.configure(plane, tmp_path / "tempest", PEOPLE)
        suite.run_and_check(
            "cyborg-tempest-plugin",
            suite.modules("cyborg_tempest_plugin.tests.api"),
            tmp_path / "suite",
            workers=1,
            variables={"TEMPEST_CONFIG_DIR": str(etc)},
        )
