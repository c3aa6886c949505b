"""Runs the host's programs for disks, such as qemu-img, with a time limit and, for tenants' files, a memory limit."""

import shutil
import subprocess
from collections.abc import Container, Sequence
from pathlib import Path

from moorage.agent.virt.driver import VirtError

TIMEOUT_S = 3600
#: Limits of a program that reads a tenant's file: CPU seconds and bytes of address space.
MAX_CPU_S, MAX_MEMORY_BYTES = 30, 1 << 30

_SYSTEM_PATH = "/usr/sbin:/sbin"


def run_program(command: Sequence[str | Path], *, bounded: bool = False, ok_codes: Container[int] = (0,)) -> str:
    """Returns standard output. Raises `VirtError`, with the program's own message, for an exit code outside `ok_codes`.

    `bounded`: the program reads a tenant's file, so its CPU time and memory are limited.
    """
    program = str(command[0])
    path = shutil.which(program) or shutil.which(program, path=_SYSTEM_PATH)
    if path is None:
        raise VirtError(
            f"this host does not have the program {program}; install it (docs/guides/libvirt.md names its package)"
        )
    arguments = [path, *map(str, command[1:])]
    if bounded and (prlimit := shutil.which("prlimit")):
        arguments = [prlimit, f"--cpu={MAX_CPU_S}", f"--as={MAX_MEMORY_BYTES}", "--", *arguments]
    try:
        done = subprocess.run(  # noqa: S603 - no shell; the program is found above
            arguments,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise VirtError(f"{program}: {error}") from error
    if done.returncode not in ok_codes:
        output = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise VirtError(f"{program} failed ({done.returncode}): {output[-1] if output else 'no message'}")
    return done.stdout
