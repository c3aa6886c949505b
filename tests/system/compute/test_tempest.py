"""Tempest's own tests of the Compute API against our plane, with one network."""

import pytest

from tests.ports import free_port
from tests.system import tempest_rig
from tests.system.planes import PlaneProcess, write_config
from tests.system.suites import suite
from tests.system.suites.cloud import PEOPLE

pytestmark = [pytest.mark.slow, pytest.mark.tempest]

#: One test needs administrators who have this role, too.
WITH_SERVICE = PEOPLE | {f"service-{number}": ("admin", "admin", "service") for number in (1, 2, 3)}


def test_every_compute_tempest_test_passes_except_the_listed_ones(tmp_path):
    config = write_config(
        tmp_path / "state",
        server={"port": free_port()},
        agent={"simulated_hosts": 2},
    )
    with PlaneProcess(config.source) as plane:
        tempest_rig.add_people(plane, WITH_SERVICE)
        etc = tempest_rig.configure(plane, tmp_path / "tempest", WITH_SERVICE, network="lab")
        suite.run_and_check(
            "tempest.api.compute",
            suite.modules("tempest.api.compute"),
            tmp_path / "suite",
            workers=3,
            longest_sleep_s=0.2,
            variables={"TEMPEST_CONFIG_DIR": str(etc)},
        )
