"""A server with a passed-through drive: a guest with an IOMMU, in it a plane, libvirtd and a QEMU that runs the server.

The outer guest is the one of `tests.qemu.guest`, with a file system in memory over the host's, because libvirtd writes.
The server's own guest says on its console what it sees: the PCI functions as ``lspci -n`` shows them, and the first
bytes of the NVMe drive, which it then overwrites. Both guests are emulated, so its boot takes minutes.
"""

import compileall
import subprocess
from pathlib import Path

from tests.qemu import guest
from tests.system.libvirt import guest as libvirt_guest

#: What the server's guest writes to the drive.
SECRET = "this tenant's secrets!"

_OUTER_INIT = r"""#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /proc /sys /dev /lower /rw /host
$b mount -t proc proc /proc; $b mount -t sysfs sys /sys; $b mount -t devtmpfs dev /dev
for m in MODULES; do $b insmod /lib/$m.ko; done
echo 1 >/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts
$b mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=1048576,cache=loose host /lower || echo "FACT mount fails: 9p"
$b mount -t tmpfs -o size=3g rw /rw; $b mkdir /rw/upper /rw/work
$b mount -t overlay -o lowerdir=/lower,upperdir=/rw/upper,workdir=/rw/work overlay /host
$b mkdir -p /dev/pts /dev/shm; $b mount -t devpts devpts /dev/pts; $b mount -t tmpfs shm /dev/shm
$b mount -t cgroup2 cgroup /sys/fs/cgroup
for d in proc sys dev; do $b mount --rbind /$d /host/$d; done
$b mount -t tmpfs run /host/run; $b mkdir -p /host/run/lock /host/run/lv
$b mount -t ext4 /dev/vda /host/run/lv
$b ifconfig lo 127.0.0.1 up
cd /
$b chroot /host /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/run TMPDIR=/run PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=TOP/src:TOP PYTHON -P -m tests.qemu.nested_inside NESTED
$b poweroff -f
"""

_INNER_MODULES = ("virtio_pci", "virtio_blk", "button", "evdev", "nvme")

_INNER_INIT = r"""#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /proc /sys /dev /etc/acpi/PWRF /var/log /var/run
$b mount -t proc proc /proc; $b mount -t sysfs sys /sys; $b mount -t devtmpfs dev /dev
for m in MODULES; do $b insmod /lib/$m.ko; done
say() { echo "$@" >/dev/console; }
look() {
    for d in /sys/bus/pci/devices/*; do
        read -r class <$d/class; read -r vendor <$d/vendor; read -r device <$d/device
        class=${class#0x}; say "LSPCI ${d##*/} ${class%??}: ${vendor#0x}:${device#0x}"
    done
    while [ ! -e /dev/nvme0n1 ]; do $b sleep 1; done
    say "DRIVE $($b head -c 22 /dev/nvme0n1)"
}
$b printf '#!/bin/busybox sh\n/bin/busybox echo OFF >/dev/console\n/bin/busybox poweroff -f\n' >/etc/acpi/PWRF/00000080
$b chmod +x /etc/acpi/PWRF/00000080
$b acpid -c /etc/acpi 2>/dev/null
look
echo "SECRET" >/dev/nvme0n1; $b sync
say READY
had=1
while true; do
    has=0; [ ! -e /dev/nvme0n1 ] || has=1
    if [ $has = 0 ] && [ $had = 1 ]; then say GONE; fi
    if [ $has = 1 ] && [ $had = 0 ]; then look; say BACK; fi
    had=$has
    $b sleep 1
done
"""


def run(kernel: Path, directory: Path, *, timeout_s: float) -> list[str]:
    """The output of the outer guest, line by line: what `tests.qemu.nested_inside` prints."""
    # The guest is ten times as slow, and what it compiles would be lost with it.
    compileall.compile_dir(guest.ROOT / "src", quiet=1)
    inner = libvirt_guest.kernel()
    init = _INNER_INIT.replace("SECRET", SECRET)
    (directory / "inner-kernel").write_bytes(inner.read_bytes())
    (directory / "inner-initrd").write_bytes(libvirt_guest.archive(inner, init, _INNER_MODULES))
    (directory / "inner-disk").write_bytes(libvirt_guest.empty_disk(directory))
    outer = _OUTER_INIT.replace("NESTED", str(directory))
    # Not in memory: libvirt's guests open their disks with O_DIRECT.
    disk = directory / "libvirt-disk"
    with disk.open("wb") as file:
        file.truncate(2 << 30)
    subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=1", disk], check=True)
    return guest.boot(
        kernel, directory, outer, (*guest.MODULES[:-1], "overlay", "virtio_blk", "ext4", "crc32c_generic"),
        memory="4G", options=("-drive", f"file={disk},format=raw,if=virtio,cache=unsafe"), timeout_s=timeout_s,
    )  # fmt: skip
