"""A private libvirtd without systemd: its sockets, its state and its guests are in one directory.

The daemon runs as root in its own mount namespace, where that directory is mounted over libvirt's.
"""

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

import pytest

from tests import servers
from tests.debian import unpacked, wrapped
from tests.servers import program

_START_TIMEOUT_S = 60
_END_TIMEOUT_S = 30

_LIBVIRTD_CONF = """
unix_sock_dir = "{state}/sockets"
auth_unix_rw = "none"
auth_unix_ro = "none"
unix_sock_rw_perms = "0700"
log_outputs = "3:file:{state}/libvirtd.log"
"""

#: QEMU as the user of the tests, without functions that need systemd or a security module.
QEMU_CONF = """
user = "+0"
group = "+0"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
cgroup_controllers = []
namespaces = []
stdio_handler = "file"
"""

#: libvirt looks up a user and a group that only the full Debian package makes.
_SCRIPT = """
set -e
for of in passwd group; do cp /etc/$of "$1/$of"; done
echo "libvirt-qemu:x:64055:64055::/nonexistent:/usr/sbin/nologin" >> "$1/passwd"
echo "libvirt-qemu:x:64055:" >> "$1/group"
echo "kvm:x:64056:" >> "$1/group"
for of in passwd group; do mount --bind "$1/$of" /etc/$of; done
while read -r from to; do mkdir -p "$to"; mount --bind "$1/$from" "$to"; done <<END
etc /etc/libvirt
lib /var/lib/libvirt
run /run/libvirt
END
mkdir -p /var/cache/libvirt; mount --bind "$3" /var/cache/libvirt
# Debian's libvirt starts /usr/sbin/ebtables and its like, wherever else PATH leads.
[ -z "$4" ] || mount -t overlay -o lowerdir="$4:/usr/sbin" overlay /usr/sbin
exec "$2" --config "$1/libvirtd.conf" --pid-file "$1/pid"
"""


def missing() -> str | None:
    """The reason why libvirtd cannot run here; None if it can."""
    if os.geteuid() != 0:
        return "libvirtd is started as root only"
    for name in ("libvirtd", "qemu-system-x86_64", "qemu-img", "genisoimage", "virt-xml-validate"):
        if program(name) is None:
            return f"{name} is not installed"
    if importlib.util.find_spec("libvirt") is None:
        return "libvirt's Python bindings are not installed"
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode:
        return "this machine gives root no mount namespace"
    return None


@contextlib.contextmanager
def small_file_system(path: Path, size: str = "48m") -> Iterator[None]:
    """A file system that is soon full. Create it before libvirtd starts, which then has its own mount namespace."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", path], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def network_programs() -> tuple[Path, list[Path]]:
    """A directory with the programs by which libvirt filters traffic and gives addresses, and its filters' definitions.

    Raises `ServerMissing` if Debian's packages cannot be had.
    """
    place = unpacked("libvirt-network", "iptables", "libvirt-daemon-config-nwfilter", "dnsmasq-base")
    programs = {name: f"usr/sbin/{name}-nft" for name in ("ebtables", "iptables", "ip6tables")}
    programs["dnsmasq"] = "usr/sbin/dnsmasq"
    return wrapped(place, **programs), list(place.glob("usr/share/libvirt/nwfilter/*.xml"))


@contextlib.contextmanager
def short_directory() -> Iterator[Path]:
    """A directory with a short path, because it holds sockets."""
    path = Path(tempfile.mkdtemp(prefix="mlv-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class LibvirtHost:
    """`directory` must have a short path, because it holds sockets.

    `namespace`: name of the network namespace of the daemon and its guests; None: that of the tests. `programs`: a
    directory whose programs the daemon finds in /usr/sbin. `filters`: libvirt's definitions of traffic filters.
    """

    def __init__(
        self,
        directory: Path,
        *,
        namespace: str | None = None,
        programs: Path | None = None,
        filters: Iterable[Path] = (),
    ) -> None:
        self.directory = directory
        self._before = [] if namespace is None else ["ip", "netns", "exec", namespace]
        self._programs = "" if programs is None else str(programs)
        self._parent = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("parent.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._pid: int | None = None
        for name in ("sockets", "etc", "lib", "run"):
            (directory / name).mkdir()
        (directory / "libvirtd.conf").write_text(_LIBVIRTD_CONF.format(state=directory))
        (directory / "etc/qemu.conf").write_text(QEMU_CONF)
        (directory / "etc/nwfilter").mkdir()
        for path in filters:
            shutil.copy(path, directory / "etc/nwfilter")

    @property
    def uri(self) -> str:
        return f"qemu:///system?socket={self.directory}/sockets/libvirt-sock"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()
        self.end_guests()
        self._parent.stdin.close()
        self._parent.wait(_END_TIMEOUT_S)
        shutil.rmtree(self.directory, ignore_errors=True)

    def start(self) -> Self:
        # Probing QEMU's capabilities takes seconds; libvirt itself notices if the cache is out of date.
        cache = servers.place() / "libvirt-cache"
        cache.mkdir(exist_ok=True)
        words = map(str, (self.directory, program("libvirtd"), cache, self._programs))
        command = [*self._before, "unshare", "--mount", "--propagation", "private", "sh", "-c", _SCRIPT, "sh", *words]
        order = {"command": command, "out": str(self.directory / "out")}
        self._parent.stdin.write(json.dumps(order) + "\n")
        self._parent.stdin.flush()
        self._pid = int(self._parent.stdout.readline())
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not (self.directory / "sockets/libvirt-sock").exists():
            if not self._lives() or time.monotonic() > deadline:
                pytest.fail(f"libvirtd did not start: {self.log()}", pytrace=False)
            time.sleep(0.02)
        return self

    def stop(self) -> None:
        """Stops only the daemon; guests continue."""
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)
            deadline = time.monotonic() + _END_TIMEOUT_S
            while self._lives():
                assert time.monotonic() < deadline, "libvirtd does not end"
                time.sleep(0.005)
            self._pid = None
        (self.directory / "sockets/libvirt-sock").unlink(missing_ok=True)

    def pause(self) -> None:
        """Suspends the daemon: it accepts connections, but answers nothing."""
        os.kill(self._pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._pid, signal.SIGCONT)

    def _lives(self) -> bool:
        return Path(f"/proc/{self._pid}").exists()

    def guests(self) -> list[int]:
        """The pids of QEMU processes that belong to this directory."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = path.read_bytes().split(b"\0")
                if b"qemu-system" in words[0] and any(str(self.directory).encode() in word for word in words):
                    found.append(int(path.parent.name))
        return found

    def end_guests(self) -> None:
        deadline = time.monotonic() + _END_TIMEOUT_S
        while guests := self.guests():
            assert time.monotonic() < deadline, f"guests that do not end: {guests}"
            for pid in guests:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def log(self) -> str:
        logs = [self.directory / name for name in ("out", "libvirtd.log")]
        return "\n".join(log.read_text(errors="replace")[-2000:] for log in logs if log.exists())
