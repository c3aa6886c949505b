"""The unchanged drivers in a process for which umockdev replaces /sys.

The devices follow the kernel's documents. There is no kernel that carries out writes, so only discovery is tested.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.accelerator.drivers.benches import AES, REGION_TYPE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("umockdev-run") is None, reason="umockdev is not here: apt-get install umockdev"),
]

PCI = """\
P: /devices/pci0000:3a/{address}
E: SUBSYSTEM=pci
A: vendor=0x{vendor}
A: device=0x{product}
A: class=0x{kind}
A: numa_node=1
{more}
"""


def pci(address, ids, kind, *more):
    vendor, product = ids.split(":")
    return PCI.format(address=address, vendor=vendor, product=product, kind=kind, more="\n".join(more))


def part(path, subsystem, *attributes):
    lines = [f"P: /devices/pci0000:3a/{path}", f"E: SUBSYSTEM={subsystem}", *(f"A: {one}" for one in attributes)]
    return "\n".join(lines) + "\n\n"


DFL = (
    pci("0000:3b:00.0", "8086:09c4", "120000")
    + part("0000:3b:00.0/fpga_region/region0", "fpga_region")
    + part("0000:3b:00.0/fpga_region/region0/dfl-fme.0", "platform", "ports_num=1")
    + part("0000:3b:00.0/fpga_region/region0/dfl-fme.0/dfl-fme-region.1", "platform")
    + part(
        "0000:3b:00.0/fpga_region/region0/dfl-fme.0/dfl-fme-region.1/fpga_region/region1",
        "fpga_region",
        f"compat_id={REGION_TYPE.replace('-', '')}",
    )
    + part("0000:3b:00.0/fpga_region/region0/dfl-port.0", "platform", "id=0", f"afu_id={AES.replace('-', '')}")
)
MANAGER = pci("0000:04:00.0", "1d22:3684", "120000") + part(
    "0000:04:00.0/fpga_manager/fpga0", "fpga_manager", "name=made up", "state=operating", "status="
)
QAT = pci("0000:6b:00.0", "8086:4940", "0b4000", "A: qat/state=down", "A: qat/cfg_services=sym;asym")
# On a real host the directory of the class is a link to that of the card; umockdev creates another directory.
GPU = pci("0000:17:00.0", "10de:2236", "030200") + part(
    "0000:17:00.0/mdev_bus/0000:17:00.0", "mdev_bus", "mdev_supported_types/nvidia-592/available_instances=2"
)

SCRIPTS = {
    "fpga_dfl": (
        DFL,
        "from moorage.accelerator.drivers.fpga_dfl import FpgaDflDriver as D; driver = D(state)",
        f"0000:3b:00.0 FPGA ('0000:3b:00.0',) {REGION_TYPE} {AES}",
    ),
    "fpga_manager": (
        MANAGER,
        "from moorage.accelerator.drivers.fpga_manager import FpgaManagerDriver as D; driver = D(state)",
        "0000:04:00.0 FPGA ('0000:04:00.0',)  nothing",
    ),
    "qat": (
        QAT,
        "from moorage.accelerator.drivers.qat import QatDriver as D; driver = D()",
        "0000:6b:00.0 QAT ()  nothing",
    ),
    "nvidia": (
        GPU,
        "from moorage.accelerator.drivers.nvidia import NvidiaDriver as D; driver = D()",
        "0000:17:00.0 GPU ('0000:17:00.0',)  nothing",
    ),
    "nvidia in shares": (
        GPU,
        """from moorage.accelerator.drivers.nvidia import NvidiaDriver as D
from moorage.accelerator.drivers.device_spec import DeviceSpec
driver = D([DeviceSpec(vendor='10de', type='VGPU', functions='mdev', mdev_type='nvidia-592')])""",
        "0000:17:00.0 VGPU ('0000:17:00.0_nvidia-592_0', '0000:17:00.0_nvidia-592_1')  nothing",
    ),
}

DISCOVER_SCRIPT = """\
import sys
from pathlib import Path
state = Path(sys.argv[1])
{make}
for device in driver.discover():
    (part,) = device.deployables
    carried = driver.identify(part.name).bitstream
    functions = [one.id for one in carried.functions] if carried else ["nothing"]
    print(device.pci_id, device.type, part.handles, part.region_type, *functions)
"""


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_driver_discovers_a_card_that_umockdev_adds_to_sysfs(name, tmp_path):
    described, make, expected = SCRIPTS[name]
    mock = tmp_path / "card.umockdev"
    mock.write_text(described)
    command = [
        "umockdev-run",
        "--device",
        mock,
        "--",
        sys.executable,
        "-c",
        DISCOVER_SCRIPT.format(make=make),
        tmp_path / "state",
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"PYTHONPATH": str(Path("src").resolve())}
    )
    assert done.stdout == f"{expected}\n", done.stderr
