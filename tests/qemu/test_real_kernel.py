"""The drivers over a real kernel: SR-IOV, binding to vfio-pci, resets, hot unplug and mediated devices, in a guest.

Runs only with ``make test-qemu``, because a boot under software emulation takes half a minute.
"""

import os
import re

import pytest

from tests.qemu import guest, sample
from tests.servers import ServerMissing
from tests.system.libvirt import guest as libvirt_guest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("MOORAGE_TEST_QEMU" not in os.environ, reason="opt-in: make test-qemu"),
]


@pytest.fixture(scope="module")
def facts(tmp_path_factory) -> dict:
    """``{"sriov": (True, "0000:01:00.1 0000:01:00.2")}``"""
    if why := guest.missing():
        pytest.skip(f"no such guests here: {why}")
    try:
        kernel = libvirt_guest.kernel(guest.PACKAGE)
    except ServerMissing as error:
        pytest.skip(f"no such guests here: {error}")
    try:
        more, why = sample.mtty(kernel), ""
    except ServerMissing as error:
        more, why = None, error
    said = guest.run(kernel, tmp_path_factory.mktemp("qemu"), more)
    found = (re.match(r"FACT (\w+) (holds|fails): (.*)", line) for line in said)
    return {match[1]: (match[2] == "holds", match[3]) for match in found if match} | {"no sample": why}


@pytest.mark.parametrize("name", ["sriov", "binding", "cleaning", "erasing", "whole", "vanishing"])
def test_a_real_kernel_behaves_as_the_drivers_expect(facts, name):
    """R1, R6, R30 (accelerator-attach)"""
    holds, told = facts[name]
    assert holds, told


def test_mediated_devices_are_created_and_removed(facts):
    """R1 (accelerator-attach): shares of a card, from the kernel's own sample of mediated devices."""
    holds, told = facts["mediated"]
    assert holds, told
    if facts["no sample"]:
        pytest.skip(f"Debian's kernel has the framework (mdev); {facts['no sample']}")
    assert told == "mtty-2 x 12"
