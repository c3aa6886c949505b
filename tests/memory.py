"""Puts the temporary files of tests into memory if there is enough of it.

A commit of SQLite, which ends with an fsync, takes 0.02 ms in memory and 3 to 6 ms on a disk; MariaDB creates a table
five times as fast. Tests about disks (`tests/crash`) name a directory on a disk.
"""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

PLACE = "/dev/shm"
LEAST_BYTES = 4 << 30


def use_memory() -> None:
    """For this process and those that it starts. Keeps a directory that TMPDIR already names."""
    with contextlib.suppress(OSError):
        if "TMPDIR" not in os.environ and min(shutil.disk_usage(PLACE).free, _available_bytes()) > LEAST_BYTES:
            os.environ["TMPDIR"] = PLACE
            tempfile.tempdir = None  # the directory is looked for again


def _available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) << 10
