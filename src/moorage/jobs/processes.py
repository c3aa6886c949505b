"""The identity of an operating system's process, with which others on the same machine find out that it has ended.

A pid alone does not identify a process: another process gets it later, and containers and machines have pids of their
own. So a pid is compared only where it means the same (`ProcessIdentity.machine`), and together with the start time.
Needs Linux; elsewhere no process can be checked.
"""

import os
from dataclasses import dataclass
from pathlib import Path

#: States of ``/proc/<pid>/stat`` of a process that has ended and whose parent has not noticed yet.
_ENDED = frozenset("ZX")


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """`machine`: the boot of the machine and the pid namespace; empty if nobody can check this process.

    `started`: clock ticks since the boot.
    """

    machine: str
    pid: int
    started: int


#: Of a process that nobody can check.
UNKNOWN = ProcessIdentity("", 0, 0)


def this_process() -> ProcessIdentity:
    pid = os.getpid()
    try:
        if Path("/proc/self").readlink().name != str(pid):
            return UNKNOWN  # /proc shows the pids of another namespace
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = Path("/proc/self/ns/pid").stat().st_ino
        return ProcessIdentity(f"{boot}/{namespace}", pid, _state_and_start(pid)[1])
    except (OSError, ValueError):
        return UNKNOWN


def is_running(process: ProcessIdentity, here: ProcessIdentity) -> bool | None:
    """Whether `process` still runs. None: the process `here` cannot tell."""
    if not here.machine or process.machine != here.machine or process.pid < 1:
        return None
    try:
        state, started = _state_and_start(process.pid)
    except (FileNotFoundError, ProcessLookupError):
        return _is_hidden(process.pid)
    except (OSError, ValueError):
        return None
    return started == process.started and state not in _ENDED


def _is_hidden(pid: int) -> bool | None:
    """None if there is such a process and /proc does not show it (mount option ``hidepid``), False if there is none."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return None
    return None


def _state_and_start(pid: int) -> tuple[str, int]:
    # The name of the program, in parentheses, may contain spaces and parentheses. Fields 3 and 22 follow it.
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    if len(fields) < 20:
        raise ValueError(f"/proc/{pid}/stat has {len(fields)} fields after the name of the program")
    return fields[0], int(fields[19])
