"""openstacksdk's own functional tests of the services that we have, and of its cloud layer."""

import pytest

from tests.system.suites import suite
from tests.system.suites.cloud import devstack_cloud

pytestmark = [pytest.mark.slow, pytest.mark.tempest]

PACKAGE = "openstack.tests.functional"
PARTS = ("accelerator", "compute", "identity", "image", "placement")
#: Of the cloud layer; the other modules are about services that we do not have.
CLOUD = ("test_compute", "test_identity", "test_image", "test_inventory", "test_meta", "test_project_cleanup")


def test_every_functional_test_of_openstacksdk_passes_except_the_listed_ones(tmp_path):
    names = [name for part in PARTS for name in suite.modules(PACKAGE, below=part)]
    names += [f"{PACKAGE}.cloud.{name}" for name in CLOUD]
    with devstack_cloud(tmp_path, networks={"public": "bridge br0 subnet 192.0.2.0/24"}) as cloud:
        # The SDK reads the usage of its project and user, which must not be empty; and it uploads this file, which is in its
        # source.
        chief = cloud.clients("chief", "admin")
        chief.wait_for_status(chief.create_server(flavor="1"), "ACTIVE")
        (cloud.directory / "CONTRIBUTING.rst").write_text("a file to upload\n")
        variables = {"OPENSTACKSDK_FUNC_TEST_TIMEOUT": "60", "OS_TEST_TIMEOUT": "300"}
        suite.run_and_check("openstacksdk", names, cloud.directory, workers=3, variables=variables)
