"""The Tempest plugin of Blazar, its API tests and its scenarios, against our reservation service."""

import pytest

from tests.ports import free_port
from tests.system import tempest_rig
from tests.system.planes import PlaneProcess, write_config
from tests.system.suites import suite

pytestmark = [pytest.mark.slow, pytest.mark.tempest]


def test_every_blazar_tempest_test_passes_except_the_listed_ones(tmp_path):
    config = write_config(
        tmp_path / "state", plane={"clock": "adjustable"}, server={"port": free_port()}, agent={"simulated_hosts": 1}
    )
    with PlaneProcess(config.source) as plane:
        tempest_rig.add_people(plane)
        etc = tempest_rig.configure(plane, tmp_path / "tempest", creates_people=True)
        # One worker: the tests share the host and count the leases. Those of gabbi come first, with most tests each;
        # they leave nothing behind.
        suite.run_and_check(
            "blazar-tempest-plugin",
            suite.modules("blazar_tempest_plugin.tests"),
            tmp_path / "suite",
            workers=1,
            stand_in="tests.system.suites.rehearsal_stand_in",
            variables={
                "TEMPEST_CONFIG_DIR": str(etc),
                "SUITE_PLANE": plane.url,
                "SUITE_PASSWORD": tempest_rig.PASSWORD,
            },
        )
