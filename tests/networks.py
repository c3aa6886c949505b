"""Machines of a network that exists only for one process: network namespaces on a bridge, each with a disk of its own.

    enter_own_network()                         once, before threads start: becomes a process without other networks
    machine = Machine("db1", 21)                10.77.0.21
    machine.add_disk(directory, size_mb=200)    a file system that `fill` can fill
    with machine.entered(): subprocess.Popen(...)
    machine.cut(), machine.mend(), machine.signal(signal.SIGSTOP), machine.fill(), machine.make_room()

Everything ends with the process. Needs root.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_MARK = "MOORAGE_TEST_OWN_NETWORK"
_BRIDGE = "cluster"
_NEW_NETWORK = 0x40000000
_BLOCK = b"\0" * 65536
_LIBC = ctypes.CDLL(None, use_errno=True)
_PATIENCE_S = 20
NETWORK = "10.77.0"


class Place:
    """Where servers run: this machine."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.address = address

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Processes that this thread starts run there."""
        yield

    def add_disk(self, directory: Path) -> None:
        """Puts the files of `directory` on the disk of the place."""

    def remove_disk(self, directory: Path) -> None:
        """Also if there is none."""


LOOPBACK = Place()


def has_own_networks() -> bool:
    """Whether this user may make network namespaces and mount file systems in them."""
    command = ["unshare", "--net", "--mount", "--pid", "--fork", "ip", "link", "set", "lo", "up"]
    return os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0


def enter_own_network() -> None:
    """Starts this program again in a network, mounts and processes of its own, unless that has happened."""
    if os.environ.pop(_MARK, None) is None:
        command = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        os.execvpe(command[0], [*command, sys.executable, *sys.orig_argv[1:]], {**os.environ, _MARK: "1"})
    _wait_for_orphans()
    if Path("/run/netns").is_dir():
        _run("mount", "-t", "tmpfs", "tmpfs", "/run/netns")
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", _BRIDGE, "type", "bridge")
    _run("ip", "address", "add", f"{NETWORK}.1/24", "dev", _BRIDGE)
    _run("ip", "link", "set", _BRIDGE, "up")


class Machine(Place):
    """A network namespace with one interface, and all processes in it."""

    def __init__(self, name: str, number: int, *, disk_mb: int) -> None:
        """`number`: the last part of its address."""
        self.name, self.address = name, f"{NETWORK}.{number}"
        self._disk_mb = disk_mb
        self._disk: Path | None = None
        _run("ip", "netns", "add", name)
        _run("ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
        _run("ip", "link", "set", f"to-{name}", "up", "master", _BRIDGE)
        for words in (
            ["link", "set", "lo", "up"],
            ["address", "add", f"{self.address}/24", "dev", "eth0"],
            ["link", "set", "eth0", "up"],
        ):
            _run("ip", "-n", name, *words)
        self._namespace = Path("/run/netns", name)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        with Path("/proc/thread-self/ns/net").open() as here, self._namespace.open() as there:
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(here.fileno())

    def add_disk(self, directory: Path) -> None:
        _run("mount", "-t", "tmpfs", "-o", f"size={self._disk_mb}m,mode=755", "tmpfs", str(directory))
        self._disk = directory

    def remove_disk(self, directory: Path) -> None:
        self.kill()
        if directory.is_mount():
            _run("umount", "--lazy", str(directory))

    def fill(self) -> None:
        assert self._disk is not None
        with (self._disk / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while filler.write(_BLOCK):
                pass

    def make_room(self) -> None:
        assert self._disk is not None
        (self._disk / "filler").unlink()

    def cut(self) -> None:
        """No packet arrives or leaves, and nobody is told."""
        _run("ip", "link", "set", f"to-{self.name}", "nomaster")

    def mend(self) -> None:
        _run("ip", "link", "set", f"to-{self.name}", "master", _BRIDGE)

    def signal(self, number: signal.Signals) -> None:
        """To all its processes. A process that another one starts meanwhile gets it, too."""
        signalled: set[int] = set()
        while new := set(self.pids()) - signalled:
            for pid in new:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            signalled |= new

    def kill(self) -> None:
        """Like a loss of power."""
        give_up = time.monotonic() + _PATIENCE_S
        while self.pids():
            self.signal(signal.SIGKILL)
            assert time.monotonic() < give_up
            time.sleep(0.01)

    def pids(self) -> list[int]:
        """Without those that have ended and were not waited for."""
        wanted = self._namespace.stat().st_ino
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (process / "ns" / "net").stat().st_ino == wanted:
                    found.append(int(process.name))
        return found


def _wait_for_orphans() -> None:
    """Goes on in a child. The first process only waits for processes whose parents have ended, as init does: Patroni
    takes a server that nobody has waited for to be alive.
    """
    child = os.fork()
    while child:
        pid, status = os.wait()
        if pid == child:
            os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _enter(namespace: int) -> None:
    if _LIBC.setns(namespace, _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "setns")


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
