"""CPU seconds, memory and listening ports of processes, read from /proc."""

import contextlib
import os
import re
import socket
from collections.abc import Iterable
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def tree(pids: Iterable[int]) -> list[int]:
    """`pids` and all their descendants."""
    by_parent = _children()
    found, waiting = [], list(pids)
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += by_parent.get(pid, [])
    return found


def children(pid: int) -> list[int]:
    """The processes that this one has started."""
    return _children().get(pid, [])


def _children() -> dict[int, list[int]]:
    """{pid: its children}, of all processes of this machine."""
    found: dict[int, list[int]] = {}
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found.setdefault(int(_stat(int(directory.name))[1]), []).append(int(directory.name))
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """User and system time of these process trees, including ended children; resolution 10 ms."""
    total = 0
    for pid in tree(pids):
        with contextlib.suppress(OSError):
            total += sum(map(int, _stat(pid)[11:15]))
    return total * _TICK_S


def machine_cpu_seconds() -> float:
    """CPU seconds used by all processes of this machine."""
    user, nice, system = Path("/proc/stat").read_text().split()[1:4]
    return (int(user) + int(nice) + int(system)) * _TICK_S


def memory_mib(pids: Iterable[int]) -> float:
    """Proportional set size of these trees: shared pages are counted once."""
    total_kib = 0
    for pid in tree(pids):
        with contextlib.suppress(OSError):
            found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
            total_kib += int(found[1]) if found else 0
    return total_kib / 1024


def refuse_taken(port: int) -> None:
    """Raises `RuntimeError` if the port is taken, since the wrong server would be measured."""
    if is_taken(port):
        raise RuntimeError(f"port {port} is already in use; choose other ports with --ports")


def is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.5)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def listens(pid: int, port: int) -> bool:
    """Whether the socket that accepts on `port` belongs to the tree of `pid`."""
    rows = (line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:])
    inodes = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) == port}
    for process in tree([pid]):
        with contextlib.suppress(OSError):
            for handle in Path(f"/proc/{process}/fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(handle.readlink()) in inodes:
                        return True
    return False


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name: state, parent, ..."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def resident_mib() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
