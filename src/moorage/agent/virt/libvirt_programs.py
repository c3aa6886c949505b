"""Programs of the host that make disks: qemu-img and its like, run with a bound on time and, for a tenant's files, memory."""

import shutil
import subprocess
from collections.abc import Container, Sequence
from pathlib import Path

from moorage.agent.virt.driver import VirtError

TIMEOUT_S = 3600
#: For looking into a file that a tenant made up: CPU seconds and bytes of address space.
LOOK_CPU_S, LOOK_BYTES = 30, 1 << 30

_PLACES = "/usr/sbin:/sbin"


def run_program(command: Sequence[str | Path], *, bounded: bool = False, fine: Container[int] = (0,)) -> str:
    """Standard output. Raises `VirtError` with the program's own words, for an exit code that is not `fine`."""
    program = str(command[0])
    path = shutil.which(program) or shutil.which(program, path=_PLACES)
    if path is None:
        raise VirtError(
            f"the program {program} is not on this host; install it (docs/guides/libvirt.md says from where)"
        )
    line = [path, *map(str, command[1:])]
    if bounded and (prlimit := shutil.which("prlimit")):
        line = [prlimit, f"--cpu={LOOK_CPU_S}", f"--as={LOOK_BYTES}", "--", *line]
    try:
        done = subprocess.run(  # noqa: S603 - a list, no shell: its first word is found above, the rest are paths that we made
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
        raise VirtError(f"{program} failed ({done.returncode}): {said[-1] if said else 'it said nothing'}")
    return done.stdout
