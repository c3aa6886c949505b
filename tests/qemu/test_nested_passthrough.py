"""A server with a passed-through NVMe drive, on a real libvirt and an emulated IOMMU, from its build to its deletion.

Runs only with ``make test-qemu``: the server's guest runs in an emulator within an emulator.
"""

import os
import re
import tempfile
from pathlib import Path

import pytest

from tests.qemu import guest, nested
from tests.servers import ServerMissing
from tests.system.libvirt import guest as libvirt_guest
from tests.system.libvirt import host as libvirt_host

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("MOORAGE_TEST_QEMU" not in os.environ, reason="opt-in: make test-qemu"),
]

#: On idle cores it takes a quarter of this.
TIMEOUT_S = 2400


@pytest.fixture(scope="module")
def facts() -> dict:
    """``{"boots": (True, "0000:00:04.0")}``, up to the first one that does not hold."""
    if why := guest.missing() or libvirt_host.missing():
        pytest.skip(f"no such guests here: {why}")
    try:
        kernel = libvirt_guest.kernel(guest.PACKAGE)
    except ServerMissing as error:
        pytest.skip(f"no such guests here: {error}")
    # Below /dev, where pytest's directories are, the guest sees devices of its own instead of the files.
    with tempfile.TemporaryDirectory(prefix="moorage-nested-", dir="/var/tmp") as directory:
        said = nested.run(kernel, Path(directory), timeout_s=TIMEOUT_S)
    found = (re.match(r"FACT (\w+) (holds|fails): (.*)", line) for line in said)
    return {match[1]: (match[2] == "holds", match[3]) for match in found if match}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("boots", r"0000:00:04\.0"),
        ("view", r"0000:\S+ 0108: 1b36:0010"),
        ("kept", r"0000:00:04\.0"),
        ("suspended", r"0000:00:04\.0"),
        ("rebooted", r"0000:00:04\.0"),
        ("deleted", r"NVMe format \(user data erase\) of namespaces 1: status 0x000.*blocks with content have changed"),
    ],
)
def test_a_server_with_a_drive_lives_and_dies_as_the_table_of_operations_says(facts, name, expected):
    """R30, R33, R34, R36, R37, R38, R42 (accelerator-attach): the facts are methods of
    `tests.qemu.nested_inside.Inside`.
    """
    assert name in facts, f"an earlier fact does not hold: {facts}"
    holds, told = facts[name]
    assert holds, told
    assert re.match(expected, told), told
