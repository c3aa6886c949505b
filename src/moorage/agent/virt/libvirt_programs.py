"""Runs the host's programs that make disks, such as qemu-img, with bounds on time and, for a tenant's files, on memory."""

import shutil
import subprocess
from collections.abc import Container, Sequence
from pathlib import Path

from moorage.agent.virt.driver import VirtError

TIMEOUT_S = 3600
#: Bounds for reading a tenant's file: CPU seconds and bytes of address space.
LOOK_CPU_S, LOOK_BYTES = 30, 1 << 30

_PLACES = "/usr/sbin:/sbin"


def run_program(command: Sequence[str | Path], *, bounded: bool = False, fine: Container[int] = (0,)) -> str:
    """Returns standard output. Raises `VirtError` with the program's own message for an exit code that is not in
    `fine`.
    """
    program = str(command[0])
    path = shutil.which(program) or shutil.which(program, path=_PLACES)
    if path is None:
        raise VirtError(
            f"this host does not have the program {program}; install it (docs/guides/libvirt.md names its package)"
        )
    line = [path, *map(str, command[1:])]
    if bounded and (prlimit := shutil.which("prlimit")):
        line = [prlimit, f"--cpu={LOOK_CPU_S}", f"--as={LOOK_BYTES}", "--", *line]
    try:
        done = subprocess.run(  # noqa: S603 - no shell, so no word is interpreted; the program is one of QEMU's, found above
            line,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise VirtError(f"{program}: {error}") from error
    if done.returncode not in fine:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise VirtError(f"{program} failed ({done.returncode}): {said[-1] if said else 'no message'}")
    return done.stdout
