"""A guest with an IOMMU, an NVMe controller with virtual functions, an NVMe drive with data, and the host's file
system, read only.

So it runs the Python of this checkout over Debian's kernel without an image. It uses software emulation and no KVM.
"""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.system.libvirt import guest

ROOT = Path(__file__).parents[2]
#: The kernel of the cloud images has neither 9p nor mediated devices.
PACKAGE = "linux-image-amd64"
MODULES = ("virtio_pci", "9pnet_virtio", "9p", "nvme", "vfio_pci", "vfio_iommu_type1", "mdev", "mtty")

DISK_BYTES = 16 << 20

_INIT = r"""#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /proc /sys /dev /host
$b mount -t proc proc /proc; $b mount -t sysfs sys /sys; $b mount -t devtmpfs dev /dev
for m in MODULES; do $b insmod /lib/$m.ko; done
$b mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=1048576,cache=loose host /host || echo "FACT mount fails: 9p"
for d in proc sys dev; do $b mount --bind /$d /host/$d; done
cd /
$b chroot /host /usr/bin/env -i PATH=/usr/bin:/bin PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=TOP/src:TOP PYTHON -P -m tests.qemu.inside
$b poweroff -f
"""


def missing() -> str | None:
    if why := guest.missing():
        return why
    listed = subprocess.run(["qemu-system-x86_64", "-device", "help"], capture_output=True, text=True, check=False)
    if not {"virtio-9p-pci", "nvme", "intel-iommu", "edu"} <= set(re.findall(r'name "([\w-]+)"', listed.stdout)):
        return "this QEMU has no 9p, NVMe or IOMMU"
    return None


def run(kernel: Path, directory: Path, modules: Path | None, *, timeout_s: float = 600.0) -> list[str]:
    """The output of `tests.qemu.inside`. `modules`: a directory with additional modules, built for this kernel."""
    return boot(kernel, directory, _INIT, MODULES, modules, timeout_s=timeout_s)


def boot(
    kernel: Path,
    directory: Path,
    init: str,
    wanted: Sequence[str],
    modules: Path | None = None,
    *,
    memory: str = "1G",
    options: Sequence[str] = (),
    timeout_s: float,
) -> list[str]:
    """The guest's output, line by line. In `init`, TOP and PYTHON stand for this checkout and its interpreter.

    `options`: more options of QEMU.
    """
    init = init.replace("TOP", str(ROOT)).replace("PYTHON ", f"{sys.executable} ")
    archive = directory / "initrd"
    archive.write_bytes(guest.archive(kernel, init, wanted, modules))
    disk = directory / "disk"
    disk.write_bytes(b"the last tenant's data, " * (DISK_BYTES // 24))
    os.truncate(disk, DISK_BYTES)
    command = [
        "qemu-system-x86_64", "-machine", "q35",
        "-cpu", "max", "-accel", "tcg,thread=multi", "-smp", "2", "-m", memory,
        "-device", "intel-iommu,intremap=off", "-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio",
        "-kernel", str(kernel), "-initrd", str(archive),
        "-append", "console=ttyS0 quiet panic=-1 intel_iommu=on random.trust_cpu=on",
        "-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap",
        "-device", "pcie-root-port,id=slot1,chassis=1,slot=1", "-device", "nvme-subsys,id=subsystem",
        "-device", "nvme,bus=slot1,serial=one,subsys=subsystem,sriov_max_vfs=4,sriov_vq_flexible=8,sriov_vi_flexible=4",
        "-device", "edu",
        "-blockdev", f"driver=file,node-name=file,filename={disk}", "-blockdev", "driver=raw,node-name=disk,file=file",
        "-device", "nvme,serial=two,id=two", "-device", "nvme-ns,bus=two,drive=disk,shared=off", *options,
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
        check=False, timeout=timeout_s,
    )  # fmt: skip
    if done.returncode or "FACTS END" not in done.stdout:
        raise AssertionError(f"the guest did not come to its end: {done.stdout[-2000:]} {done.stderr[-1000:]}")
    return [line.strip() for line in done.stdout.splitlines()]
