"""A guest for tests: Debian's kernel with our initial file system, which reports on the console.

It prints one line each: BOOT <number of boots of this disk>, PCI <address> <vendor> <device>, DISK <name> <sectors>,
CONFIG <file>: <content> for each file of its config drive, MEMORY <address> <first word of a shared memory device> at
each change, READY, and OFF when it is asked to shut down. A guest agent of a few lines accepts passwords on the real
agent's channel, and prints PASSWORD <the password>. Kernel arguments: ``poweroff_after=<seconds>`` shuts it down, and
``fill`` fills its disk (FILLED at the end), ``shell`` runs a shell on the serial port.
"""

import functools
import io
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests import servers
from tests.debian import run_or_miss
from tests.servers import ServerMissing
from tests.servers import _locked as locked

BUSYBOX = Path("/bin/busybox")
PACKAGE = "linux-image-cloud-amd64"

#: Turns off self-tests, tables and mitigations of the kernel that no test needs: a third of an emulated boot.
_QUICKLY = (
    "cryptomgr.notests nokaslr no5lvl mitigations=off ipv6.disable=1 "
    "initcall_blacklist=init_kprobe_trace,load_system_certificate_list"
)
CMDLINE = f"console=ttyS0 quiet panic=-1 unknown_nmi_panic {_QUICKLY}"

#: The modules for disks, the agent's channel, file systems of config drives and the power button, with their
#: dependencies.
_MODULES = ("virtio_pci", "virtio_blk", "virtio_console", "isofs", "button", "evdev")

_INIT = r"""#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /proc /sys /dev /mnt /etc/acpi/PWRF /var/log /var/run
$b mount -t proc proc /proc; $b mount -t sysfs sys /sys; $b mount -t devtmpfs dev /dev
for m in MODULES; do $b insmod /lib/$m.ko; done
say() { echo "$@" >/dev/console; }

# How often: kept in the second sector of the disk.
n=$($b dd if=/dev/vda bs=512 skip=1 count=1 2>/dev/null | $b tr -dc 0-9); n=$((${n:-0} + 1))
$b printf '%-16s' "$n" | $b dd of=/dev/vda bs=512 seek=1 conv=notrunc 2>/dev/null; $b sync
say "BOOT $n"
# Without a process for each word: making one takes an emulated machine longer than anything else here.
shared=
for d in /sys/bus/pci/devices/*; do
    read -r vendor <$d/vendor; read -r device <$d/device
    say "PCI ${d##*/} $vendor $device"
    [ $vendor$device != 0x1af40x1110 ] || shared="$shared $d"
done
for d in /sys/block/vd*; do read -r size <$d/size; say "DISK ${d##*/} $size"; done
for d in /dev/vd?; do
    if $b mount -t iso9660 -o ro $d /mnt 2>/dev/null; then
        for f in $($b find /mnt -type f); do say "CONFIG ${f#/mnt/}: $($b cat $f)"; done
        $b umount /mnt
    fi
done
$b printf '#!/bin/busybox sh\n/bin/busybox echo OFF >/dev/console\n/bin/busybox poweroff -f\n' >/etc/acpi/PWRF/00000080
$b chmod +x /etc/acpi/PWRF/00000080
$b acpid -c /etc/acpi 2>/dev/null
answer() {
    while true; do
        while read -r line <&3; do
            id=$(echo "$line" | $b sed -n 's/.*"id":\([0-9]*\).*/\1/p')
            case $line in
                *guest-sync*) echo "{\"return\": $id}" >&3;;
                *guest-set-user-password*) say "PASSWORD $line"; echo '{"return": {}}' >&3;;
                *) echo '{"error": {"class": "CommandNotFound", "desc": "a guest of tests has no such command"}}' >&3;;
            esac
        done
        $b sleep 1
    done
}
for p in /sys/class/virtio-ports/*; do
    name=; [ ! -e $p/name ] || read -r name <$p/name
    if [ "$name" = org.qemu.guest_agent.0 ]; then
        exec 3<>/dev/${p##*/}; answer &
    fi
done
say READY
for word in $($b cat /proc/cmdline); do
    case $word in
        poweroff_after=*) $b sleep ${word#*=}; say OFF; $b poweroff -f;;
        shell) $b setsid -c $b sh </dev/ttyS0 >/dev/ttyS0 2>&1 &;;
        fill) $b dd if=/dev/zero of=/dev/vda bs=1M seek=1 count=64 2>/dev/null; $b sync; say FILLED;;
    esac
done
seen=
while true; do
    now=
    for d in $shared; do
        at=$($b sed -n '3s/ .*//p' $d/resource)
        now="$now MEMORY ${d##*/} $($b devmem $at 32)"
    done
    [ "$now" = "$seen" ] || say "$now"
    seen=$now
    $b sleep 1
done
"""


@functools.cache
def kernel(package: str = PACKAGE) -> Path:
    """Debian's kernel, unpacked beside the other test servers' state; it is not installed."""
    state = servers.place()
    place = state / ("kernel" if package == PACKAGE else package)
    with locked(state / f"{place.name}.starting"):
        if not (found := sorted(place.glob("boot/vmlinuz-*"))):
            with tempfile.TemporaryDirectory(dir=state) as directory:
                name = _package_of_the_kernel(package, directory)
                run_or_miss(["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", name], directory)
                run_or_miss(
                    ["dpkg", "-x", *map(str, Path(directory).glob("*.deb")), f"{directory}/unpacked"], directory
                )
                shutil.rmtree(place, ignore_errors=True)
                Path(directory, "unpacked").rename(place)
            found = sorted(place.glob("boot/vmlinuz-*"))
    return found[-1]


def _package_of_the_kernel(package: str, directory: str) -> str:
    for _ in range(2):
        said = subprocess.run(["apt-cache", "depends", package], capture_output=True, text=True, check=False).stdout
        if name := re.search(r"Depends: (linux-image-\S+)", said):
            return name[1]
        run_or_miss(["apt-get", "update", "-qq"], directory)
    raise ServerMissing(f"apt knows no package {package}: a Debian system is needed")


def initial_file_system() -> bytes:
    return archive(kernel(), _INIT, _MODULES)


def archive(
    kernel: Path,
    init: str,
    wanted: Sequence[str],
    more: Path | None = None,
    programs: Mapping[str, bytes] | None = None,
) -> bytes:
    """A cpio archive (newc) with busybox, the `wanted` modules and the script. Looks for modules below `more`, too.

    `programs`: {path in the archive, without a slash in front: content} of further files.
    """
    version = kernel.name.removeprefix("vmlinuz-")
    found = [*(kernel.parents[1] / "lib/modules" / version).rglob("*.ko"), *(more.glob("*.ko") if more else ())]
    modules = {path.stem.replace("-", "_"): path for path in found}
    loaded: list[str] = []
    for name in wanted:
        _load(name, modules, loaded)
    files = {"bin/busybox": BUSYBOX.read_bytes(), "init": init.replace("MODULES", " ".join(loaded)).encode()}
    files |= {f"lib/{name}.ko": modules[name].read_bytes() for name in loaded}
    files |= programs or {}
    out = io.BytesIO()
    above = {str(parent) for name in files for parent in Path(name).parents}
    for directory in sorted(above | {"dev"}):
        _member(out, directory, 0o040755, b"")
    for name, content in files.items():
        _member(out, name, 0o100755, content)
    _member(out, "dev/console", 0o020600, b"", device=(5, 1))
    _member(out, "TRAILER!!!", 0, b"")
    return out.getvalue()


def _load(name: str, modules: dict[str, Path], loaded: list[str]) -> None:
    """Adds a module after its dependencies. A name without a module is part of the kernel."""
    if name in modules and name not in loaded:
        needs = re.search(rb"\0depends=([^\0]*)\0", modules[name].read_bytes())
        for other in (needs[1].decode() if needs else "").split(","):
            _load(other.replace("-", "_"), modules, loaded)
        loaded.append(name)


def _member(out: io.BytesIO, name: str, mode: int, content: bytes, *, device: tuple[int, int] = (0, 0)) -> None:
    fields = (0, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(name) + 1, 0)
    out.write(b"070701" + b"".join(f"{field:08x}".encode() for field in fields) + name.encode() + b"\0")
    for data in (b"", content):
        out.write(data)
        out.write(b"\0" * (-out.tell() % 4))


def empty_disk(directory: Path, size: str = "16M") -> bytes:
    """A qcow2 image with nothing on it."""
    path = directory / "empty.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", path, size], check=True)
    return path.read_bytes()


def written_disk(directory: Path) -> bytes:
    """A qcow2 image with 4 MB on it."""
    raw, path = directory / "written", directory / "written.qcow2"
    raw.write_bytes(b"data" * (1 << 20))
    subprocess.run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, path], check=True)
    return path.read_bytes()


def disk_over(secret: Path, directory: Path) -> bytes:
    """An image with a backing file: it would show the guest the file `secret` of its host."""
    path = directory / "over.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", secret, path], check=True)
    return path.read_bytes()


def missing() -> str | None:
    """What this machine lacks to run a guest; None if nothing is missing."""
    if not BUSYBOX.exists():
        return "busybox-static is not installed"
    if not os.access("/usr/bin/apt-get", os.X_OK):
        return "no apt-get to fetch Debian's kernel with"
    return None
