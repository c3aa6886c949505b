"""python-openstackclient's own functional tests of the services that we have. Each command is a process, as in the suite,
but forked from one that has imported all commands.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import python_of
from tests.programs import ForkServer
from tests.system.suites import suite
from tests.system.suites.cloud import Cloud, devstack_cloud

pytestmark = [pytest.mark.slow, pytest.mark.tempest]

PACKAGE = "openstackclient.tests.functional"
PARTS = ("accelerator", "common", "compute", "identity.v3", "image")
LONGEST_SLEEP_S = 0.2
NETWORKS = {"private": "bridge br0 subnet 192.0.2.0/24", "public": "bridge br1 subnet 198.51.100.0/24"}


def test_every_functional_test_of_openstackclient_passes_except_the_listed_ones(tmp_path):
    names = [name for part in PARTS for name in suite.modules(PACKAGE, below=part)]
    with (
        devstack_cloud(tmp_path, networks=NETWORKS) as cloud,
        commands(cloud.directory) as programs,
    ):
        build_in_different_seconds(cloud)
        suite.run_and_check(
            "python-openstackclient", names, cloud.directory, workers=3, programs=programs,
            longest_sleep_s=LONGEST_SLEEP_S, variables={},
        )  # fmt: skip


@contextlib.contextmanager
def commands(home: Path) -> Iterator[Path]:
    """The directory of an ``openstack`` program that is imported once; it looks for clouds.yaml in `home`."""
    modules = ["openstackclient.shell", "cliff.command:_get_distributions_by_modules"]
    modules += [f"entry-points:{group}" for group in ("openstack.", "keystoneauth1.", "cliff.formatter.")]
    environment = {"PYTHONWARNINGS": "ignore", "HOME": str(home)}
    python = python_of(suite.ENVIRONMENT)
    with ForkServer(python, *modules, environment=environment, longest_sleep_s=LONGEST_SLEEP_S) as server:
        yield server.executable("openstack", "openstackclient.shell:main").parent


def build_in_different_seconds(cloud: Cloud) -> None:
    """Servers that the suite creates one after the other must have changed in different seconds, because it selects them
    by times in seconds.
    """
    state = cloud.plane.state
    for host in (state / "host", *(state / "hosts").iterdir()):
        (host / "control.json").write_text(json.dumps({"latency_s": {"spawn": 1.1}}))
