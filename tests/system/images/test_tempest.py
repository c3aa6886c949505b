"""Tempest's own tests of the Image API against our image service."""

import pytest

from tests.ports import free_port
from tests.system import tempest_rig
from tests.system.planes import PlaneProcess, write_config
from tests.system.suites import suite
from tests.system.suites.cloud import PEOPLE

pytestmark = [pytest.mark.slow, pytest.mark.tempest]


def test_every_image_tempest_test_passes_except_the_listed_ones(tmp_path):
    config = write_config(tmp_path / "state", server={"port": free_port()}, agent={"simulated_hosts": 1})
    with PlaneProcess(config.source) as plane:
        tempest_rig.add_people(plane, PEOPLE)
        etc = tempest_rig.configure(plane, tmp_path / "tempest", PEOPLE)
        suite.run_and_check(
            "tempest.api.image",
            suite.modules("tempest.api.image"),
            tmp_path / "suite",
            variables={"TEMPEST_CONFIG_DIR": str(etc)},
        )
