"""Two network namespaces: one of a host with a bridge, and one of a person's machine beside it in the lab.

machine: eth0 192.0.2.1  ---  host: br0 192.0.2.2  ---  the guests' interfaces
"""

import contextlib
import os
import secrets
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

SUBNET, MACHINE, BRIDGE_ADDRESS = "192.0.2.0/24", "192.0.2.1", "192.0.2.2"
BRIDGE = "br0"


@dataclass(frozen=True)
class Namespaces:
    """The names of the two namespaces."""

    host: str
    machine: str

    def command(self, namespace: str, *words: object) -> list[str]:
        """The command that runs `words` in one of them."""
        return ["ip", "netns", "exec", namespace, *map(str, words)]

    def connect(self, device: str, address: str, bridge: str) -> None:
        """Gives the person's machine the interface `device`, which is connected to a bridge of the host."""
        _ip("-n", self.host, "link", "set", self.join(device, address), "master", bridge)

    def join(self, device: str, address: str) -> str:
        """Gives the person's machine the interface `device`, and returns the name of its other end on the host."""
        port = f"to-{device}"
        _ip("-n", self.host, "link", "add", port, "type", "veth", "peer", "name", device, "netns", self.machine)
        _ip("-n", self.machine, "address", "add", f"{address}/24", "dev", device)
        for namespace, end in ((self.host, port), (self.machine, device)):
            _ip("-n", namespace, "link", "set", end, "up")
        return port

    def run(self, *words: object, timeout_s: float = 60, data: str = "") -> subprocess.CompletedProcess[str]:
        """Runs a program on the person's machine."""
        return subprocess.run(
            self.command(self.machine, *words), input=data, capture_output=True, text=True, check=False,
            timeout=timeout_s,
        )  # fmt: skip


def missing() -> str | None:
    """The reason why there can be no namespaces here; None if there can."""
    with contextlib.suppress(OSError):
        done = subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False)
        if done.returncode == 0 and os.access("/dev/net/tun", os.R_OK | os.W_OK):
            return None
    return "this machine gives root no network namespace, or no /dev/net/tun"


@contextlib.contextmanager
def two_namespaces() -> Iterator[Namespaces]:
    mark = secrets.token_hex(3)
    names = Namespaces(f"mlv-{mark}-host", f"mlv-{mark}-machine")
    with contextlib.ExitStack() as made:
        for name in (names.host, names.machine):
            _ip("netns", "add", name)
            made.callback(_ip, "netns", "delete", name)
            made.callback(_end_all, name)
            _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", names.host, "link", "add", BRIDGE, "type", "bridge")
        _ip("-n", names.host, "address", "add", f"{BRIDGE_ADDRESS}/24", "dev", BRIDGE)
        _ip("-n", names.host, "link", "set", BRIDGE, "up")
        names.connect("eth0", MACHINE, BRIDGE)
        yield names


def _end_all(namespace: str) -> None:
    """Ends what still runs there, such as the dnsmasq of a network of libvirt."""
    for pid in _ip("netns", "pids", namespace).split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
    return done.stdout
